"""Why a transaction is held: the root causes that the bytes show, each with the batches and records that decide it.

The codes are those of the catalogue of root causes: R1 late batch after a commit, R2 after an abort, R3 written but
never added, R4 id expired or producer id rotated, R5 to R7 marker lost, R8 and R9 marker not written, R11 and R13
habits of ids (hints), R14 offsets of groups, R17 head deleted, R20 two-phase commit.

With transaction version 1 a late batch and the first batch of a healthy producer's next transaction are the same bytes.
So what needs a coordinator to disown the transaction is only said of one that is `hanging`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from toolkit.analysis.cases import Case
from toolkit.analysis.excerpts import LogEvidence
from toolkit.analysis.owners import producer_ids
from toolkit.analysis.scenes import Scene
from toolkit.formats.group_records import OFFSETS_TOPIC
from toolkit.formats.headers import COMMIT
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import Row

__all__ = ["Cause", "Sign", "cause", "habit"]

FLINK_ID = re.compile(r".+-\d+-\d+")  # prefix, subtask, checkpoint
RANDOM_ID = re.compile(r".*[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}.*", re.IGNORECASE)
FLINK_TIMEOUT_MS = 3_600_000  # KafkaSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a transaction is held.

    Parameters
    ----------
    codes
        Root causes, the deciding one first; empty where what shows has no code, or nothing shows.
    sentence
        What shows, and the codes.
    evidence
        The batches and records that decide it, as rows of the evidence column.
    """

    codes: tuple[str, ...]
    sentence: str
    evidence: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One thing that shows."""

    text: str
    codes: tuple[str, ...] = ()
    evidence: tuple[Row, ...] = ()


def cause(case: Case, verdict: str, log: LogEvidence) -> Cause | None:
    """The root cause of a held transaction, as far as it shows.

    Parameters
    ----------
    case
        The open transaction.
    verdict
        What was judged of it.
    log
        What was read.

    Returns
    -------
    Cause or None
        Null where there is nothing to explain. A hanging transaction always has one: where nothing shows, it says what
        was read.
    """
    scene = Scene(case, log)
    signs = [sign for look in SIGNS.get(verdict, ()) if (sign := look(scene)) is not None]
    if not signs:
        return Cause(codes=(), sentence=_nothing_shows(scene)) if verdict == "hanging" else None
    codes = tuple(dict.fromkeys(code for sign in signs for code in sign.codes))
    named = f" ({', '.join(codes)})" if codes else ""
    evidence = tuple(entry for sign in signs for entry in sign.evidence)
    return Cause(codes=codes, sentence="; ".join(sign.text for sign in signs) + named, evidence=evidence)


def _head_deleted(scene: Scene) -> Sign | None:
    start, log_start = scene.case.start, scene.case.leader_row.get("log_start_offset")
    if start is None or log_start is None or start >= log_start:
        return None
    text = (
        f"its head is deleted: it begins at {start}, and the log starts at {log_start} now, which ends no transaction"
    )
    return Sign(text=text, codes=("R17",))


def _mixed_epochs(scene: Scene) -> Sign | None:
    if scene.opening is None:
        return None
    batches = scene.opening.open_data
    later = batches[batches["producer_epoch"] > scene.epoch]
    if not len(later):
        return None
    text = (
        f"mixed epochs in one transaction: epoch {scene.epoch}, which is dead, opened it, and epoch "
        f"{later['producer_epoch'][0]} writes into it from offset {later['base_offset'][0]} on"
    )
    evidence = (scene.opening.entry("first_batch", batches), scene.opening.entry("first_of_new_epoch", later))
    return Sign(text=text, evidence=evidence)


def _no_owner(scene: Scene) -> Sign | None:
    if scene.case.owner:
        return None
    for owner in producer_ids(scene.events).get(scene.case.producer["producer_id"], ()):
        last = [row for row in scene.events if row["transactional_id"] == owner.transactional_id][-1]
        if owner.now == "expired":
            text = f'its id "{owner.transactional_id}" has expired: {STATE_TOPIC}-{owner.txn_state_partition} forgot it'
            return Sign(text=text, codes=("R4",), evidence=(_record(last),))
        if owner.now == "replaced":
            text = f'its id "{owner.transactional_id}" has gone on to producer {last["producer_id"]}'
            return Sign(text=text, codes=("R4",), evidence=(_record(last),))
    return Sign(text="no owner: its id has expired or moved on to another producer id", codes=("R4",))


def _superseded(scene: Scene) -> Sign | None:
    if scene.case.owner_epoch <= scene.epoch:
        return None
    name = scene.case.owner["transactional_id"]
    return Sign(text=f'superseded epoch: "{name}" is at epoch {scene.case.owner_epoch}, and this is of {scene.epoch}')


def _late(scene: Scene) -> Sign | None:
    if not scene.is_late or scene.opening is None:
        return None
    traces = scene.opening
    committed = int(traces.marker_before["marker"][0]) == COMMIT
    text = (
        f"a batch of the same producer came after the {'COMMIT' if committed else 'ABORT'} marker at offset "
        f"{traces.marker_before['base_offset'][0]}"
    )
    if traces.sequence_follows:
        text += f", with the next sequence number ({traces.opening['base_sequence'][0]})"
    text += ": late, or sent again" if committed else ": in flight, or sent again, when the marker overtook it"
    evidence = (
        *((traces.entry("batch_before", traces.data_before),) if len(traces.data_before) else ()),
        traces.entry("marker_before", traces.marker_before),
        traces.entry("first_batch", traces.opening),
        *map(_record, scene.events[-1:]),
    )
    return Sign(text=text, codes=("R1" if committed else "R2",), evidence=evidence)


def _never_added(scene: Scene) -> Sign | None:
    case = scene.case
    topic, partition = case.tp
    records = scene.of_epoch
    if scene.was_never_added:
        text = (
            f"written but never added: the coordinator wrote {_count(records)} of producer "
            f"{case.producer['producer_id']} epoch {scene.epoch}, and {topic}-{partition} is not in there"
        )
    elif scene.is_late or scene.epoch != case.owner_epoch:
        return None
    elif case.state == "Empty":
        text = "written but never added: no transaction of this epoch has begun"
    elif case.state == "Ongoing" and not case.listed:
        text = "written but not added to the transaction that is open elsewhere"
    else:
        return None
    return Sign(text=text, codes=("R3",), evidence=(*_first_batch(scene), *map(_record, records[-3:])))


def _marker_lost(scene: Scene) -> Sign | None:
    if not scene.lost_its_marker or scene.opening is None:
        return None
    last = scene.transactions[-1]
    text = (
        f"its marker is lost: the coordinator completed the {last['state'].removeprefix('Complete').lower()}, and the "
    )
    text += "log has no marker of it"
    evidence = (*_first_batch(scene), *map(_record, scene.events[-2:]))
    for code, why in (_compacted(scene), _led_by_another(scene), _refused(scene)):
        if why:
            return Sign(text=f"{text}; {why}", codes=(code,), evidence=evidence)
    return Sign(text=text, evidence=evidence)


def _compacted(scene: Scene) -> tuple[str, str]:
    compacted = scene.opening is not None and scene.opening.excerpt.is_compacted
    return "R6", "the topic is compacted, which may have taken it" if compacted else ""


def _led_by_another(scene: Scene) -> tuple[str, str]:
    """Whether leadership changed since the transaction was opened."""
    if scene.opening is None:
        return "R7", ""
    opened_in = int(scene.opening.opening["leader_epoch"][0])
    later = scene.opening.excerpt.headers
    epochs = later["leader_epoch"][(later["base_offset"] > scene.opening.start) & (later["leader_epoch"] > opened_in)]
    now = int(epochs[0]) if len(epochs) else scene.case.leader_row.get("leader_epoch") or -1
    if now <= opened_in:
        return "R7", ""
    return "R7", f"another leader took over (leader epoch {opened_in}, then {now}), perhaps without the last records"


def _refused(scene: Scene) -> tuple[str, str]:
    """Whether the partition refuses the coordinator's markers as those of an old one."""
    known = scene.case.producer.get("coordinator_epoch")
    told = max((row["leader_epoch"] for row in scene.events if row["leader_epoch"] is not None), default=None)
    if known is None or told is None or known <= told:
        return "R5", ""
    return "R5", f"the partition knows coordinator epoch {known} and refuses the coordinator, which is at {told}"


