"""Names, checkpoints, indexes and snapshots of a log directory: by real brokers, as written here, and invalid."""

import dataclasses
import re
import struct
from collections.abc import Sequence

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpus.file_calls import archives, unpacked
from tests.stored import compare
from toolkit import LogDir
from toolkit.errors import DecodeError, UsageError
from toolkit.formats.headers import DamagedRange
from toolkit.formats.log_dir_files import (
    CHECKPOINT_NAMES,
    AbortedTxn,
    FileName,
    FolderName,
    SnapshotEntry,
    checkpoint_rows,
    parse_file_name,
    parse_folder_name,
    read_offset_index,
    read_snapshot,
    read_time_index,
    read_txn_index,
)
from toolkit.schema import CHECKPOINTS
from toolkit.schema.log import CheckpointEntry

OFFSETS = [name for name in CHECKPOINT_NAMES if name.endswith("-offset-checkpoint")]
META = "node.id=1\nversion=1\ncluster.id=Gx7QMUXwShSzN6qKUss-Eg\n"


def checked(rows: list[CheckpointEntry], *, lines: int | None = None) -> list[CheckpointEntry]:
    """The rows, if the table takes them and an error has its line."""
    assert CHECKPOINTS.arrow(rows).num_rows == len(rows)
    for row in rows:
        error = row.error
        assert error is None or re.fullmatch(r"(?s)MALFORMED: (line \d+ |[a-z._]+ is missing).*\.", error)
        assert error is None or row.position is None or f"line {row.position} " in error
        assert row.offset is None or error is None
        assert lines is None or row.position is None or 1 <= row.position <= max(lines, 2)
    return rows


def errors(rows: list[CheckpointEntry]) -> list[str]:
    return [row.error for row in rows if row.error]


# Real files


@pytest.mark.parametrize("version", ["2.8.2", "3.5.2", "3.9.2", "4.3.1"])
def test_every_file_of_a_real_broker_is_read_completely(version: str) -> None:
    """What is in them is stored in the corpus."""
    rows = LogDir(unpacked(archives()[f"{version}-everyday-files"])).checkpoints()
    assert rows["error"].isna().all()
    assert {*rows["name"]} >= {OFFSETS[-1], "leader-epoch-checkpoint", "meta.properties"}


# Made up


def test_lines_may_end_as_on_windows() -> None:
    rows = checked(checkpoint_rows(OFFSETS[0], f"0\r\n2\r\na.b 2147483647 {2**63 - 1}\r\nc_d-e 0 0\r\n"))
    assert [(row.topic, row.partition, row.offset) for row in rows] == [("a.b", 2**31 - 1, 2**63 - 1), ("c_d-e", 0, 0)]
    assert not errors(rows)


MALFORMED: Sequence[tuple[str, bytes | str]] = [
    ("replication-offset-checkpoint", ""),
    ("replication-offset-checkpoint", "0\n0\n"),
    ("replication-offset-checkpoint", "1\n1\na 0 5\n"),
    ("replication-offset-checkpoint", "0\n2\na 0 5\n"),
    ("replication-offset-checkpoint", "0\n"),
    ("replication-offset-checkpoint", "0"),
    ("replication-offset-checkpoint", "0\n2\na 0 5\na 1\n"),
    ("replication-offset-checkpoint", "0\n2\na 0 -1\na 1 6\n"),
    ("replication-offset-checkpoint", "0\n1\na 0 9223372036854775808\n"),
    ("replication-offset-checkpoint", "0\n1\na 2147483648 5\n"),
    ("replication-offset-checkpoint", "0\n1\na 0 \u0665\n"),
    ("replication-offset-checkpoint", "0\n1\na:b 0 5\n"),
    ("replication-offset-checkpoint", "0\n2\na 0 5\na 1 61"),
    ("replication-offset-checkpoint", "0\n2\na 0 5\n\n"),
    ("replication-offset-checkpoint", "0\n1\n" + "x" * 100 + "\n"),
    ("replication-offset-checkpoint", b"0\n2\n\xff 0 5\na 0 6\n"),
    ("leader-epoch-checkpoint", "0\n2\n0 0\n3 x\n"),
    ("partition.metadata", "version: 0\n"),
    ("partition.metadata", "version: 1\ntopic_id: 32a3DfkDSKGZcm4QdW7kyg"),
    ("partition.metadata", "version: 0\ntopic_id: 32a3DfkDSKGZcm4QdW7ky"),
    ("partition.metadata", "version: 0\ntopic_id"),
    ("meta.properties", ""),
    ("meta.properties", "#\n#now\n\n" + META),
    ("meta.properties", META + "odd\\u00e9\\:key : odd\\=value\n"),
    ("meta.properties", "version=1\ncluster.id=x\n"),
    ("meta.properties", "version=2\nnode.id=1\ncluster.id=x\n"),
    ("meta.properties", "version=0\nbroker.id=one\ncluster.id=x\n"),
    ("meta.properties", "version=0\nbroker.id=1\ncluster.id=\\u12\n"),
    ("meta.properties", "version=0\nbroker.id=1\\\n\ncluster.id=x\n"),
    ("meta.properties", "version=0\nbroker.id=1\ncluster.id=x"),
    (".kafka_cleanshutdown", ""),
    (".kafka_cleanshutdown", '{"version":0,"brokerEpoch":12}'),
    (".kafka_cleanshutdown", '{"version":0,"brokerEpoch":null}'),
    (".kafka_cleanshutdown", '{"version":1}'),
    (".kafka_cleanshutdown", "[1]"),
    (".kafka_cleanshutdown", "[" * 100_000),
    (".kafka_cleanshutdown", '{"version":0,"\\ud800":"\\ud800"}'),
]


