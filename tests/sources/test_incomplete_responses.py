"""What a broker leaves out of a response is not known: nothing is clear, loaded, missing or written because of it.

Apache Kafka leaves out nothing that it was asked for, so the responses are made up.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.api_header import ResponseClassRegistry

from tests.actions.rows import RowCluster, abort_plan
from tests.process import PATIENCE_S, run
from tests.sources.fake import NOW, FakeCluster
from tests.sources.test_responses_of_brokers import serving
from tests.tools.fake_cluster import FakeCluster as SocketCluster
from toolkit import Cluster
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.errors import BrokerError
from toolkit.schema.table import Selection, TopicPartition
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.coordinators import (
    GROUPS,
    TOPICS,
    TRANSACTION,
    TRANSACTIONAL_IDS,
    AclResource,
    broker_configs,
    read_coordinators,
    visibility_of,
)
from toolkit.sources.live.group_offsets import undescribed_group
from toolkit.sources.live.leaders import FetchPosition, fetch, offset_of, read_metadata, read_partitions
from toolkit.sources.live.observe import observe
from toolkit.sources.live.transactions import named_transactions

HELD, CLEAR = 0, 1
TOPIC = "orders-00000"
LIST_OFFSETS, DESCRIBE_PRODUCERS = 2, 61
INCOMPLETE = "INCOMPLETE_RESPONSE: the response to "


class Omitting(SocketCluster):
    """A broker that leaves two partitions out of the responses of one API."""

    omitted: int | None = None

    def answer(self, broker: int, frame: bytes) -> bytes:
        whole = super().answer(broker, frame)
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        if key != self.omitted:
            return whole
        response = ResponseClassRegistry._response_class_registry[key].decode(whole[4:], version=version, header=True)
        for topic in response.topics:
            if topic.name == TOPIC:
                topic.partitions = [each for each in topic.partitions if each.partition_index not in {HELD, CLEAR}]
        response._header = None
        response.API_VERSION = version
        response.with_header(correlation_id=correlation_id)
        return bytes(response.encode(header=True, framed=True))


@pytest.fixture(scope="module")
def omitting() -> Iterator[Omitting]:
    cluster = Omitting(1, 200, 10)
    with serving(cluster):
        yield cluster


@pytest.mark.parametrize("api", [LIST_OFFSETS, DESCRIBE_PRODUCERS])
def test_a_partition_that_a_response_leaves_out_is_unknown(omitting: Omitting, api: int) -> None:
    """It counted as clear, also where a transaction was open."""
    servers = f"127.0.0.1:{omitting.ports[0]}"
    name = {LIST_OFFSETS: "ListOffsets", DESCRIBE_PRODUCERS: "DescribeProducers"}[api]
    omitting.omitted = None
    with Cluster(servers, timeout=PATIENCE_S) as cluster:
        verdicts = {row["partition"]: row["verdict"] for row in cluster.finding_rows(topics=[TOPIC], recheck_after=0)}
        assert (verdicts[HELD], verdicts[CLEAR]) != ("unknown", "unknown")
        omitting.omitted = api
        rows = {row["partition"]: row for row in cluster.finding_rows(topics=[TOPIC], recheck_after=0)}
        everywhere = {(row["topic"], row["partition"]): row for row in cluster.finding_rows(recheck_after=0)}
    for row in (rows[HELD], rows[CLEAR], everywhere[TOPIC, HELD], everywhere[TOPIC, CLEAR]):
        assert row["verdict"] == "unknown"
        assert any(each.startswith(f"{INCOMPLETE}{name} does not have ") for each in row["missing"])
    assert {row["verdict"] for number, row in rows.items() if number not in {HELD, CLEAR}} == {"clear"}
    done = run("find-hanging", "--bootstrap-server", servers, "--recheck-after", "0", "--format", "json")
    found = {(row["topic"], row["partition"]): row["verdict"] for row in json.loads(done.stdout)["rows"]}
    assert found[TOPIC, HELD] == found[TOPIC, CLEAR] == "unknown"
    assert done.returncode


def client(**replaced: Callable[..., Any]) -> BrokerClient:
    return cast(BrokerClient, FakeCluster(**replaced))


def empty() -> Callable[..., Any]:
    """An API that answers, with nothing of what it was asked for."""
    lists = ("topics", "transaction_states", "coordinators", "markers", "responses", "partitions", "results", "groups")
    return lambda broker, request: SimpleNamespace(**dict.fromkeys(lists, ()), error_code=0)


def missing_of(cluster: BrokerClient) -> list[str]:
    observation = observe(
        cluster, read_metadata(cluster, ["orders"]).partitions, selection=Selection(topics=["orders"])
    )
    (row,) = Diagnosis.of([observation]).findings()
    assert row.verdict == "unknown"
    return [*(row.missing or ())]


def test_an_owner_that_is_not_described_and_a_coordinator_that_may_not_have_loaded_are_unknown() -> None:
    """The first was a traceback, the second a coordinator that has loaded."""
    assert any(f"{INCOMPLETE}DescribeTransactions" in each for each in missing_of(client(DescribeTransactions=empty())))
    without_owner = FakeCluster(DescribeTransactions=empty())
    without_owner.ids = {1: [], 2: []}
    missing = missing_of(cast(BrokerClient, without_owner))
    assert any("did not show whether it has loaded 1 of the __transaction_state partitions" in each for each in missing)
    (row,) = named_transactions(client(DescribeTransactions=empty()), ["payments"])
    assert (row.error or "").startswith(f"{INCOMPLETE}DescribeTransactions does not have this id")


def test_a_coordinator_that_is_not_found_has_an_error() -> None:
    (row,) = read_coordinators(client(FindCoordinator=empty()), ["payments"], TRANSACTION)
    assert (row.error or "").startswith(f"{INCOMPLETE}FindCoordinator does not have this transaction")


def test_a_topic_or_partition_without_metadata_has_an_error() -> None:
    """``__transaction_state`` passed for a topic that is not created yet, so that no coordinator owns anything."""
    errors = read_metadata(client(Metadata=empty()), ["orders"]).errors
    assert errors == {"orders": f"{INCOMPLETE}Metadata does not have it"}
    whole = FakeCluster()
    del whole.leaders["__transaction_state", 0]
    found = read_metadata(cast(BrokerClient, whole), ["__transaction_state"]).partitions
    assert [(each.partition, each.error is None) for each in sorted(found.values())] == [(0, False), (1, True)]
    assert any("__transaction_state" in each for each in missing_of(cast(BrokerClient, whole)))


def test_a_fetch_without_the_partition_is_an_error() -> None:
    position = FetchPosition(TopicPartition("orders", 0), 0, 1)
    (fetched,) = fetch(client(Fetch=empty()), [position], max_bytes=1)
    assert (fetched.error or "").startswith(f"{INCOMPLETE}Fetch")


def test_a_marker_without_a_response_of_its_own_may_be_written() -> None:
    plan = abort_plan(RowCluster())
    progress = plan.action.progress(plan, None)
    silent: Any = SimpleNamespace(client=client(WriteTxnMarkers=empty()))
    assert plan.action.send(replace(plan, cluster=silent), progress).startswith("INCOMPLETE_RESPONSE")
    assert progress.effect == "uncertain"


@pytest.mark.parametrize(
    ("resource", "api"), [(TRANSACTIONAL_IDS, "DescribeTransactions"), (TOPICS, "Metadata"), (GROUPS, "DescribeGroups")]
)
def test_a_probe_without_an_answer_proves_no_visibility(resource: AclResource, api: str) -> None:
    """That no transactional id is hidden is what `hanging` without an owner rests on."""
    acls = {"DescribeAcls": lambda broker, request: SimpleNamespace(error_code=0, resources=[])}
    visibility = visibility_of(resource, client(**acls, **{api: empty()}), [1, 2])
    assert not visibility.proofs
    assert len(visibility.gaps) == 1


def test_settings_offsets_and_groups_that_a_response_leaves_out_are_errors() -> None:
    """The first was no row, the others were tracebacks."""
    (config,) = broker_configs(client(DescribeConfigs=empty()), [1], ["some.key"])
    assert (config.error or "").startswith(f"{INCOMPLETE}DescribeConfigs")
    (partition,) = read_partitions(client(), read_metadata(client(), ["orders"]).partitions)
    with pytest.raises(BrokerError, match="does not have this partition") as failed:
        offset_of(client(ListOffsets=empty()), NOW, partition)
    assert failed.value.code == "INCOMPLETE_RESPONSE"
    brokers = FakeCluster(DescribeGroups=empty())
    brokers.leaders["__consumer_offsets", 0] = (1, 0)
    brokers.ids[1].append(("billing", 1, ""))
    error = undescribed_group(cast(BrokerClient, brokers), "billing")
    assert (error or "").startswith(f"{INCOMPLETE}DescribeGroups does not have this group")
