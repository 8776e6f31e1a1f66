"""Coordinators of ids and groups, whether they have loaded, what they describe, and that nothing is hidden.

ListTransactions silently omits ids, Metadata topics, and ListGroups groups that a principal may not describe. Kafka's
own authorizers decide on a name only by the ACLs that match it: literal, prefixed, wildcard. So one probe per literal
and per prefix of any ACL, and one for all other names, cover every possible name.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, NamedTuple, Self

from toolkit.analysis.exposure import MAX_TIMEOUT, BrokerIdentity
from toolkit.analysis.transaction_owners import OPEN_STATES
from toolkit.errors import BrokerError, ConnectionFailed
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC, coordinator_partition
from toolkit.schema import utc
from toolkit.schema.live import Coordinator, Transaction
from toolkit.schema.table import Error, TopicPartition, utc_now
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import (
    TOO_OLD,
    BrokerClient,
    BrokerResponse,
    error_name,
    error_text,
    omitted_text,
)
from toolkit.sources.live.leaders import ClusterMetadata, is_missing, read_newest_metadata

TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS = 2, 4, 32  # resource types of DescribeConfigs
POLICY = "cleanup.policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceConfig:
    """Values of one resource by key, or the error; keys that the broker does not know are left out."""

    name: str
    broker_id: int | None
    observed_at: dt.datetime
    values: Mapping[str, str | None] = field(default_factory=dict)
    error: str | None = None


def describe_configs(
    client: BrokerClient, resource_type: int, names: Collection[str], keys: Sequence[str]
) -> list[ResourceConfig]:
    """The configurations of resources, in one request to each broker that is a resource, or else to any broker.

    `resource_type`, `names`: `TOPIC_CONFIGS`, `BROKER_CONFIGS` or `GROUP_CONFIGS`, and the names of the resources.
    """
    request = broker_client.DescribeConfigs
    resources = [
        request.DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=list(keys))
        for name in names
    ]
    options = {"include_synonyms": False, "include_documentation": False}
    requests: list[tuple[int | None, Any]] = [(None, request(resources=resources, **options))]
    if resource_type == BROKER_CONFIGS:
        requests = [(int(each.resource_name), request(resources=[each], **options)) for each in resources]
    found: list[ResourceConfig] = []
    for (broker_id, _), response in zip(requests, client.send(requests), strict=True):
        sender, at = response.broker_id if broker_id is None else broker_id, response.observed_at
        results = {} if response.error else {result.resource_name: result for result in response.message.results}
        for name in names if broker_id is None else [str(broker_id)]:
            values: dict[str, str | None] = {}
            error: str | None = response.error_text or omitted_text("DescribeConfigs", "this resource")
            if result := results.get(name):
                values = {config.name: config.value for config in result.configs or ()}
                error = error_text(result.error_code, result.error_message) if result.error_code else None
            found.append(ResourceConfig(name=name, broker_id=sender, observed_at=at, values=values, error=error))
    return found


def broker_configs(client: BrokerClient, brokers: Iterable[int], keys: Sequence[str]) -> list[ResourceConfig]:
    """The configuration of each broker, from itself."""
    return describe_configs(client, BROKER_CONFIGS, [str(broker) for broker in brokers], keys)


def compacted_topics(client: BrokerClient, topics: Collection[str]) -> dict[str, bool]:
    """Whether each topic is compacted; topics whose configuration may not be described are left out."""
    return {
        config.name: "compact" in (config.values[POLICY] or "")
        for config in describe_configs(client, TOPIC_CONFIGS, sorted(topics), [POLICY])
        if not config.error and POLICY in config.values
    }


def longest_timeout_ms(client: BrokerClient) -> int | None:
    """The longest timeout that a broker allows; null if one may not be described."""
    configs = broker_configs(client, sorted(client.brokers), [MAX_TIMEOUT])
    values = [config.values.get(MAX_TIMEOUT) or "" for config in configs if not config.error]
    numbers = [int(value) for value in values if value.isdecimal()]
    return max(numbers) if numbers and len(numbers) == len(configs) else None


def broker_identities(client: BrokerClient, brokers: Iterable[int]) -> list[BrokerIdentity]:
    """What each broker shows of its software, if there was a connection to it; nothing is sent."""
    addresses, cluster_id = client.brokers, client.cluster_id
    return [
        BrokerIdentity(
            broker_id=broker_id, host=addresses.get(broker_id, "").rpartition(":")[0], cluster_id=cluster_id, apis=apis
        )
        for broker_id in brokers
        if (apis := client.apis(broker_id)) is not None
    ]


MAX_PROBES = 10_000
NAMES_PER_REQUEST = 2000
ANY, LITERAL = 1, 3
TOPIC_ACLS, GROUP_ACLS, TRANSACTIONAL_ID_ACLS = 2, 3, 5  # resource types of DescribeAcls
FAILED = "UNKNOWN_SERVER_ERROR"  # of every name, where the authorizer itself fails
AUTHORIZER = "authorizer.class.name"
KAFKA_AUTHORIZERS = {
    "kafka.security.auth.SimpleAclAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}


@dataclass(frozen=True, slots=True)
class Visibility:
    """Proofs that everything is visible, and gaps in them; without gaps everything is."""

    proofs: Sequence[str]
    gaps: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclResource:
    """A resource type of ACLs, and the request whose answer says which names are denied to this principal.

    A broker checks authorization before it checks whether it coordinates a name.
    """

    type: int
    name: str
    request: Callable[[list[str]], Any]  # of some names
    codes: Callable[[Any], Iterable[tuple[str, int]]]  # names and error codes in an answer
    denied: str
    max_length: int | None = None


TRANSACTIONAL_IDS = AclResource(
    type=TRANSACTIONAL_ID_ACLS,
    name="TransactionalId",
    request=lambda names: broker_client.DescribeTransactions(transactional_ids=names),
    codes=lambda answer: ((each.transactional_id, each.error_code) for each in answer.transaction_states),
    denied="TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
)
GROUPS = AclResource(
    type=GROUP_ACLS,
    name="Group",
    request=lambda names: broker_client.DescribeGroups(groups=names),
    codes=lambda answer: ((each.group_id, each.error_code) for each in answer.groups),
    denied="GROUP_AUTHORIZATION_FAILED",
)
TOPICS = AclResource(
    type=TOPIC_ACLS,
    name="Topic",
    request=lambda names: broker_client.Metadata(
        topics=[broker_client.Metadata.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    ),
    codes=lambda answer: ((each.name, each.error_code) for each in answer.topics),
    denied="TOPIC_AUTHORIZATION_FAILED",
    max_length=249,
)


def visibility_of(resource: AclResource, client: BrokerClient, brokers: Sequence[int]) -> Visibility:
    """Whether every `TRANSACTIONAL_IDS`, `GROUPS` or `TOPICS` of the cluster is visible to this principal."""
    try:
        return _check(client, brokers, resource)
    except (BrokerError, ConnectionFailed) as exc:
        return Visibility([], [f"a proof that no {resource.name} is hidden from this principal: {exc}"])


def _check(client: BrokerClient, brokers: Sequence[int], resource: AclResource) -> Visibility:
    acls = _acls(client, brokers, resource.type)
    with_authorizer = [broker for broker, response in acls if _code(response) != "SECURITY_DISABLED"]
    if not with_authorizer:
        return Visibility(["no broker has an authorizer, so nothing is hidden"], [])
    if _probe(client, with_authorizer, resource, [uuid.uuid4().hex]):
        return Visibility([], [f"DESCRIBE on {resource.name} '*' for this principal" + _or_read_the_log(resource)])
    unread = [response for _, response in acls if _code(response) not in {"NONE", "SECURITY_DISABLED"}]
    if unread:
        return Visibility([], [_no_acls(resource, unread[0])])
    if gap := _foreign_authorizer(client, with_authorizer, resource):
        return Visibility([], [gap])
    probes = dict(_probes(resource, [response for _, response in acls]))
    if len(probes) > MAX_PROBES:
        too_many = f"a proof that no {resource.name} is hidden: its {len(probes)} ACLs are too many to check"
        return Visibility([], [too_many])
    if denied := _probe(client, with_authorizer, resource, list(probes)):
        or_log = _or_read_the_log(resource)
        return Visibility([], [f"DESCRIBE on {probes[name]} for this principal" + or_log for name in sorted(denied)])
    return Visibility([f"the ACLs hide no {resource.name} from this principal ({len(probes) + 1} probes)"], [])


def _acls(client: BrokerClient, brokers: Sequence[int], resource_type: int) -> list[tuple[int, BrokerResponse]]:
    """The brokers' DescribeAcls responses; those of the others suffice if a broker fails.

    Raises BrokerError or ConnectionFailed if no broker answers.
    """
    request = broker_client.DescribeAcls(
        resource_type_filter=resource_type,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    responses = client.send([(broker, request) for broker in brokers])
    answered = [(broker, response) for broker, response in zip(brokers, responses, strict=True) if not response.error]
    if not answered:
        _raise_first(responses)
    return answered


def _code(response: BrokerResponse) -> str:
    return error_name(response.message.error_code)


def _no_acls(resource: AclResource, response: BrokerResponse) -> str:
    gap = f"a proof that no {resource.name} is hidden from this principal"
    if _code(response) == "CLUSTER_AUTHORIZATION_FAILED":
        gap += ": DESCRIBE and DESCRIBE_CONFIGS on Cluster, to check it by the ACLs"
    else:
        gap += f": the ACLs of broker {response.broker_id} ({_code(response)})"
    return gap + _or_read_the_log(resource)


def _or_read_the_log(resource: AclResource) -> str:
    return "; or READ on Topic '__transaction_state'" if resource.type == TRANSACTIONAL_ID_ACLS else ""


def _foreign_authorizer(client: BrokerClient, brokers: Sequence[int], resource: AclResource) -> str | None:
    """The gap if an authorizer other than Kafka's decides, or its class may not be read."""
    gap = f"a proof that no {resource.name} is hidden from this principal"
    for broker, config in zip(brokers, broker_configs(client, brokers, [AUTHORIZER]), strict=True):
        if config.error:
            gap += f": DESCRIBE_CONFIGS on Cluster, to know the authorizer of broker {broker}"
            return gap + _or_read_the_log(resource)
        name = config.values.get(AUTHORIZER)
        if name not in KAFKA_AUTHORIZERS:
            return f"{gap}: broker {broker} has a third-party authorizer ({name})" + _or_read_the_log(resource)
    return None


