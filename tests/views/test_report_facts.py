"""The facts of a report: lost or saved, detected and mitigated, stalls of groups, several incidents, what to do."""

import datetime as dt
from typing import Any

import pytest

from tests.report_examples import EXAMPLES, TIMELINE, example_reports, example_timeline
from tests.views.test_report import AT, action, check_markdown_tables, finding, plain
from toolkit.errors import UsageError
from toolkit.lab import samples
from toolkit.schema import EXPOSURE, LOG_TRANSACTIONS, OFFSETS_LOG, Row
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


@pytest.mark.parametrize(
    ("marker", "outcome", "lost", "text"),
    [
        ("ABORT", "undecided", "no", "No commit includes these records. So nothing that was committed is lost"),
        ("ABORT", "abort", "no", "The coordinator decided to abort them. So nothing that was committed is lost"),
        ("ABORT", "commit", "yes", "had committed them: they are lost for read_committed consumers"),
        ("ABORT", "unknown", "not known", "It is not known whether a commit included them"),
        ("ABORT", None, "not known", "It is not known whether a commit included them"),
        ("COMMIT", None, "no", "The COMMIT marker delivered the 3 records of the transaction; nothing is lost"),
    ],
)
def test_lost_is_what_was_committed_and_discarded(marker: str, outcome: str | None, lost: str, text: str) -> None:
    steps = [done(outcome)] if marker == "ABORT" else []
    made = report([ended()], log_transactions=[transaction(marker)], actions=steps)
    (row,) = grid(made, "Records lost or saved")
    assert row["committed records lost"] == lost
    assert text in row["what became of them"]
    assert ("A copy was saved before: /var/audit.records" in row["what became of them"]) == bool(steps)
    assert text in plain(made.markdown)


def test_what_its_coordinator_decided_was_not_committed_by_another() -> None:
    decided = entry(
        "__transaction_state", "records", "__transaction_state-3 offsets 1..3: CompleteAbort, started", ENDED
    )
    (row,) = grid(report([ended(decided)], log_transactions=[transaction()], actions=[]), "Records lost or saved")
    assert row["committed records lost"] == "no"
    assert "The coordinator decided to abort them." in row["what became of them"]


def test_the_check_before_a_marker_has_the_verdict() -> None:
    """A log has no verdict: it was "not known", although the audit trail has it."""
    without = dict(ended(), evidence=[])
    made = report([without], log_transactions=[transaction()], actions=[done("abort", verdict=Verdict.HANGING)])
    assert "It was hanging: No coordinator owns this transaction" in made.summary[1]


def test_without_the_log_it_is_not_known_what_became_of_the_records() -> None:
    (row,) = grid(report([ended()]), "Records lost or saved")
    assert row["committed records lost"] == "not known"
    assert row["what became of them"] == (
        "What became of its records is not known: no log was read that has the marker."
    )
    assert any("What was done is not known: no audit trail was included." in each for each in report([ended()]).summary)


def test_an_open_transaction_has_lost_nothing_yet_and_its_remedy_is_the_first_thing_to_do() -> None:
    made = report([finding()], log_transactions=[transaction(None)])
    (row,) = grid(made, "Records lost or saved")
    assert row["committed records lost"] == "no"
    assert "nothing is discarded yet" in row["what became of them"]
    assert grid(made, "To do")[0]["what to do"] == "Run the command of its remedy, above."
    assert grid(made, "To do")[0]["owner"] == grid(made, "To do")[0]["due"] == "", "to be filled in"
    assert "It is not over: it still held the LSO at 2026-11-21 09:58:11 UTC." in made.summary


def test_held_records_are_those_of_the_transaction_and_of_others() -> None:
    (row,) = grid(report([ended()], log_transactions=[transaction()]), "Records and bytes")
    assert (row["records held"], row["of other producers"], row["bytes held"]) == ("2,000", "1,997", "81,920")
    (row,) = grid(report([ended()], log_transactions=[transaction(truncated=True)]), "Records and bytes")
    assert row["of other producers"] == "not known", "its own records are a lower bound"


