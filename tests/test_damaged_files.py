"""Damage to all that is read from bytes: sound rows stay as they were, and what is lost is an error, never silence.

Each format is one line of `READERS`, which also has what a row or an error is and how far damage may reach. Its bytes
are cut off, changed, and replaced.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import shutil
import struct
import tracemalloc
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.formats import test_coordinator_records as offsets_values
from tests.formats import test_coordinator_records as transaction_values
from tests.formats.logs import assert_accounted, batch, marker, message, placed, positions
from tests.formats.packed import CODECS, HEADER_SIZE, compress, pack_batch, seal
from tests.formats.test_broker_logs import LINE, OTHER
from tests.formats.test_coordinator_log_rows import COMMIT as COMMIT_VALUE
from tests.formats.test_coordinator_log_rows import COMMIT_KEY, ID_KEY, ONGOING, coordinator_rows, group_rows
from tests.formats.test_dumps import FUZZED, check
from tests.formats.test_flink_checkpoint import both, written
from tests.formats.test_log_dir_files import META, SIZE, checked, covered, write_snapshot
from tests.formats.test_metadata_records import IDS
from tests.process import run
from tests.sources.recorded import NINE, sample
from tests.tiers import amount, seed
from toolkit import LogDir
from toolkit.actions.audit import Audit
from toolkit.cli.file_commands import TABLE_NAMES
from toolkit.errors import DecodeError, ToolkitError
from toolkit.formats.batch_records import Record, decompress, read_records
from toolkit.formats.batches import read_header
from toolkit.formats.broker_logs import broker_log_events
from toolkit.formats.coordinator_records import (
    read_group_epoch,
    read_group_key,
    read_group_metadata,
    read_offset_commit,
    read_transaction_key,
    read_transaction_value,
)
from toolkit.formats.dumps import read_dump
from toolkit.formats.flink_checkpoint import read_checkpoint
from toolkit.formats.headers import ABORT, COMMIT
from toolkit.formats.log_dir_files import (
    CopiedFile,
    CopyManifest,
    FileStamp,
    SnapshotEntry,
    checkpoint_rows,
    parse_manifest,
    read_offset_index,
    read_snapshot,
    read_time_index,
    read_txn_index,
)
from toolkit.formats.metadata_records import READERS as METADATA
from toolkit.formats.metadata_records import MetadataState, read_metadata_record
from toolkit.formats.scan import scan
from toolkit.lab.samples import load
from toolkit.schema import BATCHES, OFFSETS_LOG, TABLES, TRANSACTION_LOG, Row
from toolkit.schema.log import MetadataLogRecord
from toolkit.schema.recorded import ActionStep
from toolkit.sources.recording.recorder import SampleWriter
from toolkit.sources.recording.recording import read as read_recording
from toolkit.sources.recording.recording import sample_name
from toolkit.views.row_formats import json_pieces

DATA = Path(__file__).parent / "formats" / "data" / "dumps" / "3.9.2"
LIMIT = 100_000  # bytes of decompressed records
DECODE = "DecodeError"


class Found(NamedTuple):
    """What a reader has found: rows, each with the byte where it ends, and the names of errors."""

    rows: Sequence[tuple[int, object]]
    errors: Collection[str] = ()


class Reader(NamedTuple):
    """How some kind of bytes is read, and how far damage may reach."""

    read: Callable[[bytes, Path], Found]  # checks what holds for any bytes; the folder is for those of a file
    originals: Sequence[bytes] | Callable[[Path], Sequence[bytes]]  # sound bytes, or what makes them in a folder
    cut: Collection[str] = (DECODE,)  # errors of bytes that end early; none if these cannot show it
    is_log: bool = False  # bytes may also end after any row
    is_exact: bool = False  # one byte more is an error, too
    checked_from: int | None = None  # the byte from which on a checksum covers each
    loses: int | None = None  # rows that damage may cost besides one that it hits; null for all from there on
    makes: int | None = None  # rows that a changed byte may make; null for any number
    moves: bool = False  # rows after bytes that were inserted or removed are found
    most: int = 300  # places that are damaged; fewer for what takes milliseconds


def whole(read: Callable[[bytes], object]) -> Callable[[bytes, Path], Found]:
    """Of what is read as a whole or not at all."""
    return lambda data, _: Found([(len(data), read(data))])


def names(reasons: Iterable[str | None]) -> set[str]:
    return {reason.partition(":")[0] for reason in reasons if reason is not None}


def _segment(data: bytes, _: Path) -> Found:
    found = scan(data, crc=True)
    assert_accounted(found, 0, len(data))
    unchecked = scan(data)
    assert (unchecked.damage, positions(unchecked.headers)) == (found.damage, positions(found.headers))
    starts = zip(found.headers["position"].tolist(), found.headers["size"].tolist(), strict=True)
    rows = [(start + size, data[start : start + size]) for start, size in starts]
    return Found(rows, names(each.reason for each in found.damage))


def _table_of_batches(data: bytes, folder: Path) -> Found:
    path = folder / "orders-0" / f"{0:020}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    rows = sorted(BATCHES.rows(LogDir(path).batches(crc=True)), key=lambda row: row["position"])
    ends = [*accumulate(row["size"] for row in rows)]
    assert [row["position"] for row in rows] == [0, *ends][: len(rows)]
    assert (ends or [0])[-1] == len(data)
    sound = [(end, row) for end, row in zip(ends, rows, strict=True) if row["error"] is None]
    return Found(sound, names(row["error"] for row in rows))


def of_hex(texts: Iterable[str]) -> list[bytes]:
    return [bytes.fromhex(each) for each in texts]


def _decompressed(codec: str, data: bytes, _: Path) -> Found:
    found = decompress(codec, data, limit=LIMIT)
    assert len(found) <= LIMIT
    return Found([(len(data), byte) for byte in found])


def _records(data: bytes, _: Path) -> Found:
    rows: list[tuple[int, object]] = []
    try:
        rows.extend((len(data), record) for record in read_records(data, limit=LIMIT, with_headers=True))
    except DecodeError as error:
        assert 0 <= error.position <= len(data)  # noqa: PT017 - either way is right
        return Found(rows, [DECODE])
    return Found(rows)


def _coordinator(rows_of: Callable[[bytes], list[Row]], data: bytes, _: Path) -> Found:
    rows = rows_of(data)
    (TRANSACTION_LOG if rows_of is coordinator_rows else OFFSETS_LOG).frame(rows)
    return Found([(len(data), row) for row in rows if row["error"] is None], names(row["error"] for row in rows))


def _metadata(data: bytes, _: Path) -> Found:
    record = read_metadata_record(Record(0, None, None, data), MetadataLogRecord())
    MetadataState().add(record)
    return Found([(len(data), record)])


def _txn_index(data: bytes, _: Path) -> Found:
    found, damage = read_txn_index(data)
    assert covered(found, damage)
    assert sum(each.size for each in damage) + SIZE * len(found) == len(data)
    markers = [each.last_offset for each in found]
    assert markers == sorted(set(markers))
    return Found([(each.position + SIZE, each) for each in found], names(each.reason for each in damage))


def _index(read: Callable[..., Any], size: int, data: bytes, _: Path) -> Found:
    index = read(data, base_offset=7)
    assert all((index[name][1:] > index[name][:-1]).all() for name in index.dtype.names)
    assert (index["offset"] >= 7).all()
    return Found([(size * (number + 1), row) for number, row in enumerate(index.tolist())])


def _checkpoint(name: str, data: bytes, _: Path) -> Found:
    rows = checked(checkpoint_rows(name, data))
    assert rows == checkpoint_rows(name, data.decode(errors="surrogateescape"))
    ends = [0, *accumulate(map(len, data.splitlines(keepends=True))), len(data)]
    sound = [(ends[row.position or -1], replace(row, position=None)) for row in rows if row.error is None]
    return Found(sound, names(row.error for row in rows))


def _dump(data: bytes, _: Path) -> Found:
    lines = data.decode(errors="replace").split("\n")
    rows, errors = list[object](), set[str]()
    for chunk in read_dump(f"{line}\n" for line in lines):
        check(chunk, len(lines))
        rows.extend(np.asarray(chunk.headers)[["base_offset", "size", "crc"]].tolist())
        errors |= names(each.reason for each in chunk.damage)
    ends = [match.end() for match in re.finditer(rb"^baseOffset: .*\n?", data, re.MULTILINE)]
    return Found([*zip(ends, rows, strict=False)], errors)


def _broker_log(data: bytes, folder: Path) -> Found:
    path = folder / "server.log"
    path.write_bytes(data)
    events = list(broker_log_events(path))
    text = data if all(each.error is None for each in events) and data[:2] != b"\x1f\x8b" else b""
    for each in events:
        assert (each.event is None) == (each.error is not None)
        assert not each.position or not text or text[each.position - 1 : each.position] == b"\n"
    rows = [(each.position or 0, (each.event, each.timestamp, each.transactional_id)) for each in events if each.event]
    return Found(
        [(text.find(b"\n", at) + 1 if text else len(data), row) for at, row in rows], names(e.error for e in events)
    )


def _flink(data: bytes, folder: Path) -> Found:
    found = read_checkpoint(written(folder, data))
    return Found([(len(data), found.committables)])


def _recording(data: bytes, folder: Path) -> Found:
    path = folder / "recording" / "findings" / sample_name(NINE)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return Found([(len(data), read_recording(folder / "recording", "findings").to_pylist())])


def _recorded(folder: Path) -> Sequence[bytes]:
    with SampleWriter(folder / "made") as writer:
        writer.write(sample(NINE, partitions=3))
    return [(folder / "made" / "findings" / sample_name(NINE)).read_bytes()]


def _audit(data: bytes, folder: Path) -> Found:
    path = folder / "audit.jsonl"
    path.write_bytes(data)
    rows = Audit(path).rows()
    assert len(Audit(path).frame()) == len(rows)
    ends = [*accumulate(len(line) + 1 for line in data.split(b"\n"))]
    sound = [(end, row) for end, row in zip(ends, rows, strict=False) if row["error"] is None]
    return Found(sound, names(row["error"] for row in rows))


def _audited(folder: Path) -> Sequence[bytes]:
    audit = Audit(folder / "made.jsonl")
    for _ in range(2):
        with audit.recording(ActionStep(action="abort", bootstrap_servers="localhost:9092", target="orders-0@7")):
            pass
    return [audit.path.read_bytes()]


def _metadata_values() -> Sequence[bytes]:
    """One of each type and version that a real metadata log has."""
    (log,) = Path(str(load("late-message").path)).glob("log-dir/__cluster_metadata-0/*.log")
    data, found = log.read_bytes(), {IDS[1:3]: IDS}
    for position in positions(scan(data).headers):
        found |= {value[1:3]: value for _, _, key, value, *_ in read_records(data, position)
                  if value and key is None}  # fmt: skip
    return [value for key, value in found.items() if key[0] in METADATA]


FIRST, SECOND = SnapshotEntry(1000, 3, 5, 60, 2, 99, 4, None), SnapshotEntry(1001, 0, None, None, 0, None, 1, 77)
SNAPSHOT = write_snapshot([FIRST, SECOND])
ABORTS = (1, 3, 6, 7), (2, 8, 9, 3), (1, 30, 40, 41), (7, 5, 60, 1)
ABORTED = b"".join(struct.pack(">hqqqq", 0, *each) for each in ABORTS)
OFFSETS = struct.pack(">10i", 5, 100, 9, 300, 20, 400, 21, 500, 90, 600)
TIMES = struct.pack(">qiqiqi", 77, 0, 99, 4, 100, 9)
LOGS = [
    b"".join(placed([message(0, seed=1), message(1, codec=1, seed=2), message(1, seed=3), batch(3, seed=4)])),
    b"".join(placed([batch(2, producer_id=5), marker(ABORT), batch(seed=2), batch(4, 60, seed=3), marker(COMMIT)])),
    (DATA / "orders-0" / f"{0:020}.log").read_bytes(),
]
RECORDS = [Record(5, 1000, b"key", b"value"), Record(9, None, None, b"x" * 40), Record(300, 2**40, b"", None)]
PACKED = [pack_batch(RECORDS, codec=codec, headers=[(b"trace", b"1"), (b"", None)]) for codec in CODECS]
OF_IDS = [
    pack_batch([Record(3, 1000, ID_KEY, ONGOING), Record(4, 1000, ID_KEY, None)], codec=codec) for codec in CODECS
]
OF_GROUPS = [pack_batch([Record(3, 1000, COMMIT_KEY, COMMIT_VALUE), Record(4, 1000, COMMIT_KEY, None)], codec=codec)
             for codec in CODECS]  # fmt: skip
TEXT = bytes(range(256)) * 9 + bytes(2000)
TRANSACTION_VALUES = of_hex(transaction_values.GOLDEN.values())
DUMPS = [text.encode() for (_, kind), text in FUZZED.items() if kind in {"batches", "transactions"}]
BROKER_LOG = OTHER + LINE + OTHER + LINE
PACKED_LOG = gzip.compress(BROKER_LOG, mtime=0)
CHECKPOINTS: Mapping[str, str] = {
    "replication-offset-checkpoint": "0\n3\norders 0 5\norders 1 61\n__transaction_state 25 7\n",
    "leader-epoch-checkpoint": "0\n2\n0 0\n3 17\n",
    "partition.metadata": "version: 0\ntopic_id: 32a3DfkDSKGZcm4QdW7kyg",
    "meta.properties": f"#\n#Fri Nov 27 18:00:00 UTC 2026\n{META}",
    ".kafka_cleanshutdown": '{"version":0,"brokerEpoch":12}',
}
MANIFEST = CopyManifest(
    source="/data", topics=["orders"], begin=NINE, end=NINE, changed=["orders-0"],
    files={"orders-0/0.log": CopiedFile(size=10, sha256="a" * 64, first_size=9, source=FileStamp(1, 10, 2))},
)  # fmt: skip


def sized(rows_of: Callable[..., Found], data: bytes, folder: Path) -> Found:
    """A batch as if its length and checksum were right, so that its records show what is wrong."""
    if len(data) > HEADER_SIZE:
        data = seal(data[:8] + struct.pack(">i", len(data) - 12) + data[12:])
    return rows_of(data, folder)


_of_ids, _of_groups = partial(_coordinator, coordinator_rows), partial(_coordinator, group_rows)

READERS: Mapping[str, Reader] = {
    "segments": Reader(_segment, LOGS, ["TORN_TAIL"], is_log=True, loses=0, makes=1, moves=True),
    "table of batches": Reader(_table_of_batches, LOGS[1:2], ["TORN_TAIL"], is_log=True, loses=0, most=10),
    "batch headers": Reader(whole(read_header), [PACKED[0][:HEADER_SIZE]]),
    "records": Reader(_records, PACKED),
    "records of sized batches": Reader(partial(sized, _records), PACKED),
    "records of ids": Reader(_of_ids, OF_IDS[:1], ["CORRUPT_BATCH"], checked_from=16),
    "records of ids in sized batches": Reader(partial(sized, _of_ids), OF_IDS, ["CORRUPT_BATCH"], most=80),
    "records of groups": Reader(_of_groups, OF_GROUPS[:1], ["CORRUPT_BATCH"], checked_from=16),
    "records of groups in sized batches": Reader(partial(sized, _of_groups), OF_GROUPS, ["CORRUPT_BATCH"], most=80),
    **{codec: Reader(partial(_decompressed, codec), [compress(codec, TEXT)], [] if codec == "snappy" else [DECODE])
       for codec in CODECS[1:]},
    "keys of ids": Reader(whole(read_transaction_key), [transaction_values.write_key("my-id-é")], is_exact=True),
    "values of ids": Reader(whole(read_transaction_value), TRANSACTION_VALUES, is_exact=True),
    "keys of groups": Reader(whole(read_group_key), of_hex(offsets_values.JAVA_KEYS.values()), is_exact=True),
    "committed offsets": Reader(whole(read_offset_commit), of_hex(offsets_values.JAVA_COMMITS), is_exact=True),
    "groups": Reader(whole(read_group_metadata), of_hex(offsets_values.JAVA_GROUPS), is_exact=True),
    "epochs of groups": Reader(whole(read_group_epoch), of_hex(["00000000000301000828282828282828"]), []),
    "metadata log": Reader(_metadata, lambda _: _metadata_values(), is_exact=True),
    "transaction indexes": Reader(_txn_index, [ABORTED], ["TORN_TAIL"], is_log=True, loses=1, makes=1),
    "offset indexes": Reader(partial(_index, read_offset_index, 8), [OFFSETS], [], makes=1),
    "time indexes": Reader(partial(_index, read_time_index, 12), [TIMES], [], makes=1),
    "producer snapshots": Reader(whole(read_snapshot), [SNAPSHOT, write_snapshot([])], is_exact=True, checked_from=0),
    **{name: Reader(partial(_checkpoint, name), [text.encode()], ["MALFORMED"], loses=1, makes=2, moves=True)
       for name, text in CHECKPOINTS.items()},
    "dumps": Reader(_dump, DUMPS, [], loses=1, makes=1, moves=True, most=60),
    "brokers' logs": Reader(_broker_log, [BROKER_LOG], [], loses=1, moves=True, most=150),
    "packed brokers' logs": Reader(_broker_log, [PACKED_LOG], ["UNREADABLE", "UNKNOWN_LAYOUT"], most=100),
    "Flink checkpoints": Reader(_flink, [both(), both(version=3)]),
    "copy manifests": Reader(whole(parse_manifest), [MANIFEST.to_json().encode()]),
    "recordings": Reader(_recording, _recorded, most=20),
    "audit trails": Reader(_audit, _audited, ["TORN_LINE"], is_log=True, loses=1, moves=True, most=100),
}  # fmt: skip


def originals(name: str, folder: Path) -> Iterable[tuple[bytes, Found]]:
    made = READERS[name].originals
    for data in made(folder) if callable(made) else made:
        found = read(name, data, folder)
        assert found.rows, "nothing to lose"
        yield data, found


def read(name: str, data: bytes, folder: Path) -> Found:
    """What is found, or the one error that is allowed instead."""
    try:
        return READERS[name].read(data, folder)
    except DecodeError as error:
        assert 0 <= error.position <= len(data)  # noqa: PT017 - either way is right
        return Found([], [DECODE])
    except ToolkitError as error:
        return Found([], [type(error).__name__])


def places(name: str, data: bytes, chance: Random) -> Iterable[int]:
    """All bytes, or some."""
    most = int(amount(READERS[name].most, full=2 * READERS[name].most))
    return range(len(data)) if len(data) <= most else sorted(chance.sample(range(len(data)), most))


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> Random:
    return Random(f"{seed() or 'one'} {request.node.name}")


@pytest.mark.parametrize("name", READERS)
def test_rows_before_a_cut_stay_and_the_cut_is_an_error(name: str, chance: Random, tmp_path: Path) -> None:
    reader = READERS[name]
    for data, sound in originals(name, tmp_path):
        rows, ends = [row for _, row in sound.rows], {0, *(end for end, _ in sound.rows)}
        assert not sound.errors, "damaged before"
        for size in places(name, data, chance):
            if not size and DECODE not in reader.cut:
                continue  # some files are empty at first
            found = read(name, data[:size], tmp_path)
            complete = sum(end <= size for end, _ in sound.rows)
            kept = [row for _, row in found.rows]
            assert kept == rows[: len(kept)], size
            assert len(kept) >= complete, size
            is_between = size in ends or (size + 1 in ends and data[size] == ord("\n"))
            if reader.is_log and is_between:
                assert not found.errors, size
            elif reader.cut and size < len(data.rstrip(b"\n")):
                assert found.errors, size
                assert {*found.errors} <= {*reader.cut}, size
        if reader.is_exact:
            assert read(name, data + b"\0", tmp_path).errors


@pytest.mark.parametrize("name", READERS)
def test_a_changed_byte_costs_no_row_before_it_and_few_after_it(name: str, chance: Random, tmp_path: Path) -> None:
    reader = READERS[name]
    for data, sound in originals(name, tmp_path):
        rows = Counter(repr(row) for _, row in sound.rows)
        for at in places(name, data, chance):
            byte = data[at] ^ chance.choice([1, 2, 3, 0x80, 0xFF, chance.randrange(1, 256)])
            found = read(name, data[:at] + bytes([byte]) + data[at + 1 :], tmp_path)
            before = [row for end, row in sound.rows if end <= at]
            kept = Counter(repr(row) for _, row in found.rows)
            assert [row for _, row in found.rows][: len(before)] == before, at
            assert reader.loses is None or (rows - kept).total() <= 1 + reader.loses, (at, byte)
            assert reader.makes is None or (kept - rows).total() <= reader.makes, (at, byte)
            assert reader.checked_from is None or at < reader.checked_from or found.errors, (at, byte)


@pytest.mark.parametrize("name", READERS)
def test_other_bytes_are_rows_or_an_error_and_what_is_whole_is_found(name: str, chance: Random, tmp_path: Path) -> None:
    """Some bytes are inserted, removed, repeated or zeroed, or all are random from some byte on."""
    reader = READERS[name]
    for data, sound in originals(name, tmp_path):
        for at in places(name, data, chance):
            size = chance.choice([0, 1, 4, 61, 200])
            part = data[at : at + size]
            new = chance.choice([b"", part * 2, bytes(len(part)), chance.randbytes(chance.choice([1, 4, 150]))])
            read(name, data[:at] + chance.randbytes(chance.choice([1, 8, len(data) - at])), tmp_path)
            found = read(name, data[:at] + new + data[at + size :], tmp_path)
            if reader.moves and reader.loses is not None:
                ends = [0, *(end for end, _ in sound.rows)]
                away = [row for begin, (end, row) in zip(ends, sound.rows, strict=False)
                        if end <= at or begin >= at + size]  # fmt: skip
                lost = Counter(map(repr, away)) - Counter(repr(row) for _, row in found.rows)
                assert lost.total() <= 1 + reader.loses, (at, size, new)


KEPT = ("orders-0", "__transaction_state-25", "__consumer_offsets-9", "__cluster_metadata-0")
MOST_MEMORY = 300 << 20


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some partitions of a real broker."""
    source, copied = Path(str(load("late-message").path)) / "log-dir", tmp_path_factory.mktemp("sound") / "data"
    others = [folder.name for folder in source.iterdir() if folder.is_dir() and folder.name not in KEPT]
    return Path(shutil.copytree(source, copied, copy_function=shutil.copyfile, ignore=lambda *_: others))


