"""Leaders of data partitions: what they append (UnifiedLog, ProducerAppendInfo, ReplicaManager)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from tests.exploration.world import (
    FIRST_PRODUCER_ID,
    NOBODY,
    Client,
    Coordinator,
    Former,
    Message,
    Meta,
    Partition,
    ProducerEntry,
    Record,
    State,
    StateRecord,
    Truth,
    World,
    Written,
    producer_entries,
    written,
)


def put_partition(state: State, number: int, partition: Partition) -> State:
    """The state with this partition."""
    partitions = (*state.partitions[:number], partition, *state.partitions[number + 1 :])
    return state._replace(partitions=partitions)


def entry_of(partition: Partition, pid: int) -> ProducerEntry | None:
    """A producer's state."""
    return next((each for each in producer_entries(partition.log) if each.pid == pid), None)


def last_stable_offset(partition: Partition) -> int:
    """UnifiedLog.lastStableOffset: the first of what is open or ended by a marker that is not replicated."""
    first = [each.start for each in producer_entries(partition.log) if each.start >= 0]
    for offset in range(partition.high_watermark, len(partition.log)):
        before = next((e for e in producer_entries(partition.log[:offset]) if e.pid == partition.log[offset].pid), None)
        if partition.log[offset].kind != "data" and before is not None and before.start >= 0:
            first.append(before.start)
    return min([*first, partition.high_watermark])


def append_data(
    world: World, state: State, number: int, *, pid: int, epoch: int, sequence: int, ctxn: int
) -> tuple[str, State]:
    """Append a client's batch: the error, or ``""``, and the state after it (ProducerAppendInfo)."""
    partition = state.partitions[number]
    if partition.leader == NOBODY:
        return "NOT_LEADER_OR_FOLLOWER", state
    entry = entry_of(partition, pid)
    if entry is not None:
        if epoch < entry.epoch:
            return "INVALID_PRODUCER_EPOCH", state
        if epoch == entry.epoch and 0 <= sequence <= entry.last_sequence:
            return "DUPLICATE", state
        expected = entry.last_sequence + 1 if epoch == entry.epoch else 0
        if sequence != expected:
            return "OUT_OF_ORDER_SEQUENCE_NUMBER", state
    time = world.time(state, partition.leader) if world.append_time else world.create_time(state, sequence)
    record = Record("data", pid, epoch, sequence, -1, partition.leader_epoch, time, ctxn)
    return "", _appended(state, number, record, replicated=True)


def append_marker(
    world: World,
    state: State,
    number: int,
    *,
    pid: int,
    epoch: int,
    commit: bool,
    coordinator_epoch: int,
    ctxn: int,
    replicated: bool = True,
) -> tuple[str, State]:
    """Append a marker: the error, or ``""``, and the state after it (ProducerAppendInfo.appendEndTxnMarker)."""
    partition = state.partitions[number]
    if partition.leader == NOBODY:
        return "NOT_LEADER_OR_FOLLOWER", state
    entry = entry_of(partition, pid)
    if entry is not None and epoch < entry.epoch:
        return "INVALID_PRODUCER_EPOCH", state
    if entry is not None and coordinator_epoch < entry.coordinator_epoch:
        return "TRANSACTION_COORDINATOR_FENCED", state
    kind = "commit" if commit else "abort"
    time = world.time(state, partition.leader)
    record = Record(kind, pid, epoch, -1, coordinator_epoch, partition.leader_epoch, time, ctxn)
    return "", _appended(state, number, record, replicated=replicated)


def _appended(state: State, number: int, record: Record, *, replicated: bool) -> State:
    partition = state.partitions[number]
    log = (*partition.log, record)
    high_watermark = len(log) if replicated else partition.high_watermark
    partition = partition._replace(log=log, high_watermark=high_watermark)
    return put_partition(state, number, partition)


def coordinator_of(world: World, state: State, id_: int) -> Coordinator:
    """The coordinator of an id."""
    return state.coordinators[world.state_partition(id_)]


def put_coordinator(state: State, number: int, coordinator: Coordinator) -> State:
    """The state with this coordinator."""
    return state._replace(coordinators=(*state.coordinators[:number], coordinator, *state.coordinators[number + 1 :]))


