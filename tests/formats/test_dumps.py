"""Dumps: of real brokers against the very files, as published, and with lines that are missing or wrong."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.dumped import FAKE, HOME, LOGS, RECORDED, TEXTS
from tests.tiers import fuzzed
from toolkit.formats.coordinator.coordinator_log_rows import offsets_log, transaction_log
from toolkit.formats.dumps import DumpChunk, read_dump
from toolkit.formats.log.batch_records import read_records
from toolkit.formats.log.batches import CONTROL, read_header
from toolkit.formats.log.headers import COMMIT, HEADER, UNREAD_MARKER, DamagedRange, HeaderField, Headers
from toolkit.formats.log.scan import scan_file
from toolkit.formats.segment_files import (
    SnapshotEntry,
    read_offset_index,
    read_snapshot,
    read_time_index,
    read_txn_index,
)
from toolkit.schema import OFFSETS_LOG, TRANSACTION_LOG, Row, utc
from toolkit.schema.log import OffsetsLogRecord, TransactionLogRecord

DATA = Path(__file__).parent / "data"
VERSIONS = ["2.8.2", "3.5.2", "3.9.2", "4.3.1"]
NEVER_PRINTED = {  # by the decoders that print no JSON
    "transactions": {"start_time", "value_version", "client_transaction_version", "previous_producer_id"},
    "offsets": {"leader_member_id", "committed_leader_epoch", "commit_timestamp"},
}


class Files:
    """What a broker has left, and what the tool prints of it."""

    def __init__(self, version: str, folder: Path, texts: dict[str, str]) -> None:
        self.version, self.folder, self.texts = version, folder, texts

    def dumps(self, text: str) -> list[DumpChunk]:
        return list(read_dump(lines_of(self.texts[text]), file=text))

    def source(self, dump: DumpChunk) -> Path:
        assert dump.path
        return self.folder / Path(dump.path).parent.name / Path(dump.path).name


@pytest.fixture(params=VERSIONS)
def files(request: pytest.FixtureRequest) -> Files:
    return recorded(request.param)


def recorded(version: str) -> Files:
    folder = RECORDED / version
    return Files(version, folder, {text: (folder / f"{text}.txt").read_bytes().decode() for text in TEXTS})


def lines_of(text: str) -> Iterator[str]:
    """Lines of a file opened with newline="\n"."""
    yield from (f"{line}\n" for line in text.removesuffix("\n").split("\n"))


def scanned(path: Path) -> Headers:
    return np.concatenate([part.headers for part in scan_file(path, crc=True)] or [np.empty(0, HEADER)])


def reasons(dumps: list[DumpChunk]) -> set[str]:
    return {each.reason.partition(":")[0] for dump in dumps for each in dump.damage}


# Real brokers


@pytest.mark.parametrize("text", TEXTS)
def test_batches_match_the_segments(files: Files, text: str) -> None:
    """Every printed field of every batch, independent of other output."""
    logs = [each for each in files.dumps(text) if each.kind == "log"]
    assert {f"{each.topic}-{each.partition}" for each in logs} == set(TEXTS[text][2])
    for each in logs:
        decoded = scanned(files.source(each))
        assert len(decoded) or each.topic == "state"
        assert each.end == files.source(each).stat().st_size
        expected = as_printed(decoded, markers=text not in {"batches", "bare"}, version=files.version)
        for name in get_args(HeaderField):
            assert each.headers[name].tolist() == expected[name].tolist(), (each.path, name)


def as_printed(headers: Headers, *, markers: bool, version: str) -> Headers:
    printed = headers.copy()
    horizon = printed["attributes"] & 0x40 != 0
    assert version != "2.8.2" or not horizon.any()
    printed["base_timestamp"][~horizon] = -1
    if not markers:
        control = (printed["attributes"] & CONTROL != 0) & (printed["record_count"] > 0)
        printed["marker"][control] = UNREAD_MARKER
        printed["coordinator_epoch"] = -1
    return printed


def test_valid_dumps_have_no_damage(files: Files) -> None:
    reported = {text: reasons(files.dumps(text)) - {"INDEX_MISMATCH"} for text in TEXTS}  # of a cleaned segment's index
    assert reported == {
        "batches": set(),
        "records": {"SKIPPED", "OFFSET_GAPS"},  # of the indexes, and of the compacted topic
        "payloads": set(),
        "bare": {"PASSED_OVER"},  # batch lines in payloads where no size shows that they are not batches
        "transactions": set(),
        "offsets": set(),
        "undecoded": {"NOT_DECODED"},
    }


def test_transactions_match_the_segment(files: Files) -> None:
    (found,) = files.dumps("transactions")
    assert {row.tombstone for row in found.events} == {True, False}
    assert {row.state for row in found.events} >= {"Empty", "Ongoing", "PrepareAbort", "CompleteCommit", None}
    never = NEVER_PRINTED["transactions"] if files.version != "4.3.1" else set()
    assert_same_rows([each.row() for each in found.events], rows_of(files.source(found), "transactions"), never=never)
    assert TRANSACTION_LOG.arrow(found.events).num_rows == len(found.events)
    assert not found.offsets_log


def test_offsets_match_the_segment(files: Files) -> None:
    (found,) = files.dumps("offsets")
    assert {row.kind for row in found.offsets_log} == {"offset_commit", "group_metadata"}
    assert {row.is_transactional for row in found.offsets_log} == {True, False}
    never = NEVER_PRINTED["offsets"] if files.version in {"2.8.2", "3.5.2"} else set()
    assert_same_rows([each.row() for each in found.offsets_log], rows_of(files.source(found), "offsets"), never=never)
    assert OFFSETS_LOG.arrow(found.offsets_log).num_rows == len(found.offsets_log)
    assert not found.events


def rows_of(segment: Path, text: str) -> list[Row]:
    data = segment.read_bytes()
    positions = scanned(segment)["position"].tolist()
    if text == "transactions":
        where = TransactionLogRecord(txn_state_partition=0)
        return [each.row() for at in positions for each in transaction_log(data, at, where=where)]
    group_partition = OffsetsLogRecord(group_partition=0)
    return [each.row() for at in positions for each in offsets_log(data, at, where=group_partition)]


def assert_same_rows(found: list[Row], expected: list[Row], *, never: set[str]) -> None:
    for row in found:
        assert row["file"] in TEXTS
        assert all(row[name] is None for name in never)
    assert [in_order(row, never) for row in found] == [in_order(row, never) for row in expected]


def in_order(row: Row, never: set[str]) -> dict[str, Any]:
    """Without the file's columns; partitions are printed in the order of a set."""
    kept = {name: value for name, value in row.items() if name not in {"file", "position", *never}}
    partitions = kept.get("topic_partitions")
    if partitions:
        kept["topic_partitions"] = sorted(partitions, key=lambda each: (each["topic"], each["partition"]))
    return kept


