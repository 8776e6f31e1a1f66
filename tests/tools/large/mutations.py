"""Bytes of real brokers, damaged at random, under every reader: rows, damaged ranges or one clear error.

A mutation is repeated by its number: ``python -m tests.tools.large.mutations one 4711``.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import kafka.errors
import numpy as np

from tests.formats.logs import assert_accounted
from tests.formats.packed import seal
from tests.formats.test_checkpoints import checked
from tests.formats.test_dumps import check as check_dump
from tests.formats.test_indexes import covered
from tests.process import ROOT
from tests.sources.recorded import NINE, sample
from tests.sources.test_responses_of_brokers import LARGE, decoded, response_to
from tests.tools.large.sitting import Sitting
from toolkit import LogDir
from toolkit.actions.audit import Audit
from toolkit.cli.file_commands import TABLE_NAMES
from toolkit.errors import DecodeError, ToolkitError
from toolkit.formats.broker_logs import broker_log_events
from toolkit.formats.coordinator.coordinator_log_rows import offsets_log, transaction_log
from toolkit.formats.copy_manifest import CopiedFile, CopyManifest, parse_manifest
from toolkit.formats.dumps import read_dump
from toolkit.formats.flink_checkpoint import read_checkpoint
from toolkit.formats.log.batch_records import read_records
from toolkit.formats.log.metadata_records import read_metadata_record
from toolkit.formats.log.scan import scan
from toolkit.formats.log_dir_files import CHECKPOINT_NAMES, checkpoint_rows
from toolkit.formats.segment_files import read_offset_index, read_snapshot, read_time_index, read_txn_index
from toolkit.lab.samples import load, names
from toolkit.schema import BATCHES, OFFSETS_LOG, TABLES, TRANSACTION_LOG
from toolkit.schema.log import MetadataLogRecord, OffsetsLogRecord, TransactionLogRecord
from toolkit.sources.recording.recording_folder import read, sample_name
from toolkit.sources.recording.sample_writer import SampleWriter
from toolkit.views.row_formats import json_pieces

MAX_BYTES = 20_000  # of a file, so that a mutation takes a millisecond
MAX_CPU_S = 30  # of one mutation
KINDS = ("flip", "flip", "flip", "byte", "byte", "insert", "remove", "repeat", "zero", "cut", "swap")
EXTREMES = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(4), b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\0\0\0\1")
DATA = ROOT / "tests" / "formats" / "data"


class Reader(NamedTuple):
    """What reads some kind of bytes.

    Parameters
    ----------
    read
        Reads them, and checks what it has found; any error but `DecodeError` is a defect.
    weight
        How often it is chosen.
    originals
        Bytes of real brokers.
    """

    read: Callable[[bytes, Path], object]
    weight: float
    originals: Sequence[bytes]


def change(data: bytes, chance: random.Random) -> bytes:
    """Damaged bytes."""
    for _ in range(chance.choice([1, 1, 1, 2, 3, 5])):
        at, size = chance.randrange(len(data) + 1), chance.choice([1, 1, 2, 4, 8, 61, 200])
        part = data[at : at + size]
        before, after = data[:at], data[at + len(part) :]
        match chance.choice(KINDS):
            case "flip":
                data = before + bytes(byte ^ 1 << chance.randrange(8) for byte in part[:1]) + part[1:] + after
            case "byte":
                data = before + chance.randbytes(len(part[:1])) + part[1:] + after
            case "insert":
                data = before + chance.choice([chance.randbytes(size), *EXTREMES]) + part + after
            case "remove":
                data = before + after
            case "repeat":
                data = before + part * 2 + after
            case "zero":
                data = before + bytes(len(part)) + after
            case "cut":
                data = before
            case "swap":
                new = chance.choice(EXTREMES)
                data = before + new + data[at + len(new) :]
    return data


def _segment(data: bytes, _: Path) -> None:
    found = scan(data, crc=True)
    assert_accounted(found, 0, len(data))
    for position in found.headers["position"].tolist():
        with contextlib.suppress(DecodeError):
            list(read_records(data, position))


def _batch_rows(data: bytes, folder: Path) -> None:
    path = folder / "orders-0" / f"{0:020}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    if not data:
        return
    reached = 0
    for row in sorted(BATCHES.rows(LogDir(path).batches(crc=True)), key=lambda row: row["position"]):
        assert row["position"] == reached
        assert row["size"] > 0
        reached += row["size"]
    assert reached == len(data)


def _transaction_log(data: bytes, _: Path) -> None:
    for batch in _batches(data):
        TRANSACTION_LOG.arrow(
            [each.row() for each in transaction_log(batch, where=TransactionLogRecord(txn_state_partition=1))]
        )


def _offsets_log(data: bytes, _: Path) -> None:
    for batch in _batches(data):
        OFFSETS_LOG.arrow([each.row() for each in offsets_log(batch, where=OffsetsLogRecord(group_partition=1))])


def _batches(data: bytes) -> Iterator[bytes]:
    """The damaged batches, as they are and with the right checksum, so that the decoder meets the damage."""
    found = scan(data, crc=True).headers
    for row in found[found["crc_ok"] == 0]:
        batch = data[row["position"] : row["position"] + row["size"]]
        yield batch
        yield seal(batch)
    for row in found[:1]:  # a sound one beside them
        yield data[row["position"] : row["position"] + row["size"]]


def _metadata(data: bytes, _: Path) -> None:
    for batch in _batches(data):
        with contextlib.suppress(DecodeError):
            for record in read_records(batch):
                with contextlib.suppress(DecodeError):
                    read_metadata_record(record, MetadataLogRecord())


def _txn_index(data: bytes, _: Path) -> None:
    found, damage = read_txn_index(data)
    assert covered(found, damage)


def _indexes(data: bytes, _: Path) -> None:
    for index in (read_offset_index(data, base_offset=7), read_time_index(data, base_offset=7)):
        assert all((np.diff(index[column]) > 0).all() for column in index.dtype.names or ())


def _checkpoints(data: bytes, _: Path) -> None:
    for name in CHECKPOINT_NAMES:
        checked(checkpoint_rows(name, data))


def _dump(data: bytes, _: Path) -> None:
    lines = data.decode(errors="replace").split("\n")
    for chunk in read_dump((f"{line}\n" for line in lines), file="dump"):
        check_dump(chunk, len(lines))


def _broker_log(data: bytes, folder: Path) -> None:
    path = folder / "server.log"
    path.write_bytes(data)
    for each in broker_log_events(path):
        assert (each.event is None) == (each.error is not None)


def _flink(data: bytes, folder: Path) -> None:
    (folder / "chk-5").mkdir(exist_ok=True)
    (folder / "chk-5" / "_metadata").write_bytes(data)
    with contextlib.suppress(ToolkitError):
        read_checkpoint(folder / "chk-5")


def _response(data: bytes, _: Path) -> None:
    """Its first byte chooses the API."""
    with contextlib.suppress(kafka.errors.KafkaProtocolError):
        decoded(LARGE[(data[0] if data else 0) % len(LARGE)], data[1:])


def _recording(data: bytes, folder: Path) -> None:
    (folder / "recording" / "findings").mkdir(parents=True, exist_ok=True)
    (folder / "recording" / "findings" / sample_name(NINE)).write_bytes(data)
    read(folder / "recording", "findings")


def _audit(data: bytes, folder: Path) -> None:
    path = folder / "audit.jsonl"
    path.write_bytes(data)
    Audit(path).frame()


def _log_dir(data: bytes, folder: Path) -> None:
    """The damaged file in a complete log directory, by one of the tables."""
    chance = random.Random(data)
    path = chance.choice(_files_of(folder / "log-dir"))
    original = path.read_bytes()
    try:
        path.write_bytes(change(original, chance))
        name = chance.choice(TABLE_NAMES)
        with contextlib.suppress(ToolkitError):
            found = getattr(LogDir(folder / "log-dir"), name)()
            "".join(json_pieces(TABLES[name], TABLES[name].rows(found)))
    finally:
        path.write_bytes(original)


def _files_of(folder: Path) -> list[Path]:
    if not folder.exists():
        shutil.copytree(load("late-message").path / "log-dir", folder, copy_function=shutil.copyfile)
        for each in folder.glob("__*"):
            if not any(log.stat().st_size for log in each.glob("*.log")):
                shutil.rmtree(each)
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def readers(scratch: Path) -> Mapping[str, Reader]:
    """Every reader, with bytes for it."""
    data = [load(name).path for name in names()]

    def files(*patterns: str) -> list[bytes]:
        paths = [path for folder in (*data, DATA) for each in patterns for path in sorted(folder.rglob(each))]
        found = {path.read_bytes()[:MAX_BYTES]: None for path in paths if path.is_file()}
        return [each for each in found if each]

    with SampleWriter(scratch / "made") as writer:
        writer.write(sample(NINE, partitions=3))
    manifest = CopyManifest(
        source="/data", topics=["orders"], begin=NINE, end=NINE, changed=["orders-0"],
        files={"orders-0/0.log": CopiedFile(size=10, sha256="a" * 64, first_size=9, source=(1, 10, 2))},
    )  # fmt: skip
    segments = files("*-[0-9]*/*.log")
    return {
        "segments": Reader(_segment, 30, segments),
        "table of batches": Reader(_batch_rows, 1, segments),
        "__transaction_state": Reader(_transaction_log, 5, files("__transaction_state-*/*.log")),
        "__consumer_offsets": Reader(_offsets_log, 5, files("__consumer_offsets-*/*.log")),
        "metadata log": Reader(_metadata, 4, files("__cluster_metadata-0/*.log")),
        "producer snapshots": Reader(lambda found, _: read_snapshot(found), 15, files("*.snapshot")),
        "transaction indexes": Reader(_txn_index, 15, files("*.txnindex")),
        "offset and time indexes": Reader(_indexes, 8, files("*.index", "*.timeindex")),
        "checkpoints": Reader(_checkpoints, 4, files(*CHECKPOINT_NAMES)),
        "dumps": Reader(_dump, 2, files("*.txt")),
        "brokers' logs": Reader(_broker_log, 4, files("broker-logs/*.log")),
        "Flink checkpoints": Reader(_flink, 4, [(ROOT / "tests/golden/flink-2.1.1/chk-5/_metadata").read_bytes()]),
        "responses": Reader(_response, 6, [bytes([number]) + response_to(each) for number, each in enumerate(LARGE)]),
        "recordings": Reader(_recording, 1, [(scratch / "made" / "findings" / sample_name(NINE)).read_bytes()]),
        "audit trails": Reader(_audit, 1, files("audit.jsonl")),
        "copy manifests": Reader(lambda found, _: parse_manifest(found), 5, [manifest.to_json().encode()]),
        "log directories": Reader(_log_dir, 0.2, [bytes(32)]),
    }


class Mutations:
    """Readers, and mutations by number."""

    def __init__(self, seed: str, scratch: Path) -> None:
        self.seed, self.scratch, self.readers = seed, scratch, readers(scratch)
        self._names = [*self.readers]
        self._weights = [each.weight for each in self.readers.values()]

    def run(self, number: int) -> tuple[str, str | None]:
        """Which reader it was, and what is wrong."""
        chance = random.Random(f"{self.seed}-{number}")
        (name,) = chance.choices(self._names, self._weights)
        reader = self.readers[name]
        damaged = change(chance.choice(reader.originals), chance)
        signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CPU_S)
        try:
            with contextlib.suppress(DecodeError):
                reader.read(damaged, self.scratch)
        except Exception as error:  # noqa: BLE001 - this is what is searched for
            return name, f"{name}, seed {self.seed}, mutation {number}: {error!r:.300}"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return name, None


@contextlib.contextmanager
def mutations(seed: str) -> Iterator[Mutations]:
    """Mutations in a folder of their own."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {MAX_CPU_S} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=in_memory, prefix="kafka-txn-mutations-") as folder:
        yield Mutations(seed, Path(folder))
    signal.signal(signal.SIGVTALRM, before)


def run(sitting: Sitting) -> None:
    """Mutations until the time is over; each kind of error is noted once."""
    noted: set[tuple[str, str]] = set()
    with mutations(sitting.seed) as made:
        number = 0
        while not number or not sitting.is_over:
            name, problem = made.run(number)
            number += 1
            sitting.counts[name] += 1
            if problem is not None:
                sitting.counts["failed"] += 1
                kind = name, problem.partition(": ")[2][:40]
                if kind not in noted:
                    noted.add(kind)
                    sitting.check(False, problem)
    sitting.counts["mutations"] = number


def repeat(seed: str, number: int) -> None:
    """One mutation, with its traceback."""
    with mutations(seed) as made:
        chance = random.Random(f"{seed}-{number}")
        (name,) = chance.choices(made._names, made._weights)
        damaged = change(chance.choice(made.readers[name].originals), chance)
        print(name, len(damaged))
        try:
            made.readers[name].read(damaged, made.scratch)
        except Exception:  # noqa: BLE001 - shown
            traceback.print_exc()


if __name__ == "__main__":
    repeat(sys.argv[1], int(sys.argv[2]))