def _probes(resource: AclResource, responses: Iterable[BrokerResponse]) -> Iterator[tuple[str, str]]:
    """Probe name and what it covers, for each literal and each prefix of an ACL."""
    for response in responses:
        for acl in response.message.resources:
            if acl.pattern_type != LITERAL:
                suffix = uuid.uuid4().hex[:12]
                name = acl.resource_name + suffix
                yield name[: resource.max_length], f"{resource.name} prefix '{acl.resource_name}' (or on '*')"
            elif acl.resource_name != "*":
                yield acl.resource_name, f"{resource.name} '{acl.resource_name}' (or on '*')"


def _probe(client: BrokerClient, brokers: Sequence[int], resource: AclResource, names: Sequence[str]) -> set[str]:
    """Names that at least one broker denies, or does not answer for."""
    some_names = [list(names[start : start + NAMES_PER_REQUEST]) for start in range(0, len(names), NAMES_PER_REQUEST)]
    responses = client.send([(broker, resource.request(some)) for broker in brokers for some in some_names])
    _raise_first(responses)
    visible: Counter[str] = Counter()
    for response in responses:
        codes = ((name, error_name(code)) for name, code in resource.codes(response.message))
        visible.update({name for name, code in codes if code not in {resource.denied, FAILED}})
    return {name for name in names if visible[name] < len(brokers)}