def test_snapshots_and_aborted_transactions_match_the_files(files: Files) -> None:
    dumps = files.dumps("records")
    snapshots = [each for each in dumps if each.kind == "snapshot"]
    aborted = [each for each in dumps if each.kind == "txnindex"]
    assert any(state.current_txn_first_offset for each in snapshots for state in each.snapshot)
    assert sum(len(each.aborted) for each in aborted) >= 3
    for each in snapshots:
        expected = read_snapshot(files.source(each).read_bytes())
        assert each.snapshot == tuple(as_dumped(state, files.version) for state in expected)
    for each in aborted:
        if files.source(each).exists():  # empty files are not kept
            entries, _ = read_txn_index(files.source(each).read_bytes())
            assert [entry[1:] for entry in each.aborted] == [entry[1:] for entry in entries]


def parts_of(files: Files, *suffixes: str) -> Iterator[tuple[Path, str]]:
    """The files of a kind that are kept, each with what the tool prints of it."""
    for part in files.texts["records"].split("Dumping ")[1:]:
        path, _, lines = part.partition("\n")
        file = files.folder / Path(path).parent.name / Path(path).name
        if file.suffix in suffixes and file.exists():
            yield file, lines


OFFSETS_LINE = re.compile(r"^offset: (\d+) position: (\d+)$", re.MULTILINE)
TIMES_LINE = re.compile(r"^timestamp: (\d+) offset: (\d+)$", re.MULTILINE)


