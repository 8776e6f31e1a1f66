"""Brokers' own logs: server.log, controller.log, state-change.log, log-cleaner.log and kafkaServer.out, as events.

The layouts are those of log4j and log4j 2 with a time and a level at the beginning of each entry, and JSON. Lines that
follow an entry, as those of an exception, belong to it. Kafka's default layout has the local time without its zone.

The wordings are those of Kafka 2.8 to 4.4, read in its source and in the jars of each version. Brokers write no line,
at their default levels, when a client ends its transaction, when a new instance fences one (its InitProducerId is
answered first, and logged when it is repeated), or when a producer id or a transactional id expires. Where brokers
verify transactions (KIP-890), they log neither a batch that fails it nor its refused epoch.

Sources: ``TransactionCoordinator``, ``TransactionStateManager``, ``TransactionMarkerChannelManager``,
``TransactionMarkerRequestCompletionHandler``, ``ProducerAppendInfo``, ``ReplicaManager``, ``Partition``,
``UnifiedLog``, ``SocketServer``, ``LogLoader``, ``LogManager``, ``LogCleaner``, ``PartitionRegistration`` and
``BrokerLifecycleManager`` in Kafka.
"""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.errors import NotFound, UsageError
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema.log import FROM_BROKER_LOG, ClusterEvent
from toolkit.schema.table import TopicPartition

TP = r"(?P<tp>[\w.-]+-\d+)"
OF_LOG = rf"partition={TP}[,\]].*"  # [UnifiedLog partition=orders-0, dir=/data] before the message
OF_APPEND = rf"(?:append operation on partition (?:[\w-]{{22}}:)?{TP}\s.*?)?"  # before the exception; 4.x with topic id
ID = r"(?P<transactional_id>[^\n]*)"
PRODUCER = r"producer (?P<producer_id>\d+)"
COORDINATOR_EPOCH = r"(?:\w+[(\[])?(?P<leader_epoch>\d+)"  # of Scala or Java, in an Option or an OptionalInt


class LinePattern(NamedTuple):
    """A line, and the event that it reports."""

    event: str  # name of the event, as in ``schema.metadata.EVENTS``
    words: str  # what the line contains; searched for before everything else
    # the message; the names of its groups are columns, or ``tp`` and ``tps`` for one or several partitions
    pattern: re.Pattern[str]


def _line(event: str, words: str, pattern: str) -> LinePattern:
    return LinePattern(event, words, re.compile(pattern, re.DOTALL | re.ASCII))