def _of_groups(scene: Scene) -> Sign | None:
    if scene.case.tp[0] != OFFSETS_TOPIC:
        return None
    producer_id = scene.case.producer["producer_id"]
    groups = scene.traces.excerpt.groups.get(producer_id, ()) if scene.traces else ()
    whose = f"group{'s' if len(groups) > 1 else ''} {', '.join(groups)}" if groups else "consumer groups"
    return Sign(text=f"it holds offsets of {whose}", codes=("R14",))


def _not_ended(scene: Scene) -> Sign | None:
    isr, replicas = scene.case.leader_row.get("isr"), scene.case.leader_row.get("replicas")
    if isr is not None and replicas is not None and len(isr) < len(replicas):
        text = f"its marker cannot be written while replicas are missing: {len(isr)} of {len(replicas)} are in sync"
        return Sign(text=text)
    last = scene.events[-1] if scene.events else None
    if last is not None and last["client_transaction_version"] == 2:
        text = "its coordinator has lost the marker that it has to write, or the partition's leader refuses it as old"
        return Sign(text=text, codes=("R8", "R9"), evidence=(_record(last),))
    return Sign(text="its coordinator has lost the marker that it has to write, or cannot send it", codes=("R8",))


def _two_phase(scene: Scene) -> Sign | None:
    return Sign(text="prepared by two-phase commit; its external coordinator has not decided", codes=("R20",))


