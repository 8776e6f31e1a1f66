"""Dumps: of real brokers against the very files, as published, and with lines that are missing or wrong."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from tests.formats.dumped import RECORDED, TEXTS
from tests.stored import compare
from toolkit.formats.batch_records import read_records
from toolkit.formats.batches import CONTROL, read_header
from toolkit.formats.coordinator_log_rows import transaction_log
from toolkit.formats.dumps import Dump, read_dump
from toolkit.formats.headers import COMMIT, HEADER, UNREAD_MARKER, DamagedRange, HeaderField, Headers
from toolkit.formats.log_dir_files import (
    SnapshotEntry,
    read_offset_index,
    read_snapshot,
    read_time_index,
    read_txn_index,
)
from toolkit.formats.scan import scan_file
from toolkit.schema import TRANSACTION_LOG, Row
from toolkit.schema.log import TransactionLogRecord

DATA = Path(__file__).parent / "data"
VERSIONS = ["2.8.2", "3.5.2", "3.9.2", "4.3.1"]
# by the decoders that print no JSON
NEVER_PRINTED = {"start_time", "value_version", "client_transaction_version", "previous_producer_id"}


class Files:
    """What a broker has left, and what the tool prints of it."""

    def __init__(self, version: str, folder: Path, texts: dict[str, str]) -> None:
        self.version, self.folder, self.texts = version, folder, texts

    def dumps(self, text: str) -> list[Dump]:
        return list(read_dump(lines_of(self.texts[text]), file=text))

    def source(self, dump: Dump) -> Path:
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


def reasons(dumps: list[Dump]) -> set[str]:
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
        expected = as_printed(decoded, markers=text != "batches", version=files.version)
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
        "transactions": set(),
        "offsets": set(),
    }


def test_transactions_match_the_segment(files: Files) -> None:
    (found,) = files.dumps("transactions")
    assert {row.tombstone for row in found.events} == {True, False}
    assert {row.state for row in found.events} >= {"Empty", "Ongoing", "PrepareAbort", "CompleteCommit", None}
    never = NEVER_PRINTED if files.version != "4.3.1" else set()
    assert_same_rows([each.row() for each in found.events], rows_of(files.source(found)), never=never)
    assert TRANSACTION_LOG.arrow(found.events).num_rows == len(found.events)


def rows_of(segment: Path) -> list[Row]:
    data, where = segment.read_bytes(), TransactionLogRecord(txn_state_partition=0)
    positions = scanned(segment)["position"].tolist()
    return [each.row() for at in positions for each in transaction_log(data, at, where=where)]


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
    assert any(state.current_txn_start_offset for each in snapshots for state in each.snapshot)
    assert sum(len(each.aborted) for each in aborted) >= 3
    for each in snapshots:
        expected = read_snapshot(files.source(each).read_bytes())
        assert each.snapshot == [as_dumped(state, files.version) for state in expected]
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


# As published, and as written here, with lines that are missing or wrong


def shown(number: int, dump: Dump) -> Iterator[str]:
    yield f"  {number} {dump.kind} {dump.topic} {dump.partition} of {dump.path} to {dump.end}"
    yield from (f"    {json.dumps(dict(zip(HEADER.names or (), each, strict=True)))}" for each in dump.headers.tolist())
    rows = [each.row() for each in dump.events]
    yield from (f"    { ({name: value for name, value in row.items() if value is not None}) }" for row in rows)
    yield from (f"    {each}" for each in (*dump.snapshot, *dump.aborted, *dump.damage))


def test_each_text_is_read_as_stored() -> None:
    """A payload with batch lines, a snapshot of each version, errors of the tool; the names say what is in them."""
    lines = list[str]()
    for path in [DATA / "streams-debugging.txt", *sorted((DATA / "dump-cases").glob("*.txt"))]:
        with path.open(newline="\n") as text:
            lines += [
                path.stem,
                *(each for dump in enumerate(read_dump(text, file=path.name)) for each in shown(*dump)),
            ]
    compare("dumps.txt", (line.encode("ascii", "backslashreplace").decode() for line in lines))


@pytest.mark.parametrize(
    "text",
    [
        'key: {"type":"0","data":{"transactionalId":"x"}} payload: ' + '{"a":' * 100_000,
        "key: transaction_metadata::transactionalId=x payload: " + "producerId:" * 10_000,
        "key: transaction_metadata::transactionalId=" + " payload: producerId:1" * 10_000,
    ],
)
def test_a_long_unreadable_record_is_an_error_row(text: str) -> None:
    (found,) = read(STATE_LOG, batch(0), record(0, f" {text}"))
    (damaged,) = found.events
    assert (damaged.error or "").startswith("MALFORMED_LINE: ")


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


def read(*lines: str) -> list[Dump]:
    return list(read_dump(f"{line}\n" for line in "\n".join(lines).split("\n")))


def positions(dump: Dump) -> list[int]:
    return [int(position) for position in dump.headers["position"]]


def test_windows_line_ends() -> None:
    lines = LOG, batch(0), printed(0, "k", f"v\n{batch(7)}"), batch(1), printed(1, "k", "v")
    (found,) = read_dump([f"{line}\r\n" for line in "\n".join(lines).split("\n")])
    assert positions(found) == [0, 100]
    assert found.damage == []


def test_a_text_of_one_line_is_no_empty_log() -> None:
    """With the line ends of old Macs, all of it was the path of a file, and its partition an all-clear."""
    (dump,) = read_dump(["\r".join([LOG, "Log starting offset: 0", batch(), ""])])
    assert (dump.kind, reasons([dump])) == ("unknown", {"NOTHING_READ"})


def test_a_record_without_its_text_does_not_pass_over_the_next_lines() -> None:
    """--deep-iteration alone: the line that began the next dump was as long as the value, by chance."""
    second = LOG.replace("0.log", "1.log")
    unprinted = record(0, value=len(f"{second}\n") - len(" payload: "))
    later = "Log starting offset: 1", batch(1).replace("position: 100", "position: 0")
    found = read(LOG, batch(0), unprinted, second, *later)
    assert [(each.path, len(each.headers)) for each in found] == [
        (each.removeprefix("Dumping "), 1) for each in (LOG, second)
    ]


def test_a_last_line_without_line_end() -> None:
    (found,) = read_dump(["\ufeff" + LOG, batch(0), batch(1)])
    assert positions(found) == [0, 100]
    assert found.path == LOG.removeprefix("Dumping ")


STATE_LOG = "Dumping /data/__transaction_state-2/00000000000000000000.log"


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
            assert reasons(dumps) & {"MISSING_LINES", "TORN_TAIL"}, within


def test_many_lines_are_one_dump() -> None:
    (found,) = read(LOG, *(batch(n) for n in range(40_000)))
    assert positions(found) == [*range(0, 4_000_000, 100)]
    assert found.end == 4_000_000
    (noise,) = read(LOG, *["baseOffset: x"] * 40_000)
    assert len(noise.damage) == 40_000


def test_wrong_sizes_cost_no_time() -> None:
    """Looking for the end of each text would take hours."""
    lines = [LOG, batch(0), record(0, " payload: x", value=999_999_999)] * 50_000
    assert sum(len(part.headers) for part in read(*lines)) == 50_000


def test_each_marker_of_many_lines_is_read() -> None:
    lines = [line for n in range(20_000) for line in (batch(n, control="true"), "baseOffset: ", record(n, MARKER))]
    (found,) = read(LOG, *lines)
    assert found.headers["marker"].tolist() == [COMMIT] * 20_000


# Any lines

FUZZED = {(version, text): recorded(version).texts[text] for version in VERSIONS[:-1] for text in TEXTS}


def check(found: Dump, lines: int) -> None:
    """What holds for every dump."""
    headers = found.headers
    assert (np.diff(headers["position"]) >= headers["size"][:-1]).all()
    assert (headers["base_offset"][1:] > headers["last_offset"][:-1]).all()
    for damage in found.damage:
        assert isinstance(damage, DamagedRange)
        assert 1 <= damage.position <= lines
    TRANSACTION_LOG.arrow(found.events)