LINES: Sequence[LinePattern] = (
    _line("transaction_timed_out", "due to timeout", f"of ongoing transaction for transactionalId {ID} due to timeout"),
    _line("timeout_abort_failed", "Rollback of ongoing", f"transaction for transactionalId {ID} failed due to error"),
    _line(
        "producer_initialized",
        "Initialized transactionalId",
        f"Initialized transactionalId {ID} with producerId (?P<producer_id>\\d+) and producer epoch "
        r"(?P<producer_epoch>\d+) on partition",
    ),
    _line("producer_init_refused", "InitProducerId request", f"error code to client for {ID}'s InitProducerId request"),
    _line("transaction_end_failed", "EndTransaction request", f"error to client for {ID}'s EndTransaction request"),
    _line(
        "epoch_fence_failed",
        "write an epoch fence",
        f"an epoch fence transition for producer {ID} to the transaction log with error \\w+"
        r"(?:\. The epoch was increased to (?P<producer_epoch>\d+))?",  # not with transaction version 2
    ),
    _line(
        "producer_fenced", "Expected producer epoch", "Expected producer epoch (?P<producer_epoch>\\d+) does not match"
    ),
    _line(
        "marker_skipped",
        "find leader endpoint for",
        f"endpoint for partitions (?P<tps>.*) while trying to send transaction markers for {ID}, these partitions",
    ),
    _line(
        "marker_skipped", "transaction marker from", f"Sending {ID}'s transaction marker from partition {TP} has failed"
    ),
    _line(
        "marker_retried", "transaction marker for", f"Sending {ID}'s transaction marker for partition {TP} has failed"
    ),
    _line(
        "marker_refused",
        "transaction marker for",
        f"Sending {ID}'s transaction marker for partition {TP} has permanently failed",
    ),
    _line(
        "marker_refused",
        "Invalid coordinator epoch",
        rf"Invalid coordinator epoch for producerId (?P<producer_id>\d+) at offset \d+ in partition {TP}",
    ),
    _line(
        "markers_cancelled",
        "cancel sending",
        "(?:(?:no longer the coordinator for|partition that contains|coordinator epoch for|transaction metadata for) "
        "(?P<transactional_id>.*?)(?:; cancel| which means| has changed from| with coordinator epoch)|The cached "
        "metadata).*",
    ),
    _line("marker_request_failed", "(WriteTxnMarkers) and unsupp", "Closing socket for .*WriteTxnMarkers.*version"),
    _line(
        "marker_request_failed", "WRITE_TXN_MARKERS, apiVersion", "Closing socket for .*WRITE_TXN_MARKERS, apiVersion"
    ),
    _line("marker_request_failed", "api key WRITE_TXN_MARKERS", "Closing socket for .*WRITE_TXN_MARKERS with version"),
    _line(
        "coordinator_elected",
        "Elected as the txn coord",
        rf"Elected as the txn coordinator for partition (?P<state>\d+)(?: at epoch {COORDINATOR_EPOCH})?",
    ),
    _line(
        "coordinator_resigned",
        "Resigned as the txn coord",
        rf"Resigned as the txn coordinator for partition (?P<state>\d+)(?: at epoch {COORDINATOR_EPOCH})?",
    ),
    _line("coordinator_loading", "Loading transaction metadata", f"metadata from {TP} at epoch (?P<leader_epoch>\\d+)"),
    _line(
        "coordinator_loaded",
        "Completed loading transaction",
        f"metadata from {TP} for coordinator epoch (?P<leader_epoch>\\d+)",
    ),
    _line("coordinator_load_failed", "Error loading transactions", f"from transaction log {TP}"),
    _line(
        "coordinator_load_failed", "load transaction metadata from", f"Attempted to load transaction metadata from {TP}"
    ),
    _line("out_of_order_sequence", "Out of order sequence", rf"number for {PRODUCER} at offset \d+ in partition {TP}"),
    _line(
        "out_of_order_sequence",
        "Invalid sequence number for",
        rf"for (?:new epoch of )?{PRODUCER} ?at offset \d+ in partition {TP}(?:: (?P<producer_epoch>\d+) \(request)?",
    ),
    _line(
        "invalid_producer_epoch",
        "the last seen epoch",
        rf"Epoch of {PRODUCER} at offset \d+ in {TP} is (?P<producer_epoch>\d+), which",
    ),
    _line(
        "invalid_producer_epoch",
        "the last seen epoch",
        rf"{OF_APPEND}Epoch of {PRODUCER} is (?P<producer_epoch>\d+), which",
    ),
    _line("invalid_txn_state", "Expected transactional write", f"write from {PRODUCER} at offset .* in partition {TP}"),
    _line("invalid_txn_state", "not part of an ongoing transaction", f"{OF_APPEND}Record was not part of"),
    _line("verification_failed", "verify the partition has been", f"{OF_APPEND}Unable to verify the partition"),
    _line("verification_failed", "not added to the transaction", f"{OF_APPEND}Partition was not added"),
    _line("verification_failed", "AddPartitionsToTxnRequest", r"for node (?P<affected_broker>\d+)"),
    _line("id_not_removed", "remove expired transactionalId", f"expired transactionalId: {ID} from cache"),
    _line("partition_uncleanable", "as uncleanable", rf"Marking its partition \({TP}\) as uncleanable"),
    _line("cleaner_died", "kafka-log-cleaner-thread", r"\[kafka-log-cleaner-thread-\d+\]:? (?:Error|Stopped) due to"),
    _line("unclean_election", "Triggering unclean leader", rf"for offline partition {TP}"),
    _line(
        "unclean_election",
        "UNCLEAN partition change",
        rf"for {TP} with topic ID \S+(?:.*?\bleader: -?\d+ -> (?P<leader>\d+))?(?:.*?\bleaderEpoch: \d+ -> "
        r"(?P<leader_epoch>\d+))?",
    ),
    _line("unclean_election", "was marked as RECOVERING", f"topic partition {TP} was marked"),
    _line("leader_changed", "starts at leader epoch", rf"Leader {TP} .*?starts at leader epoch (?P<leader_epoch>\d+)"),
    _line("no_leader", "Current leader is -1", rf"Follower {TP} .*?starts at leader epoch (?P<leader_epoch>\d+)"),
    _line(
        "leader_changed",
        "starts at leader epoch",
        rf"Follower {TP} .*?starts at leader epoch (?P<leader_epoch>\d+)(?:.*Current leader is (?P<leader>\d+))?",
    ),
    _line(
        "leader_changed",
        "to OnlinePartition with state",
        rf"Changed partition {TP} .*\(leader=(?P<leader>\d+), leaderEpoch=(?P<leader_epoch>\d+)",
    ),
    _line("isr_changed", " ISR from ", rf"\[Partition {TP} broker=\d+\] (?:Shrinking|Expanding) ISR from"),
    _line("log_truncated", "below high watermark", rf"Truncating .*?{TP} to offset \d+ below"),
    _line("log_truncated", "Truncating to offset", f"{OF_LOG}Truncating to offset"),
    _line("log_truncated", "Truncate and start at offset", f"{OF_LOG}Truncate and start"),
    _line("log_truncated", ", truncating to offset", f"{OF_LOG}Corruption found"),
    _line("unclean_shutdown", "no clean shutdown file", "ecover.*since no clean shutdown file was found"),
    _line("log_recovered", "Recovering unflushed segment", f"{OF_LOG}Recovering"),
    _line("log_dir_failed", "Stopping serving replicas", r"in dir \S+"),
    _line("broker_started", "Kafka Server started", ""),
    _line("broker_started", "] started", r"\[KafkaServer id=\d+\] started"),
    _line("broker_stopping", "] shutting down", r"\[(?:Broker|Kafka)Server id=\d+\] shutting down"),
    _line("broker_stopped", "] shut down completed", r"\[(?:Broker|Kafka)Server id=\d+\] shut down completed"),
    _line("broker_fenced", "Fencing broker", r"Fencing broker (?P<affected_broker>\d+) "),
    _line("broker_fenced", "Broker failure callback for", r"callback for (?P<affected_broker>\d+)"),
    _line("broker_unfenced", "has been unfenced", "The broker has been unfenced"),
    _line("broker_registered", "Successfully registered broker", r"registered broker (?P<affected_broker>\d+) with"),
)
"""The first that fits is the event of a line."""