def _habit(scene: Scene) -> Sign | None:
    return habit(scene.case.owner.get("transactional_id") or "", scene.case.owner.get("timeout_ms"))


def habit(name: str, timeout_ms: int | None) -> Sign | None:
    """What a transactional id looks like: a hint, no more."""
    if FLINK_ID.fullmatch(name) and timeout_ms == FLINK_TIMEOUT_MS:
        text = f'a hint: "{name}" with a timeout of 1 h looks like Apache Flink, whose checkpoint decides what to do'
        return Sign(text=text, codes=("R11",))
    if RANDOM_ID.fullmatch(name):
        text = f'a hint: "{name}" looks random; if its client is gone, no later instance will fence it'
        return Sign(text=text, codes=("R13",))
    return None


def _nothing_shows(scene: Scene) -> str:
    excerpt = scene.log.excerpts.get(scene.case.tp)
    if excerpt is None:
        read = "the log was not read"
    elif excerpt.start >= excerpt.stop:
        read = f"the log could not be read ({(excerpt.error or 'it is empty').partition(':')[0]})"
    else:
        read = f"offsets {excerpt.start} to {excerpt.stop - 1} were read and do not tell what opened it"
    return "not shown: " + "; ".join([read, *scene.log.unread])


def _count(records: Sequence[Row]) -> str:
    return f"{len(records)} record{'' if len(records) == 1 else 's'}"


def _first_batch(scene: Scene) -> tuple[Row, ...]:
    return (scene.opening.entry("first_batch", scene.opening.opening),) if scene.opening else ()


def _record(row: Row) -> Row:
    """A coordinator's record as a row of the evidence column."""
    partitions = ", ".join(f"{each['topic']}-{each['partition']}" for each in row["topic_partitions"] or ())
    what = f"{row['state']}, producer {row['producer_id']} epoch {row['producer_epoch']}"
    text = f"{STATE_TOPIC}-{row['txn_state_partition']} offset {row['offset']}: "
    text += "tombstone" if row["tombstone"] else what + (f", partitions {partitions}" if partitions else "")
    return {
        "source": STATE_TOPIC,
        "broker_id": row["broker_id"],
        "observed_at": row["last_update_time"] or row["timestamp"],
        "name": "record",
        "value": text,
    }


Look = Callable[[Scene], Sign | None]

DISOWNED: tuple[Look, ...] = (
    _head_deleted,
    _no_owner,
    _superseded,
    _late,
    _never_added,
    _marker_lost,
    _of_groups,
)
SIGNS: Mapping[str, tuple[Look, ...]] = {  # by verdict
    "hanging": DISOWNED,
    "unknown": (_head_deleted, _mixed_epochs),
    "ongoing": (_mixed_epochs,),
    "long": (_mixed_epochs, _head_deleted, _habit),
    "overdue": (_head_deleted, _habit),
    "prepared": (_two_phase,),
    "stuck_ending": (_not_ended,),
}
