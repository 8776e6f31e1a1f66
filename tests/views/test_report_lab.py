"""The figures of a report against what is known of a staged incident: a hold, a group that waits, an abort, its end."""

import datetime as dt

import pyarrow.parquet as pq
import pytest

from tests.views.test_report import plain
from tests.views.test_report_facts import grid
from toolkit import connect
from toolkit.actions import plan_abort
from toolkit.lab.clients import BlockedConsumer
from toolkit.lab.lab_source import BEFORE, BEHIND
from toolkit.views.report import collect_incident, report


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(f"{text}+00:00")


MS = dt.timedelta(milliseconds=1)  # times in a report are cut to it


@pytest.mark.lab
def test_the_figures_of_a_staged_incident_are_those_of_the_lab() -> None:
    started = now()
    opened = connect("lab")
    try:
        staged = now()
        recording = opened.recording(samples=3)
        recorded = now()
        long = int((recorded - staged) / MS)  # longer than the lab's healthy transactions, also on a slow machine
        (finding,) = opened.cluster.finding_rows(topics=["orders"], partitions=[0], recheck_after=1)
        goes_on = report(**collect_incident(opened.cluster, recording, topics=["orders"], recheck_after=0))
        plan = plan_abort(opened.cluster, finding)
        result = plan.execute(confirm=plan.target, audit=opened.audit)
        aborted = now()
        BlockedConsumer(opened.kafka, "orders", "billing").close()  # it reads on, and commits
        moved = now()
        of_cluster = collect_incident(opened.cluster, recording, topics=["orders"], min_held_ms=long, recheck_after=0)
        tables = collect_incident(*opened.sources(), topics=["orders"], min_held_ms=long)
        actions = opened.audit.rows()
        saved = pq.read_metadata(result.records_file).num_rows
        made = report(**tables, actions=actions)
    finally:
        opened.close()

    (waits,) = grid(goes_on, "Consumer groups")
    assert at(waits["to (UTC)"]) > recorded - MS, "the diagnosis saw it wait after the recorder's last sample"

    (ended,) = (row for row in of_cluster["findings"] if row["verdict"] != "clear")
    assert (ended["verdict"], ended["groups_held"]) == ("ended", ["billing"]), "a cluster closes what was recorded open"
    (by_cluster,) = grid(report(**of_cluster, actions=actions), "Records lost or saved")
    assert by_cluster["committed records lost"] == "no"

    held, (fate,) = BEHIND + 1, grid(made, "Records lost or saved")
    assert saved == result.records_saved == 1
    assert f"the LSO moved from {BEFORE + 3} to {result.last_stable_offset_after}" in " ".join(made.summary)
    assert f"{held} records" in " ".join(made.summary)
    (amounts,) = grid(made, "Records and bytes")
    assert (amounts["records held"], amounts["of other producers"]) == (str(held), str(BEHIND))
    assert fate["committed records lost"] == "no"
    assert fate["records of the transaction"] == "1"
    assert str(result.records_file) in fate["what became of them"]
    (stall,) = grid(made, "Consumer groups")
    assert stall["consumer group"] == "billing"
    assert started <= at(stall["seen waiting from (UTC)"]) <= recorded
    assert at(stall["to (UTC)"]) <= recorded
    assert aborted - dt.timedelta(seconds=1) <= at(stall["moved on (UTC)"]) <= moved

    times = {row["measure"]: row for row in grid(made, "Times")}
    begun, over = (at(times["to mitigate"][column]) for column in ("from (UTC)", "to (UTC)"))
    assert started <= begun <= staged
    assert recorded - MS <= over <= aborted
    assert begun <= at(times["to detect"]["to (UTC)"]) <= recorded
    assert "the recorder's clock): hanging" in times["to detect"]["sources"]
    assert recorded - MS <= at(times["from detection to the first action"]["to (UTC)"]) <= aborted
    assert f"{actions[0]['who']} wrote the ABORT marker with kafka-txn abort" in " ".join(made.summary)
    assert "late-after-abort" in plain(made.markdown)
    assert any(each.startswith("It is over: its ABORT marker at offset ") for each in made.summary)