def test_malformed_files() -> None:
    """What is read of each, and why the rest is not."""
    lines = list[str]()
    for name, text in MALFORMED:
        rows = checked(checkpoint_rows(name, text, topic=None))
        lines += [f"{name} {text[:200]!r}", *(f"  {row.key} {row.value} {row.offset} {row.error}" for row in rows)]
    compare("malformed_checkpoints.txt", (line.encode("ascii", "backslashreplace").decode() for line in lines))


def test_unknown_file_names_are_rejected() -> None:
    with pytest.raises(UsageError, match=r"'quorum-state' is no checkpoint file known here\. Known are "):
        checkpoint_rows("quorum-state", "")


ID = "0f81b0f6c1a8497fb47e1c9c9e2a6d1b"
TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,100}", fullmatch=True).filter(lambda topic: topic not in {".", ".."})
PARTITIONS = st.integers(0, 2**31 - 1)


@given(TOPICS, PARTITIONS, st.sampled_from([None, "delete", "future", "stray"]))
def test_folder_names_of_partitions(topic: str, partition: int, suffix: str | None) -> None:
    name = f"{topic}-{partition}" + (f".{ID}-{suffix}" if suffix else "")
    assert parse_folder_name(name) == FolderName(topic, partition, suffix)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("__transaction_state-49", ("__transaction_state", 49)),
        ("orders--1", ("orders-", 1)),
        (f"orders-0.{ID}-delete-3", (f"orders-0.{ID}-delete", 3)),
        (f"orders-0.{ID}-delete-3.{ID}-delete", (f"orders-0.{ID}-delete", 3)),
        ("x" * 249 + "-2147483647", ("x" * 249, 2147483647)),
    ],
)
def test_ambiguous_folder_names(name: str, expected: tuple[str, int]) -> None:
    assert (parse_folder_name(name) or ())[:2] == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        "orders",
        "-0",
        ".-0",
        "..-0",
        "orders-",
        "orders-x",
        "orders-01",
        "orders-+1",
        "orders-2147483648",
        "orders-\u0663",  # a digit to Python and to Java, but to no broker
        "orders-0\n",
        "or ders-0",
        "x" * 250 + "-0",
        f"orders.{ID}-delete",
        "orders-0-delete",
        "orders-0.-delete",
        f"orders-0.{ID}-gone",
        "remote-log-index-cache",
        "meta.properties",
    ],
)
def test_other_folder_names(name: str) -> None:
    assert parse_folder_name(name) is None


@given(
    st.integers(0, 2**63 - 1),
    st.sampled_from(["log", "index", "timeindex", "txnindex", "snapshot"]),
    st.sampled_from([None, "deleted", "cleaned", "swap"]),
)
def test_file_names_of_a_log(offset: int, kind: str, suffix: str | None) -> None:
    name = f"{offset:020}.{kind}" + (f".{suffix}" if suffix else "")
    assert parse_file_name(name) == FileName(offset, kind, suffix)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "server.log",
        "0.log",
        "99999999999999999999.log",
        "00000000000000000000",
        "00000000000000000000.log ",
        "00000000000000000000.log.tmp",
        "00000000000000000000.log.deleted.deleted",
        "00000000000000000000-0000000000.checkpoint",
        "12_Xb0A9Z3hQ6m0m0m0m0m0mA.index",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "\u0660" * 20 + ".log",
    ],
)
def test_other_file_names(name: str) -> None:
    assert parse_file_name(name) is None