SEARCHED = "|".join(sorted({re.escape(each.words) for each in LINES}))
"""A regular expression, for RE2, of the words of every line."""

OF_ITSELF = frozenset(
    {
        "broker_started",
        "broker_stopping",
        "broker_stopped",
        "broker_unfenced",
        "cleaner_died",
        "log_dir_failed",
        "marker_request_failed",
        "unclean_shutdown",
    }
)
"""Events of the broker that wrote the line."""

LAST = {"producer_epoch": 2**15 - 1, "producer_id": 2**63 - 1}  # 2**31 - 1 of the others


def line_events(message: str, where: ClusterEvent) -> Iterator[ClusterEvent]:
    """The events of a log entry: of each partition that it names; none if it does not bear on transactions.

    `message`: the message of the entry, and the lines of its exception.
    `where`: what is known of the entry: its time, text, broker, file and position.
    """
    for line in LINES:
        found = line.pattern.search(message) if line.words in message else None
        if found is not None:
            yield from _events(line.event, found.groupdict(), where)
            return


def _events(name: str, found: dict[str, str | None], where: ClusterEvent) -> Iterator[ClusterEvent]:
    def number(column: str) -> int | None:
        return _number(found.get(column), LAST.get(column, 2**31 - 1))

    event = replace(
        where,
        event=name,
        transactional_id=found.get("transactional_id"),
        producer_id=number("producer_id"),
        producer_epoch=number("producer_epoch"),
        affected_broker=where.broker_id if name in OF_ITSELF else number("affected_broker"),
        leader=where.broker_id if name == "leader_changed" and "leader" not in found else number("leader"),
        leader_epoch=number("leader_epoch"),
    )
    partitions = _partitions(found)
    yield from (replace(event, topic=tp.topic, partition=tp.partition) for tp in partitions)
    if not partitions:
        yield event


