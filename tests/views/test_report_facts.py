"""The facts of a report: lost or saved, detected and mitigated, stalls of groups, several incidents, what to do."""

import datetime as dt
from typing import Any

import pytest

from tests.report_examples import EXAMPLES, TIMELINE, example_reports, example_timeline
from tests.views.test_report import AT, action, finding, plain
from toolkit.errors import UsageError
from toolkit.lab import samples
from toolkit.schema import LOG_TRANSACTIONS, OFFSETS_LOG, Row
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding
from toolkit.schema.verdict import Verdict
from toolkit.views.document import Grid
from toolkit.views.report import Report, collect_incident, report
from toolkit.views.report.incident_facts import LOG, RECORDING, held_from_source
from toolkit.views.row_formats import GridTexts

BEGUN, ENDED = AT - dt.timedelta(hours=2), AT - dt.timedelta(minutes=10)
ABORTED = {"last_stable_offset_after": 2216, "records_file": "/var/audit.records/orders-0@100-171100.parquet"}


def entry(source: str, name: str, value: str, at: dt.datetime) -> Row:
    return {"source": source, "broker_id": 1, "observed_at": at, "name": name, "value": value}


def ended(*evidence: Row, **columns: object) -> Row:
    before = entry("findings", "verdict_before", "hanging", ENDED - dt.timedelta(seconds=30))
    return finding(
        verdict=Verdict.ENDED,
        queue_position=None,
        held_to=ENDED,
        held_ms=6_600_000,
        evidence=[*evidence, before],
        **columns,
    )


def transaction(marker: str | None = "ABORT", **columns: object) -> Row:
    row = {
        "topic": "orders", "partition": 0, "producer_id": 171100, "producer_epoch": 1, "first_offset": 100,
        "last_offset": 102, "marker_offset": None if marker is None else 2215, "marker": marker, "records": 3,
        "end": None if marker is None else ENDED, "outcome": (marker or "open").lower(), "truncated": False,
    }  # fmt: skip
    return {**dict.fromkeys(LOG_TRANSACTIONS.names), **row, **columns}


def done(outcome: str | None, **columns: object) -> Row:
    return action(at=ENDED, outcome=outcome, **{**ABORTED, **columns})


def grid(made: Report, title: str) -> list[dict[str, str]]:
    sections = (*made.sections, *made.appendix)
    (found,) = (
        each for section in sections for each in section.parts if isinstance(each, Grid) and each.title == title
    )
    names, cells, _ = GridTexts.of(found)
    return [dict(zip(names, row, strict=True)) for row in cells]


@pytest.mark.parametrize(
    ("verdict", "marker", "steps", "lost"),
    [
        ("hanging", {}, [], "no"),
        ("long", {}, [], "not known"),
        ("unknown", {}, [], "not known"),
        ("long", {"marker_epoch": 1}, [], "not known"),
        ("long", {"marker_epoch": 2}, [], "no"),
        ("overdue", {}, [{"action": "fence"}], "no"),
    ],
)
def test_undecided_while_it_had_an_owner_may_be_committed_since(
    verdict: str, marker: Row, steps: list[Row], lost: str
) -> None:
    """An abort marker ended a live transaction on one partition, and its client's commit returned success: the report
    said that nothing was lost. A marker of its coordinator raises the epoch."""
    before = entry("findings", "verdict_before", verdict, ENDED)
    seen = entry("__transaction_state", "outcome", "undecided: no commit includes it", ENDED)
    over = {**ended(), "evidence": [seen, before]}
    made = report([over], log_transactions=[transaction(**marker)], actions=[done(None, **each) for each in steps])
    (row,) = grid(made, "Records lost or saved")
    assert row["committed records lost"] == lost


