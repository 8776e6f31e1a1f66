"""What a log lost or never had, in files written by hand: what no broker can be made to leave in a moment."""

import json
import struct
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest
from google_crc32c import value as crc32c
from typer.testing import CliRunner

from tests.formats.test_dumps import batch as dumped_batch
from tests.sources.log_files import (
    CLEANED,
    HIGH_WATERMARK,
    NOON,
    after,
    data,
    marker,
    write_checkpoint,
    write_log,
    write_root,
    write_snapshot,
)
from toolkit import LogDir
from toolkit.cli.commands import app
from toolkit.errors import UsageError
from toolkit.formats.batches import CONTROL
from toolkit.formats.scan import scan
from toolkit.lab.samples import load
from toolkit.schema.table import LogId, TopicPartition
from toolkit.sources import offset_reader
from toolkit.sources.live.broker_client import write_batch
from toolkit.sources.live.partition_log import FetchedChunk, FetchedRange
from toolkit.sources.log_tables import log_transaction_tables
from toolkit.sources.offset_queries import CommittedOffset, lag_of_group

Ranges = list[tuple[int, int, str | None]]


def log_dir(
    path: Path, batches: Iterable[bytes], *, cleaned: bool | None = False, end: int, broker_id: int = 1
) -> Path:
    """A log directory whose cleaner has cleaned the partition, has not, or has left no checkpoint."""
    root = write_root(path, broker_id=broker_id)
    write_log(root, "orders-0", batches)
    write_checkpoint(root, HIGH_WATERMARK, {("orders", 0): end})
    if cleaned is not None:
        write_checkpoint(root, CLEANED, {("orders", 0): end} if cleaned else {})
    return root


def missing(*roots: Path, stop: int, read_committed: bool = True) -> Ranges:
    rows = LogDir(*roots).missing_offset_rows("orders", 0, start=0, stop=stop, read_committed=read_committed)
    return [(row["first_offset"], row["last_offset"], row["status"]) for row in rows]


def test_offsets_before_an_empty_newest_segment_are_missing(tmp_path: Path) -> None:
    """Their segment was not copied: the transaction before them was said to be open."""
    root = log_dir(tmp_path, [data(0, 7, NOON)], end=9)
    write_log(root, "orders-0", [], base_offset=9)
    rows = LogDir(root).log_transaction_rows()
    assert [(row["producer_id"], row["outcome"]) for row in rows if row["producer_id"]] == [(7, None)]
    assert {row["error"].partition(":")[0] for row in rows if row["error"]} == {"OFFSETS_LOST"}


@pytest.mark.parametrize(
    ("cleaned", "status"), [(False, "unexplained"), (True, "compacted"), (None, None), ("damaged", None)]
)
def test_missing_offsets_are_compacted_only_below_the_cleaner_checkpoint(
    tmp_path: Path, cleaned: bool | str | None, status: str
) -> None:
    batches = [data(0, 7, NOON), marker(1, 7, NOON), data(5, 7, NOON), marker(6, 7, NOON)]
    root = log_dir(tmp_path / "one", batches, cleaned=bool(cleaned) if cleaned is not None else None, end=7)
    if cleaned == "damaged":
        (root / CLEANED).write_text("0\n1\norders 0 x\n")
    assert missing(root, stop=7) == [(1, 1, "marker"), (2, 4, status), (6, 6, "marker")]
    (row,) = LogDir(root).offset_visibility_rows("orders", 0, 3)
    assert row["status"] == status
    with pytest.raises(UsageError, match="Offset -1 is negative"):
        LogDir(root).offset_visibility_rows("orders", 0, -1)