def _raise_first(responses: Iterable[BrokerResponse]) -> None:
    for response in responses:
        if response.error:
            raise response.error


GROUP, TRANSACTION = 0, 1  # key types of FindCoordinator
NAMES = {GROUP: ("group", OFFSETS_TOPIC), TRANSACTION: ("transaction", STATE_TOPIC)}
FACTOR = "transaction.state.log.replication.factor"
KEYS_PER_REQUEST = 1000
NOT_YET = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
# Of an unused id. One that is denied does not show it; then ids may be hidden, which is a gap of its own.
LOADED = {"NONE", "TRANSACTIONAL_ID_NOT_FOUND", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}


def partition_numbers(partitions: Sequence[int]) -> str:
    """``partition 3`` or ``partitions 3, 7``."""
    return f"partition{'s' if len(partitions) > 1 else ''} {', '.join(map(str, partitions))}"


@dataclass(frozen=True)
class CoordinatorTopic:
    """A coordinators' topic: the partition that a key hashes to, and its leader."""

    topic: str  # ``__transaction_state`` or ``__consumer_offsets``
    metadata: ClusterMetadata  # metadata of this topic

    @classmethod
    def read(cls, client: BrokerClient, topic: str) -> Self:
        """Read the metadata of a coordinators' topic, by all brokers."""
        return cls(topic, read_newest_metadata(client, [topic]))

    @classmethod
    def of(cls, topic: str, metadata: ClusterMetadata) -> Self:
        """A coordinators' topic from the metadata of several: whoever reads all of its partitions reads no other's."""
        own = {tp: each for tp, each in metadata.partitions.items() if tp.topic == topic}
        errors = {name: error for name, error in metadata.errors.items() if name == topic}
        return cls(topic, replace(metadata, partitions=own, errors=errors))

    @cached_property
    def count(self) -> int:
        """Partitions of the topic; 0 if it does not exist or may not be described."""
        return sum(topic == self.topic for topic, _ in self.metadata.partitions)

    @property
    def hidden(self) -> str | None:
        """``"NAME: text"`` if the topic may not be described; null if it is visible or not created yet."""
        error = self.metadata.errors.get(self.topic)
        return None if is_missing(error) else error

    @property
    def is_absent(self) -> bool:
        """Whether it does not exist; false if that is not known."""
        return is_missing(self.metadata.errors.get(self.topic))

    def why_absent(self, client: BrokerClient) -> str | None:
        """Why no key has a coordinator if it does not exist; null if it does, or that is not known.

        Its keys are not looked up then: FindCoordinator would have it created, and who only reads changes nothing.
        """
        if not self.is_absent:
            return None
        why = f"{self.topic} does not exist: the first client that needs it has it created"
        return f"COORDINATOR_NOT_AVAILABLE: {creation(client)[0] if self.topic == STATE_TOPIC else why}"

    @property
    def hidden_gap(self) -> str | None:
        """What is missing to see whether each partition has a leader: the right; null if it is visible or not there."""
        return self.hidden and f"DESCRIBE on Topic '{self.topic}', to see that each of its partitions has a leader"

    def gaps_until(self, after: CoordinatorTopic) -> list[str]:
        """What is missing for answers of all coordinators between two reads of it: a right, leaders, no election."""
        if gap := self.hidden_gap or after.hidden_gap:
            return [gap]
        before, now = self.metadata.partitions, after.metadata.partitions
        leaderless = [
            tp.partition
            for tp in sorted({*before, *now})
            if tp not in now or now[tp].leader is None or before.get(tp, now[tp]).leader is None
        ]
        gaps = []
        if leaderless:
            gaps.append(f"a leader of {self.topic} {partition_numbers(leaderless)}: no broker answers for its ids")
        if moved := sorted(set(self.moved_until(after)) - set(leaderless)):
            numbers = partition_numbers(moved)
            gaps.append(f"a stable coordinator: leadership of {self.topic} {numbers} moved during the observation")
        return gaps

    def moved_until(self, after: CoordinatorTopic) -> list[int]:
        """Partitions whose leader or leader epoch is another one in a later read."""
        return [
            tp.partition
            for tp, now in sorted(after.metadata.partitions.items())
            if (earlier := self.metadata.partitions.get(tp, now)) is not now
            and (now.leader, now.leader_epoch) != (earlier.leader, earlier.leader_epoch)
        ]

    @property
    def leaderless(self) -> str | None:
        """Its partitions without a leader, whose ids or groups no broker lists; null if there are none."""
        numbers = sorted(tp.partition for tp, each in self.metadata.partitions.items() if each.leader is None)
        return f"a leader of {self.topic} {partition_numbers(numbers)}" if numbers else None

    def partition(self, key: str) -> int | None:
        """The partition that a key hashes to; null if the topic is not visible."""
        return coordinator_partition(key, self.count) if self.count else None

    def leader(self, partition: int | None) -> int | None:
        """Broker id of a partition's leader; null if it has none."""
        if partition is None:
            return None
        found = self.metadata.partitions.get(TopicPartition(self.topic, partition))
        return found.leader if found else None


