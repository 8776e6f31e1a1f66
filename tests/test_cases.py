"""Inputs like those of public reports, and what is right about each: ``tests/cases``.

A case is a text; its first line says what the right answer is, its second one how it was tried. The corpus has what
`explain` says of each. ``words.tsv`` has what people say, with the symptom that is right; none for what is about
something else.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.builders import commit_offset, create_topics
from tests.formats.dumped import RECORDED
from tests.process import on
from toolkit import Cluster, LogDir, explain
from toolkit.analysis.symptoms import recognize
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS
from toolkit.schema.live import Coordinator, Finding
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.views.report import collect_incident, report

FOLDER = Path(__file__).parent / "cases"
WORDS = [line.split("\t") for line in (FOLDER / "words.tsv").read_text(encoding="utf-8").splitlines()]


def case(number: str) -> str:
    """The input of a case."""
    (path,) = FOLDER.glob(f"{number}-*.txt")
    return "".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[2:])


def test_each_line_of_a_log_of_errors_is_known() -> None:
    lines = [line for line in case("41").splitlines() if line]
    assert [line for line in lines if not recognize(line)[0]] == []


def test_what_people_say_is_known_in_seven_languages_and_nothing_else_is() -> None:
    found = {text: [each.symptom.name for each in recognize(text.replace("\\n", "\n"))[0]] for _, text in WORDS}
    assert {text: found[text] for name, text in WORDS if found[text] != ([name] if name else [])} == {}
    assert not any(recognize(text.replace("\\n", "\n"))[1] for name, text in WORDS if not name and "{" not in text)


def test_files_get_their_right_answer(tmp_path: Path) -> None:
    """A dump in which nothing was understood is no all-clear; a healthy segment of format v1 with gzip is one."""
    abbreviated = tmp_path / "abbreviated.txt"
    abbreviated.write_text(case("04"))
    header_only = tmp_path / "header.txt"
    header_only.write_text("".join(case("04").splitlines(keepends=True)[:2]))
    undecoded = tmp_path / "undecoded.txt"
    undecoded.write_text(case("40").replace("Ongoing", "Sleeping"))
    cut = tmp_path / "cut.txt"
    whole = (RECORDED / "4.3.1" / "batches.txt").read_text()
    cut.write_text(whole[: whole.index("size: ", 3000)])  # before what is open in it
    errors = {
        abbreviated: "MALFORMED_LINE",
        header_only: "NOTHING_READ",
        undecoded: "MALFORMED_LINE",
        cut: "MISSING_LINES",
    }
    for path, error in errors.items():
        (finding,) = LogDir(path).records(Finding)
        assert (finding.verdict, (finding.error or "").partition(":")[0]) == ("unknown", error), path
    assert any("MALFORMED_LINE" in (each.error or "") for each in LogDir(undecoded).records(TransactionLogRecord))
    segment = tmp_path / "old-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(bytes.fromhex(case("09")))
    (finding,) = LogDir(segment.parent).records(Finding, topics=["old"])
    assert (finding.verdict, finding.last_stable_offset) == ("clear", 5)
    formatted = tmp_path / "formatted.txt"
    formatted.write_text(case("07"))
    (past,) = LogDir(formatted).records(PastTransaction)
    assert (past.transactional_id, past.ended, past.state) == ("pay-7", "open", "PrepareCommit")
    (finding,) = LogDir(formatted).records(Finding)
    assert (finding.topic, finding.partition, finding.transactional_id) == ("test", 1, "pay-7")
    assert 'id "pay-7" is PrepareCommit' in finding.reason
    assert (finding.verdict, finding.action, "Do not abort." in finding.remedy) == ("unknown", None, True)
    other = case("07").splitlines()[-1].replace("pay-7", "pay-8")
    formatted.write_text(case("07") + other + "\n" + other.replace("pay-8::", "::").replace("Prepare", "Re"))
    unread = [each for each in LogDir(formatted).records(TransactionLogRecord) if each.error]
    assert [each.txn_state_partition for each in unread] == [10, 11], "it may be of any id"


@pytest.mark.lab
def test_a_cluster_without_transactions_says_so() -> None:
    """Cases 1, 12, 13 and 44: a record is no marker, an offset beyond the end no lag of 0, and no topic no gap."""
    with (
        Kafka("4.3.1", properties={"transaction.state.log.replication.factor": "3"}) as kafka,
        Cluster(kafka.bootstrap_servers) as cluster,
    ):
        client: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        nothing = "by its metadata log the cluster has no __transaction_state"
        assert nothing in LogDir(*kafka.log_dirs.values()).proof().line, "without any topic, it was to be copied"
        create_topics(kafka, "plain")
        producer = Producer(client)
        for _ in range(40):
            producer.produce("plain", b"x", partition=0)
        producer.flush(60)
        for group, offset in (("one-behind", 39), ("beyond", 60)):
            commit_offset(kafka, group, "plain", offset)
        (behind,), (beyond,) = cluster.group_lags("one-behind"), cluster.group_lags("beyond")
        assert (behind.lag, behind.behind, behind.markers) == (1, 1, 0)
        assert (beyond.lag, beyond.beyond_end, behind.beyond_end) == (0, 20, 0)
        assert (beyond.reason or "").startswith("The committed offset 60 lies 20 beyond the end of the partition, 40")
        codes = {group: on(kafka, "lag", "--group", group).returncode for group in ("one-behind", "beyond")}
        assert codes == {"one-behind": 0, "beyond": 1}, "there is no such offset, which is no all-clear"
        (clear,) = cluster.records(Finding, topics=["plain"])
        assert "marker, " not in clear.reason
        assert "nothing is held back" in clear.reason
        (coordinator,) = cluster.records(Coordinator, transactional_ids=["sink-1"], groups=[])
        impossible = "no transaction can begin: __transaction_state does not exist"
        needs = "transaction.state.log.replication.factor says (3); 1 registered"
        summary = " ".join(report(**collect_incident(cluster)).summary)
        for said in (coordinator.error, cluster.scope_text, summary):
            assert impossible in (said or "")
            assert needs in (said or ""), "only explain and coordinator named the cause, and then all but a report"
        assert nothing in LogDir(*kafka.log_dirs.values()).proof().line


def test_what_describe_producers_printed_is_looked_up(kafka: Kafka) -> None:
    """Case 5: partitions "CurrentTransactionStartOffset-1000" and "None-1001" were looked up, and late-0 was not."""
    staged = INCIDENTS["late_message"](kafka, topic="late")
    printed = case("05").replace("1001", str(staged.producer_id)).replace("1000 ", "999999 ")
    with Cluster(kafka.bootstrap_servers) as cluster:
        explained = explain(printed, cluster, recheck_after=1.1)
    assert explained.symptoms == ("transactions-listed",)
    assert explained.named.partitions == (("late", 0),)
    assert explained.checks is not None
    found = [(each.tp, each.verdict, each.start_offset) for each in explained.checks.findings]
    assert found == [(("late", 0), "hanging", staged.start_offset)]
    assert explained.checks.not_checked == ()