def test_names_in_remote_storage_have_the_id_of_the_topic_and_of_the_copy() -> None:
    remote = "Ab_-Ab_-Ab_-Ab_-Ab_-Ab"
    assert parse_folder_name(f"my-orders-3-{remote}") == FolderName("my-orders", 3, topic_id=remote)
    assert parse_file_name(f"00000000000000000020-{remote}.txnindex") == FileName(20, "txnindex", is_remote=True)
    assert parse_file_name(f"00000000000000000020-{remote}.leader_epoch_checkpoint") is None
    assert parse_folder_name(f"my-orders-3-{remote}x") is None


SIZE = 34  # bytes of an entry of a .txnindex


def covered(found: list[AbortedTxn], damage: list[DamagedRange]) -> bool:
    """Whether every byte is reported once."""
    parts = sorted([(each.position, SIZE) for each in found] + [(each.position, each.size) for each in damage])
    ends = [0, *(position + size for position, size in parts)]
    return [position for position, _ in parts] == ends[:-1]


ENTRY = struct.pack(">hqqqq", 0, 1, 3, 6, 7)
ENTRIES = (
    *((1, 7, 10, 20, 21), (0, -1, 10, 20, 21), (0, 7, 10, 20, -1), (0, 7, 20, 10, 21), (0, 0, 0, 0, 0)),
    *((0, 7, 10, 5, 11), (0, 7, 1, 2, 3), (0, 7, 1, 2**60, 3)),
)
"""No aborted transactions, or not in order: version, producer id, first offset, offset of the marker, LSO then."""


def test_damaged_transaction_indexes() -> None:
    sound = [(0, 1, 3, 6, 7), (0, 2, 8, 9, 10), (0, 1, 30, 40, 41), (0, 1, 50, 60, 61)]
    lines = list[str]()
    for wrong in ENTRIES:
        entries = [*sound[:2], wrong, *sound[2:]]
        found, damage = read_txn_index(b"".join(struct.pack(">hqqqq", *entry) for entry in entries))
        assert [each[1:] for each in found] == sound
        assert covered(found, damage)
        lines += [f"{wrong}: {each}" for each in damage]
    for name, torn in (("half an entry", ENTRY + ENTRY[:5]), ("zeros", ENTRY + bytes(70)), ("nothing", b"")):
        lines.append(f"{name}: {read_txn_index(torn)}")
    compare("transaction_indexes.txt", lines)


# Offsets and times


def test_zeroed_pages_after_a_crash_are_skipped() -> None:
    data = struct.pack(">8i", 5, 100, 0, 0, 0, 0, 9, 300) + bytes(4096)
    assert read_offset_index(data, base_offset=1000).tolist() == [(1005, 100), (1009, 300)]
    data = struct.pack(">qiqiqi", 0, 0, 77, 0, 99, 4) + bytes(4096)
    assert read_time_index(data, base_offset=1000).tolist() == [(77, 1000), (99, 1004)]


def write_snapshot(states: list[SnapshotEntry], *, version: int = 1, count: int | None = None) -> bytes:
    body = struct.pack(">i", len(states) if count is None else count)
    for state in states:
        numbers = (-1 if number is None else number for number in dataclasses.astuple(state))
        body += struct.pack(">qhiqiqiq", *numbers)
    return struct.pack(">hI", version, google_crc32c.value(body)) + body


def test_what_is_null_in_a_snapshot_is_written_as_minus_one() -> None:
    known = SnapshotEntry(2**62, 2**15 - 1, 2**31 - 1, 2**62 + 1, 3, 2**62 + 2, 4, 2**62 + 3)
    states = (known, SnapshotEntry(1, 0, None, None, 0, None, None, None))
    assert read_snapshot(memoryview(bytearray(write_snapshot([*states])))) == states


SNAPSHOTS = {
    "nothing": b"",
    "one byte": b"\0",
    "version 2": write_snapshot([], version=2),
    "zeros": bytes(10),
    "cut": write_snapshot([])[:-1],
    "a count of 2": write_snapshot([], count=2),
    "a count of 2147483647": write_snapshot([], count=2**31 - 1),
    "a count of -1": write_snapshot([], count=-1),
    "more": write_snapshot([]) + b"more",
    "a wrong checksum": b"\0\1\0\0\0\1\0\0\0\0",
}


def test_damaged_snapshots() -> None:
    lines = list[str]()
    for name, data in SNAPSHOTS.items():
        with pytest.raises(DecodeError) as caught:
            read_snapshot(data)
        lines.append(f"{name}: {caught.value.what} (byte {caught.value.position}) {caught.value.means}")
    compare("snapshots.txt", lines)
