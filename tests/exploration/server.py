"""The bytes of the model's logs: batches, markers, and records of ``__transaction_state``, as brokers write them."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer

from tests.exploration.steps import last_stable_offset
from tests.exploration.world import (
    EPOCH_MS,
    Coordinator,
    Meta,
    Partition,
    Record,
    State,
    StateRecord,
    World,
    producer_entries,
    visible,
)
from tests.formats.logs import control_batch
from tests.formats.packed import seal
from tests.messages import by_topic, message, named
from toolkit.formats.batches import LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.coordinator_records import STATE_TOPIC, STATES, coordinator_partition
from toolkit.sources.live.broker_client import write_batch

TIMESTAMPS = struct.Struct(">qq")


@lru_cache(maxsize=100_000)
def log_bytes(log: tuple[Record, ...], start: int, stop: int, *, append_time: bool) -> bytes:
    """Batches of a data partition."""
    return b"".join(_batch(record, start + index, append_time) for index, record in enumerate(log[start:stop]))


@lru_cache(maxsize=100_000)
def state_log_bytes(
    log: tuple[StateRecord, ...], ids: tuple[str, ...], topic: str, start: int, *, is_flexible: bool
) -> bytes:
    """Batches of a partition of ``__transaction_state`` from an offset on."""
    return b"".join(
        _state_batch(record, ids[record.id], topic, is_flexible) for record in log if record.offset >= start
    )


@lru_cache(maxsize=100_000)
def _batch(record: Record, offset: int, append_time: bool) -> bytes:
    if record.kind == "data":
        return _placed(_data_batch(record, append_time), offset, record.leader_epoch)
    type_ = int(record.kind == "commit")
    key, value = struct.pack(">hh", 0, type_), struct.pack(">hi", 0, record.coordinator_epoch)
    body = b"\x20\0\0\0" + b"\x08" + key + b"\x0c" + value + b"\0"
    batch = control_batch(body, producer_id=record.pid, producer_epoch=record.epoch)
    return _placed(_timed(batch, EPOCH_MS + record.time), offset, record.leader_epoch)


def _data_batch(record: Record, append_time: bool) -> bytes:
    batch = write_batch(
        [(b"key", b"value")],
        timestamp=_time(EPOCH_MS + record.time),
        producer_id=record.pid,
        producer_epoch=record.epoch,
        base_sequence=record.sequence,
        is_transactional=True,
    )
    return seal(batch[:21] + struct.pack(">h", TRANSACTIONAL | LOG_APPEND_TIME) + batch[23:]) if append_time else batch


def _time(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=milliseconds)


def _timed(batch: bytes, time_ms: int) -> bytes:
    """A control batch with another time."""
    return seal(batch[:27] + TIMESTAMPS.pack(time_ms, time_ms) + batch[43:])


def _placed(batch: bytes, offset: int, leader_epoch: int) -> bytes:
    return struct.pack(">qii", offset, len(batch) - 12, leader_epoch) + batch[16:]


@lru_cache(maxsize=100_000)
def _state_batch(record: StateRecord, name: str, topic: str, is_flexible: bool) -> bytes:
    key = struct.pack(">hh", 0, len(name)) + name.encode()
    value = None if record.meta is None else _value(record.meta, topic, is_flexible)
    batch = write_batch([(key, value)], timestamp=_time(EPOCH_MS + record.time))
    return _placed(batch, record.offset, record.leader_epoch)


def _value(meta: Meta, topic: str, is_flexible: bool) -> bytes:
    """TransactionLogValue.json, version 0; version 1 (flexible, with tags) where brokers have transaction version 2."""
    head = struct.pack(">qhib", meta.pid, meta.epoch, meta.timeout_ms, STATES.index(meta.state))
    start = EPOCH_MS + meta.start if meta.start >= 0 else -1
    times = TIMESTAMPS.pack(EPOCH_MS + meta.updated, start)
    name = topic.encode()
    if not is_flexible:
        if not meta.partitions:
            return b"\0\0" + head + struct.pack(">i", -1 if meta.state == "Empty" else 0) + times
        numbers = struct.pack(f">{len(meta.partitions)}i", *meta.partitions)
        listed = struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", len(meta.partitions)) + numbers
        return b"\0\0" + head + listed + times
    if meta.partitions:
        numbers = struct.pack(f">{len(meta.partitions)}i", *meta.partitions)
        listed = bytes([2, len(name) + 1]) + name + bytes([len(meta.partitions) + 1]) + numbers + b"\0"
    else:
        listed = b"\0" if meta.state == "Empty" else b"\x01"
    tags = [(0, struct.pack(">q", meta.previous_pid))] if meta.previous_pid >= 0 else []
    tags += [(1, struct.pack(">q", meta.next_pid))] if meta.next_pid >= 0 else []
    tags += [(2, struct.pack(">h", meta.client_version))] if meta.client_version else []
    tagged = bytes([len(tags)]) + b"".join(bytes([tag, len(data)]) + data for tag, data in tags)
    return b"\0\x01" + head + listed + times + tagged


TOPIC = "orders"
BROKERS = (1, 2)
Key = tuple[Hashable, ...]
WHOLE_STATE = {"WriteTxnMarkers", "InitProducerId"}
"""Requests that change the state: what they do depends on all of it."""

NONE, OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, LEADER_NOT_AVAILABLE = 0, 1, 3, 6, 5
LOADING, NOT_COORDINATOR, TOPIC_DENIED, CLUSTER_DENIED, ID_DENIED = 14, 16, 29, 31, 53
SECURITY_DISABLED, FENCED_LEADER, UNKNOWN_LEADER, NOT_FOUND = 54, 74, 75, 105
COORDINATOR_NOT_AVAILABLE = 15
TRANSACTIONAL_ID, BROKER = 5, 4  # resource types
DENY, ALLOW = 2, 3
CONFIGS = {
    2: ("cleanup.policy", "delete"),
    BROKER: ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
}


@cache
def id_of(world: World, id_: int) -> str:
    """The name of an id, which hashes to its partition of ``__transaction_state``."""
    count, number = world.state_partitions, 0
    while coordinator_partition(name := f"payments-{id_}-{number}", count) != world.state_partition(id_):
        number += 1
    return name


def names(world: World) -> tuple[str, ...]:
    """All names."""
    return tuple(id_of(world, id_) for id_ in range(world.ids))


def key_of(request: Any) -> Key:
    """What an answer depends on in a request."""
    api = str(request.name).removesuffix("Request")
    return (api, *KEYS[api](request))


def content_of(world: World, state: State, broker: int | None, key: Key) -> Any:
    """What a broker answers, as tuples; null if it does not answer."""
    if broker is None:
        broker = next(each for each in BROKERS if each not in state.silent)
    if broker in state.silent:
        return None
    return _cached(world, _viewed(state, VIEWS.get(str(key[0]), _constant)), broker, key)


def _viewed(state: State, view: Callable[[State], Hashable]) -> Viewed:
    """The view of a state; those of the last state are kept, since most requests find it unchanged."""
    if _last.state is not state:
        _last.state, _last.views = state, {}
    if view not in _last.views:
        _last.views[view] = Viewed(view(state), state)
    return _last.views[view]


class _Last:
    def __init__(self) -> None:
        self.state: State | None = None
        self.views: dict[Callable[[State], Hashable], Viewed] = {}


_last = _Last()


@lru_cache(maxsize=200_000)
def message_of(api: str, content: Any) -> Any:
    """The message with this content."""
    return MESSAGES[api](content) if api in MESSAGES else content


class Viewed:
    """A state that equals every other one of the same view: of the part that an answer depends on."""

    __slots__ = ("hash", "state", "view")

    def __init__(self, view: Hashable, state: State) -> None:
        self.view, self.state, self.hash = view, state, hash(view)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Viewed) and self.view == other.view


@lru_cache(maxsize=500_000)
def _cached(world: World, viewed: Viewed, broker: int, key: Key) -> Any:
    return CONTENTS[str(key[0])](world, viewed.state, broker, key[1:])


# Views


def _constant(state: State) -> Hashable:
    return ()


def _known(state: State) -> Hashable:
    return state.known


def _logs(state: State) -> Hashable:
    return tuple(
        (
            p.leader,
            p.leader_epoch,
            p.high_watermark,
            visible(p.log),
            p.former and (*p.former[:2], visible(p.former.log)),
        )
        for p in state.partitions
    )


def _state_logs(state: State) -> Hashable:
    return tuple((c.leader, c.epoch, c.log, c.end, c.former and c.former[0]) for c in state.coordinators)


def _all_logs(state: State) -> Hashable:
    return _logs(state), _state_logs(state)


def _caches(state: State) -> Hashable:
    return tuple((c.leader, c.phase, c.cache, c.former) for c in state.coordinators)


def _leaderships(state: State) -> Hashable:
    return tuple((c.leader, c.phase) for c in state.coordinators)


def everything(state: State) -> Hashable:
    """All that can be seen of a state."""
    return _all_logs(state), _caches(state), state.known, state.silent, state.tick


VIEWS: dict[str, Callable[[State], Hashable]] = {
    "DescribeQuorum": lambda state: state.tick,
    "Metadata": _known,
    "ListOffsets": _all_logs,
    "DescribeProducers": _logs,
    "ListTransactions": _caches,
    "DescribeTransactions": _caches,
    "Fetch": _all_logs,
    "FindCoordinator": _leaderships,
}


# Keys


def _listed(topics: Iterable[tuple[str, Sequence[int]]]) -> Key:
    return tuple((name, tuple(numbers)) for name, numbers in topics)


def _fetched(request: Any) -> Key:
    (topic,) = request.topics
    (one,) = topic.partitions
    return topic.topic, one.partition, one.fetch_offset, one.current_leader_epoch, request.isolation_level


def _found(request: Any) -> Key:
    return request.key_type, tuple(request.coordinator_keys or ())


KEYS: dict[str, Callable[[Any], Key]] = {
    "Metadata": lambda r: (None if r.topics is None else tuple(each.name for each in r.topics),),
    "ListOffsets": lambda r: (_listed(r.partitions.items()), r.timestamp, r.replica_id, r.isolation_level),
    "DescribeProducers": lambda r: (_listed(r.topics),),
    "ListTransactions": lambda r: (tuple(r.state_filters), tuple(r.producer_id_filters)),
    "DescribeTransactions": lambda r: (tuple(r.transactional_ids),),
    "FindCoordinator": _found,
    "DescribeQuorum": lambda r: (),
    "DescribeAcls": lambda r: (r.resource_type_filter,),
    "DescribeConfigs": lambda r: (tuple((each.resource_type, each.resource_name) for each in r.resources),),
    "ListGroups": lambda r: (),
    "DescribeGroups": lambda r: (tuple(r.groups),),
    "Fetch": _fetched,
}


# Answers


def _metadata(world: World, state: State, broker: int, key: Key) -> Any:
    wanted: Any = key[0]
    topics = (TOPIC, STATE_TOPIC) if wanted is None else wanted
    return tuple(_topic(world, state, name) for name in topics)


def _topic(world: World, state: State, name: str) -> tuple[int, str, tuple[tuple[int, int], ...]]:
    """Error code, name, and leader and leader epoch of each partition."""
    if name == STATE_TOPIC and world.rights in {"hidden", "partly_hidden"}:
        return TOPIC_DENIED, name, ()
    if name not in {TOPIC, STATE_TOPIC}:
        return UNKNOWN_TOPIC, name, ()
    count = len(state.partitions)
    return NONE, name, tuple(state.known[:count] if name == TOPIC else state.known[count:])


def _as_leader(state: State, number: int, broker: int) -> Partition | None:
    """The partition as a broker has it that leads it, or thinks so."""
    partition = state.partitions[number]
    if partition.leader == broker:
        return partition
    former = partition.former
    return Partition(*former) if former is not None and former.leader == broker else None


def _state_log(state: State, number: int, broker: int) -> tuple[int, Any] | None:
    """Leader epoch and log of a partition of ``__transaction_state`` as a broker has it that thinks it leads it."""
    coordinator = state.coordinators[number]
    if coordinator.leader == broker:
        return coordinator.epoch, coordinator.log
    if coordinator.former is not None and coordinator.former[0] == broker:
        return coordinator.epoch - 1, tuple(r for r in coordinator.log if r.leader_epoch < coordinator.epoch)
    return None


def _list_offsets(world: World, state: State, broker: int, key: Key) -> Any:
    listed: Any
    listed, timestamp, replica_id, isolation = key
    return tuple(
        (topic, tuple(_offset(world, state, broker, topic, each, timestamp, replica_id, isolation) for each in numbers))
        for topic, numbers in listed
    )


def _offset(
    world: World, state: State, broker: int, topic: str, number: int, timestamp: Any, replica_id: Any, isolation: Any
) -> tuple[int, int, int, int, int]:
    """Partition, error code, time, offset and leader epoch."""
    if topic == STATE_TOPIC:
        found = _state_log(state, number, broker)
        if found is None:
            return number, NOT_LEADER, -1, -1, -1
        epoch, log = found
        end = log[-1].offset + 1 if log else 0
        start, stable, times = (0, end, [(record.offset, EPOCH_MS + record.time) for record in log])
    else:
        partition = _as_leader(state, number, broker)
        if partition is None:
            return number, NOT_LEADER, -1, -1, -1
        epoch, end = partition.leader_epoch, partition.high_watermark
        start, stable = 0, last_stable_offset(partition)
        times = [(offset, EPOCH_MS + record.time) for offset, record in enumerate(partition.log)]
        if replica_id == -2:
            end = len(partition.log)
    if timestamp == -2:
        return number, NONE, -1, start, epoch
    if timestamp == -1:
        return number, NONE, -1, stable if isolation else end, epoch
    if timestamp == -3:
        offset, time = max(((each, time) for each, time in times if each < end), key=itemgetter(1), default=(-1, -1))
        return number, NONE, time, offset, epoch if times else -1
    after = [(offset, time) for offset, time in times if time >= timestamp and offset < end]
    offset, time = min(after, default=(-1, -1))
    return number, NONE, time, offset, epoch if after else -1


def _describe_producers(world: World, state: State, broker: int, key: Key) -> Any:
    """From any replica: Partition.activeProducerState does not check that it leads."""
    listed: Any = key[0]

    def producers(topic: str, number: int) -> tuple[tuple[int, ...], ...]:
        if topic == STATE_TOPIC:
            return ()
        partition = _as_leader(state, number, broker) or state.partitions[number]
        return tuple(
            (e.pid, e.epoch, e.last_sequence, EPOCH_MS + e.last_time, e.coordinator_epoch, e.start)
            for e in producer_entries(partition.log)
            if e.start >= 0 or not world.forgets
        )

    return tuple((topic, tuple((each, producers(topic, each)) for each in numbers)) for topic, numbers in listed)


def _led(
    world: World, state: State, broker: int
) -> Iterator[tuple[int, Coordinator, tuple[tuple[int, Meta], ...] | None]]:
    """Partitions of ``__transaction_state`` that a broker leads, or thinks it does; its cache, null if not loaded."""
    for number, coordinator in enumerate(state.coordinators):
        if coordinator.leader == broker:
            yield number, coordinator, coordinator.cache if coordinator.phase == "loaded" else None
        elif coordinator.former is not None and coordinator.former[0] == broker:
            yield number, coordinator, coordinator.former[1]


def _list_transactions(world: World, state: State, broker: int, key: Key) -> Any:
    """TransactionStateManager.listTransactionStates; KafkaApis filters by rights."""
    states: Any
    producer_ids: Any
    states, producer_ids = key
    led = list(_led(world, state, broker))
    if any(cache is None and coordinator.phase == "loading" for _, coordinator, cache in led):
        return LOADING, ()
    found = tuple(
        (id_of(world, id_), meta.pid, meta.state)
        for _, _, cache in led
        for id_, meta in cache or ()
        if not _is_denied(world, id_)
        if (not states or meta.state in states) and (not producer_ids or meta.pid in producer_ids)
    )
    return NONE, found


def _is_denied(world: World, id_: int) -> bool:
    return world.rights in {"hidden", "reads_log"} or (world.rights == "partly_hidden" and id_ == 0)


def _describe_transactions(world: World, state: State, broker: int, key: Key) -> Any:
    """TransactionCoordinator.handleDescribeTransactions."""
    wanted: Any = key[0]
    return tuple(_described(world, state, broker, name) for name in wanted)


def _described(world: World, state: State, broker: int, name: str) -> Any:
    id_ = names(world).index(name) if name in names(world) else None
    if id_ is None and world.rights in {"hidden", "reads_log"}:
        return _description(name, ID_DENIED)
    if id_ is not None and _is_denied(world, id_):
        return _description(name, ID_DENIED)
    number = coordinator_partition(name, world.state_partitions)
    led = {n: (coordinator, cache) for n, coordinator, cache in _led(world, state, broker)}
    if number not in led or (led[number][1] is None and led[number][0].phase == "elected"):
        return _description(name, NOT_COORDINATOR)
    cache = led[number][1]
    if cache is None:
        return _description(name, LOADING)
    meta = dict(cache).get(-1 if id_ is None else id_)
    return _description(name, NOT_FOUND) if meta is None else _description(name, NONE, meta, EPOCH_MS + meta.start)


def _description(name: str, error: int, meta: Meta | None = None, start: int = -1) -> tuple[Any, ...]:
    if meta is None:
        return error, name, "", 0, 0, 0, 0, ()
    start = start if meta.start >= 0 else -1
    return error, name, meta.state, meta.timeout_ms, start, meta.pid, meta.epoch, meta.partitions


def _find_coordinator(world: World, state: State, broker: int, key: Key) -> Any:
    wanted: Any = key[1]
    found = []
    for name in wanted:
        leader = state.coordinators[coordinator_partition(name, world.state_partitions)].leader
        error = NONE if leader > 0 else COORDINATOR_NOT_AVAILABLE
        found.append((name, leader, ID_DENIED if world.rights in {"hidden", "reads_log"} else error))
    return tuple(found)


def _describe_quorum(world: World, state: State, broker: int, key: Key) -> Any:
    """By the clock of broker 1, which is the controller."""
    may_describe = world.rights in {"open", "full", "partly_hidden"}
    return (NONE, EPOCH_MS + world.now(state)) if may_describe else (CLUSTER_DENIED, -1)


def _describe_acls(world: World, state: State, broker: int, key: Key) -> Any:
    acls: tuple[tuple[Any, ...], ...] = ()
    error = {"open": SECURITY_DISABLED, "full": NONE, "partly_hidden": NONE}.get(world.rights, CLUSTER_DENIED)
    if error == NONE:
        acls = ((key[0], "*", ALLOW),)
    if world.rights == "partly_hidden" and key[0] == TRANSACTIONAL_ID:
        acls += ((key[0], id_of(world, 0), DENY),)
    return error, acls


def _describe_configs(world: World, state: State, broker: int, key: Key) -> Any:
    wanted: Any = key[0]
    hidden = world.rights in {"hidden", "reads_log"}
    return tuple((type_, name, CLUSTER_DENIED if type_ == BROKER and hidden else NONE) for type_, name in wanted)


def _fetch(world: World, state: State, broker: int, key: Key) -> Any:
    topic: Any
    number: Any
    offset: Any
    epoch: Any
    topic, number, offset, epoch, isolation = key
    if topic == STATE_TOPIC:
        found = _state_log(state, number, broker)
        if world.rights == "hidden":
            return topic, number, TOPIC_DENIED, b"", -1, -1
        if found is None:
            return topic, number, NOT_LEADER, b"", -1, -1
        leader_epoch, log = found
        end = stable = log[-1].offset + 1 if log else 0
    else:
        partition = _as_leader(state, number, broker)
        if partition is None:
            return topic, number, NOT_LEADER, b"", -1, -1
        leader_epoch, end, stable = partition.leader_epoch, partition.high_watermark, last_stable_offset(partition)
    if epoch >= 0 and epoch != leader_epoch:
        return topic, number, FENCED_LEADER if epoch < leader_epoch else UNKNOWN_LEADER, b"", -1, -1
    if not 0 <= offset <= max(end, 0):
        return topic, number, OUT_OF_RANGE, b"", -1, -1
    if topic == STATE_TOPIC:
        records = state_log_bytes(log, names(world), TOPIC, offset, is_flexible=world.broker_version == 2)
    else:
        assert partition is not None
        records = log_bytes(partition.log, offset, stable if isolation else end, append_time=world.append_time)
    return topic, number, NONE, records, end, stable


CONTENTS: dict[str, Callable[[World, State, int, Key], Any]] = {
    "DescribeQuorum": _describe_quorum,
    "Metadata": _metadata,
    "ListOffsets": _list_offsets,
    "DescribeProducers": _describe_producers,
    "ListTransactions": _list_transactions,
    "DescribeTransactions": _describe_transactions,
    "FindCoordinator": _find_coordinator,
    "DescribeAcls": _describe_acls,
    "DescribeConfigs": _describe_configs,
    "ListGroups": lambda world, state, broker, key: (),
    "DescribeGroups": lambda world, state, broker, key: key[0],
    "Fetch": _fetch,
}


def _partition(number: int, leader: int, epoch: int) -> dict[str, Any]:
    error = NONE if leader > 0 else LEADER_NOT_AVAILABLE
    nodes = {"replica_nodes": BROKERS, "isr_nodes": BROKERS}
    return {"error_code": error, "partition_index": number, "leader_id": leader, "leader_epoch": epoch, **nodes}


def _producers(content: Any) -> Iterator[tuple[str, list[tuple[int, list[dict[str, Any]]]]]]:
    names = "producer_id producer_epoch last_sequence last_timestamp coordinator_epoch current_txn_start_offset"
    for topic, partitions in content:
        yield topic, [(number, [named(names, each) for each in found]) for number, found in partitions]


def _described_transaction(content: Any) -> dict[str, Any]:
    *fields, partitions = content
    names = (
        "error_code transactional_id transaction_state transaction_timeout_ms transaction_start_time_ms producer_id "
        "producer_epoch"
    )
    topics = [{"topic": TOPIC, "partitions": list(partitions)}] if partitions else []
    return {**named(names, fields), "topics": topics}


def _quorum(error: int, now: int) -> Any:
    leader = {"replica_id": 1, "log_end_offset": 1, "last_fetch_timestamp": now, "last_caught_up_timestamp": now}
    partition = {"leader_id": 1, "leader_epoch": 1, "high_watermark": 1, "current_voters": [leader], "observers": []}
    topics = [] if error else [{"topic_name": "__cluster_metadata", "partitions": [partition]}]
    return message(admin.DescribeQuorumResponse, error_code=error, topics=topics)


def _acl(type_: int, name: str, permission: int) -> dict[str, Any]:
    acl = {"principal": "User:tool", "host": "*", "operation": 8, "permission_type": permission}
    return {"resource_type": type_, "resource_name": name, "pattern_type": 3, "acls": [acl]}


def _config(type_: int, name: str, error: int) -> dict[str, Any]:
    config, value = CONFIGS[type_]
    entry = {"name": config, "value": value, "read_only": True, "config_source": 4, "synonyms": []}
    found = {"error_code": error, "resource_type": type_, "resource_name": name}
    return {**found, "configs": [] if error else [entry]}


def _batches(topic: str, number: int, *fields: Any) -> Any:
    of = named("error_code records high_watermark last_stable_offset", fields)
    partition = {"partition_index": number, "log_start_offset": 0, "aborted_transactions": [], **of}
    return message(consumer.FetchResponse, responses=[{"topic": topic, "partitions": [partition]}])


MESSAGES: dict[str, Callable[[Any], Any]] = {
    "Metadata": lambda content: message(
        metadata.MetadataResponse,
        brokers=[{"node_id": each, "host": "127.0.0.1", "port": 9092 + each} for each in BROKERS],
        cluster_id="model",
        controller_id=1,
        topics=[
            {
                "error_code": error,
                "name": name,
                "is_internal": name == STATE_TOPIC,
                "partitions": [_partition(number, *each) for number, each in enumerate(partitions)],
            }
            for error, name, partitions in content
        ],
    ),
    "ListOffsets": lambda content: message(
        consumer.ListOffsetsResponse,
        topics=by_topic("partition_index error_code timestamp offset leader_epoch", content),
    ),
    "DescribeProducers": lambda content: message(
        admin.DescribeProducersResponse, topics=by_topic("partition_index active_producers", _producers(content))
    ),
    "ListTransactions": lambda content: message(
        admin.ListTransactionsResponse,
        version=2,
        error_code=content[0],
        transaction_states=[named("transactional_id producer_id transaction_state", each) for each in content[1]],
    ),
    "DescribeQuorum": lambda content: _quorum(*content),
    "DescribeTransactions": lambda content: message(
        admin.DescribeTransactionsResponse, transaction_states=[_described_transaction(each) for each in content]
    ),
    "FindCoordinator": lambda content: message(
        metadata.FindCoordinatorResponse,
        coordinators=[{**named("key node_id error_code", each), "host": "127.0.0.1", "port": 9092} for each in content],
    ),
    "DescribeAcls": lambda content: message(
        admin.DescribeAclsResponse, error_code=content[0], resources=[_acl(*each) for each in content[1]]
    ),
    "DescribeConfigs": lambda content: message(
        admin.DescribeConfigsResponse, results=[_config(*each) for each in content]
    ),
    "ListGroups": lambda content: message(admin.ListGroupsResponse, groups=[]),
    # Groups are no part of the model, and nothing hides them.
    "DescribeGroups": lambda content: message(
        admin.DescribeGroupsResponse,
        groups=[{"group_id": name, "group_state": "Dead", "members": []} for name in content],
    ),
    "Fetch": lambda content: _batches(*content),
}


def write_txn_markers_response(pid: int, topic: str, number: int, error: int) -> Any:
    """WriteTxnMarkers of one producer and partition."""
    topics = by_topic("partition_index error_code", [(topic, [(number, error)])])
    return message(producer.WriteTxnMarkersResponse, markers=[{"producer_id": pid, "topics": topics}])


def init_producer_id_response(error: int, pid: int, epoch: int) -> Any:
    """InitProducerId."""
    fields = named("error_code producer_id producer_epoch", (error, pid, epoch))
    return message(producer.InitProducerIdResponse, **fields)