def test_offsets_of_a_segment_that_was_not_copied_are_not_removed(tmp_path: Path) -> None:
    """The lag of a group counted them as removed by compaction or retention, and said how little is left to read."""
    root = log_dir(tmp_path, [data(0, 7, after(seconds=1))], end=12)
    write_log(root, "orders-0", [marker(10, 7, after(seconds=2)), data(11, 8, after(seconds=3))], base_offset=10)
    write_snapshot(root / "orders-0", 10, {7: 0})
    files = LogDir(root)
    (lost,) = (row for row in files.missing_offset_rows("orders", 0) if row["first_offset"] == 1)
    assert (lost["last_offset"], lost["status"]) == (9, None)
    (within,) = files.offset_visibility_rows("orders", 0, 5)
    assert lost["error"].startswith("OFFSETS_LOST")
    assert within["error"].startswith("OFFSETS_LOST")
    committed = {TopicPartition("orders", 0): CommittedOffset(1, None)}
    (lag,) = lag_of_group(files.offset_readers([*committed]), "billing", committed, max_offsets=100)
    assert (lag.lag, lag.removed, (lag.error or "").partition(":")[0]) == (11, None, "OFFSETS_LOST")


def test_records_of_unknown_outcome_are_not_counted_as_removed(tmp_path: Path) -> None:
    """The lag had as removed what gaps called unknown: a marker without its record may be COMMIT or ABORT."""
    unread = bytearray(write_batch([(b"\0" * 4, b"")], timestamp=NOON, producer_id=7, producer_epoch=0,
                                   is_transactional=True, base_offset=1))  # fmt: skip
    unread[22] |= CONTROL
    unread[17:21] = struct.pack(">I", crc32c(bytes(unread[21:])))
    files = LogDir(log_dir(tmp_path, [data(0, 7, NOON), bytes(unread), data(2, 7, NOON), marker(3, 7, NOON)], end=4))
    assert [row["status"] for row in files.missing_offset_rows("orders", 0)] == [None, "marker", "marker"]
    committed = {TopicPartition("orders", 0): CommittedOffset(0, None)}
    (lag,) = lag_of_group(files.offset_readers([*committed]), "billing", committed, max_offsets=100)
    assert (lag.lag, lag.removed, (lag.error or "").partition(":")[0]) == (4, None, "UNKNOWN")


def test_unreadable_bytes_are_not_compaction(tmp_path: Path) -> None:
    root = log_dir(tmp_path / "one", [data(0, 7, NOON), b"\0" * 100, data(5, 7, NOON), marker(6, 7, NOON)], end=7)
    rows = LogDir(root).missing_offset_rows("orders", 0)
    assert [(row["first_offset"], row["last_offset"], row["status"]) for row in rows] == [
        (0, 0, None),  # the LSO is unknown, too
        (1, 4, None),
        (5, 5, None),
        (6, 6, "marker"),
    ]
    (partition,) = LogDir(root).partition_rows()
    assert partition["error"]
    assert rows[3]["error"] == partition["error"], "also where the status is known"
    (row,) = LogDir(root).offset_visibility_rows("orders", 0, 5)
    assert (row["status"], row["read_committed"], row["read_uncommitted"]) == ("committed", None, True)
    assert row["reason"].endswith("is unknown, as the LSO is.")
    assert rows[1]["error"].startswith("CORRUPT_BATCH")


def test_a_batch_with_a_wrong_checksum_is_received_by_nobody(tmp_path: Path) -> None:
    """It was a committed record, which "read_committed consumers receive", and no offset was missing."""
    spoiled, ended = bytearray(data(0, 7, NOON)), bytearray(marker(2, 7, NOON, commit=False))
    spoiled[-2] ^= 1  # of its record
    ended[37] ^= 1  # of its time; what is around it is as it was
    batches = [bytes(spoiled), data(1, 7, NOON), bytes(ended), data(3, 7, NOON), marker(4, 7, NOON)]
    root = log_dir(tmp_path / "one", batches, end=5)
    assert missing(root, stop=5) == [(0, 0, None), (1, 1, "aborted"), (2, 2, None), (4, 4, "marker")]
    (row,) = LogDir(root).offset_visibility_rows("orders", 0, 0)
    assert (row["status"], row["read_committed"]) == (None, None)
    assert row["error"] == "CORRUPT_MESSAGE: the checksum of the batch at offset 0 does not match its bytes"