def _partitions(found: dict[str, str | None]) -> list[TopicPartition]:
    if (state := found.get("state")) is not None:
        names = [f"{STATE_TOPIC}-{state}"]
    elif (several := found.get("tps")) is not None:
        names = re.findall(r"[\w.-]+-\d+", several, re.ASCII)
    else:
        names = [name] if (name := found.get("tp")) is not None else []
    parts = [name.rpartition("-") for name in names]
    return [TopicPartition(topic, int(number)) for topic, _, number in parts if _number(number, 2**31 - 1) is not None]


def _number(digits: str | None, last: int) -> int | None:
    """Digits as a number; null if they are not one of the column's."""
    return None if digits is None or len(digits) > 19 or int(digits) > last else int(digits)


NAMES = re.compile(
    r"(?:server|controller|state-change|log-cleaner|kafka)(?:[-_.][\w.-]*)?\.log(?:[.-].*)?|kafkaServer\.out(?:[.-].*)?"
)
OTHERS = re.compile(r"kafka[-_.](?:request|authorizer|gc|metrics).*")
BLOCK = 4 << 20  # bytes
MAX_ENTRY = 1 << 20  # bytes; of a longer one, what follows is an entry of its own
SAMPLE = 1 << 16  # bytes of a later block, to recognize a layout
MAX_MESSAGE = 1 << 18  # characters that are searched
MAX_TEXT = 1000  # characters
SAME_RUN = dt.timedelta(seconds=10)

CONTAINER = rb"(?:\d{4}-\S{15,31} std(?:out|err) [FP] )?"  # what containerd writes before each line
STARTS_TEXT = re.compile(
    rb"[^\n{]{0,120}?\[?(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?) ?(?P<zone>Z|[+-]\d\d:?\d\d)?\]?\s+"
    rb"(?:\[[^\]\n]*\] +)?(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b[ :]*"
)
STARTS_JSON = re.compile(CONTAINER + rb"(?:, ?|\[)?(?=\{)")
STARTS = re.compile(rb"(?m)^(?:" + STARTS_JSON.pattern + rb"|" + STARTS_TEXT.pattern + rb")")
LOGGER = re.compile(r"(?:\[[^\]]*\] +)?(?:kafka|org|state|io|com)\.[\w.$]+(?::\d+)? +- +")  # before the message
CLASS = re.compile(r" \([\w.$-]+\)(?: \[[^\]]*\])?$")  # behind it
BROKER = re.compile(  # in what most classes write before their messages
    rb"\[(?:(?:Broker|KafkaServer|BrokerServer|ControllerServer|Controller|QuorumController|KafkaRaftServer|RaftManager"
    rb"|GroupCoordinator|TransactionCoordinator|Transaction (?:State|Marker Channel) Manager"
    rb"|Transaction Marker Request Completion Handler|\w+LifecycleManager|\w+ChannelManager|MetadataLoader) "
    rb"(?:id=|nodeId=)?(\d+)[ ,\]]|Partition \S+ broker=(\d+)\]|ReplicaManager broker=(\d+)\]"
    rb"|ReplicaFetcher replicaId=(\d+),|SocketServer [^\]]*nodeId=(\d+)\])|\b(?:node|broker)\.id = (\d+)\b"
)
FOLDER = re.compile(r"(?i)(?:.*(?:broker|kafka|node|server|controller)[-_.]?)?(\d{1,9})")
EXCEPTION = re.compile(r"(?:[a-z]\w*\.)+(\w+(?:Exception|Error)\b[^\n]*)")
SECRETS = "Config values:"  # of KafkaConfig and clients: settings, passwords among them
SETTING = re.compile(r"\s+[\w.-]+ = ")  # a line of them whose first line is not there
MESSAGE_KEYS = ("message", "short_message", "msg")
TIME_KEYS = ("@timestamp", "timestamp", "timeMillis", "instant", "timestampSeconds", "time", "ts")
TRACE_KEYS = ("thrown", "exception", "error.stack_trace", "error.message", "error", "stack_trace", "full_message")


