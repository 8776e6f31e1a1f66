"""A redacted report: no name, host, path or line of a broker is left, and the same name has the same replacement."""

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.process import run
from tests.test_cli import FixedCluster
from tests.views.test_report import AT, action, finding, plain
from tests.views.test_text import finding as text_finding
from toolkit.cli.options import SourceOptions
from toolkit.lab import samples
from toolkit.schema import CLUSTER_EVENTS, EXPOSURE
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding
from toolkit.schema.verdict import cause_page
from toolkit.views.report import Redaction, collect_incident, report
from toolkit.views.row_formats import printable

SECRETS = {
    "topic": "orders.eu.v1", "id": "payments-7f3a", "group": "billing-prod", "person": "ann@ops-laptop",
    "host": "kafka-1.prod.example.com", "file": "/home/ann/audit.records/orders.eu.v1-0@100.parquet",
}  # fmt: skip


def tables_of(**columns: object) -> dict[str, Any]:
    names = {"topic": SECRETS["topic"], "transactional_id": SECRETS["id"]}
    reason = f'coordinator 2: id "{SECRETS["id"]}" is CompleteAbort, by {SECRETS["host"]}:9092 and 10.1.2.3.'
    row = finding(
        **names, reason=reason, groups_held=[SECRETS["group"]], owner=f"Flink job of {SECRETS['group']}",
        remedy=f"kafka-txn abort --topic {SECRETS['topic']} --partition 0 --start-offset 100",
        missing=["User:CN=ann,O=ops may not read it", f"{SECRETS['file']} could not be read"], **columns,
    )  # fmt: skip
    step = action(
        **names, who=SECRETS["person"], target=f"{SECRETS['topic']}-0@100", records_file=SECRETS["file"],
        bootstrap_servers=f"{SECRETS['host']}:9092,[2001:db8:0:0:0:0:0:1]:9092", outcome="undecided",
        error=f"BrokerError: {SECRETS['host']} closed the connection to 2001:db8:0:0:0:0:0:1",
    )  # fmt: skip
    event = {
        **dict.fromkeys(CLUSTER_EVENTS.names), "timestamp": AT, "event": "marker_refused", "topic": SECRETS["topic"],
        "partition": 0, "text": "[Principal ann] /10.9.9.9 token=s3cr3t", "source": "broker log", "broker_id": 1,
    }  # fmt: skip
    client = {
        **dict.fromkeys(EXPOSURE.names), "subject": "transactional_id", "name": "client_transaction_version",
        "transactional_id": SECRETS["id"], "exposed": True, "observed_at": AT,
        "means": "Set transactional.id.expiration.ms of transaction.version 2.", "value": "9",
    }  # fmt: skip
    return {"findings": [row], "actions": [step], "cluster_events": [event], "exposure": [client]}


def test_no_name_host_path_or_line_of_a_broker_is_left(tmp_path: Path) -> None:
    tables = tables_of()
    redaction = Redaction(tables)
    made = report(**redaction.applied(tables), title=redaction.applied(f"{SECRETS['topic']} stood still"))
    written = [made.save(tmp_path / f"report{suffix}").read_text() for suffix in (".html", ".md", ".ipynb")]
    for text in (*written, *chain(*made.pictures)):
        for secret in (*SECRETS.values(), "ops-laptop", "prod.example", "10.1.2.3", "2001:db8", "CN=ann", "s3cr3t"):
            assert secret not in plain(text), secret
    text = plain(made.markdown)
    assert made.title == "topic-1 stood still"
    assert 'producer 171100 of "id-1" has held the last stable offset (LSO) of topic-1-0 at offset 100' in text
    assert "kafka-txn abort --topic topic-1 --partition 0 --start-offset 100" in text
    assert "person-1" in text
    assert "topic-1-0@100: abort, outcome" in text
    assert "marker refused" in text
    assert cause_page("late-after-abort") in text
    assert "transactional.id.expiration.ms of transaction.version 2" in text, "settings are no hosts"


def test_the_same_name_has_the_same_replacement_in_every_table() -> None:
    tables = tables_of()
    redacted = Redaction(tables).applied(tables)
    (row,), (step,) = redacted["findings"], redacted["actions"]
    assert row["topic"] == step["topic"] == "topic-1"
    assert row["transactional_id"] == step["transactional_id"] == "id-1"
    assert step["target"] == "topic-1-0@100"
    assert row["verdict"] == "hanging"
    assert row["start_offset"] == 100