def test_truncation_by_a_newer_leader_is_named(tmp_path: Path) -> None:
    """The replica of the newest epoch counts; a longer one of an older epoch has records that no consumer gets."""

    def batch(offset: int, epoch: int) -> bytes:
        found = bytearray(write_batch([(None, b"value")], timestamp=NOON, base_offset=offset))
        found[12:16] = epoch.to_bytes(4, "big")  # partition leader epoch, which no checksum covers
        return bytes(found)

    old = log_dir(tmp_path / "old", [batch(at, 1) for at in range(8)], end=4)
    new = log_dir(tmp_path / "new", [*(batch(at, 1) for at in range(4)), batch(4, 2)], end=5, broker_id=2)
    assert missing(new, old, stop=10) == [(5, 7, "truncated"), (8, 9, "beyond_log_end")]
    assert missing(new, stop=10) == [(5, 9, "beyond_log_end")]


def test_a_marker_after_the_range_decides_visibility(tmp_path: Path) -> None:
    batches = [data(0, 7, NOON, records=3), data(3, 8, NOON), marker(4, 7, after(seconds=1), commit=False),
               marker(5, 8, after(seconds=2))]  # fmt: skip
    root = log_dir(tmp_path / "one", batches, end=6)
    assert missing(root, stop=4) == [(0, 2, "aborted")]
    assert missing(root, stop=2) == [(0, 1, "aborted")]
    assert missing(root, stop=4, read_committed=False) == []
    (row,) = LogDir(root).offset_visibility_rows("orders", 0, 3)
    assert (row["status"], row["visible_at"]) == ("committed", after(seconds=2)), "its own marker was the last"


def test_a_record_is_visible_once_all_earlier_transactions_have_ended(tmp_path: Path) -> None:
    batches = [data(0, 7, NOON), data(1, 8, NOON), marker(2, 8, after(seconds=1)), marker(3, 7, after(seconds=9)),
               data(4, 9, NOON), marker(5, 9, after(seconds=30))]  # fmt: skip
    root = log_dir(tmp_path / "one", batches, end=6)
    (row,) = LogDir(root).offset_visibility_rows("orders", 0, 1)
    assert (row["marker_time"], row["visible_at"]) == (after(seconds=1), after(seconds=9))


def test_a_distant_marker_decides_and_other_searches_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [data(at, 7, NOON) for at in range(20)] + [marker(20, 7, after(seconds=1), commit=False)]
    root = log_dir(tmp_path / "one", batches, end=21)
    monkeypatch.setattr(offset_reader, "BACK", (2, 4))
    monkeypatch.setattr(offset_reader, "FORWARD", 3)
    (row,) = LogDir(root).offset_visibility_rows("orders", 0, 10)
    assert (row["status"], row["first_offset"], row["marker_offset"]) == ("aborted", None, 20)
    (row,) = LogDir(root).offset_visibility_rows("orders", 0, 3)
    assert (row["status"], row["first_offset"]) == ("aborted", 0), "the log starts within reach"


def test_without_the_compacted_marker_the_transaction_index_decides(tmp_path: Path) -> None:
    """The first transaction of producer 7 committed; by markers alone, the second one's ABORT would end it, too."""
    batches = [data(0, 7, NOON), data(3, 7, NOON), marker(4, 7, NOON, commit=False)]
    root = log_dir(tmp_path / "one", batches, end=5, cleaned=True)
    assert missing(root, stop=5) == [(0, 0, "aborted"), (1, 2, "compacted"), (3, 3, "aborted"), (4, 4, "marker")]
    entry = struct.pack(">hqqqq", 0, 7, 3, 4, 5)
    (root / "orders-0" / f"{0:020}.txnindex").write_bytes(entry)
    assert missing(root, stop=5) == [(1, 2, "compacted"), (3, 3, "aborted"), (4, 4, "marker")]