def test_a_group_waits_from_its_first_sample_until_it_commits_a_later_offset() -> None:
    def sample(second: int, groups: list[str]) -> Row:
        at = BEGUN + dt.timedelta(seconds=second)  # when it was due; reading it took time
        return {**finding(groups_held=groups, observed_at=at + dt.timedelta(seconds=1)), "sampled_at": at}

    recorded = [sample(10, ["billing"]), sample(20, ["billing", "fraud"]), sample(30, ["billing"])]
    committed = {
        **dict.fromkeys(OFFSETS_LOG.names), "group_id": "billing", "topic": "orders", "partition": 0, "offset": 7,
        "timestamp": BEGUN + dt.timedelta(seconds=45), "committed_offset": 2216, "kind": "offset_commit",
    }  # fmt: skip
    earlier = {**committed, "committed_offset": 100, "timestamp": BEGUN + dt.timedelta(seconds=40)}
    partitions = [
        {
            "topic": "orders",
            "partition": 0,
            "sampled_at": at,
            "observed_at": at + dt.timedelta(seconds=2),
            "error": None,
        }
        for at in (BEGUN + dt.timedelta(seconds=second) for second in (0, 10, 20, 30, 40))
    ]
    # also by a recorder that began, and stopped, while they waited
    of_group = ("consumer group", "stall", "moved on (UTC)")
    for sampled, stall in ((partitions, "20 s to 40 s"), (partitions[1:4], "20 s to 45 s")):
        made = report(
            [ended(groups_held=["billing", "late"])],  # only the recorder saw fraud wait
            recorded_findings=recorded,
            partitions=sampled,
            offsets_log=[earlier, committed],
            log_transactions=[transaction()],
        )
        rows = [tuple(row[name] for name in of_group) for row in grid(made, "Consumer groups")]
        assert rows == [("billing", stall, "2026-11-21 07:58:56.000"), ("fraud", "under 1 s to 20 s", "-")]
    assert "Not known: orders-0 at offset 100 (late)." in plain(made.markdown)


def test_a_healthy_holder_is_not_alone_if_an_incident_is_behind_it() -> None:
    """Of its partition, the appendix said "nothing else is open"; the incident above it was open there, too."""
    healthy = {"verdict": Verdict.ONGOING, "action": None, "cause": None, "outcome": None}
    behind = finding(producer_id=7, start_offset=110, queue_position=2)
    made = report([finding(**healthy), behind, finding(partition=1, **healthy)])
    said = repr(made["What else was found"])
    assert said.count("the LSO goes to the high watermark, if nothing else is open") == 1
    assert said.count("the LSO goes to the high watermark: nothing else is open") == 1


def test_what_is_beyond_the_limit_is_counted() -> None:
    made = report([finding(partition=number, producer_id=number) for number in range(23)])
    assert made.title == "Postmortem: orders-0, orders-1, orders-2 and 20 more", "it was 17: those with a section"
    assert made.summary[0].startswith("23 transactions have held the last stable offset (LSO) of 23 partitions: ")
    assert "Not over: 23 transactions without a section." in made.summary
    assert "3 of them have no section: see the appendix." not in made.summary, "one stands for all that are alike"
    assert "22 partitions  open for up to 2 h" in repr(made["What else was found"])
    assert "22 partitions" in repr(list(made)[-1]), "its sections, one after another"
    with pytest.raises(UsageError, match="no section 'Impacts'"):
        made["Impacts"]


def test_a_hold_that_began_with_a_sample_is_dated_by_the_recorder() -> None:
    """It was said to be by the log: it may have begun before."""
    (one,) = records_of([finding(held_from=BEGUN, evidence=[])], Finding)
    assert held_from_source(one, [BEGUN]) == RECORDING
    assert held_from_source(one, [ENDED]) == LOG


def test_a_notebook_to_edit_has_a_cell_for_each_section_and_its_pictures(tmp_path: Any) -> None:
    sample = samples.load("flight-recording")
    recording = sample.recording()
    assert recording
    made = report(**collect_incident(sample.log_dir(), recording, min_held_ms=1000))
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.read(made.save(tmp_path / "postmortem.ipynb"), as_version=4)
    nbformat.validate(book)
    assert {cell.cell_type for cell in book.cells} == {"markdown"}
    assert len(book.cells) == 1 + len(made.sections) + len(made.appendix)
    (pictured,) = (cell for cell in book.cells if "(postmortem-1.svg)" in cell.source)
    assert "Timeline" in pictured.source
    assert [each.name for each in tmp_path.glob("*.svg")] == ["postmortem-1.svg"], "JupyterLab shows no attached SVG"
    assert made.appendix[-1].title in book.cells[-1].source


def test_the_examples_in_the_docs_are_those_of_the_samples() -> None:
    made = {name: each.html for name, each in example_reports().items()}
    stored = {path.name: path.read_text() for path in EXAMPLES.iterdir()}
    assert stored.keys() == made.keys()
    for name, page in made.items():
        assert stored[name] == page, f"{name}: python -m tests.report_examples writes it again"
    assert TIMELINE.read_text() == example_timeline(), "python -m tests.report_examples writes it again"