@pytest.mark.parametrize("table", TABLE_NAMES)
def test_a_damaged_file_of_a_log_directory_gives_rows_or_one_error(table: str, log_dir: Path, chance: Random) -> None:
    files = sorted(path for path in log_dir.rglob("*") if path.is_file() and path.stat().st_size)
    for path in chance.sample(files, k=min(len(files), int(amount(3, full=6)) or 1)):
        sound = path.read_bytes()
        at = chance.randrange(len(sound))
        path.write_bytes(sound[:at] + chance.choice([b"", chance.randbytes(9), bytes(61)]) + sound[at + 4 :])
        tracemalloc.start()
        try:
            with contextlib.suppress(ToolkitError):
                rows = getattr(LogDir(log_dir), table)()
                "".join(json_pieces(TABLES[table], TABLES[table].rows(rows)))
            assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
        finally:
            tracemalloc.stop()
            path.write_bytes(sound)


def test_a_damaged_batch_of_transaction_state_is_an_error_row(log_dir: Path, tmp_path: Path) -> None:
    """Such a row lacked columns without a value, and transaction_history() raised a KeyError."""
    copy = Path(shutil.copytree(log_dir / KEPT[1], tmp_path / KEPT[1]))
    [log] = copy.glob("*.log")
    log.write_bytes(b"\x80" + log.read_bytes()[1:])
    files = LogDir(copy)
    assert files.transaction_log()["error"].notna().any()
    assert files.transaction_history()["transactional_id"].notna().all()


def test_figures_of_a_damaged_log_say_that_it_is_damaged(log_dir: Path, tmp_path: Path) -> None:
    """A person saw "committed 0" without a word of it, and the total of all logs had no error in any format."""
    copy = Path(shutil.copytree(log_dir, tmp_path / "data"))
    log = copy / "orders-0" / "00000000000000000000.log"
    log.write_bytes(b"\x80" + log.read_bytes()[1:])
    said = run("txn-stat", str(copy))
    assert next(line for line in said.stdout.splitlines() if " error " in line).split()[1].endswith(":")
    assert ": 1 of " in said.stdout.partition("\nall\n")[2]
    assert said.returncode == 3
