"""The states of a transactional id, and which client runs it: framework, application, task, member and host.

Some frameworks build ids of a distinct form; the members of a consumer group or of a Connect cluster can prove the
owner. An id that only has the form is ``likely``, an id that fits several forms is ``unknown``. Flink's ids have no
group, so only a checkpoint of the job makes them ``certain``: else their form, a prefix with two numbers, counts
together with the sink's timeout or prefix, or with the other ids of the prefix (`checkpoint_prefixes`). Spark's Kafka
sink uses no transactions.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toolkit.schema.live import IdOwner, Transaction
from toolkit.schema.log import TransactionLogRecord

OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})

TWO_PHASE_COMMIT = 2**31 - 1  # KIP-939 has no wire state of its own: the timeout is the only sign
PREPARE_GRACE = dt.timedelta(seconds=60)  # for the markers, once the outcome is decided

EXPIRED = "Dead"
"""The state of a tombstone; Kafka has it in memory only."""


def state_of(record: TransactionLogRecord) -> str | None:
    """The state in a record; `EXPIRED` for a tombstone."""
    return EXPIRED if record.tombstone else record.state


class IdReplica(NamedTuple):
    """A transactional id on one replica of its partition; -1 if broker or partition is unknown."""

    transactional_id: str
    broker_id: int
    txn_state_partition: int


def replica_of(record: TransactionLogRecord) -> IdReplica:
    """The id and replica of a record; the id is empty if it could not be read."""
    return IdReplica(
        record.transactional_id or "",
        -1 if record.broker_id is None else record.broker_id,
        -1 if record.txn_state_partition is None else record.txn_state_partition,
    )


UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Kafka Streams, exactly_once_v2: StreamsProducer of 2.8.2, 3.3.2 and 3.9.0, ActiveTaskCreator of trunk of October 2024;
# observed on 4.3.1.
STREAMS_V2 = re.compile(rf"(?P<application>.+)-(?P<process>{UUID})-(?P<thread>\d+)", re.DOTALL)
# Apache Iceberg's sink for Kafka Connect, also the form of a Kafka Streams application <prefix>worker-txn:
# IcebergSinkConnector and Channel of trunk of August 2026; observed on 1.12.0.
ICEBERG_SINK = re.compile(rf"(?P<prefix>.*)(?P<role>worker|coordinator)-txn-{UUID}-(?P<task>\d+)", re.DOTALL)
# Kafka Streams, exactly_once, removed in 4.0: StreamsProducer of 2.8.2, 3.3.2 and 3.9.0.
STREAMS_V1 = re.compile(r"(?P<application>.+)-(?P<task>\d+_\d+)", re.DOTALL)
# Kafka Connect with exactly-once sources, its leader and the tasks of a connector (<group.id>-<connector>-<task>):
# DistributedConfig and Worker of trunk of October 2024; observed on 4.3.1.
CONNECT_LEADER = re.compile(r"connect-cluster-(?P<group>.+)", re.DOTALL)
CONNECT_TASK = re.compile(r"(?P<connector>.+)-(?P<task>\d+)", re.DOTALL)
# FlinkKafkaProducer, removed in connector 4.0: TransactionalIdsGenerator of connector 3.0.0.
FLINK_PRODUCER = re.compile(r"(?P<name>.+)-(?P<operator>[0-9a-f]{32})-\d+", re.DOTALL)
# Flink's KafkaSink; the number is that of a checkpoint (INCREMENTING) or of a pool (POOLING): TransactionalIdFactory of
# connector 3.0.0, 3.4.0, 4.0.1 and 5.0.0.
FLINK_SINK = re.compile(r"(?P<prefix>.+)-(?P<subtask>0|[1-9]\d*)-(?P<number>0|[1-9]\d*)", re.DOTALL)
# Spring Kafka, EOSMode.V1, removed in 3.0, after <prefix><group.id>: KafkaMessageListenerContainer of 2.8.11.
SPRING_V1 = re.compile(r"\.(?P<topic>.+)\.(?P<partition>\d+)", re.DOTALL)
ANY = re.compile(".*", re.DOTALL)
# Spring Kafka (DefaultTransactionIdSuffixStrategy of 4.2.0-M1), and numbered ids of any other client.
NUMBERED = re.compile(r".*\d", re.DOTALL)
FLINK_TIMEOUT_MS = 3_600_000  # KafkaSinkBuilder: DEFAULT_KAFKA_TRANSACTION_TIMEOUT
FLINK_DEFAULT_PREFIX = "kafka-sink"  # KafkaSinkBuilder of connector 3
CLIENT_TIMEOUT_MS = 60_000  # ProducerConfig: transaction.timeout.ms; the sink always sets another one
MIN_CHECKPOINTS, MANY_CHECKPOINTS = 3, 16
"""Fewest checkpoints of a grid, and as many as no application numbers its threads."""
KSQL = "_confluent-ksql-"  # a Kafka Streams application for each query
HEX = r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{6,}"  # of digits and letters: no word, and no number
POD = r"[b-df-hj-np-tv-xz2-9]{8,10}-[b-df-hj-np-tv-xz2-9]{5}"  # Kubernetes: hash of a Deployment, and of its pod
VARIABLE = re.compile(rf"(?:^|[-._:])(?:{UUID}|{HEX}|{POD})(?![0-9a-zA-Z])", re.IGNORECASE)
NUMBERS = re.compile(r"(?:(?:^|[-._:])\d+)+$|\d+$")
SEPARATOR = re.compile(r"[-._:]")
MAX_NAME, MAX_PARTS = 1_000, 30  # of an id that is searched for groups: clients choose it freely
# Common suffixes of a group's name
AFTER_GROUP = re.compile(rf"(?:[-._:](?:tx|txn|transactions?|producer|\d+|{UUID}))*")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group as DescribeGroups shows it."""

    # member_id, client_id, client_host: as in the response
    member_id: str
    client_id: str
    client_host: str
    process_id: str | None = None  # of a Kafka Streams thread
    # url, tasks: of a Kafka Connect worker: its REST URL, and the connector tasks that it runs
    url: str | None = None
    tasks: frozenset[tuple[str, int]] = frozenset()

    @property
    def host(self) -> str:
        """Its host, without the slash that Java writes before an address."""
        return self.client_host.removeprefix("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientGroup:
    """A group as ListGroups and DescribeGroups show it; `protocol_type` is consumer, connect, streams or share."""

    group_id: str
    protocol_type: str
    members: Sequence[GroupMember] = ()
    leader_member_id: str | None = None
    is_described: bool = True  # whether its members are known: that it has none is no fact if DescribeGroups failed


@dataclass(frozen=True, slots=True, kw_only=True)
class _TransactionalId:
    """A transactional id, and the groups that may prove its owner."""

    # text, timeout_ms: the id, and the timeout of its transactions, null if unknown
    text: str
    timeout_ms: int | None
    groups: Mapping[str, ClientGroup]  # groups of the cluster
    # Kafka Connect clusters: those in `groups`, and those whose leader has a transactional id
    clusters: Mapping[str, ClientGroup | None]
    possible: Sequence[str]  # groups and clusters whose name the id may contain, longest first
    grids: Mapping[str, int]  # prefixes whose ids are numbered as Flink numbers them; see `checkpoint_prefixes`
    flink_prefixes: Collection[str]  # prefixes that checkpoints of Flink name


def transaction_owners(
    transactions: Iterable[Transaction],
    *,
    groups: Iterable[ClientGroup] = (),
    groups_error: str | None = None,
    all_ids: Iterable[str] = (),
    flink_prefixes: Collection[str] = (),
) -> list[IdOwner]:
    """Which client runs each transactional id.

    `transactions`: states of ids; errors without id are kept.
    `groups`: groups of the cluster; empty if unknown, as in files.
    `all_ids`: every transactional id, or every one of Flink's form; none unless they are known completely.
    """
    transactions, grids = list(transactions), checkpoint_prefixes(all_ids)
    by_id = {group.group_id: group for group in groups}
    leaders = (CONNECT_LEADER.fullmatch(each.transactional_id or "") for each in transactions)
    clusters: dict[str, ClientGroup | None] = dict.fromkeys(found["group"] for found in leaders if found)
    clusters |= {name: group for name, group in by_id.items() if group.protocol_type == "connect"}
    owners: list[IdOwner] = []
    for each in transactions:
        owner = _Owner("unknown", "The transactional ids of this broker were not read.")
        if (text := each.transactional_id) is not None:
            possible = sorted(possible_groups(text) & (by_id.keys() | clusters.keys()), key=len, reverse=True)
            txn_id = _TransactionalId(
                text=text,
                timeout_ms=each.timeout_ms,
                groups=by_id,
                clusters=clusters,
                possible=possible,
                grids=grids,
                flink_prefixes=flink_prefixes,
            )
            matches = ((rule, found) for form, rule in RULES if (found := form.fullmatch(text)))
            owner = next(result for rule, found in matches if (result := rule(txn_id, found)))
        member, reason = owner.member, owner.reason
        if each.transactional_id is not None and groups_error and owner.confidence != "certain":
            reason = f"{reason} Not all groups were read: {groups_error}."
        owners.append(
            IdOwner.of_record(
                each,
                framework=owner.framework,
                application=owner.application,
                task=owner.task,
                member_id=member.member_id if member else None,
                client_id=member.client_id if member else None,
                host=(member.url or member.host) if member else None,
                confidence=owner.confidence,
                reason=reason,
            )
        )
    return owners


def prefix_of(transactional_id: str) -> str:
    """The id without the numbers at its end, and without a random part (UUID, hash, pod) and all after it.

    >>> prefix_of("flink-tx-0-12"), prefix_of("worker-txn-1f0c6b52-90ab-4c1e-8d31-2f6f0c0a9e11-0")
    ('flink-tx', 'worker-txn')
    """
    random = VARIABLE.search(transactional_id)
    return NUMBERS.sub("", transactional_id[: random.start()] if random else transactional_id)


def possible_groups(transactional_id: str) -> set[str]:
    """Every part of an id between two separators, or its start or end, that may be the name of a group."""
    text = transactional_id[:MAX_NAME]
    cuts = [found.start() for found in SEPARATOR.finditer(text)][:MAX_PARTS]
    return {
        text[start:stop] for start in (0, *(cut + 1 for cut in cuts)) for stop in (*cuts, len(text)) if start < stop
    }


_WITH_HOST = re.compile(r".* on \S+ \((?:certain|likely)\)", re.DOTALL)


def shows_member(clause: str | None) -> bool:
    """Whether an `owner_clause` has the host of a member: its process was seen."""
    return clause is not None and _WITH_HOST.fullmatch(clause) is not None


def owner_clause(owner: IdOwner) -> str | None:
    """``Kafka Streams application orders, thread 1 on 10.0.0.5 (certain)``; null if unknown."""
    if owner.confidence == "unknown":
        return None
    text = f"{owner.framework or 'application'} {owner.application or ''}".strip()
    if owner.task:
        text += f", {owner.task}"
    if owner.host:
        text += f" on {owner.host}"
    return f"{text} ({owner.confidence})"


def owner_clauses(
    transactions: Iterable[Transaction],
    *,
    groups: Iterable[ClientGroup] = (),
    all_ids: Iterable[str] = (),
    flink_prefixes: Collection[str] = (),
) -> dict[str, str | None]:
    """Transactional id to `owner_clause`."""
    owners = transaction_owners(transactions, groups=groups, all_ids=all_ids, flink_prefixes=flink_prefixes)
    return {each.transactional_id: owner_clause(each) for each in owners if each.transactional_id is not None}


def may_be_flinks(transactional_id: str) -> bool:
    """Whether an id has a form that Flink gives its ids, and no form that only another framework gives."""
    is_of_streams = STREAMS_V2.fullmatch(transactional_id) is not None
    return not is_of_streams and any(form.fullmatch(transactional_id) for form in (FLINK_SINK, FLINK_PRODUCER))


def checkpoint_prefixes(ids: Iterable[str]) -> dict[str, int]:
    """Prefixes whose ids form a grid of subtasks and checkpoints, each with the number of its checkpoints.

    ``KafkaSink`` (INCREMENTING) numbers subtasks from 0 and checkpoints from 1, and each checkpoint has an id in each
    subtask. Subtasks with less than half of the checkpoints are left out: those of a larger job before, and those that
    never ran, of which each restart from the same checkpoint makes more (TransactionAbortStrategyImpl).
    Instances of Spring Kafka, tasks of Connect and a pool of Flink (POOLING) count from 0 on instead, so a prefix with
    a number 0 proves nothing.

    `ids`: all ids: one that is missing could be the 0.
    """
    numbers: dict[str, dict[int, set[int]]] = {}
    for text in ids:
        if found := FLINK_SINK.fullmatch(text):
            numbers.setdefault(found["prefix"], {}).setdefault(int(found["subtask"]), set()).add(int(found["number"]))
    grids = {}
    for prefix, subtasks in numbers.items():
        checkpoints = set().union(*subtasks.values())
        full = {subtask for subtask, of_subtask in subtasks.items() if 2 * len(of_subtask) >= len(checkpoints)}
        enough = len(checkpoints) >= (MIN_CHECKPOINTS if len(full) > 1 else MANY_CHECKPOINTS)
        if full and full == {*range(len(full))} and 0 not in checkpoints and enough:
            grids[prefix] = len(checkpoints)
    return grids


class _Owner(NamedTuple):
    """What a rule found of an id."""

    confidence: str
    reason: str
    member: GroupMember | None = None
    framework: str | None = None
    application: str | None = None
    task: str | None = None


def _streams_v2(txn_id: _TransactionalId, found: re.Match[str]) -> _Owner:
    application, process, thread = found["application"], found["process"], found["thread"]
    group = txn_id.groups.get(application)
    ending = f"-StreamThread-{thread}-consumer"
    members = [
        each
        for each in (group.members if group else ())
        if each.client_id.endswith(ending) and (each.process_id == process or f"{process}{ending}" in each.client_id)
    ]
    member = members[0] if len(members) == 1 else None
    confidence, reason = "likely", "Its id has the form that Kafka Streams gives it with exactly_once_v2."
    if member:
        confidence = "certain"
        reason = f'Its id names a process and a thread; member "{member.client_id}" of the group is that thread.'
    elif group and group.protocol_type == "streams":
        confidence = "certain"
        reason = "Its id has the form of Kafka Streams, and its application is a group of type streams."
    elif group and group.is_described:
        reason += " The group has no member of that process now."
    framework = "ksqlDB" if application.startswith(KSQL) else "Kafka Streams application"
    return _Owner(confidence, reason, member, framework=framework, application=application, task=f"thread {thread}")


def _iceberg_sink(txn_id: _TransactionalId, found: re.Match[str]) -> _Owner | None:
    """Not where a group has the name that a Kafka Streams application would have."""
    prefix, role = found["prefix"], found["role"]
    if f"{prefix}{role}-txn" in txn_id.groups:
        return None
    reason = "Its id has the form that Iceberg's sink for Kafka Connect gives it."
    return _Owner(
        "likely",
        reason,
        framework="Apache Iceberg sink",
        application=prefix or None,
        task=f"{role} of task {found['task']}",
    )


def _connect_leader(txn_id: _TransactionalId, found: re.Match[str]) -> _Owner:
    group = txn_id.groups.get(found["group"])
    confidence, leader = "likely", None
    reason = "Its id has the form of the leader of a Connect cluster."
    if group is not None and group.protocol_type == "connect":
        leader = next((each for each in group.members if each.member_id == group.leader_member_id), None)
        confidence, reason = "certain", "Its id names a group of Kafka Connect workers."
    return _Owner(
        confidence, reason, leader, framework="Kafka Connect cluster", application=found["group"], task="leader"
    )


def _connect_task(txn_id: _TransactionalId, _: re.Match[str]) -> _Owner | None:
    """Only for known clusters: otherwise any id with a number at its end has the form."""
    likely = None
    for name in txn_id.possible:
        found = CONNECT_TASK.fullmatch(txn_id.text.removeprefix(f"{name}-"))
        if name not in txn_id.clusters or not txn_id.text.startswith(f"{name}-") or not found:
            continue
        connector, task = found["connector"], int(found["task"])
        owner = _Owner(
            "likely",
            "Its id begins with a Connect cluster; no worker is known to run that task.",
            framework="Kafka Connect cluster",
            application=name,
            task=f"connector {connector} task {task}",
        )
        group = txn_id.clusters[name]
        worker = next((each for each in (group.members if group else ()) if (connector, task) in each.tasks), None)
        if worker:
            return owner._replace(
                confidence="certain", reason="Its id names a task that this worker runs.", member=worker
            )
        likely = likely or owner
    return likely


def _streams_v1(txn_id: _TransactionalId, found: re.Match[str]) -> _Owner:
    group = txn_id.groups.get(found["application"])
    confidence, reason = "likely", "Its id has the form that Kafka Streams before 4.0 gives it with exactly_once."
    if group and any("-StreamThread-" in each.client_id for each in group.members):
        confidence, reason = "certain", "Its id names a task, and its application is a group of Kafka Streams."
    return _Owner(
        confidence,
        reason,
        framework="Kafka Streams application",
        application=found["application"],
        task=f"task {found['task']}",
    )


def _flink_producer(_: _TransactionalId, found: re.Match[str]) -> _Owner:
    reason = "Its id has the form that FlinkKafkaProducer gives it."
    return _Owner("likely", reason, framework="Apache Flink", application=found["name"])


def _flink_sink(txn_id: _TransactionalId, found: re.Match[str]) -> _Owner | None:
    confidence = "likely"
    # Numbered as Flink's ids, and not a few threads with the client's timeout.
    has_own_timeout = txn_id.timeout_ms not in {None, CLIENT_TIMEOUT_MS}
    is_in_grid = txn_id.grids.get(found["prefix"], 0) >= (MIN_CHECKPOINTS if has_own_timeout else MANY_CHECKPOINTS)
    if found["prefix"] in txn_id.flink_prefixes:
        confidence, reason = "certain", "A checkpoint of Flink names its prefix."
    elif txn_id.timeout_ms == FLINK_TIMEOUT_MS:
        reason = "Its id has the form of Flink's KafkaSink, and its timeout of 1 h is the sink's default."
    elif found["prefix"] == FLINK_DEFAULT_PREFIX:
        reason = "Its id has the form and the default prefix of Flink's KafkaSink."
    elif is_in_grid and _begins_with_group(txn_id, found) is None:
        reason = "Each subtask and checkpoint has an id of its prefix, as Flink's KafkaSink numbers them."
    else:
        return None
    return _Owner(
        confidence, reason, framework="Apache Flink", application=found["prefix"], task=f"subtask {found['subtask']}"
    )


def _spring_v1(txn_id: _TransactionalId, _: re.Match[str]) -> _Owner | None:
    """``<prefix><group>.<topic>.<partition>`` of an existing group."""
    for group_id in filter(txn_id.groups.__contains__, txn_id.possible):
        start = txn_id.text.find(f"{group_id}.")
        found = SPRING_V1.fullmatch(txn_id.text[start + len(group_id) :]) if start >= 0 else None
        if found:
            return _Owner(
                "likely",
                "Its id ends in a group, a topic and a partition, as Spring Kafka before 3.0 makes it (EOSMode.V1).",
                framework="Spring Kafka",
                application=group_id,
                task=f"{found['topic']}-{found['partition']}",
            )
    return None


def _begins_with_group(txn_id: _TransactionalId, _: re.Match[str]) -> _Owner | None:
    for group_id in filter(txn_id.groups.__contains__, txn_id.possible):
        if txn_id.text.startswith(group_id) and AFTER_GROUP.fullmatch(txn_id.text.removeprefix(group_id)):
            members = txn_id.groups[group_id].members
            return _Owner(
                "likely",
                "Its id is the name of this group, or that name with a common suffix.",
                members[0] if len(members) == 1 else None,
                application=group_id,
            )
    return None


def _unknown(txn_id: _TransactionalId, _: re.Match[str]) -> _Owner:
    if FLINK_SINK.fullmatch(txn_id.text):
        reason = "Flink's KafkaSink, Spring Kafka and numbered instances use ids like this; its owner is unknown."
    elif NUMBERED.fullmatch(txn_id.text):
        reason = "It ends in a number, as ids of Spring Kafka and of numbered instances do; its owner is unknown."
    else:
        reason = "Its form matches no known framework."
    return _Owner("unknown", reason)


RULES: Sequence[tuple[re.Pattern[str], Callable[[_TransactionalId, re.Match[str]], _Owner | None]]] = (
    (ICEBERG_SINK, _iceberg_sink),
    (STREAMS_V2, _streams_v2),
    (CONNECT_LEADER, _connect_leader),
    (CONNECT_TASK, _connect_task),
    (STREAMS_V1, _streams_v1),
    (FLINK_PRODUCER, _flink_producer),
    (FLINK_SINK, _flink_sink),
    (re.compile(f".*{SPRING_V1.pattern}", re.DOTALL), _spring_v1),
    (ANY, _begins_with_group),
    (ANY, _unknown),
)
"""The form of an id and its rule. The first rule with a result wins; the last one always has a result."""