def test_a_name_of_digits_does_not_replace_offsets_and_a_word_within_another_stays() -> None:
    tables = tables_of()
    tables["findings"][0] |= {"transactional_id": "100", "reason": 'id "100" is at offset 100 of sub100.'}
    (row,) = Redaction(tables).applied(tables["findings"])
    assert (row["transactional_id"], row["reason"]) == ("id-1", 'id "id-1" is at offset 100 of sub100.')


def test_of_a_principal_nothing_is_left() -> None:
    """Of a certificate's name only its first part was replaced, and the audit trail's column was not."""
    missing = "User:CN=svc,OU=Payments Team,O=Acme may not read it: User:CN=b,O=Acme Corp"
    tables = tables_of() | {"actions": [action(principal="svc-acme")]}
    tables["findings"][0]["missing"] = [missing]
    redacted = Redaction(tables).applied(tables)
    assert redacted["findings"][0]["missing"] == ["user-1 may not read it: user-2"]
    assert redacted["actions"][0]["principal"].startswith("person-")


@pytest.mark.parametrize(
    "text",
    [
        'no owner: its id "acme.{}" has expired: __transaction_state-3 has its tombstone',
        'records of "acme.{}" in __transaction_state-3 from before',
        'one transactional id of producer 7, which "acme.{}", "{}" had, too: whether a commit includes these records',
        "'acme.{}' was not open at 12:00, and is since 11:00 by its coordinator",
        "the start of 'acme.{}', 12:00, is 1 min ahead of the clock of controller 1",
    ],
)
def test_an_id_that_is_in_no_column_is_replaced(text: str) -> None:
    """A transaction without an owner has no id in its row: that of its former owner stayed in cause and outcome."""
    tables = tables_of(cause=text.replace("{}", SECRETS["topic"]))
    (row,) = Redaction(tables).applied(tables)["findings"]
    assert SECRETS["topic"] not in row["cause"]
    assert "acme" not in row["cause"]
    assert row["transactional_id"] == "id-1"


def test_each_way_to_write_a_name_is_replaced() -> None:
    """Ours leaves a backslash, and escapes what no terminal shows; Python and JSON escape both."""
    name = 'a\\"\x1b'
    texts = [name, printable(name), repr(name)[1:-1], json.dumps(name)[1:-1]]
    assert len(set(texts)) == 4
    tables = tables_of()
    tables["findings"][0] |= {"transactional_id": name, "reason": ", ".join(texts)}
    (row,) = Redaction(tables).applied(tables)["findings"]
    assert row["reason"] == "id-1, id-1, id-1, id-1"


@pytest.mark.parametrize("name", ["flight-recording", "offsets-never-added"])
def test_a_redacted_sample_keeps_its_figures(name: str) -> None:
    sample = samples.load(name)
    sources = [source for source in (sample.log_dir(), sample.recording()) if source]
    audit = sample.audit()
    tables: dict[str, Any] = {**collect_incident(*sources, min_held_ms=1000)}
    tables["actions"] = audit.rows() if audit else []
    plain_page, redacted = (report(**each, generated_at=AT) for each in (tables, Redaction(tables).applied(tables)))
    for secret in (sample.expected["transactional_id"], "billing", "root@vm", "127.0.0.1", "/tmp/"):
        assert secret not in plain(redacted.markdown), secret

    def figures(text: str) -> list[str]:
        return re.findall(r"\b\d+(?: s| records| bytes)\b|\d\d:\d\d:\d\d", text)

    assert figures(redacted.markdown) == figures(plain_page.markdown)


def test_a_command_of_a_redacted_report_names_no_host_and_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options of the connection were added after the names had been replaced."""
    monkeypatch.setattr(SourceOptions, "open", lambda _: FixedCluster([text_finding()]))
    monkeypatch.setattr(
        FixedCluster, "read", lambda self, table, _: records_of(self.rows * (table == "findings"), Finding)
    )
    monkeypatch.setenv("KAFKA_TXN_AUDIT_FILE", str(tmp_path / "audit.jsonl"))
    page = tmp_path / "report.md"
    run("report", "--bootstrap-server", f"{SECRETS['host']}:9092", "--redact", "--output", str(page))
    assert "kafka-txn abort --topic topic-1 " in page.read_text()
    assert SECRETS["host"] not in page.read_text()