def put_meta(world: World, state: State, id_: int, meta: Meta | None) -> State:
    """Change the cache only."""
    coordinator = coordinator_of(world, state, id_)
    cache = dict(coordinator.cache)
    cache.pop(id_, None)
    if meta is not None:
        cache[id_] = meta
    changed = coordinator._replace(cache=tuple(sorted(cache.items())))
    return put_coordinator(state, world.state_partition(id_), changed)


def write_meta(world: World, state: State, id_: int, meta: Meta | None) -> State:
    """TransactionStateManager.appendTransactionToLog: the log, then the cache."""
    coordinator = coordinator_of(world, state, id_)
    now = world.time(state._replace(clock=state.clock + 1), coordinator.leader)
    if meta is not None:
        meta = meta._replace(updated=now, start=now if meta.state == "Ongoing" and meta.start < 0 else meta.start)
    record = StateRecord(coordinator.end, id_, meta, now, coordinator.epoch)
    changed = coordinator._replace(log=(*coordinator.log, record), end=coordinator.end + 1)
    state = put_coordinator(state, world.state_partition(id_), changed)
    return put_meta(world, state, id_, meta)._replace(clock=state.clock + 2)


def _get(world: World, state: State, id_: int) -> tuple[str, Meta | None]:
    """TransactionStateManager.getTransactionState."""
    coordinator = coordinator_of(world, state, id_)
    if coordinator.leader == NOBODY or coordinator.phase == "elected":
        return "NOT_COORDINATOR", None
    if coordinator.phase == "loading":
        return "COORDINATOR_LOAD_IN_PROGRESS", None
    return "", coordinator.meta(id_)


def init_producer_id(
    world: World, state: State, id_: int, *, expected: tuple[int, int] | None = None
) -> tuple[str, State]:
    """TransactionCoordinator.handleInitProducerId; a fence is only begun (`log_fence` goes on)."""
    error, meta = _get(world, state, id_)
    if error:
        return error, state
    if meta is None:
        if expected is not None:
            return "INVALID_PRODUCER_ID_MAPPING", state
        fresh = Meta(state.next_pid, 0, "Empty", world.timeout_ms, client_version=0)
        return "", write_meta(world, state._replace(next_pid=state.next_pid + 1), id_, fresh)
    if meta.fencing or meta.state.startswith("Prepare"):
        return "CONCURRENT_TRANSACTIONS", state
    is_repeated = expected == (meta.pid, meta.last_epoch)
    if expected is not None and expected != (meta.pid, meta.epoch) and not is_repeated:
        return "PRODUCER_FENCED", state
    if meta.state == "Ongoing":
        return "CONCURRENT_TRANSACTIONS", begin_fence(world, state, id_, meta)
    last_epoch = -1 if expected is None else expected[1]
    empty = meta._replace(state="Empty", partitions=(), start=-1, last_epoch=last_epoch, given_up=False, ctxn=NOBODY)
    if is_repeated:
        return "", write_meta(world, state, id_, empty)
    if meta.epoch >= world.max_epoch:
        rotated = empty._replace(pid=state.next_pid, epoch=0, previous_pid=meta.pid)
        return "", write_meta(world, state._replace(next_pid=state.next_pid + 1), id_, rotated)
    return "", write_meta(world, state, id_, empty._replace(epoch=meta.epoch + 1, previous_pid=meta.pid))


def begin_fence(world: World, state: State, id_: int, meta: Meta) -> State:
    """TransactionMetadata.prepareFenceProducerEpoch: DescribeTransactions shows Ongoing with the raised epoch."""
    return put_meta(world, state, id_, meta._replace(epoch=meta.epoch + 1, last_epoch=-1, fencing=True))


def log_fence(world: World, state: State, id_: int) -> State:
    """The rest of endTransaction for a fence: PrepareAbort in the log."""
    meta = coordinator_of(world, state, id_).meta(id_)
    assert meta is not None
    return _decided(world, state, id_, meta._replace(fencing=False), commit=False, version=world.broker_version)