def test_each_measure_names_the_source_of_both_times() -> None:
    seen = [
        entry("recording", "verdict", "unknown: Seen once.", BEGUN + dt.timedelta(seconds=5)),
        entry("recording", "verdict", "hanging: Seen twice.", BEGUN + dt.timedelta(seconds=10)),
        entry("log", "held_since", "offset 100", BEGUN),
    ]
    intent = action(step="intent", at=ENDED - dt.timedelta(seconds=40), response=None)
    made = report([ended(*seen)], log_transactions=[transaction()], actions=[intent, done("undecided")])
    rows = {row["measure"]: row for row in grid(made, "Times")}
    assert {name: row["time"] for name, row in rows.items()} == {
        "until a sample showed it": "5 s",
        "to detect": "10 s",
        "from detection to the first action": "1 h 49 min",
        "to mitigate": "1 h 50 min",
    }
    assert rows["to detect"]["sources"] == (
        "from: the log (the leader's clock); to: the recording (the recorder's clock): hanging"
    )
    assert "abort, intent, by ann@ops" in rows["from detection to the first action"]["sources"]
    assert rows["to mitigate"]["to (UTC)"] == "2026-11-21 09:48:11.000"


def test_nobody_who_saw_or_acted_leaves_the_times_open() -> None:
    made = report([ended()], log_transactions=[transaction()])
    rows = {row["measure"]: row for row in grid(made, "Times")}
    assert rows["from detection to the first action"]["time"] == "not known"
    assert "no source has its end" in rows["from detection to the first action"]["sources"]


def test_what_goes_on_has_no_unknown_end() -> None:
    made = report([finding()], actions=[])
    rows = {row["measure"]: row for row in grid(made, "Times")}
    assert rows["from detection to the first action"]["time"] == "no action yet"
    assert rows["to mitigate"]["time"] == "not over"
    assert "no source" not in " ".join(row["sources"] for row in rows.values())


def test_a_value_that_was_seen_twice_proves_its_cause_once() -> None:
    twice = [entry("Fetch", "marker_before", "offsets 7..7: ABORT", at) for at in (AT, AT - dt.timedelta(minutes=1))]
    assert [row["time (UTC)"] for row in grid(report([finding(evidence=twice)]), "orders-0 at offset 100")] == [
        "2026-11-21 09:58:11.000"
    ]


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


def test_a_sample_that_did_not_read_the_groups_ends_no_stall() -> None:
    """The coordinator of a group did not answer for a sample, and the report took that for the end of its wait."""

    def sample(second: int, **columns: Any) -> Row:
        at = BEGUN + dt.timedelta(seconds=second)
        return {**finding(observed_at=at, **columns), "sampled_at": at}

    unread = sample(30, verdict=Verdict.UNKNOWN, producer_id=None, start_offset=None, groups_held=None)
    recorded = [sample(10, groups_held=["billing"]), sample(20, groups_held=None), unread]
    partitions = [
        {"topic": "orders", "partition": 0, "sampled_at": at, "observed_at": at, "error": None}
        for at in (BEGUN + dt.timedelta(seconds=second) for second in (0, 10, 20, 30, 40))
    ]
    made = report([ended(groups_held=["billing"])], recorded_findings=recorded, partitions=partitions)
    assert [row["stall"] for row in grid(made, "Consumer groups")] == ["under 1 s to 40 s"]


def test_a_commit_marker_that_published_what_no_commit_included_is_said() -> None:
    """The marker of a new epoch committed the records of a dead one: "nothing is lost" was all that was said."""
    made = report([ended()], log_transactions=[transaction("COMMIT")], actions=[done("undecided")])
    assert "consumers received what was not committed" in plain(made.markdown)
    made = report([ended()], log_transactions=[transaction("COMMIT")], actions=[done("commit")])
    assert "consumers received what was not committed" not in plain(made.markdown)


