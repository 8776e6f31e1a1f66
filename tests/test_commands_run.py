"""Every kind of command that an answer names runs as it stands, on the broker that the answer is about."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import pytest

from tests.brokers import NEWEST, on_cluster
from tests.process import ROOT, Process, run
from toolkit import Cluster
from toolkit.actions.marker_actions import plan_abort
from toolkit.command_line import ACTIONS, grant
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS, NEGLECTFUL
from toolkit.schema.live import Finding

pytestmark = [pytest.mark.lab, pytest.mark.full]

CODES = {0, 1, 5}
"""Nothing to do, something to do, and refused: a command that is answered, and no usage error."""
ACLS = "org.apache.kafka.tools.AclCommand"


def commands_in(answer: Process) -> list[list[str]]:
    """The commands of an answer: lines of their own, some of them behind a label."""
    text = f"{answer.stdout}\n{answer.stderr}"
    lines = re.findall(r"^ *(?:[a-z]+ +)?(kafka-(?:txn|acls\.sh|transactions\.sh) .*)$", text, re.MULTILINE)
    return list(map(shlex.split, dict.fromkeys(lines)))


def run_all(answer: Process) -> set[str]:
    """Run them; the verbs of those that ran. An action is a dry run, as nothing confirms it."""
    verbs = set()
    for program, *arguments in commands_in(answer):
        if program == "kafka-txn" and not {"ID", "T", "GROUP", "PATH", "FILE", "DIR", "hanging.csv"} & set(arguments):
            done = run(*arguments)
            assert done.returncode in CODES, (arguments, done.stderr)
            assert arguments[0] not in ACTIONS or "Dry run" in done.stdout or done.returncode == 5, done.stdout
            verbs.add(arguments[0])
    return verbs


def of(kafka: Kafka, *arguments: object) -> Process:
    return run(*arguments, "--bootstrap-server", kafka.bootstrap_servers)


@pytest.mark.parametrize("lab", [on_cluster(NEWEST, NEGLECTFUL, id="neglectful")], indirect=True)
def test_what_answers_name_runs_as_it_stands(lab: Kafka) -> None:
    """``... --start-offset 0 (the offsets in it ...`` was a syntax error."""
    kafka = lab
    server = ("--bootstrap-server", kafka.bootstrap_servers)
    with (
        INCIDENTS["never_added"](kafka) as hanging,
        INCIDENTS["offsets_never_added"](kafka) as offsets,
        INCIDENTS["overdue"](kafka) as overdue,
    ):
        where = ("--topic", hanging.topic, "--partition", str(hanging.partition))
        at = f"{hanging.topic}-{hanging.partition}@{hanging.start_offset}"
        assert run_all(of(kafka, "diagnose", *where)) == {"abort"}
        of_group = ("--topic", offsets.topic, "--partition", str(offsets.partition))
        assert run_all(of(kafka, "diagnose", *of_group)) == {"abort"}
        assert "fence" in run_all(of(kafka, "diagnose", "--topic", overdue.topic))
        assert {"abort", "fence"} <= run_all(of(kafka, "find-hanging", "--recheck-after", "1s"))
        assert run_all(of(kafka, "why", at)) == {"diagnose"}
        assert run_all(of(kafka, "abort", *where, "--start-offset", "99999")) == {"diagnose"}
        assert run_all(of(kafka, "complete", *where, "--start-offset", str(hanging.start_offset))) == {"abort"}
        named = f"ProducerFencedException: transactionalId={overdue.transactional_id}"
        assert run_all(run("explain", named, *server)) >= {"fence"}
        run_all(of(kafka, "lag"))
        with Cluster(kafka.bootstrap_servers) as cluster:
            found = cluster.records(Finding, topics=[hanging.topic], recheck_after=1)
            (held,) = [each for each in found if each.action == "abort"]
            tool: Sequence[str] = plan_abort(cluster, held).command or ()
        done = kafka.run_tool("org.apache.kafka.tools.TransactionsCommand", *tool[1:])
        assert done.returncode == 0, done.stderr


def test_a_right_is_granted_by_kafkas_own_tool(kafka: Kafka) -> None:
    """The broker has no authorizer: that it says so shows that its tool has read the line, and asked it."""
    page = (ROOT / "docs" / "rights.md").read_text(encoding="utf-8")
    documented = [shlex.split(line)[5:] for line in re.findall(r"^    (kafka-acls\.sh .*)$", page, re.MULTILINE)]
    assert len(documented) >= 8
    for command in (grant("READ", "topic", ["orders", "payments"])[1:], *documented):
        done = kafka.run_tool(ACLS, "--bootstrap-server", kafka.bootstrap_servers, *command)
        assert "No Authorizer is configured" in done.stdout + done.stderr, command