def add_partition(
    world: World, state: State, id_: int, pid: int, epoch: int, partition: int, *, version: int
) -> tuple[str, State, int]:
    """TransactionCoordinator.handleAddPartitionsToTransaction: the error, the state, and (ghost) its transaction."""
    error, meta = _get(world, state, id_)
    if error:
        return error, state, NOBODY
    if meta is None or meta.pid != pid:
        return "INVALID_PRODUCER_ID_MAPPING", state, NOBODY
    if meta.epoch != epoch:
        return "PRODUCER_FENCED", state, NOBODY
    if meta.fencing or meta.state.startswith("Prepare"):
        return "CONCURRENT_TRANSACTIONS", state, NOBODY
    if meta.state == "Ongoing" and partition in meta.partitions:
        return "", state, meta.ctxn
    known = 2 if version == 2 else 0
    if meta.state == "Ongoing":
        more = meta._replace(partitions=tuple(sorted((*meta.partitions, partition))), client_version=known)
        return "", write_meta(world, state, id_, more), meta.ctxn
    ctxn = len(state.truths)
    begun = meta._replace(state="Ongoing", partitions=(partition,), start=-1, client_version=known, ctxn=ctxn)
    state = state._replace(truths=(*state.truths, Truth(id_, pid, epoch, version, world.time(state))))
    return "", write_meta(world, state, id_, begun), ctxn


def verify_partition(world: World, state: State, id_: int, pid: int, epoch: int, partition: int) -> tuple[str, int]:
    """TransactionCoordinator.handleVerifyPartitionsInTransaction."""
    error, meta = _get(world, state, id_)
    if error:
        return error, NOBODY
    if meta is None or meta.pid != pid:
        return "INVALID_PRODUCER_ID_MAPPING", NOBODY
    if meta.epoch != epoch:
        return "PRODUCER_FENCED", NOBODY
    if meta.state.startswith("Prepare"):
        return "CONCURRENT_TRANSACTIONS", NOBODY
    return ("", meta.ctxn) if partition in meta.partitions else ("TRANSACTION_ABORTABLE", NOBODY)


def end_transaction(
    world: World, state: State, id_: int, pid: int, epoch: int, *, commit: bool, version: int
) -> tuple[str, State, int, int]:
    """TransactionCoordinator.endTransaction for a client, or endTransactionWithTV1: the error, the state, and its
    producer id and epoch.
    """
    error, meta = _get(world, state, id_)
    if error:
        return error, state, -1, -1
    if meta is None:
        return "INVALID_PRODUCER_ID_MAPPING", state, -1, -1
    second = version == 2 and not meta.fencing and meta.client_version == 2
    retry_on_bump = second and meta.epoch == epoch + 1
    retry_on_overflow = second and meta.previous_pid == pid and epoch == world.max_epoch and meta.epoch == 0
    if not second or meta.state in {"Ongoing", "Empty"}:
        is_valid = epoch == meta.epoch
    elif meta.state.startswith("Prepare"):
        is_valid = retry_on_bump
    else:
        is_valid = retry_on_bump or retry_on_overflow
    if meta.pid != pid and not retry_on_overflow:
        return "INVALID_PRODUCER_ID_MAPPING", state, -1, -1
    if not is_valid:
        return "PRODUCER_FENCED", state, -1, -1
    if meta.fencing:
        return "CONCURRENT_TRANSACTIONS", state, -1, -1
    wanted = "Commit" if commit else "Abort"
    if meta.state == f"Complete{wanted}":
        return "", state, meta.pid, meta.epoch
    if meta.state == f"Prepare{wanted}":
        return "CONCURRENT_TRANSACTIONS", state, -1, -1
    if meta.state != "Ongoing":
        return "INVALID_TXN_STATE", state, -1, -1
    state = _decided(world, state, id_, meta, commit=commit, version=version)
    after = coordinator_of(world, state, id_).meta(id_)
    assert after is not None
    return ("", state, after.next_pid, 0) if after.next_pid >= 0 else ("", state, after.pid, after.epoch)


def _decided(world: World, state: State, id_: int, meta: Meta, *, commit: bool, version: int) -> State:
    """TransactionMetadata.prepareAbortOrCommit. A fence has raised the epoch already (KAFKA-19367)."""
    truth = state.truths[meta.ctxn]
    truth = truth._replace(decision="commit" if commit else "abort", partitions=meta.partitions)
    state = state._replace(truths=(*state.truths[: meta.ctxn], truth, *state.truths[meta.ctxn + 1 :]))
    before = coordinator_of(world, state, id_).meta(id_)
    was_fenced = before is not None and before.fencing
    next_state = "PrepareCommit" if commit else "PrepareAbort"
    if version == 2 and not was_fenced:
        if meta.epoch >= world.max_epoch:
            meta = meta._replace(next_pid=state.next_pid)
            state = state._replace(next_pid=state.next_pid + 1)
        meta = meta._replace(epoch=meta.epoch + 1, last_epoch=meta.epoch)
    return write_meta(world, state, id_, meta._replace(state=next_state, client_version=2 if version == 2 else 0))