def creation(client: BrokerClient) -> tuple[str, bool]:
    """What the creation of an absent ``__transaction_state`` takes; and whether there are as many brokers, by all."""
    configs = broker_configs(client, sorted(client.brokers), [FACTOR])
    factors = sorted({int(each) for config in configs if (each := config.values.get(FACTOR))})
    number = f" ({', '.join(map(str, factors))})" if factors else ""
    needs = f"{FACTOR} says{number}; {len(client.brokers)} registered"
    if factors and factors[0] > len(client.brokers):
        return f"no transaction can begin: {STATE_TOPIC} does not exist, and takes as many brokers as {needs}", False
    is_known = all(config.values.get(FACTOR) for config in configs)
    text = f"{STATE_TOPIC} does not exist: the first client that needs it has it created, on as many brokers as {needs}"
    return text, is_known and factors[-1] <= len(client.brokers)


def read_coordinators(client: BrokerClient, keys: Sequence[str], key_type: int) -> list[Coordinator]:
    """The coordinators of ids of one type (`GROUP` or `TRANSACTION`)."""
    type_name, topic = NAMES[key_type]
    coordinator_topic = CoordinatorTopic.read(client, topic)
    if keys and (absent := coordinator_topic.why_absent(client)):
        return [
            Coordinator(key_type=type_name, key=key, topic=topic, observed_at=utc_now(), error=absent) for key in keys
        ]
    hidden = coordinator_topic.hidden and f"{coordinator_topic.hidden} ({topic}, so its partition is not known)"
    found: list[Coordinator] = []
    for key, (response, result) in zip(keys, find_coordinators(client, keys, key_type), strict=True):
        partition = coordinator_topic.partition(key)
        leader = coordinator_topic.leader(partition)
        coordinator = result.node_id if result and result.error_code == 0 else None
        error: str | None = response.error_text or omitted_text("FindCoordinator", f"this {type_name}")
        if result is not None:
            error = error_text(result.error_code, result.error_message) if result.error_code else None
        found.append(
            Coordinator(
                key_type=type_name,
                key=key,
                topic=topic,
                partition=partition,
                leader=leader,
                coordinator_id=coordinator,
                agrees=None if leader is None or coordinator is None else leader == coordinator,
                broker_id=response.broker_id,
                observed_at=response.observed_at,
                error=error or hidden,
            )
        )
    return found


