"""What a person reads, from hand-made rows."""

import datetime as dt
from typing import Any

import pytest

from toolkit.schema import FINDINGS, Row
from toolkit.schema.verdict import Verdict
from toolkit.views.finding_document import finding_lines, paint, summary

NOW = dt.datetime(2026, 11, 21, 12, 12, 30, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
OPENED = dt.datetime(2026, 11, 21, 9, 58, 11, tzinfo=dt.UTC)


def finding(**fields: Any) -> Row:
    """A hanging transaction that holds the LSO of orders-0; `fields` replace values."""
    row: dict[str, Any] = dict.fromkeys(FINDINGS.names)
    row |= {
        "topic": "orders",
        "partition": 0,
        "queue_position": 1,
        "producer_id": 171100,
        "producer_epoch": 1,
        "transactional_id": "payments-7",
        "start_offset": 913095344,
        "verdict": "hanging",
        "reason": 'coordinator 3: id "payments-7" is CompleteAbort, so no coordinator will end this transaction '
        "(seen twice, 5 s apart; all 3 brokers answered)",
        "remedy": "kafka-txn abort --topic orders --partition 0 --start-offset 913095344",
        "missing": [],
        "evidence": [{"source": "Fetch", "broker_id": 1, "observed_at": NOW, "name": "a", "value": "b"}],
        "opened_at": OPENED,
        "opened_at_clock": "coordinator",
        "last_stable_offset": 913095344,
        "records_held": 2115,
        "groups_held": ["my-group"],
        "observed_at": NOW,
        "brokers_time": NOW,
    }
    return row | fields


def healthy(**fields: Any) -> Row:
    row = finding(verdict=Verdict.ONGOING, reason="It is alive.", remedy="Wait; it is alive.", groups_held=None)
    return {**row, **fields}


def test_the_lso_is_held_since_its_holder_became_the_first() -> None:
    lines = finding_lines([finding(held_from=NOW - dt.timedelta(minutes=3))])
    assert lines[0].startswith("orders-0   LSO 913095344 held for 3 min · ")
    assert "open since 2026-11-21 09:58:11 UTC" in lines[1]


def ended(**fields: Any) -> Row:
    times = {"held_from": OPENED, "held_to": OPENED + dt.timedelta(minutes=2), "held_ms": 120_000}
    return finding(
        verdict=Verdict.ENDED,
        queue_position=None,
        last_stable_offset=None,
        cause="late (late-after-commit)",
        **{**times, **fields},
    )


def test_ended_transactions_follow_open_ones() -> None:
    waits = finding(
        queue_position=None, producer_id=None, start_offset=None, verdict=Verdict.UNREPLICATED, remedy="Look."
    )
    for rows in ([finding(), ended()], [ended(), waits]):
        verdicts = [line.split()[0] for line in finding_lines(rows) if line.startswith("  ")]
        assert verdicts[0] in {"hanging", "unreplicated"}
        assert verdicts[-1] == "ended"


def test_healthy_partitions_have_one_line_below_the_blocks() -> None:
    alive = healthy(expires_at=NOW + dt.timedelta(seconds=57))
    lines = finding_lines([{**alive, "partition": 1}, {**alive, "partition": 2}, finding(partition=3)])
    assert lines[0].startswith("orders-3   LSO")
    assert lines[-3:-1] == [
        "",
        "orders-1   ongoing  producer 171100 epoch 1, open since 2026-11-21 09:58:11 UTC at offset 913095344"
        ' · id "payments-7" · expires in 57 s',
    ]
    assert lines[-1].startswith("orders-2   ongoing")


def test_consecutive_healthy_lines_are_aligned() -> None:
    lines = finding_lines([healthy(topic="a"), healthy(topic="a-longer-name")])
    assert [line.index("ongoing") for line in lines] == [17, 17]


def test_the_summary_names_a_missing_marker() -> None:
    """A commit without its marker read "nothing hangs, 1 stuck_ending" while consumers waited for it."""
    committed = healthy(verdict=Verdict.STUCK_ENDING, outcome="commit", action="complete")
    assert summary([committed]) == "1 partition is held because its COMMIT marker is missing"
    both = [committed, {**committed, "partition": 8}, healthy(verdict=Verdict.STUCK_ENDING, partition=9)]
    assert summary(both) == "2 partitions are held because their COMMIT markers are missing, 1 stuck_ending"


def test_a_client_clock_is_named_and_a_time_in_the_future_gives_no_age() -> None:
    lines = finding_lines([finding(opened_at_clock="producer", opened_at=NOW + dt.timedelta(hours=1))])
    assert lines[0].startswith("orders-0   LSO 913095344 held · ")
    assert "open since 2026-11-21 13:12:30 UTC by the producer's clock at offset" in lines[1]


def test_a_record_may_be_younger_than_its_file() -> None:
    """A broker wrote it within the clock's tick of 4 ms before; the line had "held" without a duration.

    "for under 1 s" would be wrong of a partition's copy, where no later time is known.
    """
    (line, *_) = finding_lines([finding(opened_at=NOW + dt.timedelta(milliseconds=2))])
    assert line.startswith(f"orders-0   LSO 913095344 held since {NOW:%Y-%m-%d %H:%M:%S} UTC · ")


@pytest.mark.parametrize("width", [20, 60, 80, 100])
def test_a_narrow_terminal_wraps_sentences_and_never_a_command(width: int) -> None:
    command = "kafka-txn abort --topic orders --partition 0 --start-offset 913095344"
    lines = finding_lines([finding(remedy=f"At once:\n{command}")], width=width)
    assert command in map(str.strip, lines)
    sentences = [line for line in lines[1:] if command not in line and "https://" not in line]
    assert max(map(len, sentences)) <= max(width, 41)
    assert [line[:11].strip() for line in lines if line[:11].strip()] == [
        "orders-0",
        "hanging",
        "why",
        "remedy",
        "docs",
        "next",
    ]


def test_a_live_transaction_for_which_records_wait_is_healthy_only_if_its_process_is_seen() -> None:
    """A process that had died within its timeout was "1 open transaction is not overdue"."""
    unseen = healthy(offsets_held=26, records_held=None, transactional_id="ledger-writer")
    of_flink = {**unseen, "owner": "Apache Flink ledger, subtask 0 (likely)"}
    for row in (unseen, of_flink):
        title, _, owner, why, remedy, _ = finding_lines([row])
        assert (title.endswith(" · 26 offsets waiting"), "why" in why, "remedy" in remedy) == (True, True, True)
        assert summary([row]) == "nothing hangs, 1 ongoing"
    assert owner.strip() == 'owner    "ledger-writer": Apache Flink ledger, subtask 0 (likely)'
    assert '"ledger-writer": not known' in "\n".join(finding_lines([unseen]))
    seen = {**unseen, "owner": "Kafka Streams application ledger, thread 1 on 10.0.0.5 (certain)"}
    for row in (seen, {**unseen, "offsets_held": 0}, {**unseen, "queue_position": 2}):
        assert (len(finding_lines([row])), summary([row])) == (1, "nothing hangs, 1 open transaction is not overdue")
    busy = [{**unseen, "partition": n, "transactional_id": f"{'abcdef'[n]}-writer"} for n in range(6)]
    assert finding_lines(busy)[0].startswith("6 partitions  ")


def test_control_characters_never_reach_the_terminal() -> None:
    lines = finding_lines([healthy(transactional_id="a\x1b[31m\nb")])
    assert r'id "a\x1b[31m\nb"' in lines[0]


def test_colours_do_not_change_the_text() -> None:
    lines = finding_lines([finding(), healthy(queue_position=2)])
    painted = paint(lines)
    assert painted.plain == "\n".join(lines)
    assert {str(each.style) for each in painted.spans} >= {"bold", "bold red", "green", "dim", "cyan"}


def test_the_summary_counts_partitions_in_correct_english() -> None:
    hang = [finding(partition=p, queue_position=n) for p in (0, 1) for n in (1, 2)]
    alive = [healthy(partition=p) for p in range(10, 24)]
    unknown = finding(partition=5, verdict=Verdict.UNKNOWN)
    assert summary([*hang, unknown, *alive]) == "2 partitions hang, 1 unknown, 14 open transactions are not overdue"
    assert summary([hang[0], alive[0]]) == "1 partition hangs, 1 open transaction is not overdue"
    assert summary([]) == "nothing hangs, no transaction is open"


def test_transactions_on_partitions_that_were_not_read_do_not_hide_what_was() -> None:
    """A copy of one broker of many lacks the partitions of thousands of healthy ids: they share a block, at the end."""
    names = {"producer_id": 8, "producer_epoch": 0, "verdict": "unknown", "error": "UNKNOWN_TOPIC_OR_PARTITION: none"}
    unread = [
        finding(topic="absent", partition=number, start_offset=None, queue_position=None, last_stable_offset=None,
                missing=[f"the log of absent-{number}: none"], brokers_time=NOW, opened_at=NOW - HOUR,
                opened_at_clock="coordinator", expires_at=NOW + HOUR * (number - 1), **names)
        for number in range(40)
    ]  # fmt: skip
    lines = finding_lines([*unread, finding(topic="read")])
    assert [line for line in lines if line[:1].strip()] == [
        lines[0],
        "40 partitions not read  40 transactions that coordinators have open there",
    ]
    assert lines[0].startswith("read-0")
    text = "\n".join(lines)
    assert "overdue  absent-0: producer 8 epoch 0" in text
    assert "where    absent: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 30 more" in text
    assert "the log of absent-0: none, and those of 39 more partitions" in text
    assert summary(unread, scope="all") == "nothing that was read hangs, 40 unknown"
    assert summary([], scope="1 partition") == "nothing hangs, no transaction is open (1 partition)"