Step = tuple[str, State]
OTHER_PRODUCER = 500


def successors(world: World, state: State) -> Iterator[Step]:
    """Every next state with the name of the step."""
    for label, after in chain(
        _clients(world, state),
        _deliveries(world, state),
        _coordinators(world, state),
        _leaders(world, state),
        _brokers(world, state),
    ):
        if "stale" not in world.rare:
            after = after._replace(known=after.leaders)
        if after != state:
            yield label, after


def _may(world: World, state: State, kind: str) -> bool:
    return state.spent.count(kind) < world.rare.get(kind, 0)


def _spend(state: State, kind: str) -> State:
    return state._replace(spent=tuple(sorted((*state.spent, kind))))


# Clients


def _clients(world: World, state: State) -> Iterator[Step]:
    for id_ in range(world.ids):
        if len(state.clients) < world.instances:
            yield from _new_instance(world, state, id_)
    for index, client in enumerate(state.clients):
        if client.phase == "gone":
            continue
        name = f"client {index}"
        if client.phase == "bump":
            yield from _bump(world, state, index, name)
            continue
        if client.phase == "ready" and _may(world, state, "switch"):
            other = client._replace(version=3 - client.version)  # TransactionManager.beginTransaction
            yield f"{name} changes to version {other.version}", _spend(_put_client(state, index, other), "switch")
        for number in range(world.partitions if state.truths else 1):  # by symmetry, p0 is the first
            yield from _writes(world, state, index, number, f"{name} p{number}")
            yield from _zombie(world, state, index, number)
        if client.phase == "open":
            for commit in (True, False):
                if not commit or not client.failed or _may(world, state, "hasty"):
                    yield from _ends(world, state, index, name, commit=commit)


def _put_client(state: State, index: int, client: Client) -> State:
    return state._replace(clients=(*state.clients[:index], client, *state.clients[index + 1 :]))


def _new_instance(world: World, state: State, id_: int) -> Iterator[Step]:
    error, after = init_producer_id(world, state, id_)
    if error == "CONCURRENT_TRANSACTIONS" and after != state:
        yield f"a new instance of id {id_} fences", after
    if not error:
        meta = coordinator_of(world, after, id_).meta(id_)
        assert meta is not None
        client = Client(id_, meta.pid, meta.epoch, sequences=(0,) * world.partitions, version=world.version)
        yield f"a new instance of id {id_}", after._replace(clients=(*after.clients, client))
        if _may(world, state, "upgrade"):
            other = client._replace(version=3 - world.version)
            upgraded = _spend(after._replace(clients=(*after.clients, other)), "upgrade")
            yield f"a new instance of id {id_} with version {other.version}", upgraded


def _bump(world: World, state: State, index: int, name: str) -> Iterator[Step]:
    client = state.clients[index]
    error, after = init_producer_id(world, state, client.id, expected=(client.pid, client.epoch))
    if error in {"PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"}:
        yield f"{name} is fenced", _put_client(state, index, client._replace(phase="gone"))
    elif not error:
        meta = coordinator_of(world, after, client.id).meta(client.id)
        assert meta is not None
        fresh = client._replace(pid=meta.pid, epoch=meta.epoch, phase="ready", sequences=(0,) * world.partitions)
        raised = _put_client(after, index, fresh)
        yield f"{name} raises its epoch", raised
        if _may(world, state, "late_init"):
            again = _spend(_send(raised, Message("init", *client[:3])), "late_init")
            yield f"{name} raises its epoch, and its first InitProducerId is delayed", again