def find_coordinators(client: BrokerClient, keys: Sequence[str], key_type: int) -> list[tuple[BrokerResponse, Any]]:
    """Find the coordinator of each key through any broker.

    Returns: per key, in order: the response, and the coordinator in it (``node_id``, ``error_code``,
    ``error_message``), null without a response.
    """
    if not keys:
        return []
    batches = [keys[start : start + KEYS_PER_REQUEST] for start in range(0, len(keys), KEYS_PER_REQUEST)]
    request = broker_client.FindCoordinator
    responses = client.send(
        [(None, request(key_type=key_type, coordinator_keys=list(batch), min_version=4)) for batch in batches]
    )
    if any(response.is_too_old for response in responses):
        responses = client.send([(None, request(key_type=key_type, key=key, max_version=3)) for key in keys])
        return [(response, response.message) for response in responses]
    results = []
    for batch, response in zip(batches, responses, strict=True):
        by_key = {result.key: result for result in response.message.coordinators} if response.message else {}
        results += [(response, by_key.get(key)) for key in batch]
    return results


class Unloaded(NamedTuple):
    """A coordinator that has not loaded all of its partitions, or does not show that it has: its ids may be missing."""

    broker_id: int | None
    text: str
    code: str  # its error

    @property
    def gap(self) -> str:
        """What is missing."""
        return f"{self.text}: {self.code}"


