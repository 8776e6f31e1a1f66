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
    return {
        **dict.fromkeys(FINDINGS.names), "topic": "orders", "partition": 0, "queue_position": 1, "producer_id": 171100,
        "producer_epoch": 1, "transactional_id": "payments-7", "start_offset": 913095344, "verdict": "hanging",
        "reason": 'coordinator 3: id "payments-7" is CompleteAbort, so no coordinator will end this transaction '
                  "(seen twice, 5 s apart; all 3 brokers answered)",
        "remedy": "kafka-txn abort --topic orders --partition 0 --start-offset 913095344", "missing": [],
        "evidence": [{"source": "Fetch", "broker_id": 1, "observed_at": NOW, "name": "a", "value": "b"}],
        "opened_at": OPENED, "opened_at_clock": "coordinator", "last_stable_offset": 913095344, "records_held": 2115,
        "groups_held": ["my-group"], "observed_at": NOW, "brokers_time": NOW, **fields,
    }  # fmt: skip


def healthy(**fields: Any) -> Row:
    row = finding(verdict=Verdict.ONGOING, reason="It is alive.", remedy="Wait; it is alive.", groups_held=None)
    return {**row, **fields}


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


def test_colours_do_not_change_the_text() -> None:
    lines = finding_lines([finding(), healthy(queue_position=2)])
    painted = paint(lines)
    assert painted.plain == "\n".join(lines)
    assert {str(each.style) for each in painted.spans} >= {"bold", "bold red", "green", "dim", "cyan"}