def _writes(world: World, state: State, index: int, number: int, name: str) -> Iterator[Step]:
    client = state.clients[index]
    if len(state.partitions[number].log) >= world.records:
        return
    is_added, version = number in client.added, client.version
    if version == 1 and not is_added and len(state.truths) < world.transactions + (client.phase == "open"):
        error, after, _ = add_partition(world, state, client.id, client.pid, client.epoch, number, version=1)
        if error in {"PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"}:
            yield f"{name} is fenced", _put_client(state, index, client._replace(phase="gone"))
        elif not error:
            opened = client._replace(phase="open", added=tuple(sorted((*client.added, number))))
            yield f"{name} added", _put_client(after, index, opened)
    is_stray = version == 1 and not is_added
    if is_stray and not (_may(world, state, "stray") and client.phase == "open"):
        return
    if version == 2 and not is_added and len(state.truths) >= world.transactions + (client.phase == "open"):
        return
    spend = (lambda s: _spend(s, "stray")) if is_stray else (lambda s: s)
    message = Message("produce", *client[:3], partition=number, sequence=client.sequences[number], version=version)
    error, after = _produce(world, state, message)
    sent = client._replace(phase="open", sequences=_incremented(client.sequences, number))
    if version == 2:
        sent = sent._replace(added=tuple(sorted({*client.added, number})))
    if error in {"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"}:
        yield f"{name} is fenced", _put_client(state, index, client._replace(phase="gone"))
    elif error == "":
        done = sent
        if number in sent.added:  # nobody has promised anything about the others
            done = sent._replace(acknowledged=(*client.acknowledged, _newest(state, after, client, number)))
        yield f"{name} produced", spend(_put_client(after, index, done))
    if _may(world, state, "late") and error not in {"PRODUCER_FENCED"}:
        late = sent._replace(failed=True) if world.bumps else client._replace(phase="open", failed=True)
        delayed = _spend(_send(_put_client(state, index, late), message), "late")
        yield f"{name} Produce is delayed", spend(delayed)


def _zombie(world: World, state: State, index: int, number: int) -> Iterator[Step]:
    """A record that a client has added to no transaction, whoever sends it: a batch that was in flight when its
    transaction ended, or a copy of the instance. A copy of one of version 2, whose end has raised the epoch, has the
    epoch before and writes as version 1 does.
    """
    client, partition = state.clients[index], state.partitions[number]
    epoch, rare = (client.epoch, "zombie") if client.version == 1 else (client.epoch - 1, "zombie of version 2")
    if epoch < 0 or not _may(world, state, rare) or len(partition.log) >= world.records:
        return
    entry = next((each for each in _entries(state, number) if each.pid == client.pid), None)
    sequence = entry.last_sequence + 1 if entry is not None and entry.epoch == epoch else 0
    message = Message("produce", client.id, client.pid, epoch, partition=number, sequence=sequence)
    error, after = _produce(world, state, message)
    if not error:
        yield f"a zombie of client {index} writes p{number}", _spend(after, rare)


def _newest(before: State, after: State, client: Client, number: int) -> Written:
    """What a client has just written, or the earlier copy of it."""
    sequence, log = client.sequences[number], after.partitions[number].log
    mine = (
        r for r in reversed(log) if (r.kind, r.pid, r.epoch, r.sequence) == ("data", client.pid, client.epoch, sequence)
    )
    return written(number, next(mine))


def _incremented(sequences: tuple[int, ...], number: int) -> tuple[int, ...]:
    return (*sequences[:number], sequences[number] + 1, *sequences[number + 1 :])


def _send(state: State, message: Message) -> State:
    return state._replace(network=tuple(sorted((*state.network, message))))


def _produce(world: World, state: State, message: Message) -> tuple[str, State]:
    """ReplicaManager.appendRecords of a transactional batch. Its partition is added (version 2) or verified (version 1)
    by AddPartitionsToTxnManager, unless the leader has a transaction of its epoch open (UnifiedLog.
    hasOngoingTransaction).
    """
    _, id_, pid, epoch, number, sequence = message[:6]
    if state.partitions[number].leader == NOBODY:
        return "NOT_LEADER_OR_FOLLOWER", state
    has_open = any(each.pid == pid and each.epoch == epoch and each.start >= 0 for each in _entries(state, number))
    fields = {"pid": pid, "epoch": epoch, "sequence": sequence}
    if message.version == 2 and not has_open:
        error, after, ctxn = add_partition(world, state, id_, pid, epoch, number, version=2)
        return (error, state) if error else append_data(world, after, number, **fields, ctxn=ctxn)
    if message.version == 1 and world.verification and not has_open:
        error, _ = verify_partition(world, state, id_, pid, epoch, number)
        if error:
            return error, state
    return append_data(world, state, number, **fields, ctxn=_owner(world, state, id_, pid, epoch, number))