def loading_coordinators(client: BrokerClient, coordinator_topic: CoordinatorTopic) -> list[Unloaded]:
    """The brokers that have not loaded a partition of ``__transaction_state`` that they lead.

    A loading coordinator silently lists none of the ids that it has not loaded, so their producers seem to have no
    owner. DescribeTransactions, even of an unused id, returns an error until the id's partition is loaded
    (TransactionStateManager.getTransactionState).
    """
    by_leader: dict[int, list[str]] = {}
    for partition, name in enumerate(_probe_ids(coordinator_topic.count)):
        leader = coordinator_topic.leader(partition)
        if leader is not None:
            by_leader.setdefault(leader, []).append(name)
    responses = client.send(
        [(leader, broker_client.DescribeTransactions(transactional_ids=names)) for leader, names in by_leader.items()]
    )
    unloaded = []
    for response, names in zip(responses, by_leader.values(), strict=True):
        broker, shows_not = response.broker_id, f"broker {response.broker_id} did not show whether it has loaded"
        if response.error_text:
            code = Error.of(response.error_text).code
            if code != TOO_OLD:  # ListTransactions reports it, too
                unloaded.append(Unloaded(broker, f"{shows_not} its partitions", code))
            continue
        states = {state.transactional_id: error_name(state.error_code) for state in response.message.transaction_states}
        codes = Counter(states.values())
        of = f"of the {coordinator_topic.topic} partitions that it leads"
        if omitted := len(set(names) - states.keys()):
            unloaded.append(Unloaded(broker, f"{shows_not} {omitted} {of}", "INCOMPLETE_RESPONSE"))
        for name in sorted(codes.keys() - LOADED):
            loaded = f"broker {broker} has not loaded" if name in NOT_YET else shows_not
            unloaded.append(Unloaded(broker, f"{loaded} {codes[name]} {of}", name))
    return unloaded


@cache
def _probe_ids(partitions: int) -> tuple[str, ...]:
    """An unused id that hashes to each partition."""
    ids: dict[int, str] = {}
    number = 0
    while len(ids) < partitions:
        name = f"kafka-txn-toolkit-probe-{number}"
        ids.setdefault(coordinator_partition(name, partitions), name)
        number += 1
    return tuple(ids[partition] for partition in range(partitions))


IDS_PER_REQUEST = 2000
LISTED, DESCRIBED = "ListTransactions", "DescribeTransactions"  # sources


def describe(client: BrokerClient, ids: Sequence[Transaction]) -> list[Transaction]:
    """The transactions of ids (DescribeTransactions), from each id's coordinator.

    An id that its coordinator does not have (any more) is ``Dead``. If the coordinator has moved, the request is
    retried once. An id that cannot be described keeps what is known of it, with `error`.

    `ids`: what is known of each by ListTransactions or FindCoordinator; without a coordinator, any broker is asked.
    """
    described = _describe(client, ids)
    moved = [txn for txn in described if Error.of(txn.error).code == "NOT_COORDINATOR"]
    if not moved:
        return described
    coordinators = find_coordinators(client, [txn.transactional_id or "" for txn in moved], TRANSACTION)
    retried = {
        txn.transactional_id: replace(txn, coordinator_id=coordinator.node_id)
        for txn, (_, coordinator) in zip(moved, coordinators, strict=True)
        if coordinator is not None and coordinator.error_code == 0
    }
    again = _describe(client, list(retried.values()))
    return [txn for txn in described if txn.transactional_id not in retried] + again