def test_the_command_exits_with_3_for_an_unexplained_offset(tmp_path: Path) -> None:
    root = log_dir(tmp_path / "one", [data(0, 7, NOON), marker(5, 7, NOON)], end=6)
    done = CliRunner().invoke(app, ["gaps", "orders-0", "--log-dir", str(root)])
    assert done.exit_code == 3, done.output
    assert "unexplained" in done.stdout
    assert CliRunner().invoke(app, ["why", "orders-0@0", "--log-dir", str(root)]).exit_code == 0


def test_a_recording_gives_the_offsets_and_states_that_it_has_no_records(tmp_path: Path) -> None:
    recording = load("flight-recording").recording()
    assert recording
    held = next(row for row in recording.finding_over_time_rows() if row["start_offset"] is not None)
    at = held["held_from"] + (held["held_to"] - held["held_from"]) / 2
    where = ["--recording", str(recording.path), "--at", at.isoformat(), "--format", "json"]
    reported = [json.loads(CliRunner().invoke(app, ["why", f"orders-0@{offset}", *where]).stdout)["rows"][0]
            for offset in (0, held["start_offset"], 10_000)]  # fmt: skip
    assert [row["read_committed"] for row in reported] == [None, False, False]
    assert reported[1]["holder_producer_id"] == held["producer_id"]
    assert reported[2]["status"] in {"beyond_high_watermark", "beyond_log_end"}
    assert [(row["error"] or "").partition(":")[0] for row in reported] == ["NOT_RECORDED", "NOT_RECORDED", ""]


def test_partitions_of_one_name_of_two_clusters_are_no_replicas(tmp_path: Path) -> None:
    """The longer log was taken for the best replica: nothing was open, though a transaction is on the other cluster."""
    roots = []
    for name, batches in (("eu", [data(0, 7, NOON)]), ("us", [data(0, 9, NOON), marker(1, 9, NOON)])):
        roots.append(log_dir(tmp_path / name, batches, end=len(batches)))
        (roots[-1] / "meta.properties").write_text(f"version=1\ncluster.id={name}\nnode.id=1\n")
    (row,) = LogDir(*roots).finding_rows()
    assert (row["verdict"], row["error"].partition(":")[0]) == ("unknown", "SEVERAL_CLUSTERS")
    assert [each["verdict"] for each in LogDir(roots[0]).finding_rows()] == ["unknown"]


