"""Could not look is never nothing found: commands without rights, on a real broker with an authorizer."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acls import CLUSTER, DESCRIBE, DESCRIBE_CONFIGS, LITERAL, READ, TOPIC, TRANSACTIONAL_ID, Acls
from tests.acls import GROUP as GROUP_RESOURCE
from tests.process import Process, run
from toolkit import Cluster
from toolkit.errors import BrokerError
from toolkit.lab import Kafka
from toolkit.lab.consumer import blocked_consumer
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.lab.producer import TxnProducer
from toolkit.schema.table import TopicPartition

pytestmark = pytest.mark.lab

DATA = "hidden-data"
COMMITTED, PENDING = "hidden-committed", "hidden-pending"

SEE_ACLS = [(CLUSTER, "kafka-cluster", LITERAL, DESCRIBE), (CLUSTER, "kafka-cluster", LITERAL, DESCRIBE_CONFIGS)]

Ask = Callable[..., Process]


@pytest.fixture(scope="module")
def alive(guarded: Kafka, admin: Cluster) -> Iterator[StagedIncident]:
    """An open transaction, a group that waits for it, and one whose only offset is pending in another one."""
    with INCIDENTS["open_young"](guarded.client_config("admin"), topic=DATA) as staged:
        with blocked_consumer(guarded.client_config("admin"), DATA, COMMITTED):
            pass
        producer = TxnProducer(admin.client, "hidden-offsets").init()
        producer.commit_offset(PENDING, DATA, 0, offset=1)
        yield staged


@pytest.fixture
def ask(guarded: Kafka, tmp_path: Path) -> Ask:
    """Run a command as a user."""

    def answer(user: str, *arguments: str) -> Process:
        config = tmp_path / f"{user}.properties"
        settings = guarded.client_config(user)
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return run(*arguments, "--bootstrap-server", guarded.bootstrap_servers, "--command-config", str(config))

    return answer


def test_list_names_the_right_that_hides_an_open_transaction(ask: Ask, alive: StagedIncident, acls: Acls) -> None:
    ids = {row["transactional_id"] for row in json.loads(ask("admin", "list", "--format", "json").stdout)}
    assert alive.transactional_id in ids
    assert None not in ids
    listed = ask("watcher", "list")
    assert listed.returncode == 3
    assert "no transactions" not in listed.stdout
    assert "DESCRIBE on TransactionalId '*'" in listed.stdout
    found = ask("watcher", "list", "--producer-id", str(alive.producer_id), "--format", "json")
    assert found.returncode == 3
    assert {row["transactional_id"] for row in json.loads(found.stdout)} == {None}


def test_the_log_of_the_coordinators_lists_hidden_ids(ask: Ask, alive: StagedIncident, acls: Acls) -> None:
    acls.allow((TOPIC, "*", LITERAL, READ), *SEE_ACLS)
    listed = ask("watcher", "list", "--format", "json")
    rows = {row["transactional_id"]: row["source"] for row in json.loads(listed.stdout)}
    assert (listed.returncode, rows[alive.transactional_id]) == (0, "__transaction_state")


def test_partitions_of_hidden_topics_are_missing_from_a_transaction(
    ask: Ask, alive: StagedIncident, acls: Acls
) -> None:
    acls.allow((TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE))
    for command in (["list"], ["describe", "--transactional-id", alive.transactional_id]):
        described = ask("watcher", *command)
        assert described.returncode == 3
        assert "Partitions of a transaction may be hidden; missing: DESCRIBE on Topic '*'" in described.stderr
    unknown = ask("watcher", "describe", "--transactional-id", "nobody")
    assert (unknown.returncode, "has no transactional id" in unknown.stderr) == (2, True)
    acls.clear()
    denied = ask("watcher", "describe", "--transactional-id", alive.transactional_id)
    assert (denied.returncode, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in denied.stdout) == (3, True)


@pytest.mark.parametrize("command", ["partitions", "describe-producers"])
def test_hidden_topics_are_named(ask: Ask, alive: StagedIncident, acls: Acls, command: str) -> None:
    for options, text in (((), "DESCRIBE on Topic '*'"), (("--topic", DATA), "TOPIC_AUTHORIZATION_FAILED")):
        answer = ask("watcher", command, *options)
        assert answer.returncode == 3, answer
        assert text in answer.stderr
    assert ask("admin", command).returncode == 0


def test_a_group_that_may_not_be_described_is_not_one_that_does_not_exist(
    ask: Ask, alive: StagedIncident, acls: Acls
) -> None:
    denied = ask("watcher", "lag", "--group", COMMITTED)
    assert denied.returncode == 3
    assert "GROUP_AUTHORIZATION_FAILED" in denied.stderr
    assert "DESCRIBE on Group" in denied.stderr
    assert "No broker lists" not in denied.stderr
    acls.allow((GROUP_RESOURCE, COMMITTED, LITERAL, DESCRIBE))
    hidden = ask("watcher", "lag", "--group", COMMITTED)
    assert hidden.returncode == 3
    assert "offsets of other topics may be hidden; missing: DESCRIBE on Topic '*'" in hidden.stdout
    several = ask("watcher", "lag", "--group", COMMITTED, "--group", PENDING)
    assert several.returncode == 3
    assert COMMITTED in several.stdout
    assert f"The group '{PENDING}' cannot be read" in several.stderr
    nobody = ask("admin", "lag", "--group", "nobody")
    assert (nobody.returncode, "No broker lists the group 'nobody'" in nobody.stderr) == (2, True)


def test_a_group_with_only_a_pending_offset_has_a_row(ask: Ask, alive: StagedIncident) -> None:
    lag = ask("admin", "lag", "--group", PENDING, "--format", "json")
    (row,) = json.loads(lag.stdout)
    assert (row["topic"], row["partition"], row["committed_offset"]) == (DATA, 0, None)
    assert row["error"].startswith("UNSTABLE_OFFSET_COMMIT")
    assert lag.returncode == 3
    assert "UNSTABLE_OFFSET_COMMIT" in ask("admin", "lag", "--group", PENDING).stdout
    assert ask("admin", "lag", "--group", COMMITTED).returncode == 0


def test_the_lag_of_all_groups_names_diagnose_for_unstable_offsets(ask: Ask, alive: StagedIncident) -> None:
    lag = ask("admin", "lag", "--format", "json")
    assert {COMMITTED, PENDING} <= {row["group_id"] for row in json.loads(lag.stdout)}
    assert f"An open transaction has offsets of '{PENDING}'." in lag.stderr
    assert "kafka-txn diagnose --bootstrap-server " in lag.stderr
    hidden = ask("watcher", "lag")
    assert (hidden.returncode, "Groups may be hidden; missing: " in hidden.stderr) == (3, True)


def test_an_owner_that_may_be_hidden_is_not_an_unknown_one(ask: Ask, alive: StagedIncident, acls: Acls) -> None:
    acls.allow((TOPIC, DATA, LITERAL, READ))
    why = ask("watcher", "why", f"{DATA}-0@{alive.start_offset}", "--format", "json")
    (row,) = json.loads(why.stdout)
    assert (row["status"], row["transactional_id"]) == ("open", None)
    assert "DESCRIBE on TransactionalId" in row["error"]
    assert why.returncode == 3


def test_coordinator_and_history_without_rights(ask: Ask, alive: StagedIncident, acls: Acls) -> None:
    for of, name in (("--group", COMMITTED), ("--transactional-id", alive.transactional_id)):
        coordinator = ask("watcher", "coordinator", of, name)
        assert (coordinator.returncode, "AUTHORIZATION_FAILED" in coordinator.stdout) == (3, True)
    history = ask("watcher", "history", "--transactional-id", alive.transactional_id)
    assert history.returncode == 3, history
    assert "has no record" not in history.stderr
    assert "Topic '__transaction_state' cannot be described" in history.stderr
    acls.allow((GROUP_RESOURCE, "*", LITERAL, DESCRIBE))
    hashed = ask("watcher", "coordinator", "--group", COMMITTED)
    assert (hashed.returncode, "its partition is not known" in hashed.stdout) == (3, True)


def test_groups_that_may_be_hidden_are_unknown_in_a_finding(guarded: Kafka, admin: Cluster, acls: Acls) -> None:
    staged = INCIDENTS["never_added"](guarded.client_config("admin"), topic="hidden-hanging")
    with blocked_consumer(guarded.client_config("admin"), staged.topic, "hidden-waiting"):
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
            watcher.committing_groups([TopicPartition(staged.topic, 0)])
        acls.allow((GROUP_RESOURCE, "hidden-waiting", LITERAL, DESCRIBE))
        assert held(watcher) == ["hidden-waiting"]


def test_an_offset_that_may_not_be_read_is_not_none(guarded: Kafka, admin: Cluster, acls: Acls) -> None:
    topic = INCIDENTS["never_added"](guarded.client_config("admin"), topic="hidden-topic").topic
    with blocked_consumer(guarded.client_config("admin"), topic, "seen"):
        pass
    acls.allow((GROUP_RESOURCE, "*", LITERAL, DESCRIBE), *SEE_ACLS)
    assert admin.committing_groups([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): ["seen"]}
    with (
        Cluster(guarded.client_config("watcher")) as watcher,
        pytest.raises(BrokerError, match=f"on {topic}-0 cannot be read: TOPIC_AUTHORIZATION_FAILED"),
    ):
        watcher.committing_groups([TopicPartition(topic, 0)])


def test_an_incomplete_recording_has_one_warning(ask: Ask, acls: Acls, tmp_path: Path) -> None:
    recorded = ask("watcher", "record", "--output", str(tmp_path / "samples"), "--interval", "1s", "--samples", "2")
    assert recorded.returncode == 0, recorded.stderr
    warning, first = recorded.stderr.splitlines()
    assert first.startswith("Recording, keeps samples for 30 d ")
    assert "samples are incomplete; missing: DESCRIBE on Topic '*' for this principal." in warning


def test_a_range_that_ends_before_it_starts_is_refused(kafka: Kafka) -> None:
    topic = INCIDENTS["never_added"](kafka).topic
    for start, stop in (
        ("5", "1"),
        ("high_watermark", "log_start"),
        ("9999", "high_watermark"),
        ("2026-11-21T12:00:00Z", "2026-11-21T11:00:00Z"),
    ):
        bounds = ("--start-offset", start, "--stop-offset", stop)
        refused = run("gaps", f"{topic}-0", *bounds, "--bootstrap-server", kafka.bootstrap_servers)
        assert (refused.returncode, refused.stdout) == (2, ""), refused
        assert "before it starts" in refused.stderr
