"""Leaders of data partitions: what they append (UnifiedLog, ProducerAppendInfo, ReplicaManager)."""

from __future__ import annotations

from tests.exploration.state import NOBODY, Partition, ProducerEntry, Record, State, producer_entries
from tests.exploration.world import World


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
