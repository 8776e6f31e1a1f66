"""The table of docs/rights.md, right by right: on a real authorizer, with each right and without it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.acls import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    READ,
    SECRETS,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Right,
)
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_actions import plan_fence
from toolkit.actions.marker_actions import plan_abort, plan_complete
from toolkit.errors import ActionFailed, BrokerError
from toolkit.lab import Kafka
from toolkit.lab.clients import BlockedConsumer
from toolkit.lab.incidents import INCIDENTS, REPLICATED, STANDSTILL, TWO_PHASE, StagedIncident
from toolkit.schema import Row

if TYPE_CHECKING:
    from tests.acls import Acls

TABLE = Path(__file__).resolve().parents[2] / "docs" / "rights.md"

READ_TOPICS: Right = (TOPIC, "*", LITERAL, READ)
READ_STATE: Right = (TOPIC, "__transaction_state", LITERAL, READ)
SEE_STATE: Right = (TOPIC, "__transaction_state", LITERAL, DESCRIBE)
SEE_IDS: tuple[Right, ...] = (
    (TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE),
    (CLUSTER, "kafka-cluster", LITERAL, DESCRIBE),
    (CLUSTER, "kafka-cluster", LITERAL, DESCRIBE_CONFIGS),
)
INCIDENT_NAMES = (
    "never_added",
    "late_message",
    "offsets_never_added",
    "superseded_same_partition",
    "open_young",
    "open_long",
    "overdue",
    "prepared",
    "skipped_marker",
    "marker_only",
)
DECIDED_BY_THE_LOG = {
    "never_added",
    "late_message",
    "offsets_never_added",
    "superseded_same_partition",
    "skipped_marker",
}
"""Incidents whose verdict needs what `__transaction_state` says of earlier transactions."""

every_incident = pytest.mark.parametrize("name", INCIDENT_NAMES)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kafka]:
    """Two brokers with an authorizer, on which incidents of every verdict can be staged."""
    properties = {**TWO_PHASE.properties, **REPLICATED.properties}
    properties["transaction.abort.timed.out.transaction.cleanup.interval.ms"] = "86400000"  # so that one is overdue
    with Kafka("4.3.1", brokers=2, properties=properties, users=SECRETS, super_users=["admin"]) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def staged(guarded: Kafka) -> Mapping[str, StagedIncident]:
    """Every incident once; `skipped_marker`, which restarts a broker, first."""
    names = sorted(INCIDENT_NAMES, key=lambda name: name != "skipped_marker")
    return {name: INCIDENTS[name](guarded, topic=f"rights-{name}") for name in names}


@pytest.fixture
def watcher(guarded: Kafka) -> Iterator[Cluster]:
    with Cluster(guarded.client_config("watcher")) as cluster:
        yield cluster


def topic_of(incident: StagedIncident, operation: int) -> Right:
    return TOPIC, incident.topic, LITERAL, operation


def found(cluster: Cluster, incident: StagedIncident) -> Row:
    options: dict[str, Any] = {"max_transaction_timeout_ms": 1} if incident.later == "long" else {}
    rows = cluster.finding_rows(topics=[incident.topic], partitions=[incident.partition], recheck_after=0.1, **options)
    return next((row for row in rows if row["producer_id"] == incident.producer_id), rows[0])


def answer(row: Row) -> tuple[str, str | None, str | None]:
    return row["verdict"], row["outcome"], row["action"]


@pytest.mark.full
@every_incident
def test_read_on_the_topics_and_on_transaction_state_is_enough_to_diagnose(
    watcher: Cluster, admin: Cluster, staged: Mapping[str, StagedIncident], acls: Acls, name: str
) -> None:
    acls.allow(topic_of(staged[name], READ), READ_STATE)
    if name == "overdue":  # by the brokers' time
        acls.allow((CLUSTER, "kafka-cluster", LITERAL, DESCRIBE))
    row, of_admin = found(watcher, staged[name]), found(admin, staged[name])
    assert answer(row) == answer(of_admin)
    assert row["verdict"] in {staged[name].expected, staged[name].later}
    assert row["missing"] == []


@pytest.mark.full
@every_incident
def test_without_read_on_the_topic_its_producers_are_unknown(
    watcher: Cluster, staged: Mapping[str, StagedIncident], acls: Acls, name: str
) -> None:
    acls.allow(topic_of(staged[name], DESCRIBE), READ_STATE, *SEE_IDS)
    row = found(watcher, staged[name])
    assert (row["verdict"], row["action"]) == ("unknown", None)
    assert any("TOPIC_AUTHORIZATION_FAILED" in each for each in row["missing"]), row["missing"]


NO_TOPIC, HIDDEN = "TOPIC_AUTHORIZATION_FAILED", "DESCRIBE on TransactionalId '*'"
INCOMPLETE: Mapping[str, tuple[tuple[Right, ...], str | None]] = {
    "enough": (((TOPIC, "*", LITERAL, READ),), None),
    "ids": (((TOPIC, "rights", LITERAL, READ), SEE_STATE, *SEE_IDS), None),
    "describe": (((TOPIC, "rights", LITERAL, DESCRIBE), READ_STATE, *SEE_IDS), NO_TOPIC),
    "hidden": (((TOPIC, "rights", LITERAL, READ), SEE_STATE, *SEE_IDS[1:]), HIDDEN),
}
"""Rights of a user by its name, and what a finding lacks with them."""


@pytest.mark.lab
@pytest.mark.full
@pytest.mark.parametrize("name", ["committing", "unreplicated"])
def test_rights_while_a_replica_is_missing(name: str) -> None:
    """A broker stands still, so each user has its rights before. Nothing is open under an id where `unreplicated`."""
    from tests.acls import Acls

    setup = {"committing": REPLICATED, "unreplicated": STANDSTILL}[name]
    users = {"admin": SECRETS["admin"], **{user: f"{user}-secret" for user in INCOMPLETE}}
    with Kafka("4.3.1", brokers=2, properties=setup.properties, users=users, super_users=["admin"]) as kafka:
        with Cluster(kafka.client_config("admin")) as admin:
            for user, (rights, _) in INCOMPLETE.items():
                Acls(admin, user).allow(*rights)
        with INCIDENTS[name](kafka, topic="rights") as incident:
            for user, (_, missing) in INCOMPLETE.items():
                with Cluster(kafka.client_config(user), timeout=5) as cluster:
                    rows = cluster.finding_rows(topics=["rights"], partitions=[0], recheck_after=0.1)
                if missing is None or (missing == HIDDEN and name == "unreplicated"):
                    # With rights on the ids, the transaction whose marker waits has a row, too.
                    row = next(row for row in rows if row["verdict"] in {incident.expected, incident.later})
                    assert (row["outcome"], row["missing"]) == (incident.outcome, []), user
                else:
                    assert {(row["verdict"], row["action"]) for row in rows} == {("unknown", None)}, user
                    assert any(missing in each for each in rows[0]["missing"]), rows[0]["missing"]


@pytest.mark.full
@pytest.mark.parametrize("name", ["never_added", "open_young"])
def test_without_any_right_on_the_topic_it_cannot_be_described(
    watcher: Cluster, staged: Mapping[str, StagedIncident], acls: Acls, name: str
) -> None:
    acls.allow(READ_STATE, *SEE_IDS)
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        found(watcher, staged[name])


@pytest.mark.full
@every_incident
def test_rights_on_ids_and_the_cluster_show_owners_but_no_outcome(
    watcher: Cluster, admin: Cluster, staged: Mapping[str, StagedIncident], acls: Acls, name: str
) -> None:
    acls.allow(topic_of(staged[name], READ), SEE_STATE, *SEE_IDS)
    row = found(watcher, staged[name])
    if name in DECIDED_BY_THE_LOG:
        assert (row["verdict"], row["outcome"], row["action"]) == ("unknown", "unknown", None)
        assert any("__transaction_state" in each for each in row["missing"]), row["missing"]
    else:
        verdict, *outcome = answer(found(admin, staged[name]))
        assert row["verdict"] == verdict
        assert [row["outcome"], row["action"]] in (["unknown", None], outcome)


@pytest.mark.full
@pytest.mark.parametrize("name", ["never_added", "open_young", "prepared"])
@pytest.mark.parametrize(
    "without", [0, 1, 2], ids=["ids", "DESCRIBE on the cluster", "DESCRIBE_CONFIGS on the cluster"]
)
def test_each_of_these_rights_is_needed_for_an_id_that_may_be_hidden(
    watcher: Cluster, staged: Mapping[str, StagedIncident], acls: Acls, name: str, without: int
) -> None:
    rights = [right for number, right in enumerate(SEE_IDS) if number != without]
    acls.allow(topic_of(staged[name], READ), SEE_STATE, *rights)
    row = found(watcher, staged[name])
    if name in DECIDED_BY_THE_LOG or (without == 0 and row["verdict"] != "clear"):
        assert (row["verdict"], row["action"]) == ("unknown", None)
        missing = ("DESCRIBE on TransactionalId '*'", "DESCRIBE and DESCRIBE_CONFIGS", "DESCRIBE_CONFIGS")[without]
        assert any(missing in each for each in row["missing"]), row["missing"]
    else:
        assert row["verdict"] in {staged[name].expected, staged[name].later}, "its owner is visible"


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "right", "of"),
    [
        pytest.param("abort", ALTER, "never_added", id="abort with ALTER"),
        pytest.param("abort", CLUSTER_ACTION, "late_message", id="abort with CLUSTER_ACTION"),
        pytest.param("complete", ALTER, "skipped_marker", id="complete with ALTER"),
    ],
)
def test_a_marker_needs_alter_or_cluster_action(
    watcher: Cluster, staged: Mapping[str, StagedIncident], acls: Acls, audit: Audit, kind: str, right: int, of: str
) -> None:
    incident = staged[of]
    acls.allow(topic_of(incident, READ), READ_STATE, topic_of(incident, WRITE), (TRANSACTIONAL_ID, "*", LITERAL, WRITE))
    plan = plan_complete if kind == "complete" else plan_abort
    planned: Any = plan(watcher, found(watcher, incident))
    with pytest.raises(ActionFailed, match="CLUSTER_AUTHORIZATION_FAILED") as refused:
        planned.execute(confirm=planned.target, recheck_after=0.1)
    assert refused.value.effect == "nothing"
    assert "ALTER on the Cluster (Kafka 3.8 or newer) or CLUSTER_ACTION" in refused.value.do
    assert found(watcher, incident)["verdict"] == incident.expected
    acls.allow((CLUSTER, "kafka-cluster", LITERAL, right))
    planned.execute(confirm=planned.target, recheck_after=0.1)
    assert found(watcher, incident)["verdict"] == "clear"


@pytest.mark.lab
@pytest.mark.full
def test_before_3_8_a_marker_needs_cluster_action(audit: Audit) -> None:
    from tests.acls import Acls

    properties = INCIDENTS["never_added"].properties
    with (
        Kafka("3.5.2", properties=properties, users=SECRETS, super_users=["admin"]) as kafka,
        Cluster(kafka.client_config("admin")) as admin,
        Cluster(kafka.client_config("watcher")) as watcher,
    ):
        acls, incident = Acls(admin), INCIDENTS["never_added"](kafka)
        acls.allow(READ_TOPICS, (CLUSTER, "kafka-cluster", LITERAL, ALTER))
        plan = plan_abort(watcher, found(watcher, incident))
        with pytest.raises(ActionFailed, match="CLUSTER_AUTHORIZATION_FAILED"):
            plan.execute(confirm=plan.target, recheck_after=0.1)
        acls.allow((CLUSTER, "kafka-cluster", LITERAL, CLUSTER_ACTION))
        plan.execute(confirm=plan.target, recheck_after=0.1)
        assert found(watcher, incident)["verdict"] == "clear"


@pytest.mark.full
def test_fencing_needs_write_on_the_id(guarded: Kafka, watcher: Cluster, acls: Acls, audit: Audit) -> None:
    incident = INCIDENTS["open_young"](guarded, topic="rights-fence")
    acls.allow(topic_of(incident, READ), READ_STATE, (TRANSACTIONAL_ID, "*", LITERAL, DESCRIBE))
    plan = plan_fence(watcher, incident.transactional_id)
    with pytest.raises((BrokerError, ActionFailed), match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED") as refused:
        plan.execute(confirm=plan.target, override="ongoing")
    assert "WRITE on the transactional id" in str(refused.value)
    assert found(watcher, incident)["verdict"] == "ongoing"
    acls.allow((TRANSACTIONAL_ID, incident.transactional_id, LITERAL, WRITE))
    plan.execute(confirm=plan.target, override="ongoing")
    assert found(watcher, incident)["verdict"] == "clear"


@pytest.mark.full
def test_whether_compaction_waits_needs_describe_configs_on_the_topic(
    watcher: Cluster, staged: Mapping[str, StagedIncident], acls: Acls
) -> None:
    incident = staged["offsets_never_added"]  # __consumer_offsets is compacted
    acls.allow(topic_of(incident, READ), READ_STATE)
    assert found(watcher, incident)["compaction_held"] is None
    acls.allow(topic_of(incident, DESCRIBE_CONFIGS))
    assert found(watcher, incident)["compaction_held"] is True


@pytest.mark.full
def test_the_groups_that_wait_need_describe_on_them(guarded: Kafka, watcher: Cluster, acls: Acls) -> None:
    incident = INCIDENTS["never_added"](guarded, topic="rights-groups")
    with BlockedConsumer(guarded.client_config("admin"), incident.topic, "rights-group"):
        pass
    acls.allow(topic_of(incident, READ), READ_STATE)
    row = found(watcher, incident)
    assert (row["verdict"], row["groups_held"]) == ("hanging", None)
    acls.allow((GROUP, "*", LITERAL, DESCRIBE))
    assert found(watcher, incident)["groups_held"] == ["rights-group"]


def test_every_row_of_the_table_is_proven() -> None:
    """By its first column; a changed row needs another look at its tests."""
    rows = [line.split("|")[1].strip() for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    proofs = {
        "DESCRIBE on the topics": test_without_any_right_on_the_topic_it_cannot_be_described,
        "READ on the topics": test_without_read_on_the_topic_its_producers_are_unknown,
        "READ on `__transaction_state`": test_rights_on_ids_and_the_cluster_show_owners_but_no_outcome,
        "DESCRIBE on all transactional ids": test_each_of_these_rights_is_needed_for_an_id_that_may_be_hidden,
        "or, instead of it, READ on `__transaction_state`": (
            test_read_on_the_topics_and_on_transaction_state_is_enough_to_diagnose
        ),
        "DESCRIBE on the cluster, or": test_read_on_the_topics_and_on_transaction_state_is_enough_to_diagnose,
        "DESCRIBE on the groups": test_the_groups_that_wait_need_describe_on_them,
        "DESCRIBE_CONFIGS on the topics": test_whether_compaction_waits_needs_describe_configs_on_the_topic,
        "ALTER on the cluster": test_a_marker_needs_alter_or_cluster_action,
        "WRITE on the transactional id": test_fencing_needs_write_on_the_id,
    }
    assert [next((key for key in proofs if re.match(re.escape(key), row)), row) for row in rows[2:]] == [*proofs]