class LogEntry(NamedTuple):
    """An entry of a log: its time, null if unknown; its message, without time, level and logger; its exception."""

    timestamp: dt.datetime | None
    message: str
    exception: str


class BrokerLogs:
    """The events in brokers' own logs, for `toolkit.LogDir`: file by file, read again by each iteration.

    Parameters
    ----------
    *paths
        Logs (server.log, controller.log, state-change.log), rotated or gzip, or folders that have them.
    time_zone
        Zone of their times, ``"+02:00"`` or ``"Europe/Berlin"``: Kafka's default layout has local times without it.

    Raises
    ------
    NotFound
        If a path does not exist, or a folder has no broker's log.
    UsageError
        If there is no such zone.
    """

    def __init__(self, *paths: str | os.PathLike[str], time_zone: str = "+00:00") -> None:
        self._paths, self._time_zone = [Path(each) for each in paths], time_zone_of(time_zone)
        self._files()

    def __iter__(self) -> Iterator[ClusterEvent]:
        for file in self._files():
            yield from without_repeats(broker_log_events(file, time_zone=self._time_zone))

    def _files(self) -> list[Path]:
        return [file for path in self._paths for file in broker_log_files(path)]


def broker_log_files(path: Path) -> list[Path]:
    """The logs at a path: the file itself, whatever its name, or those in a folder and the folders below it.

    Raises NotFound if there is no such path, or the folder has no file with the name of a broker's log.
    """
    if path.is_file():
        return [path]
    if not path.exists():
        raise NotFound(f"{path} does not exist.", do="Pass a broker's log, or the folder that has it.")
    found = sorted(each for each in path.rglob("*") if _is_named_as_log(each.name) and not each.is_dir())
    if not found:
        raise NotFound(
            f"{path} has no broker's log.",
            means="No file in it is named as server.log, controller.log, state-change.log or kafkaServer.out.",
            do="Pass the files themselves if they have other names.",
        )
    return found


def broker_log_events(path: Path, *, time_zone: dt.tzinfo = dt.UTC) -> Iterator[ClusterEvent]:
    """The events in a broker's log, in the order of the file; it is read once, in blocks.

    Lines that do not bear on transactions are left out. A file that cannot be read, or not to its end, is an event with
    an `error`; so is one in which no line begins with a time and a level.

    `path`: the file, gzip or not. For gzip, positions are those in the text.
    `time_zone`: zone of times that are written without one; in the hour that a clock is set back, the first of both is
        taken.
    """
    where = ClusterEvent(source=FROM_BROKER_LOG, file=str(path), broker_id=_broker_of_folder(path))
    position, is_log, is_first = 0, False, True
    try:
        for chunk in _chunks(path):
            if is_first and (known := BROKER.search(chunk)):
                where, is_first = replace(where, broker_id=_broker(known)), False
            is_log = is_log or STARTS.search(chunk, 0, len(chunk) if position == 0 else SAMPLE) is not None
            for begin, end in _found_entries(chunk):
                found = chunk[begin:end]
                if known := BROKER.search(found.partition(b"\n")[0]):
                    where = replace(where, broker_id=_broker(known))
                yield from _entry_events(found, replace(where, position=position + begin), time_zone)
            position += len(chunk)
    except (OSError, EOFError, zlib.error) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc) or type(exc).__name__
        yield replace(where, position=position, error=f"UNREADABLE: {reason}.")
        return
    if position and not is_log:
        error = "UNKNOWN_LAYOUT: no line begins with a time and a level, or is JSON: other lines are not recognized."
        yield replace(where, position=0, error=error)


def without_repeats(events: Iterable[ClusterEvent]) -> list[ClusterEvent]:
    """The events of a file, one for lines that say the same within `SAME_RUN`, with their number and the last time.

    A coordinator may log 10,000 times a second that it retries a marker.
    """
    found: list[ClusterEvent] = []
    runs: dict[ClusterEvent, int] = {}  # by what they say, where in `found`
    for event in events:
        key = replace(event, timestamp=None, position=None)
        run = found[runs[key]] if key in runs else None
        time, last = event.timestamp, run.ended_at if run else None
        if run and time and last and abs(time - last) <= SAME_RUN:
            found[runs[key]] = replace(run, last_timestamp=time, line_count=(run.line_count or 1) + 1)
        else:
            runs[key] = len(found)
            found.append(event)
    return found