def _entries(state: State, number: int) -> tuple[ProducerEntry, ...]:
    return producer_entries(state.partitions[number].log)


def _owner(world: World, state: State, id_: int, pid: int, epoch: int, number: int) -> int:
    """Ghost: the coordinator's transaction of this epoch that has the partition now and will write its marker."""
    coordinator = coordinator_of(world, state, id_)
    meta = coordinator.meta(id_) or next((r.meta for r in reversed(coordinator.log) if r.id == id_), None)
    if meta is None or meta.pid != pid or number not in meta.partitions:
        return NOBODY
    return meta.ctxn if state.truths[meta.ctxn].epoch == epoch else NOBODY


def _ends(world: World, state: State, index: int, name: str, *, commit: bool) -> Iterator[Step]:
    client = state.clients[index]
    spend = (lambda s: _spend(s, "hasty")) if commit and client.failed else (lambda s: s)
    message = Message("end", *client[:3], commit=commit, version=client.version)
    error, after, pid, epoch = _end(world, state, message)
    word = "commit" if commit else "abort"
    if error in {"PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE"}:
        yield f"{name} {word} is refused", _put_client(state, index, client._replace(phase="gone"))
        return
    if error:
        return
    needs_bump = client.failed and world.bumps and client.version == 1
    sequences = client.sequences if epoch == client.epoch and pid == client.pid else (0,) * world.partitions
    phase = "bump" if needs_bump else "ready"
    ended = Client(client.id, pid, epoch, phase=phase, sequences=sequences, version=client.version)
    after = _put_client(after, index, ended)
    if commit:
        after = after._replace(promised=after.promised | set(client.acknowledged))
    yield f"{name} {word}s", spend(after)
    if _may(world, state, "late_end"):
        yield f"{name} {word}s, and its first EndTxn is delayed", spend(_spend(_send(after, message), "late_end"))


def _end(world: World, state: State, message: Message) -> tuple[str, State, int, int]:
    """EndTxn."""
    _, id_, pid, epoch = message[:4]
    return end_transaction(world, state, id_, pid, epoch, commit=message.commit, version=message.version)


# The network


def _deliveries(world: World, state: State) -> Iterator[Step]:
    for index, message in enumerate(state.network):
        if index and message == state.network[index - 1]:
            continue
        rest = state._replace(network=(*state.network[:index], *state.network[index + 1 :]))
        yield f"the delayed {message.kind} arrives", _delivered(world, rest, message)


def _delivered(world: World, state: State, message: Message) -> State:
    if message.kind == "end":
        return _end(world, state, message)[1]
    if message.kind == "init":
        return init_producer_id(world, state, message.id, expected=(message.pid, message.epoch))[1]
    if message.kind == "marker":
        return append_marker(
            world,
            state,
            message.partition,
            pid=message.pid,
            epoch=message.epoch,
            commit=message.commit,
            coordinator_epoch=message.coordinator_epoch,
            ctxn=message.ctxn,
        )[1]
    return _produce(world, state, message)[1]


# Coordinators


def _coordinators(world: World, state: State) -> Iterator[Step]:
    for number, coordinator in enumerate(state.coordinators):
        if coordinator.phase == "loaded" and coordinator.leader != NOBODY:
            ticked = world.time(state._replace(clock=0), coordinator.leader)
            for id_, meta in coordinator.cache:
                yield from _of_id(world, state, id_, meta, ticked)
        yield from _elections(world, state, number)


def _of_id(world: World, state: State, id_: int, meta: Meta, ticked: int) -> Iterator[Step]:
    if meta.fencing:
        yield f"id {id_} PrepareAbort of the fence is logged", log_fence(world, state, id_)
    elif meta.state == "Ongoing" and ticked > meta.start + world.timeout_ms:
        yield f"id {id_} times out", begin_fence(world, state, id_, meta)
    if meta.state.startswith("Prepare") and not meta.given_up:
        for number in meta.partitions:
            yield from _markers(world, state, id_, meta, number)
        if not meta.partitions:
            yield f"id {id_} completes", _complete(world, state, id_, meta)
    if meta.state in {"Empty", "CompleteCommit", "CompleteAbort"} and _may(world, state, "expire"):
        yield f"id {id_} expires", _spend(write_meta(world, state, id_, None), "expire")