def test_indexes_match_the_text() -> None:
    """Which the reader of dumps passes over; only those of 4.3.1 are kept."""
    found = 0
    for file, lines in parts_of(recorded("4.3.1"), ".index", ".timeindex"):
        of_offsets = file.suffix == ".index"
        index = (read_offset_index if of_offsets else read_time_index)(file.read_bytes(), base_offset=int(file.stem))
        expected = (OFFSETS_LINE if of_offsets else TIMES_LINE).findall(lines)
        assert index.tolist() == [(int(first), int(second)) for first, second in expected]
        headers = scanned(file.with_suffix(".log"))
        assert not of_offsets or set(index["position"]) <= set(headers["position"])
        found += len(index)
    assert found > 20


RECORD = re.compile(
    r"^\| offset: (\d+)(?=.* (\w+Time: -?\d+) )(?=.* keySize: (-?\d+) valueSize: (-?\d+) )",
    re.MULTILINE | re.IGNORECASE,
)


def test_records_match_the_text(files: Files) -> None:
    """Offset, time and sizes of each record, of every codec."""
    codecs = Counter[str]()
    for file, lines in parts_of(files, ".log"):
        data, read = file.read_bytes(), list[tuple[object, ...]]()
        for position in scanned(file)["position"].tolist():
            header = read_header(data, position)
            codecs[header.compression] += 1
            for record in read_records(data, position):
                key, value = (-1 if each is None else len(each) for each in (record.key, record.value))
                read.append((record.offset, f"{header.timestamp_type}: {record.timestamp_ms}", key, value))
        assert [tuple(map(str, each)) for each in read] == RECORD.findall(lines)
    assert codecs.keys() == {"none", "gzip", "snappy", "lz4", "zstd"}


def as_dumped(state: SnapshotEntry, version: str) -> SnapshotEntry:
    """Before 3.1 the time of a producer that has only written markers was not printed."""
    if version != "2.8.2" or state.last_offset is not None:
        return state
    return SnapshotEntry(state.producer_id, state.producer_epoch, None, None, 0, None, state.coordinator_epoch, None)


def test_rows_without_metadata_inherit_it_from_their_batch(files: Files) -> None:
    """--skip-record-metadata: the offset where the batch is whole, the time where it has one record."""
    expected = [in_order(each.row(), {"leader_epoch"}) for each in files.dumps("transactions")[0].events]
    bare = [
        "| " + line[line.index("key: ") :] if line.startswith("| ") else line
        for line in lines_of(files.texts["transactions"])
    ]
    (found,) = read_dump(bare)
    for row, right in zip(found.events, expected, strict=True):
        assert row.transactional_id == right["transactional_id"]
        assert row.offset in {right["offset"], None}
        assert row.timestamp in {right["timestamp"], None}
    assert sum(row.offset is not None for row in found.events) > 10


# As published