def test_the_index_of_finished_output_of_the_cleaner_has_its_aborted_transactions(tmp_path: Path) -> None:
    """Beside another index, after a crash between two renames, read_committed consumers were said to receive them."""
    batches = [data(0, 7, NOON), marker(1, 7, NOON, commit=False), data(2, 7, NOON), marker(3, 7, NOON, commit=False)]
    root = log_dir(tmp_path / "one", batches[:2], end=4)
    folder = write_log(root, "orders-0", batches[2:], base_offset=2)
    for base in (0, 2):
        (folder / f"{base:020}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, base, base + 1, base + 2))
    for name in ("log", "txnindex"):
        (folder / f"{0:020}.{name}").rename(folder / f"{0:020}.{name}.swap")
    aborted = [(0, 0, "aborted"), (1, 1, "marker"), (2, 2, "aborted"), (3, 3, "marker")]
    assert missing(root, stop=4) == aborted
    (folder / f"{2:020}.txnindex").unlink()  # it began after the files of a running broker were listed
    assert missing(root, stop=4) == aborted


def fetched_chunks(responses: Iterable[bytes | str]) -> Generator[FetchedChunk, None, None]:
    """Responses of a broker: bytes, or an error."""
    for each in responses:
        if isinstance(each, str):
            yield FetchedChunk.unread(each, broker_id=1)
        else:
            found = scan(each, crc=True)
            yield FetchedChunk(headers=found.headers, damage=found.damage, records=each, broker_id=1)


def test_what_is_open_before_unread_offsets_of_a_response_may_have_ended_there() -> None:
    """An aborted and a committed transaction with damage between them were one, committed; an unread end left one open.

    The broker's own bytes: a marker in them that cannot be read, offsets that retention deletes meanwhile, a leader
    that is gone before the end.
    """
    aborted, committed = data(0, 7, NOON), [data(2, 7, NOON), marker(3, 7, NOON)]
    rest = marker(1, 7, NOON, commit=False)
    responses: dict[str, list[bytes | str]] = {
        "damage": [b"".join([aborted, b"\xff" * len(rest), *committed])],
        "checksum": [b"".join([aborted, rest[:-1] + bytes([rest[-1] ^ 1]), *committed])],
        "deleted": [aborted, "OFFSET_OUT_OF_RANGE: offsets 1 to 1 are deleted", b"".join(committed)],
        "end": [b"".join([aborted, rest, committed[0]]), "LEADER_NOT_AVAILABLE: offsets 3 to 3 were not read"],
    }
    found = {}
    for name, of_name in responses.items():
        fetched = FetchedRange(
            log_id=LogId(topic="orders", partition=0), start=0, stop=4, chunks=fetched_chunks(of_name)
        )
        tables = log_transaction_tables(fetched.divided, fetched.log_id, before=fetched.before)
        rows = [row for table in tables for row in table.to_pylist()]
        found[name] = [(row["first_offset"], row["outcome"]) for row in rows if row["producer_id"] is not None]
        assert sum(row["producer_id"] is None for row in rows) == 1, "what could not be read"
    assert found == {
        "damage": [(0, None), (2, "commit")],
        "checksum": [(0, None), (2, "commit")],
        "deleted": [(0, None), (2, "commit")],
        "end": [(0, "abort"), (2, None)],
    }


def test_a_transaction_may_have_ended_in_lines_that_a_text_lacks(tmp_path: Path) -> None:
    """As in missing bytes of a segment: an aborted and a committed transaction were one, committed."""
    batches = [dumped_batch(number, control=str(number % 2 == 1).lower()) for number in range(4)]
    found = []
    for name, printed in (("whole", batches), ("lacking", [batches[0], *batches[2:]])):
        text = tmp_path / f"{name}.txt"
        text.write_text("\n".join(["Dumping /kafka/orders-0/00000000000000000000.log", *printed, ""]))
        rows = LogDir(text).log_transaction_rows()
        found.append([(row["first_offset"], row["marker_offset"]) for row in rows if row["producer_id"] is not None])
    assert found == [[(0, 1), (2, 3)], [(0, None), (2, 3)]]


def test_a_torn_segment_in_a_text_clears_nothing(tmp_path: Path) -> None:
    """An open transaction may end, and another one begin, in the bytes that the tool reports: all was clear."""
    plain = dumped_batch(5, position=0).replace("isTransactional: true", "isTransactional: false")
    text = tmp_path / "orders.txt"
    text.write_text(
        f"Dumping /d/orders-0/{0:020}.log\nLog starting offset: 0\n{dumped_batch()}\n"
        f"Found 50 invalid bytes at the end of {0:020}.log\n"
        f"Dumping /d/orders-0/{5:020}.log\nLog starting offset: 5\n{plain}\n"
    )
    (row,) = LogDir(text).finding_rows(partitions=[("orders", 0)])
    assert (row["verdict"], row["missing"]) == ("unknown", ["OFFSETS_LOST: Offsets 1 to 4 could not be read"])


def test_a_range_begins_with_what_is_known_of_the_offsets_before_it(tmp_path: Path) -> None:
    """With the marker of an aborted transaction unreadable before the range, it was the next one, and committed."""
    rest = marker(1, 7, NOON, commit=False)
    for name, lost in (("whole", rest), ("damaged", b"\xff" * len(rest))):
        batches = [data(0, 7, NOON), lost, data(2, 8, NOON), data(3, 7, NOON), marker(4, 7, NOON)]
        rows = LogDir(log_dir(tmp_path / name, batches, end=5)).log_transaction_rows(start=3)
        ((first, outcome, truncated),) = [
            (row["first_offset"], row["outcome"], row["truncated"]) for row in rows if row["producer_id"] == 7
        ]
        assert (first, outcome, truncated) == (3, "commit", False if name == "whole" else None)