def _describe(client: BrokerClient, ids: Sequence[Transaction]) -> list[Transaction]:
    batches = broker_client.batches(((known.coordinator_id, known) for known in ids), IDS_PER_REQUEST)
    responses = client.send(
        [
            (
                coordinator,
                broker_client.DescribeTransactions(transactional_ids=[each.transactional_id for each in batch]),
            )
            for coordinator, batch in batches
        ]
    )
    described: list[Transaction] = []
    for (_, batch), response in zip(batches, responses, strict=True):
        states = {} if response.error else {each.transactional_id: each for each in response.message.transaction_states}
        described += [_described(known, states.get(known.transactional_id), response) for known in batch]
    return described


def _described(known: Transaction, state: Any, response: BrokerResponse) -> Transaction:
    known = replace(known, broker_id=response.broker_id, observed_at=response.observed_at)
    if response.error:
        return replace(known, error=response.error_text)
    known = replace(known, coordinator_id=response.broker_id, source=DESCRIBED)
    if state is None:
        return replace(known, error=omitted_text("DescribeTransactions", "this id"))
    if error_name(state.error_code) == "TRANSACTIONAL_ID_NOT_FOUND":
        return replace(known, state="Dead")  # with the error of an earlier answer
    if state.error_code:
        return replace(known, error=error_text(state.error_code))
    return replace(
        known,
        producer_id=non_negative(state.producer_id),
        producer_epoch=non_negative(state.producer_epoch),
        state=state.transaction_state,
        timeout_ms=state.transaction_timeout_ms,
        # Without an open transaction, brokers return the start of the last one.
        start_time=utc(state.transaction_start_time_ms) if state.transaction_state in OPEN_STATES else None,
        topic_partitions=tuple(
            TopicPartition(topic.topic, number) for topic in state.topics for number in topic.partitions
        ),
        error=None,
    )


def describe_named(client: BrokerClient, coordinator_topic: CoordinatorTopic, ids: Sequence[str]) -> list[Transaction]:
    """The transactions of exactly these ids; one that does not exist, or that a broker is too old for, has `error`.

    `coordinator_topic`: ``__transaction_state``.
    """
    found: list[Transaction] = []
    names = list(dict.fromkeys(ids))
    if names and (absent := coordinator_topic.why_absent(client)):
        return [
            Transaction(transactional_id=name, source=DESCRIBED, observed_at=utc_now(), error=absent) for name in names
        ]
    for name, (response, coordinator) in zip(names, find_coordinators(client, names, TRANSACTION), strict=True):
        error = response.error_text
        if coordinator is not None:
            error = error_text(coordinator.error_code, coordinator.error_message) if coordinator.error_code else None
        known = Transaction(
            transactional_id=name,
            coordinator_id=None if coordinator is None or error else coordinator.node_id,
            txn_state_partition=coordinator_topic.partition(name),
            source=DESCRIBED,
            broker_id=response.broker_id,
            observed_at=response.observed_at,
            error=error,
        )
        found.append(known)
    unknown = [each for each in found if each.error]
    return [*unknown, *map(_or_no_such_id, describe(client, [each for each in found if not each.error]))]


def _or_no_such_id(txn: Transaction) -> Transaction:
    if txn.state != "Dead" or txn.producer_id is not None:
        return txn
    error = "TRANSACTIONAL_ID_NOT_FOUND: its coordinator has no such id; it never existed or has expired"
    return replace(txn, state=None, error=error)


def is_too_old(txn: Transaction) -> bool:
    """Whether the broker lacks ListTransactions or DescribeTransactions, as those before 3.0 do."""
    return txn.error is not None and Error.of(txn.error).code == TOO_OLD


def non_negative(number: int) -> int | None:
    """The number, null for Kafka's -1."""
    return number if number >= 0 else None