def test_the_dumps_of_a_published_session() -> None:
    with (DATA / "streams-debugging.txt").open(newline="\n") as text:
        output, offsets, state = read_dump(text, file="session.txt")
    assert [(each.topic, each.partition) for each in (output, offsets, state)] == [
        ("wc-output", 0),
        (None, None),
        ("__transaction_state", 33),
    ]
    assert [each.number for each in (output, offsets, state)] == [0, 1, 2]
    assert output.path == "/tmp/kafka-logs/wc-output-0/00000000000000000000.log"
    assert not any(each.damage for each in (output, offsets, state))

    data, marker = output.headers.tolist()
    assert data == (0, 256, 0, 15, -1, 1664531387239, 0, 2340232627, 0, 16, 0, -1, 0x10, 0, -1, 2, 1)
    assert marker == (256, 78, 16, 16, -1, 1664531387382, 0, 3122996963, -1, 1, 0, 0, 0x30, 0, COMMIT, 2, 1)

    assert [row.kind for row in offsets.offsets_log] == ["group_metadata", "offset_commit", "group_metadata"]
    group, commit, empty = offsets.offsets_log
    assert (group.generation, group.protocol) == (1, "range")
    assert group.member_ids == ("consumer-my-group-1-75802c25-7e83-44cb-8249-a7d2e3197e32",)
    assert (empty.generation, empty.protocol, empty.member_ids) == (2, None, ())
    assert (commit.group_id, commit.topic, commit.partition) == ("my-group", "wc-input", 0)
    assert (commit.committed_offset, commit.producer_id, commit.is_transactional) == (1, 0, True)
    assert (commit.group_partition, commit.offset, commit.error) == (None, 1, None)

    assert [row.state for row in state.events] == ["Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert {row.transactional_id for row in state.events} == {"my-unique-static-tid"}
    prepared = state.events[3]
    assert prepared.topic_partitions == (("__consumer_offsets", 12), ("wc-output", 0))
    assert prepared.timeout_ms == 60_000
    assert prepared.last_update_time == dt.datetime(2022, 9, 30, 9, 49, 47, 371_000, tzinfo=dt.UTC)
    assert (prepared.txn_state_partition, prepared.file) == (33, "session.txt")


# As written here


def batch(number: int = 0, **other: object) -> str:
    """The line of one of many batches of one record and 100 bytes each."""
    fields = {"offset": number, "position": 100 * number, "size": 100, "count": 1, "control": "false"} | other
    offset, count = int(str(fields["offset"])), int(str(fields["count"]))
    return (
        f"baseOffset: {offset} lastOffset: {other.get('last', offset + count - 1)} count: {count} baseSequence: 0 "
        f"lastSequence: 0 producerId: 7 producerEpoch: 0 partitionLeaderEpoch: 3 isTransactional: true "
        f"isControl: {fields['control']} deleteHorizonMs: OptionalLong.empty position: {fields['position']} "
        f"CreateTime: 1700000000000 size: {fields['size']} magic: 2 compresscodec: none crc: 1 "
        f"isvalid: {other.get('valid', 'true')}"
    )


def record(offset: int, text: str = "", *, key: int = -1, value: int = -1) -> str:
    return (
        f"| offset: {offset} CreateTime: 1700000000000 keySize: {key} valueSize: {value} sequence: 0 headerKeys: []"
        + text
    )


def printed(offset: int, key: str | None, value: str | None) -> str:
    """A record as --print-data-log prints it."""
    text = ("" if key is None else f" key: {key}") + ("" if value is None else f" payload: {value}")
    sizes = [-1 if each is None else len(each.encode()) for each in (key, value)]
    return record(offset, text, key=sizes[0], value=sizes[1])


MARKER = " endTxnMarker: COMMIT coordinatorEpoch: 12"
LOG = "Dumping /data/orders-1/00000000000000000000.log"


def read(*lines: str) -> list[DumpChunk]:
    return list(read_dump(f"{line}\n" for line in "\n".join(lines).split("\n")))


def positions(dump: DumpChunk) -> list[int]:
    return [int(position) for position in dump.headers["position"]]


def test_a_payload_that_looks_like_a_batch_line_is_skipped() -> None:
    """Its numbers are all right; only the sizes of the record show that it is no batch."""
    payload = f"first line\n{batch(1)}\n{record(1)}\nDumping /x/y-0/0.log\nproducerId: 1"
    (found,) = read(LOG, batch(0), printed(0, "k", payload), batch(1), printed(1, None, "x"), batch(2, control="true"))
    assert positions(found) == [0, 100, 200]
    assert [each.reason.split(":")[0] for each in found.damage] == ["MISSING_LINES"]  # the marker's record


@pytest.mark.parametrize("ending", ["\r", "?", "\u00e9", "\ufffd\ufffd"])
def test_a_payload_may_contain_any_characters(ending: str) -> None:
    payload = f"{ending}\n{batch(5)}{ending}\n{ending}"
    (found,) = read(LOG, batch(0), printed(0, "k", payload), batch(1))
    assert positions(found) == [0, 100]


def test_payloads_with_replaced_characters() -> None:
    """Java prints a question mark for each character that the terminal's encoding lacks."""
    payload = f"\u65e5\u672c\n{batch(5)}\n\u8a9e"
    line = printed(0, None, payload).replace("\u65e5", "?").replace("\u672c", "?").replace("\u8a9e", "?")
    (found,) = read(LOG, batch(0), line, batch(1))
    assert positions(found) == [0, 100]


def test_header_keys_may_contain_any_characters() -> None:
    start = record(0, key=1, value=1).removesuffix("]")
    (found,) = read(LOG, batch(0), f"{start}a\n{batch(9)}] key: k payload: v", batch(1), record(1))
    assert positions(found) == [0, 100]
    assert found.damage == ()
    (found,) = read(LOG, batch(0), f"{start}a\nb]", batch(1), record(1))
    assert positions(found) == [0, 100]
    assert found.damage == ()
    (found,) = read(LOG, batch(0), start, batch(1), printed(1, "k", "v"))
    assert positions(found) == [0, 100]
    assert [each.reason.split(":")[0] for each in found.damage] == ["MALFORMED_LINE"]


def test_the_output_of_a_value_decoder_is_skipped() -> None:
    """Then sizes show nothing, and every line is taken literally."""
    lines = [line for n in range(40) for line in (batch(n), record(n, f" payload: {n}", value=100_000))]
    (found,) = read(LOG, *lines)
    assert len(found.headers) == 40
    assert found.damage == ()


def test_windows_line_ends() -> None:
    lines = LOG, batch(0), printed(0, "k", f"v\n{batch(7)}"), batch(1), printed(1, "k", "v")
    (found,) = read_dump([f"{line}\r\n" for line in "\n".join(lines).split("\n")])
    assert positions(found) == [0, 100]
    assert found.damage == ()


def test_a_last_line_without_line_end() -> None:
    (found,) = read_dump(["\ufeff" + LOG, batch(0), batch(1)])
    assert positions(found) == [0, 100]
    assert found.path == LOG.removeprefix("Dumping ")


def test_user_data_is_no_coordinator_record() -> None:
    """Neither in its own topic nor, if no path names the topic, in a payload of just that length."""
    key = "transaction_metadata::transactionalId=x"
    value = "producerId:0,producerEpoch:0,state=Ongoing,partitions=[],txnLastUpdateTimestamp=1,txnTimeoutMs=1"
    for start in (LOG, "Starting offset: 0"):
        (found,) = read(start, batch(0), printed(0, key, value))
        assert found.events == ()
    (found,) = read("Starting offset: 0", batch(0), record(0, f" key: {key} payload: {value}", key=5, value=37))
    assert [row.transactional_id for row in found.events] == ["x"]
    (found,) = read(LOG, batch(0), record(0, f" key: {key} payload: {value}", key=5, value=37))
    assert found.events == ()


STATE_LOG = "Dumping /data/__transaction_state-2/00000000000000000000.log"


def test_an_id_may_contain_a_line_end() -> None:
    value = "producerId:0,producerEpoch:0,state=Dead,partitions=[a-b-0],txnLastUpdateTimestamp=-1,txnTimeoutMs=1"
    text = f" key: transaction_metadata::transactionalId=two\nlines payload: x payload: {value}"
    (found,) = read(STATE_LOG, batch(0), record(0, text, key=20, value=37), batch(1))
    (row,) = found.events
    assert (row.transactional_id, row.state, row.error) == ("two\nlines payload: x", "Dead", None)
    assert row.topic_partitions == (("a-b", 0),)
    assert positions(found) == [0, 100]


@pytest.mark.parametrize(
    "text",
    [
        "key: unknown::version=7",
        "key: Unknown record type 9 at offset 1, skipping.",
        "key: Error at offset 1, skipping. Buffer underflow",
        'key: {"type":"0","data":{"transactionalId":"x"}} payload: {"version":"0","data":{}}',
        'key: {"type":"0","data":{"transactionalId":"x"}} payload: {"version":"2","data":{"transactionStatus":1}}',
        'key: {"type":"0","data":{"transactionalId":"x"}} payload: ' + '{"a":' * 100_000,
        'key: {"type":"0","data":{"transactionalId":"x"}} payload: ' + "9" * 10_000,
        'key: {"type":"0","data":{"transactionalId":"x"}}',
        "key: transaction_metadata::transactionalId=x payload: " + "producerId:" * 10_000,
        "key: transaction_metadata::transactionalId=" + " payload: producerId:1" * 10_000,
        "key: transaction_metadata::transactionalId=x payload: producerId:0,producerEpoch:99999,state=Dead,"
        "partitions=[],txnLastUpdateTimestamp=1,txnTimeoutMs=1",
    ],
)
def test_an_unreadable_coordinator_record_is_an_error_row(text: str) -> None:
    good = "key: transaction_metadata::transactionalId=x payload: <DELETE>"
    (found,) = read(STATE_LOG, batch(0), record(0, f" {good}"), batch(1), record(1, f" {text}"))
    deleted, damaged = found.events
    assert deleted.tombstone
    assert damaged.error
    assert damaged.error.startswith("MALFORMED_LINE: ")
    assert (damaged.offset, damaged.txn_state_partition) == (1, 2)
    assert TRANSACTION_LOG.arrow(found.events).num_rows == 2


def test_groups_of_the_new_protocols() -> None:
    start = "Dumping /data/__consumer_offsets-3/00000000000000000000.log"
    texts = [
        'key: {"type":"3","data":{"groupId":"g"}} payload: {"version":"0","data":{"epoch":12,"metadataHash":5}}',
        'key: {"type":"5","data":{"groupId":"g","memberId":"m"}} payload: {"version":"0","data":{"clientId":"c"}}',
        'key: {"type":"8","data":{"groupId":"g","memberId":"m"}} payload: <DELETE>',
        'key: {"type":"1","data":{"group":"g","topic":"t","partition":1}} payload: {"version":"1","data":{"offset":5,'
        '"metadata":"","commitTimestamp":1700000000000,"expireTimestamp":1700000000001}}',
    ]
    lines = [line for n, text in enumerate(texts) for line in (batch(n), record(n, f" {text}"))]
    (found,) = read(start, *lines)
    epoch, member, gone, commit = found.offsets_log
    assert (epoch.kind, epoch.generation, epoch.group_partition) == ("consumer_group_metadata", 12, 3)
    assert (member.kind, member.member_ids) == ("consumer_group_member_metadata", ("m",))
    assert (gone.kind, gone.tombstone) == ("consumer_group_current_member_assignment", True)
    assert commit.expire_timestamp == utc(1700000000001)
    assert not any(row.error for row in found.offsets_log)


def test_a_snapshot_before_and_since_3_5() -> None:
    (found,) = read(
        "Dumping /data/orders-1/00000000000000000100.snapshot",
        "producerId: 1 producerEpoch: 2 coordinatorEpoch: -1 currentTxnFirstOffset: Some(60) firstSequence: 0 "
        "lastSequence: 3 lastOffset: 63 offsetDelta: 3 timestamp: 99",
        "producerId: 4 producerEpoch: 5 coordinatorEpoch: 6 currentTxnFirstOffset: OptionalLong.empty "
        "lastTimestamp: 7 ",
    )
    assert (found.kind, found.topic, found.partition) == ("snapshot", "orders", 1)
    assert found.snapshot == (
        SnapshotEntry(1, 2, 3, 63, 3, 99, None, 60),
        SnapshotEntry(4, 5, None, None, 0, 7, 6, None),
    )


def test_messages_before_0_11() -> None:
    line = "offset: 4 position: 0 NoTimestampType: -1 size: 30 magic: 0 compresscodec: none crc: 5 isvalid: true"
    (found,) = read(
        LOG, line, "| offset: 4 NoTimestampType: -1 keySize: 1 valueSize: 2 isValid: true crc: 5} key: k payload: vv"
    )
    (header,) = found.headers
    assert (header["magic"], header["base_offset"], header["producer_id"], header["size"]) == (0, 4, -1, 30)
    assert found.damage == ()


def test_control_records_that_end_no_transaction() -> None:
    control = [
        "controlType: LEADER_CHANGE(2)",
        'SnapshotHeader {"version":0,"lastContainedLogTimestamp":1}',
        'LeaderChange: {"version":0}',
        "endTxnMarker: ABORT coordinatorEpoch: 9",
    ]
    lines = [line for n, each in enumerate(control) for line in (batch(n, control="true"), record(n, f" {each}"))]
    (found,) = read("Dumping /data/__cluster_metadata-0/00000000000000000000.log", *lines)
    assert found.headers["marker"].tolist() == [2, 3, 2, 0]
    assert found.headers["coordinator_epoch"].tolist() == [-1, -1, -1, 9]
    assert found.damage == ()


def test_an_empty_control_batch_has_no_marker() -> None:
    """What the cleaner leaves of one; its record is not missing from the text."""
    (found,) = read(LOG, batch(0, control="true", count=0, last=0))
    assert found.headers["marker"].tolist() == [-1]


# Missing and wrong lines


def test_missing_lines_are_damage() -> None:
    (found,) = read(LOG, batch(2), batch(3), batch(7), batch(9))
    assert positions(found) == [200, 300, 700, 900]
    (damage,) = found.damage
    assert (damage.position, damage.size) == (2, 4)
    assert damage.reason.startswith("MISSING_LINES: before this line there was bytes 0 to 199")
    assert damage.reason.endswith("2 more such gaps up to line 5.")


def test_missing_records_are_damage() -> None:
    (found,) = read(LOG, batch(0, count=2), record(0), record(1), batch(2, position=100, count=3), record(3))
    assert [each.reason.split(":")[0] for each in found.damage] == ["MISSING_LINES"]


def test_records_without_batch_lines_are_rows() -> None:
    """As ``grep`` leaves them."""
    text = " key: transaction_metadata::transactionalId=x payload: <DELETE>"
    (found,) = read("$ grep key dump.txt", *(record(n, text, key=5) for n in range(50)))
    assert [row.offset for row in found.events] == list(range(50))
    assert {row.leader_epoch for row in found.events} == {None}
    assert found.damage[0].reason == (
        "MISSING_LINES: before this line there was the batch line of the record at offset 0, "
        "and 49 more such gaps up to line 51."
    )


def test_falling_offsets_begin_another_dump() -> None:
    first, second, third = read(LOG, batch(0), batch(1), batch(0), batch(1), batch(1))
    assert [positions(each) for each in (first, second, third)] == [[0, 100], [0, 100], [100]]
    assert [each.path is None for each in (first, second, third)] == [False, True, True]
    assert [each.reason.split(":")[0] for each in third.damage] == ["OUT_OF_ORDER", "MISSING_LINES"]


def test_errors_of_the_tool_are_damage() -> None:
    (found,) = read(
        LOG,
        batch(0, valid="false"),
        batch(1),
        "Found 73 invalid bytes at the end of 00000000000000000000.log",
        "Mismatches in :/data/orders-1/00000000000000000000.index",
        "  Index offset: 5, log offset: 6",
        "  Index offset: 7, log offset: 8",
        "Non-consecutive offsets in /data/orders-1/00000000000000000000.log",
        "  5 is followed by 7",
        'Exception in thread "main" org.apache.kafka.common.errors.CorruptRecordException: Found record size 0',
        "\tat org.apache.kafka.tools.DumpLogSegments.main(DumpLogSegments.java:132)",
        "Could not find or load main class kafka.tools.DumpLogSegments",
    )
    assert found.headers["crc_ok"].tolist() == [0, 1]
    assert [(each.position, each.size, each.reason.split(":")[0]) for each in found.damage] == [
        (2, 1, "CORRUPT_BATCH"),
        (4, 1, "TORN_TAIL"),
        (5, 3, "INDEX_MISMATCH"),
        (8, 2, "OFFSET_GAPS"),
        (10, 1, "TOOL_FAILED"),
        (12, 1, "TOOL_FAILED"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        batch(1)[:-1],
        batch(1).replace("count: 1", "count: one"),
        batch(1).replace("partitionLeaderEpoch: 3", "partitionLeaderEpoch: 3000000000"),
        batch(1, offset=2**63),
        batch(1, last=0),
        batch(1, size=60),
        batch(1, count=2, last=1),
        batch(1).replace("compresscodec: none", "compresscodec: zip"),
        batch(1).replace("baseOffset", "baseOffse"),
        "| offset: x CreateTime: 1 keySize: 1 valueSize: 1",
        "producerId: 1 producerEpoch: 2 coordinatorEpoch: -1 currentTxnFirstOffset: some",
    ],
)
def test_a_malformed_row(line: str) -> None:
    (found,) = read(LOG, batch(0), line, batch(2))
    assert positions(found) == [0, 200]
    assert found.damage[0][:2] == (3, 1)
    assert found.damage[0].reason.startswith("MALFORMED_LINE: ")


def test_a_marker_without_a_batch_line() -> None:
    (found,) = read(LOG, batch(0), record(1, " endTxnMarker: ABORT coordinatorEpoch: 0"))
    assert [each.reason.split(":")[0] for each in found.damage] == ["MALFORMED_LINE", "MISSING_LINES"]
    assert found.headers["marker"].tolist() == [-1]


def test_a_text_truncated_anywhere() -> None:
    """Complete lines before the cut keep their rows, and a cut within a row is reported."""
    marked = batch(1, control="true"), record(1, MARKER)
    lines = [LOG, "Log starting offset: 0", batch(0), printed(0, "k", "v"), *marked, batch(2)]
    text = "".join(f"{line}\n" for line in lines)
    whole = {text.index(line) + len(line): n for n, line in enumerate(lines[2:7:2], start=1)}
    for cut in range(len(text) + 1):
        part = text[:cut]
        dumps = list(read_dump(part.splitlines(keepends=True)))
        expected = max((n for end, n in whole.items() if end <= cut), default=0)
        assert sum(len(each.headers) for each in dumps) == expected
        within = part.rpartition("\n")[2]
        if cut > len(LOG) and within and within not in lines and not lines[1].startswith(within):
            assert "TORN_TAIL" in reasons(dumps), within


def test_prose_contains_no_dump() -> None:
    assert read("# Notes", "", "$ ls", "producerId: is a number, baseOffset: too", "| a | table |", "offset: 5") == []
    assert list(read_dump([])) == []


def test_chunks_are_bounded() -> None:
    lines = [LOG, *(batch(n) for n in range(40_000))]
    parts = read(*lines)
    assert [len(part.headers) for part in parts] == [16_383, 16_384, 7_233]
    assert [position for part in parts for position in positions(part)] == list(range(0, 4_000_000, 100))
    assert [part.end for part in parts] == [1_638_300, 3_276_700, 4_000_000]
    assert {part.number for part in parts} == {0}
    assert {part.path for part in parts} == {LOG.removeprefix("Dumping ")}
    noise = read(LOG, *["baseOffset: x"] * 40_000)
    assert max(len(part.damage) for part in noise) <= 16384 + 1
    assert sum(len(part.damage) for part in noise) == 40_000


def test_wrong_sizes_cost_no_time() -> None:
    """Looking for the end of each text would take hours."""
    lines = [LOG, batch(0), record(0, " payload: x", value=999_999_999)] * 50_000
    assert sum(len(part.headers) for part in read(*lines)) == 50_000


def test_a_marker_at_a_chunk_boundary_is_not_lost() -> None:
    lines = [line for n in range(20_000) for line in (batch(n, control="true"), "baseOffset: ", record(n, MARKER))]
    parts = read(LOG, *lines)
    assert len(parts) > 2
    assert {marker for part in parts for marker in part.headers["marker"].tolist()} == {COMMIT}
    assert sum(len(part.headers) for part in parts) == 20_000


# Any lines

FUZZED = {(version, text): recorded(version).texts[text] for version in VERSIONS[:-1] for text in TEXTS}


def check(found: DumpChunk, lines: int) -> None:
    """What holds for every dump."""
    headers = found.headers
    assert (np.diff(headers["position"]) >= headers["size"][:-1]).all()
    assert (headers["base_offset"][1:] > headers["last_offset"][:-1]).all()
    for damage in found.damage:
        assert isinstance(damage, DamagedRange)
        assert 1 <= damage.position <= lines
    TRANSACTION_LOG.arrow(found.events)
    OFFSETS_LOG.arrow(found.offsets_log)


@fuzzed(100)
@given(st.lists(st.sampled_from([LOG, STATE_LOG, batch(0), batch(1), record(0), FAKE, "", "version: 0"]), max_size=12))
def test_arbitrary_lines_in_any_order(lines: list[str]) -> None:
    for each in read_dump(lines):
        check(each, len(lines))


def test_recorded_dumps_have_their_topic_and_partition() -> None:
    assert {Path(each.path or "").parent.parent for each in recorded("3.5.2").dumps("records")} == {Path(HOME)}
    assert all((RECORDED / version / name).is_dir() for version in VERSIONS for name in LOGS)
