"""Could not look is never nothing found: commands without rights, on a real broker with an authorizer.

What they answer without any right, and with those on topics, is in the corpus.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.acls import CLUSTER, DESCRIBE, DESCRIBE_CONFIGS, LITERAL, READ, TOPIC, TRANSACTIONAL_ID, Acls, Right
from tests.acls import GROUP as GROUP_RESOURCE
from tests.process import Process, on
from toolkit import Cluster
from toolkit.errors import BrokerError
from toolkit.lab import Kafka
from toolkit.lab.clients import BlockedConsumer, TxnProducer
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.schema.table import TopicPartition

pytestmark = pytest.mark.lab

DATA = "hidden-data"
COMMITTED, PENDING = "hidden-committed", "hidden-pending"
SEE_ACLS = [(CLUSTER, "kafka-cluster", LITERAL, DESCRIBE), (CLUSTER, "kafka-cluster", LITERAL, DESCRIBE_CONFIGS)]
GROUPS: Right = (GROUP_RESOURCE, "*", LITERAL, DESCRIBE)

Ask = Callable[..., Process]


@pytest.fixture(scope="module")
def alive(guarded: Kafka, admin: Cluster) -> Iterator[StagedIncident]:
    """An open transaction, a group that waits for it, and one whose only offset is pending in another one."""
    with INCIDENTS["open_young"](guarded.client_config("admin"), topic=DATA) as staged:
        with BlockedConsumer(guarded.client_config("admin"), DATA, COMMITTED):
            pass
        producer = TxnProducer(admin.client, "hidden-offsets").init()
        producer.commit_offset(PENDING, DATA, 0, offset=1)
        yield staged


@pytest.fixture
def ask(guarded: Kafka, tmp_path: Path) -> Ask:
    """Run a command as a user, some of whose settings may be replaced."""

    def answer(user: str, *arguments: str, **replaced: str) -> Process:
        config = tmp_path / f"{user}.properties"
        settings = {**guarded.client_config(user), **{name.replace("_", "."): each for name, each in replaced.items()}}
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return on(guarded, *arguments, "--command-config", str(config))

    return answer


@pytest.mark.parametrize(
    ("rights", "command", "code", "says"),
    [
        ([(TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE)], "list", 3,
         "Partitions of a transaction may be hidden; missing: DESCRIBE on Topic '*'"),
        ([(TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE)], "describe --transactional-id {id}", 3,
         "Partitions of a transaction may be hidden; missing: DESCRIBE on Topic '*'"),
        ([(TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE)], "describe --transactional-id nobody", 4,
         "has no transactional id"),
        ([], "lag --group {committed}", 3, "GROUP_AUTHORIZATION_FAILED.* DESCRIBE on Group"),
        ([(GROUP_RESOURCE, COMMITTED, LITERAL, DESCRIBE)], "lag --group {committed}", 3,
         "offsets of other topics may be hidden; missing: DESCRIBE on Topic '*'"),
        ([(GROUP_RESOURCE, COMMITTED, LITERAL, DESCRIBE)], "lag --group {committed} --group {pending}", 3,
         "The group '{pending}' cannot be read"),
        ([(TOPIC, DATA, LITERAL, READ)], "why {data}-0@{offset}", 3, "DESCRIBE on TransactionalId"),
        ([GROUPS], "coordinator --group {committed}", 3, "its partition is not known"),
    ],
    ids=str,
)  # fmt: skip
def test_what_rights_hide_is_named(
    ask: Ask, alive: StagedIncident, acls: Acls, rights: Sequence[Right], command: str, code: int, says: str
) -> None:
    names = {"data": DATA, "committed": COMMITTED, "pending": PENDING, "id": alive.transactional_id,
             "offset": alive.start_offset}  # fmt: skip
    if rights:
        acls.allow(*rights)
    done = ask("watcher", *command.format(**names).split())
    assert done.returncode == code, done
    assert re.search(says.format(**names), done.stdout + done.stderr), done
    assert not re.search("No broker lists|has no record|no transactions", done.stdout + done.stderr)


def test_a_group_with_only_a_pending_offset_has_a_row(ask: Ask, alive: StagedIncident) -> None:
    lag = ask("admin", "lag", "--group", PENDING, "--format", "json")
    (row,) = json.loads(lag.stdout)["rows"]
    assert (row["topic"], row["partition"], row["committed_offset"]) == (DATA, 0, None)
    assert row["error"].startswith("UNSTABLE_OFFSET_COMMIT")
    assert lag.returncode == 3
    assert ask("admin", "lag", "--group", COMMITTED).returncode == 0
    everything = ask("admin", "lag", "--format", "json")
    assert {COMMITTED, PENDING} <= {row["group_id"] for row in json.loads(everything.stdout)["rows"]}
    assert f"Offsets of '{PENDING}' are part of an open transaction." in everything.stderr
    assert "kafka-txn diagnose --bootstrap-server " in everything.stderr


def test_groups_that_may_be_hidden_are_unknown_in_a_finding(guarded: Kafka, admin: Cluster, acls: Acls) -> None:
    staged = INCIDENTS["never_added"](guarded.client_config("admin"), topic="hidden-hanging")
    partition = TopicPartition(staged.topic, 0)
    with BlockedConsumer(guarded.client_config("admin"), staged.topic, "hidden-waiting"):
        pass
    acls.allow((TOPIC, "*", LITERAL, READ))

    def held(cluster: Cluster) -> list[str] | None:
        (row,) = cluster.finding_rows(topics=[staged.topic], partitions=[0], recheck_after=0)
        assert row["verdict"] == "hanging", row["missing"]
        groups: list[str] | None = row["groups_held"]
        return groups

    assert held(admin) == ["hidden-waiting"]
    with Cluster(guarded.client_config("watcher")) as watcher:
        assert held(watcher) is None
        with pytest.raises(BrokerError, match="Groups may be hidden; missing: DESCRIBE on Group"):
            watcher.committing_groups([partition])
        acls.allow((GROUP_RESOURCE, "hidden-waiting", LITERAL, DESCRIBE))
        assert held(watcher) == ["hidden-waiting"]
        acls.clear()
        acls.allow(GROUPS, *SEE_ACLS)
        assert admin.committing_groups([partition]) == {partition: ["hidden-waiting"]}
        with pytest.raises(
            BrokerError, match="missing: DESCRIBE on Topic '__consumer_offsets', to see that each of its"
        ):
            watcher.committing_groups([partition])
        acls.allow((TOPIC, "__consumer_offsets", LITERAL, DESCRIBE))
        with pytest.raises(BrokerError, match=f"on {staged.topic}-0 cannot be read: TOPIC_AUTHORIZATION_FAILED"):
            watcher.committing_groups([partition])


def test_an_incomplete_recording_has_one_warning(ask: Ask, acls: Acls, tmp_path: Path) -> None:
    recorded = ask("watcher", "record", "--output", str(tmp_path / "samples"), "--interval", "1s", "--samples", "2")
    assert recorded.returncode == 0, recorded.stderr
    warning, first = [line for line in recorded.stderr.splitlines() if "skipped so far" not in line]
    assert first.startswith("Recording; samples are kept for 30 d ")
    assert "samples are incomplete; missing: DESCRIBE on Topic '*' for this principal." in warning