def _is_named_as_log(name: str) -> bool:
    return bool(NAMES.fullmatch(name)) and not OTHERS.fullmatch(name)


def time_zone_of(text: str) -> dt.tzinfo:
    """A time zone by its offset, as ``+02:00``, or its name, as ``Europe/Berlin``.

    Raises UsageError if there is no such zone.
    """
    from zoneinfo import ZoneInfo

    try:
        if found := re.fullmatch(r"([+-])(\d\d):?(\d\d)", text):
            offset = dt.timedelta(hours=int(found[2]), minutes=int(found[3]))
            return dt.timezone(-offset if found[1] == "-" else offset)
        return ZoneInfo(text)
    except (ValueError, KeyError, OSError):
        raise UsageError(f"{text!r} is not a time zone.", do="Pass it as +02:00 or Europe/Berlin.") from None


def _chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, cut before an entry where there is one."""
    with path.open("rb") as raw:
        is_packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream = gzip.GzipFile(fileobj=raw) if is_packed else raw
        buffer, failed = bytearray(), None
        while True:
            try:
                block = stream.read1(BLOCK)
            except (OSError, EOFError, zlib.error) as exc:  # what was read before is of use
                block, failed = b"", exc
            buffer += block
            if not block:
                yield bytes(buffer)
                if failed is not None:
                    raise failed
                return
            if len(buffer) >= BLOCK and (cut := _last_start(buffer)):
                yield bytes(buffer[:cut])
                del buffer[:cut]


def _last_start(buffer: bytearray) -> int:
    """Where the last entry begins; 0 to read on; of an entry longer than `MAX_ENTRY`, the end of its last line."""
    end, stop = len(buffer), max(len(buffer) - MAX_ENTRY, 0)
    while (end := buffer.rfind(b"\n", stop, end)) >= 0:
        if STARTS.match(buffer, end + 1):
            return end + 1
    return (buffer.rfind(b"\n") + 1 or len(buffer)) if len(buffer) >= BLOCK + MAX_ENTRY else 0


def _found_entries(chunk: bytes) -> Iterator[tuple[int, int]]:
    """Where entries begin and end that have words of `LINES`; RE2 reads all lines, Python only these."""
    ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + 1
    bounds = np.concatenate(([0], ends, [len(chunk)] if not len(ends) or ends[-1] != len(chunk) else []))
    starts = bounds.astype(np.int32)
    lines = pa.BinaryArray.from_buffers(pa.binary(), len(starts) - 1, [None, pa.py_buffer(starts), pa.py_buffer(chunk)])
    is_found = pc.match_substring_regex(lines, pattern=SEARCHED).to_numpy(zero_copy_only=False)
    read_to = 0
    for number in np.flatnonzero(is_found).tolist():
        if starts[number] < read_to:
            continue
        first, last = number, number + 1
        while first and starts[first] > read_to and not STARTS.match(chunk, int(starts[first])):
            first -= 1
            if starts[number] - starts[first] > MAX_ENTRY:
                break
        if is_part := not STARTS.match(chunk, int(starts[first])):
            first = number  # no entry begins before it: its time is not known
        while not is_part and last < len(starts) - 1 and not STARTS.match(chunk, int(starts[last])):
            last += 1
            if starts[last] - starts[first] > MAX_ENTRY:
                break
        read_to = int(starts[last])
        yield int(starts[first]), read_to


def _entry_events(found: bytes, where: ClusterEvent, time_zone: dt.tzinfo) -> Iterator[ClusterEvent]:
    try:
        entry = _entry(found, time_zone)
    except (ValueError, RecursionError):
        yield replace(where, error="BAD_JSON: this line is not a whole JSON document, so what it reports is not known.")
        return
    if SECRETS in entry.message or SETTING.match(entry.message):
        return
    searched = f"{entry.message}\n{entry.exception}" if entry.exception else entry.message
    exception = EXCEPTION.match(entry.exception)
    text = f"{entry.message} {exception[1].rstrip()}" if exception else entry.message
    where = replace(where, timestamp=entry.timestamp, text=text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}...")
    yield from line_events(searched[:MAX_MESSAGE], where)


def _entry(found: bytes, time_zone: dt.tzinfo) -> LogEntry:
    """An entry in any layout. Raises ValueError if it begins as JSON, and is none."""
    if start := STARTS_JSON.match(found):
        row = json.loads(found[start.end() :].strip().rstrip(b",]\r\n").decode(errors="replace"))
        if isinstance(row.get("log"), str):  # as Docker keeps a line
            return _entry(row["log"].encode(errors="replace"), time_zone)
        return _json_entry(row, time_zone)
    start, time = STARTS_TEXT.match(found), None
    if start:
        time = _time(start["time"].decode(), (start["zone"] or b"").decode(), time_zone)
    first, _, rest = found[start.end() if start else 0 :].decode(errors="replace").partition("\n")
    message = CLASS.sub("", LOGGER.sub("", first.rstrip(), count=1))
    return LogEntry(time, message, rest)


def _json_entry(row: Mapping[str, Any], time_zone: dt.tzinfo) -> LogEntry:
    message = next((str(row[key]) for key in MESSAGE_KEYS if key in row), "")
    exception = "\n".join(text for key in TRACE_KEYS if key in row for text in _texts(row[key]))
    time = next((_json_time(row[key], time_zone) for key in TIME_KEYS if key in row), None)
    first, _, rest = message.partition("\n")
    return LogEntry(time, first.strip(), "\n".join(filter(None, (rest, exception))))


def _texts(value: object) -> Iterator[str]:
    """The texts in a value of JSON, the names and messages of exceptions first; a name and its message in one line."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        named = [value.get(key) for key in ("name", "exception_class", "type", "message", "exception_message")]
        yield ": ".join(str(each) for each in named if each is not None)
        for key in ("extendedStackTrace", "stackTrace", "stacktrace", "stack_trace"):
            yield from _texts(value.get(key))
    elif isinstance(value, Sequence):
        for each in value:
            yield from _texts(each.get("class") if isinstance(each, Mapping) else each)