def _complete(world: World, state: State, id_: int, meta: Meta) -> State:
    """TransactionMetadata.prepareComplete."""
    done = meta._replace(state=meta.state.replace("Prepare", "Complete"), partitions=())
    if meta.next_pid >= 0:
        done = done._replace(previous_pid=meta.pid, pid=meta.next_pid, epoch=0, next_pid=-1)
    return write_meta(world, state, id_, done)


def _markers(world: World, state: State, id_: int, meta: Meta, number: int) -> Iterator[Step]:
    """TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler."""
    rest = tuple(each for each in meta.partitions if each != number)
    done = meta._replace(partitions=rest)
    commit = meta.state == "PrepareCommit"
    word = f"id {id_} {'COMMIT' if commit else 'ABORT'} marker p{number}"
    coordinator = coordinator_of(world, state, id_)
    if state.partitions[number].leader == NOBODY:
        if world.skips_markers:
            yield f"{word} is skipped", put_meta(world, state, id_, done)
        return
    fields: dict[str, Any] = {"pid": meta.pid, "epoch": meta.epoch, "commit": commit}
    fields |= {"coordinator_epoch": coordinator.epoch, "ctxn": meta.ctxn}
    error, after = append_marker(world, state, number, **fields)
    if error:
        yield f"{word} is refused: {error}", put_meta(world, state, id_, meta._replace(given_up=True))
        return
    yield f"{word} is written", put_meta(world, after, id_, done)
    if _may(world, state, "lag"):
        _, lagging = append_marker(world, state, number, **fields, replicated=False)
        yield f"{word} is written and not replicated", _spend(lagging, "lag")
    if _may(world, state, "late_marker"):
        message = Message("marker", id_, partition=number, **fields)
        late = _spend(_send(put_meta(world, after, id_, done), message), "late_marker")
        yield f"{word} is written, and its first request is delayed", late


def _elections(world: World, state: State, number: int) -> Iterator[Step]:
    coordinator = state.coordinators[number]
    name = f"coordinator {number}"
    if coordinator.phase == "elected":
        yield f"{name} loads", put_coordinator(state, number, coordinator._replace(phase="loading"))
    if coordinator.phase == "loading":
        newest: dict[int, Meta | None] = {record.id: record.meta for record in coordinator.log}
        # Records have no last epoch.
        cache = tuple(sorted((id_, meta._replace(last_epoch=-1)) for id_, meta in newest.items() if meta is not None))
        yield f"{name} has loaded", put_coordinator(state, number, coordinator._replace(phase="loaded", cache=cache))
    if coordinator.former is not None:
        yield f"{name} former leader resigns", put_coordinator(state, number, coordinator._replace(former=None))
    if _may(world, state, "failover") and coordinator.phase == "loaded":
        moved = coordinator._replace(
            leader=3 - coordinator.leader,
            epoch=coordinator.epoch + 1,
            phase="elected",
            cache=(),
            former=(coordinator.leader, coordinator.cache),
        )
        spent = _spend(state, "failover")
        yield f"{name} moves", put_coordinator(spent, number, moved)
        if _may(world, state, "lost_state"):
            for count in _tails(world, coordinator.log):
                lost = _without_newest(put_coordinator(spent, number, moved), number, count)
                yield f"{name} moves and loses {_newest_text(count)}", _spend(lost, "lost_state")
    if _may(world, state, "restore") and coordinator.phase == "loaded":
        back = coordinator._replace(epoch=coordinator.epoch + 1, phase="elected", cache=())
        for count in range(1, len(coordinator.log) + 1):
            restored = _without_newest(put_coordinator(state, number, back), number, count)
            yield f"{name} is restored without {_newest_text(count)}", _spend(restored, "restore")
    if _may(world, state, "compact") and len({record.id for record in coordinator.log}) < len(coordinator.log):
        newest_records = {record.id: record for record in coordinator.log}
        log = tuple(sorted(newest_records.values()))
        compacted = put_coordinator(state, number, coordinator._replace(log=log))
        yield f"{name} log is compacted", _spend(compacted, "compact")


def _tails(world: World, log: tuple[Any, ...]) -> range:
    """How many of its newest records a log may lose."""
    return range(1, min(world.tail, len(log)) + 1)