def test_healthy_transactions_are_open_though_no_incident() -> None:
    """The section said "Nothing was open."; and of no finding at all, that no transaction is open anywhere."""
    assert "What is open needs no action." in plain(report([finding(verdict=Verdict.ENDING, cause=None)]).markdown)
    assert "of what was read, no transaction is open" in plain(report([]).markdown)


def test_that_it_ended_is_no_verdict_while_it_was_open() -> None:
    """The column had "ended" where no recorder saw it open; its own section said that this is not known."""
    made = report([{**ended(topic=topic), "evidence": []} for topic in ("orders", "refunds")])
    assert {row["verdict while open"] for row in grid(made, "Overview")} == {"not known"}


def test_several_incidents_are_numbered_on_one_page() -> None:
    second = finding(
        topic="refunds", producer_id=7, transactional_id="refunds-1", start_offset=3, verdict=Verdict.STUCK_ENDING,
        outcome="commit", cause=None, groups_held=None,
    )  # fmt: skip
    made = report([ended(), second], log_transactions=[transaction()], actions=[done("undecided")])
    assert [row["incident"] for row in grid(made, "Overview")] == [
        "1: refunds-0 at offset 3",
        "2: orders-0 at offset 100",
    ]
    assert (
        "2 transactions have held the last stable offset (LSO) of 2 partitions: refunds-0, orders-0" in made.summary[0]
    )
    held = (
        "4,000 records waited. The longest hold: 2 h so far. 2 consumer groups waited: billing, fraud. "
        "Which consumer groups waited for number 1 is not known."
    )
    assert made.summary[1] == held, "of each partition, the most that one transaction held"
    assert "Number 2: ann@ops wrote the ABORT marker with kafka-txn abort" in " ".join(made.summary)
    assert "Not over: number 1." in made.summary
    assert "No committed record was discarded." in made.summary
    assert {row["incident"] for row in grid(made, "Times")} == {row["incident"] for row in grid(made, "Overview")}
    assert check_markdown_tables(made.markdown) >= 8


def test_a_transaction_behind_the_holder_is_in_the_summary_and_its_held_records_are_not_counted_twice() -> None:
    made = report([finding(), finding(producer_id=7, start_offset=110, queue_position=2)])
    assert "Open behind it, and next to hold the LSO: number 2." in made.summary
    assert len(grid(made, "Records and bytes")) == 1


def test_a_healthy_holder_is_not_alone_if_an_incident_is_behind_it() -> None:
    """Of its partition, the appendix said "nothing else is open"; the incident above it was open there, too."""
    healthy = {"verdict": Verdict.ONGOING, "action": None, "cause": None, "outcome": None}
    behind = finding(producer_id=7, start_offset=110, queue_position=2)
    made = report([finding(**healthy), behind, finding(partition=1, **healthy)])
    said = repr(made["What else was found"])
    assert said.count("the LSO goes to the high watermark, if nothing else is open") == 1
    assert said.count("the LSO goes to the high watermark: nothing else is open") == 1


def test_a_group_that_was_seen_once_waits_for_an_unknown_time() -> None:
    (row, _) = grid(report([finding()]), "Consumer groups")
    assert row["stall"] == "not known: it was seen waiting once"


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


def test_an_intent_without_outcome_is_to_be_found_out() -> None:
    made = report([finding()], actions=[action(step="intent", response=None)])
    assert "ann@ops started kafka-txn abort at 2026-11-21 09:59:11 UTC; its result is not known." in plain(
        made.markdown
    )
    (row,) = [row for row in grid(made, "To do") if row["what to do"].startswith("Find out")]
    assert row["what to do"] == "Find out whether abort orders-0@100 took effect."
    assert row["why"] == "The audit trail has its intent at 2026-11-21 09:59:11 UTC, and no outcome."