def _json_time(value: object, time_zone: dt.tzinfo) -> dt.datetime | None:
    if isinstance(value, Mapping):  # Instant
        seconds, nanoseconds = value.get("epochSecond"), value.get("nanoOfSecond")
        if not isinstance(seconds, int):
            return None
        return _epoch_time(seconds * 1000 + (nanoseconds // 1_000_000 if isinstance(nanoseconds, int) else 0))
    if isinstance(value, int | float):
        return _epoch_time(value * 1000 if value < 1e11 else value)
    found = re.match(r"(\S{10}[ T][\d:.,]+) ?(Z|[+-]\d\d:?\d\d)?", str(value))
    return None if found is None else _time(found[1], found[2] or "", time_zone)


def _epoch_time(milliseconds: float) -> dt.datetime | None:
    try:
        return dt.datetime.fromtimestamp(int(milliseconds) / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _time(text: str, zone: str, time_zone: dt.tzinfo) -> dt.datetime | None:
    """A written time in UTC, to the millisecond; null if it is none."""
    seconds, _, fraction = text.replace(",", ".").partition(".")
    try:
        time = dt.datetime.fromisoformat(seconds).replace(microsecond=int(fraction[:3].ljust(3, "0") or 0) * 1000)
        own = dt.datetime.fromisoformat(f"2000-01-01T00:00:00{zone}").tzinfo if zone else time_zone
        return time.replace(tzinfo=own).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return None


def _broker_of_folder(path: Path) -> int | None:
    """The number in the name of the folder, such as kafka-2; not that of a version, such as kafka_2.13-4.3.1."""
    found = FOLDER.fullmatch(path.absolute().parent.name)
    return None if found is None else int(found[1])


def _broker(found: re.Match[bytes]) -> int | None:
    digits = next(group for group in found.groups() if group is not None)
    return int(digits) if len(digits) < 10 else None
