"""Transaction coordinators (TransactionCoordinator, TransactionMetadata, TransactionStateManager).

A coordinator appends to its log and then changes its cache; both are one step here. The exception is a fence, which
raises the epoch in the cache first (TransactionMetadata.prepareFenceProducerEpoch, endTransaction), and logs it with
PrepareAbort.
"""

from __future__ import annotations

from tests.exploration.state import NOBODY, Coordinator, Meta, State, StateRecord, Truth
from tests.exploration.world import World


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
    if expected is not None and expected != (meta.pid, meta.epoch):
        return "PRODUCER_FENCED", state
    if meta.state == "Ongoing":
        return "CONCURRENT_TRANSACTIONS", begin_fence(world, state, id_, meta)
    empty = meta._replace(state="Empty", partitions=(), start=-1, last_epoch=-1, given_up=False, ctxn=NOBODY)
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