def test_a_fence_of_the_same_id_long_before_is_not_an_action_on_this_transaction() -> None:
    old = action(
        action="fence", topic=None, partition=None, start_offset=None, target="payments-7",
        transactional_id="payments-7", at=BEGUN - dt.timedelta(days=30),
    )  # fmt: skip
    for held_from in (BEGUN, None):  # not known of a finding that holds no LSO; when it was opened is
        made = report([finding(held_from=held_from, opened_at=BEGUN)], actions=[old])
        assert "ran kafka-txn fence" not in " ".join(made.summary)


def test_a_hold_that_began_with_a_sample_is_dated_by_the_recorder() -> None:
    """It was said to be by the log: it may have begun before."""
    (one,) = records_of([finding(held_from=BEGUN, evidence=[])], Finding)
    assert held_from_source(one, [BEGUN]) == RECORDING
    assert held_from_source(one, [ENDED]) == LOG


def test_exposed_clients_without_a_transaction_in_the_report_are_no_all_clear() -> None:
    """They were left out, and with them the note that they are."""
    client = {
        "subject": "transactional_id", "name": "client_transaction_version", "exposed": True, "value": "1",
        "means": "Old.", "transactional_id": "other", "observed_at": AT,
    }  # fmt: skip
    made = report([finding()], exposure=[{**dict.fromkeys(EXPOSURE.names), **client}])
    lead = "No setting that was read lets transactions hang. But 1 client is exposed: kafka-txn exposure lists them."
    assert lead in plain(made.markdown)


def test_prevention_names_exposed_settings_and_only_own_clients() -> None:
    def exposed(subject: str, name: str, means: str, **columns: object) -> dict[str, Any]:
        row = {"subject": subject, "name": name, "exposed": True, "value": "false", "means": means, "observed_at": AT}
        return {**dict.fromkeys(EXPOSURE.names), **row, **columns}

    rows = [
        exposed("known bug", "KAFKA-1", "A bug."),
        exposed("known bug", "KAFKA-2", "It depends on the patch release.", exposed=None, value="3.9"),
        exposed("known bug", "kafka version", "By its API versions.", exposed=None, value="3.9"),
        exposed("broker", "transaction.partition.verification.enable", "Late messages hang.", broker_id=1),
        exposed("transactional_id", "client_transaction_version", "Old.", transactional_id="payments-7"),
        exposed("transactional_id", "client_transaction_version", "Old.", transactional_id="other"),
        exposed("cluster", "transaction.version", "Good.", exposed=False),
        exposed("broker", "transaction.max.timeout.ms", "It could not be read.", exposed=None, value=None),
    ]
    made = report([finding()], exposure=rows)
    assert [(row["setting, bug or client"], row["exposed"]) for row in grid(made, "Exposure")] == [
        ("broker: transaction.partition.verification.enable", "yes"),
        ('transactional id: client_transaction_version of "payments-7"', "yes"),
        ("known bug: KAFKA-1", "yes"),
        ("broker: transaction.max.timeout.ms", "not known"),
        ("known bug: KAFKA-2", "not known"),
    ]
    assert "other" not in [row["what to do"] for row in grid(made, "To do")]
    assert not any("KAFKA-1" in row["what to do"] for row in grid(made, "To do")), "a bug of the release is no cause"


def test_a_page_with_every_table_contradicts_nothing() -> None:
    """It said both "Not included: log_transactions" and "No evidence is missing"."""
    empty: dict[str, Any] = {
        name: []
        for name in ("log_transactions", "lso_timeline", "transaction_history", "partitions", "exposure", "actions")
    }
    assert "Every table was included and read." in report([finding()], **empty).markdown
    without = report([finding()], **{**empty, "exposure": None}).markdown
    assert "Not included: exposure (the settings of the brokers)." in without
    assert "Every table" not in without
    unread = report([finding()], **empty, problems=["the log of orders-0: NotFound"]).markdown
    assert "Not read: the log of orders-0: NotFound." in unread
    assert "Every table" not in unread


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
