"""``kafka-txn explain`` without a broker: text, stdin, formats, exit codes, files, and text that is made to harm."""

import json
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner, Result

from tests.process import PATIENCE_S
from toolkit import explain
from toolkit.cli.commands import app
from toolkit.lab.samples import load
from toolkit.views.explained_error import EXPLANATIONS

FENCED = "org.apache.kafka.common.errors.ProducerFencedException: fenced [Producer clientId=p, transactionalId=pay-7]"


def invoke(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["explain", *arguments], input=stdin)


def test_an_error_is_explained_with_causes_checks_and_remedies() -> None:
    result = invoke(FENCED)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("producer-fenced: The coordinator fenced this producer")
    labels = [line[2:9].strip() for line in lines if line.startswith("  ") and line[2] != " "]
    assert labels == ["cause", "check", "safe", "never", "source", "page"]
    assert lines[-1] == "Named: transactional id pay-7"
    assert "Use a new random transactional.id" in result.stdout


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_stdin_is_read_without_a_text_or_with_a_dash(arguments: tuple[str, ...]) -> None:
    assert invoke(*arguments, stdin=FENCED).stdout == invoke(FENCED).stdout


def test_json_and_csv_have_every_column() -> None:
    (row,) = json.loads(invoke(FENCED, "--format", "json").stdout)
    assert list(row) == EXPLANATIONS.names
    assert (row["symptom"], row["transactional_ids"], row["findings"]) == ("producer-fenced", ["pay-7"], None)
    assert invoke(FENCED, "--format", "csv").stdout.startswith(",".join(EXPLANATIONS.names))


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_an_unknown_text_has_its_exit_code_and_lists_what_to_collect(output: str) -> None:
    result = invoke("java.lang.NullPointerException", "--format", output)
    assert result.exit_code == 4
    assert "no known error of Kafka transactions" in result.stdout
    assert "Caused by:" in result.stdout
    assert "--transactional-id" in result.stdout


def test_with_files_the_finding_and_its_exit_code_are_shown() -> None:
    files = ("--log-dir", str(load("late-message").path), "--consistent-copy")
    result = invoke("UNKNOWN_PRODUCER_ID", "--topic", "orders", *files)
    assert result.exit_code == 1, result.output
    assert "kafka-txn abort --topic orders --partition 0" in result.stdout
    assert invoke("nothing known", *files).exit_code == 1


def test_with_a_recording_the_finding_and_missing_tables_are_shown() -> None:
    explained = explain("PRODUCER_FENCED", load("flight-recording").recording(), transactional_ids=["x"], groups=["g"])
    assert explained.checks
    assert explained.checks.not_checked == (
        "The history of transactional ids: a recording has none.",
        "Group g: a recording has no committed offsets.",
    )
    # long lines scroll, also by keyboard; that of a busy cluster failed axe's check
    assert '<pre tabindex="0">' in explained._repr_html_()


def test_an_unreachable_cluster_does_not_suppress_the_explanation() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{nobody.getsockname()[1]}"
        result = invoke(FENCED, "--bootstrap-server", server, "--timeout", "1")
    assert result.exit_code == 2
    assert result.stdout.startswith("producer-fenced: ")
    assert "not checked: " in result.stdout
    assert "nothing hangs" not in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        (FENCED, "--partition", "0"),
        (FENCED, "--consistent-copy"),
        (FENCED, "--log-dir", ".", "--bootstrap-server", "localhost:9092"),
    ],
)
def test_invalid_usage_is_one_sentence(arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_hostile_text_is_escaped_in_terminal_and_page() -> None:
    hostile = (
        f"{FENCED}\x1b[31m\x07 password=hunter2 sasl.jaas.config=\"x password='hunter2';\" "
        "transactionalId=\x1b]0;title\x07evil\u202eid groupId=<script>alert(1)</script> topic-partition orders-0"
    )
    explained = explain(hostile)
    for result in (invoke(hostile).stdout, repr(explained), explained._repr_html_(), json.dumps(explained.rows())):
        assert "hunter2" not in result
        assert "\x1b" not in result
        assert "\x07" not in result
        assert "\u202e" not in result
        assert "<script" not in result
        assert "orders-0" in result or "orders" in result
    assert "evilid" in repr(explained)


def test_arbitrary_bytes_can_be_piped_in() -> None:
    assert invoke(stdin=b"\xff\xfe\x00PRODUCER_FENCED\xc3").exit_code == 0
    filling = b"INFO nothing happened\n" * 200_000  # 4.4 MB
    result = invoke("--format", "json", stdin=b"PRODUCER_FENCED\n" + filling + b"UNKNOWN_PRODUCER_ID\n")
    assert [row["symptom"] for row in json.loads(result.stdout)] == ["producer-fenced", "unknown-producer-id"]


def test_the_notebook_html_is_escaped_and_has_the_content_of_the_text() -> None:
    page = explain("Cannot execute transactional method because we are in an error state")._repr_html_()
    assert "<h3>failed-earlier</h3>" in page
    assert "<code>Caused by:</code>" in page
    unknown = explain("x < y")
    assert "<h3>unknown</h3>" in unknown._repr_html_()
    assert unknown.symptoms == ()
    assert unknown.findings().empty
    assert list(unknown.frame().columns) == EXPLANATIONS.names


def test_explaining_an_error_imports_neither_kafkas_client_nor_arrow() -> None:
    code = (
        "import sys; from toolkit import explain; repr(explain('x')); print({'kafka', 'pyarrow'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout == "set()\n", done.stderr
