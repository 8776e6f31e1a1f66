"""Everything that may happen next in a state: clients, coordinators, leaders, the network, brokers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from tests.exploration.coordinator import (
    add_partition,
    begin_fence,
    coordinator_of,
    end_transaction,
    init_producer_id,
    log_fence,
    put_coordinator,
    put_meta,
    verify_partition,
    write_meta,
)
from tests.exploration.leaders import append_data, append_marker, put_partition
from tests.exploration.state import (
    FIRST_PRODUCER_ID,
    NOBODY,
    Client,
    Former,
    Message,
    Meta,
    Partition,
    ProducerEntry,
    State,
    Written,
    producer_entries,
    written,
)
from tests.exploration.world import World

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
        yield f"{name} raises its epoch", _put_client(after, index, fresh)


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
    """A record that a client of version 1 has added to no transaction, whoever sends it: a batch that was in flight
    when its transaction ended, or a copy of the instance.
    """
    client, partition = state.clients[index], state.partitions[number]
    if client.version != 1 or not _may(world, state, "zombie") or len(partition.log) >= world.records:
        return
    entry = next((each for each in _entries(state, number) if each.pid == client.pid), None)
    sequence = entry.last_sequence + 1 if entry is not None and entry.epoch == client.epoch else 0
    message = Message("produce", *client[:3], partition=number, sequence=sequence)
    error, after = _produce(world, state, message)
    if not error:
        yield f"a zombie of client {index} writes p{number}", _spend(after, "zombie")


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
        cache = tuple(sorted((id_, meta) for id_, meta in newest.items() if meta is not None))
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