def _newest_text(count: int) -> str:
    return "its newest record" if count == 1 else f"its newest {count} records"


def _without_newest(state: State, number: int, count: int) -> State:
    """A coordinator's log without its newest records, whose offsets are given out again: what was decided in them is
    not decided any more.
    """
    coordinator = state.coordinators[number]
    kept, gone = coordinator.log[:-count], coordinator.log[-count:]
    state = put_coordinator(state, number, coordinator._replace(log=kept, end=gone[0].offset))
    truths = list(state.truths)
    for record in gone:
        if record.meta is not None and record.meta.state.startswith("Prepare"):
            truths[record.meta.ctxn] = truths[record.meta.ctxn]._replace(decision="", partitions=())
    return state._replace(truths=tuple(truths))


# Leaders of data partitions


def _leaders(world: World, state: State) -> Iterator[Step]:
    for number, partition in enumerate(state.partitions):
        name = f"p{number}"
        if partition.leader == NOBODY:
            online = partition._replace(leader=1 + number % 2, leader_epoch=partition.leader_epoch + 1)
            yield f"{name} is online", put_partition(state, number, online)
            continue
        if _may(world, state, "offline"):
            spent = _spend(state, "offline")
            yield f"{name} is offline", put_partition(spent, number, partition._replace(leader=NOBODY))
        if _may(world, state, "unclean"):
            for count in _tails(world, partition.log):
                lost = _unclean(world, state, number, count)
                yield f"{name} loses {_newest_text(count)}", _spend(lost, "unclean")
        if _may(world, state, "recreate") and partition.log:
            fresh = Partition(leader=1 + number % 2, leader_epoch=0)
            yield f"{name} is created again", _spend(put_partition(state, number, fresh), "recreate")
        if _may(world, state, "other"):
            yield f"another producer's marker p{number}", _spend(_others_marker(world, state, number), "other")
        if _may(world, state, "move"):
            moved = _moved(world, partition)
            yield f"{name} moves", _spend(put_partition(state, number, moved), "move")
        if partition.former is not None:
            yield f"{name} former leader learns it", put_partition(state, number, partition._replace(former=None))
        if partition.high_watermark < len(partition.log):
            replicated = partition._replace(high_watermark=len(partition.log))
            yield f"{name} is replicated", put_partition(state, number, replicated)


def _moved(world: World, partition: Partition) -> Partition:
    """The other broker leads; where news travels slowly, the former leader does not know yet."""
    former = Former(*partition[:4]) if "stale" in world.rare else None
    return partition._replace(leader=3 - partition.leader, leader_epoch=partition.leader_epoch + 1, former=former)


def _unclean(world: World, state: State, number: int, count: int) -> State:
    """Another replica leads, without the newest records (UnifiedLog.truncateTo)."""
    partition = state.partitions[number]
    kept = partition.log[:-count]
    shorter = _moved(world, partition)._replace(log=kept, high_watermark=min(partition.high_watermark, len(kept)))
    return put_partition(state, number, shorter)


def _others_marker(world: World, state: State, number: int) -> State:
    """A marker of a producer that no coordinator of the model knows: a broker's time in the log."""
    earlier = state._replace(clock=state.clock + 1)
    fields: dict[str, Any] = {"pid": OTHER_PRODUCER, "epoch": 0, "commit": False, "coordinator_epoch": 7}
    return append_marker(world, earlier, number, **fields, ctxn=NOBODY)[1]._replace(clock=state.clock + 2)


# Brokers and time


def _brokers(world: World, state: State) -> Iterator[Step]:
    if _may(world, state, "tick"):
        yield "time passes", _spend(state._replace(tick=state.tick + 1, clock=0), "tick")
    if "stale" in world.rare and state.known != state.leaders:
        yield "brokers learn who leads", state._replace(known=state.leaders)
    if _may(world, state, "twice") and state.next_pid > FIRST_PRODUCER_ID:
        yield "producer ids are given out again", _spend(state._replace(next_pid=FIRST_PRODUCER_ID), "twice")
    for broker in (1, 2):
        if broker in state.silent:
            yield f"broker {broker} answers again", state._replace(silent=())
        elif _may(world, state, "silent") and not state.silent:
            yield f"broker {broker} does not answer", _spend(state._replace(silent=(broker,)), "silent")
