"""When files prove that a transaction hangs, and each piece of evidence without which they do not.

One staged: producer 7 of id OWNER wrote to orders-0 at noon, a minute after its transaction had been aborted. Ten
minutes later another producer committed there, and ten minutes after that another id was written to the same partition
of ``__transaction_state``: what both logs hold is of one moment as far as this transaction goes.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.sources.log_files import (
    CLEANED,
    HIGH_WATERMARK,
    NOON,
    SEGMENT,
    STATE_TOPIC,
    after,
    data,
    ids_of,
    marker,
    state_record,
    tombstone,
    write_checkpoint,
    write_log,
    write_root,
    write_snapshot,
    write_state_topic,
)
from tests.stored import compare
from toolkit import LogDir
from toolkit.analysis.diagnosis.log_excerpts import ExcerptStart
from toolkit.errors import DecodeError
from toolkit.schema import FINDINGS, Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.broker_client import write_batch
from toolkit.sources.logdir.consistency import end_time
from toolkit.sources.logdir.contents import found_in
from toolkit.sources.logdir.observe_files import observe_files
from toolkit.sources.logdir.replica_state import MarkerNeighbourhood

K = 33
OWNER, OTHER = ids_of(K, 2)
ORDERS, STATES = ("orders", 0), (STATE_TOPIC, K)
ABORTED_AT = after(minutes=-1)
WORD = "a copy by kafka-txn copy, or your assertion that the brokers were stopped during the copy (--consistent-copy)"


class StagedFiles:
    """Files that prove it, to be spoiled one by one; `later` is done to them once they are written."""

    def __init__(self, path: Path) -> None:
        self.root = write_root(path / "data")
        self.orders = [data(0, 7, after()), data(1, 8, after(minutes=10)), marker(2, 8, after(minutes=10))]
        self.states = [
            state_record(0, OWNER, 7, "Empty", ABORTED_AT),
            state_record(1, OTHER, 9, "Empty", after(minutes=20)),
        ]
        self.replicated = {ORDERS: 3, STATES: 2}
        self.later: list[Callable[[], object]] = []

    def folder(self, number: int = K) -> Path:
        return self.root / f"{STATE_TOPIC}-{number}"

    def write(self, *orders: bytes) -> None:
        """With other batches of orders-0, if there are some."""
        write_state_topic(self.root, {K: self.states})
        write_log(self.root, "orders-0", orders or self.orders)
        write_checkpoint(self.root, HIGH_WATERMARK, self.replicated)

    def replica(self, *orders: bytes) -> Path:
        """The log directory of broker 2 with these batches of orders-0."""
        root = write_root(self.root.parent / "other", broker_id=2)
        write_log(root, "orders-0", orders)
        write_checkpoint(root, HIGH_WATERMARK, {ORDERS: len(orders)})
        return root

    def judge(self, *, consistent_copy: bool = False, as_of: dt.datetime | None = None) -> Row:
        """The finding on producer 7."""
        if not (self.root / HIGH_WATERMARK).exists():
            self.write()
            for do in self.later:
                do()
        files = LogDir(self.root.parent, consistent_copy=consistent_copy, as_of=as_of)
        rows = files.finding_rows(partitions=[ORDERS])
        FINDINGS.arrow(rows)
        (row,) = (row for row in rows if row["producer_id"] == 7)
        return row


@pytest.fixture
def staged(tmp_path: Path) -> StagedFiles:
    return StagedFiles(tmp_path)


def only_missing(row: Row) -> str:
    """The one thing that an unknown finding lacks; it keeps a person from aborting."""
    assert row["verdict"] == "unknown", row
    assert "kafka-txn abort" not in row["remedy"]
    assert len(row["missing"]) == 1, row["missing"]
    return str(row["missing"][0])


def spoilers(prefix: str) -> list[tuple[str, Callable[[StagedFiles], None]]]:
    """The functions with a name of this prefix, and the rest of their names."""
    return [(name.removeprefix(prefix), each) for name, each in globals().items() if name.startswith(prefix)]


def test_later_records_in_both_logs_prove_a_hanging_transaction(staged: StagedFiles) -> None:
    row = staged.judge()
    assert (row["verdict"], row["missing"], row["start_offset"]) == ("hanging", [], 0)
    assert "read from the files of broker 1 as of" in row["reason"]
    assert any("the copies are consistent" in entry["value"] for entry in row["evidence"])


def test_a_transaction_beside_a_missing_segment_is_unknown_wherever_it_begins(staged: StagedFiles) -> None:
    """It was said to begin at offset 0, across the missing segment, which may have its end and another beginning."""
    later = [data(7, 7, after(minutes=11)), data(8, 9, after(minutes=11)), marker(9, 9, after(minutes=12))]
    staged.later.append(lambda: write_log(staged.root, "orders-0", later, base_offset=7))
    staged.replicated[ORDERS] = 10
    for consistent_copy in (False, True):
        row = staged.judge(consistent_copy=consistent_copy)
        assert (row["verdict"], row["start_offset"], row["last_stable_offset"]) == ("unknown", 7, None)
        assert "offsets 3 to 6 of orders-0, among which the transaction may begin or end" in row["missing"]
        assert "kafka-txn abort" not in row["remedy"]


def test_a_transaction_open_before_a_missing_segment_leaves_the_partition_unknown(staged: StagedFiles) -> None:
    later = [data(7, 9, after(minutes=11)), marker(8, 9, after(minutes=12))]
    staged.later.append(lambda: write_log(staged.root, "orders-0", later, base_offset=7))
    staged.replicated[ORDERS] = 9
    with pytest.raises(ValueError, match="not enough values"):
        staged.judge()  # nothing is said of the transaction
    (row,) = LogDir(staged.root.parent).finding_rows(partitions=[ORDERS])
    assert (row["verdict"], row["last_stable_offset"]) == ("unknown", None)
    assert row["missing"] == [
        "OFFSETS_LOST: No segment has offsets 3 to 6: one is missing or incomplete, or this is a new replica of a "
        "compacted log."
    ]


def test_a_partition_alone_proves_nothing(tmp_path: Path) -> None:
    folder = write_log(tmp_path, "orders-0", [data(0, 7, after())])
    (row,) = LogDir(folder, consistent_copy=True).finding_rows()
    assert only_missing(row) == f"the coordinators' state: no partition of {STATE_TOPIC} is among the files"


def unproven_nothing_follows_on_the_partition(staged: StagedFiles) -> None:
    del staged.orders[1:]
    staged.replicated[ORDERS] = 1


def unproven_only_data_follows_by_a_producers_clock(staged: StagedFiles) -> None:
    del staged.orders[2]
    staged.replicated[ORDERS] = 2


def unproven_the_marker_is_hardly_newer_than_the_coordinators_word(staged: StagedFiles) -> None:
    staged.orders[2] = marker(2, 8, after(seconds=-1))


def unproven_the_marker_may_be_a_deposed_leaders(staged: StagedFiles) -> None:
    staged.replicated[ORDERS] = 2


def unproven_nobody_knows_what_of_the_partition_is_replicated(staged: StagedFiles) -> None:
    del staged.replicated[ORDERS]


def unproven_the_coordinators_log_ends_before_the_transaction(staged: StagedFiles) -> None:
    del staged.states[1]
    staged.replicated[STATES] = 1


def unproven_the_coordinators_log_is_hardly_newer_than_the_transaction(staged: StagedFiles) -> None:
    staged.states[1] = state_record(1, OTHER, 9, "Empty", after(minutes=10, seconds=59))


def unproven_the_coordinators_newer_record_may_be_a_deposed_leaders(staged: StagedFiles) -> None:
    staged.replicated[STATES] = 1


def unproven_the_coordinators_word_may_be_a_deposed_leaders(staged: StagedFiles) -> None:
    staged.replicated[STATES] = 0


def unproven_the_outcome_was_decided_early_and_its_marker_late(staged: StagedFiles) -> None:
    """A record is stamped when it is written; the time in it, when the outcome was decided."""
    staged.states[:] = [
        state_record(0, OWNER, 7, "Empty", after(minutes=-2)),
        state_record(1, OTHER, 9, "Empty", after(minutes=20)),
        state_record(2, OWNER, 7, "Empty", after(minutes=30), updated=ABORTED_AT),
    ]
    staged.replicated[STATES] = 3


def unproven_a_newer_record_of_the_id_may_have_been_cleaned_away(staged: StagedFiles) -> None:
    """The cleaner takes a record that a newer one supersedes; a copy may have that one's segment from before it."""
    staged.states[1] = state_record(5, OTHER, 9, "Empty", after(minutes=20))
    staged.replicated[STATES] = 6
    staged.later.append(lambda: write_checkpoint(staged.root, CLEANED, {STATES: 5}))


def unproven_the_coordinators_clock_went_back(staged: StagedFiles) -> None:
    staged.states[1:] = [
        state_record(1, OTHER, 9, "Empty", after(minutes=90)),
        state_record(2, OTHER, 9, "Empty", after(minutes=20)),
    ]
    staged.replicated[STATES] = 3


def unproven_the_clock_of_the_partitions_leader_went_back(staged: StagedFiles) -> None:
    staged.orders[2:] = [marker(2, 8, after(minutes=13)), marker(3, 9, after(minutes=10))]
    staged.replicated[ORDERS] = 4


def unproven_no_id_owns_the_producer(staged: StagedFiles) -> None:
    staged.states[1:] = [tombstone(1, OWNER, ABORTED_AT), state_record(2, OTHER, 9, "Empty", after(minutes=20))]
    staged.replicated[STATES] = 3


def unproven_the_end_of_the_partition_is_known_from_a_snapshot_only(staged: StagedFiles) -> None:
    """The first batches are deleted: the state, not the bytes, shows the transaction."""
    staged.orders = [marker(9, 8, after(seconds=-2))]
    staged.later.append(lambda: write_snapshot(staged.root / "orders-0", 10, {7: 3}))
    staged.later.append(lambda: (staged.root / "orders-0" / SEGMENT).rename(staged.root / "orders-0" / f"{9:020}.log"))


def test_without_that_proof_the_caller_has_to_assert_a_consistent_copy(tmp_path: Path) -> None:
    lines = list[str]()
    for name, spoil in spoilers("unproven_"):
        staged = StagedFiles(tmp_path / name)
        spoil(staged)
        missing = only_missing(staged.judge())
        assert WORD in missing
        lines += [name, f"  {missing}"]
        row = staged.judge(consistent_copy=True)
        assert row["verdict"] == "hanging", row["missing"]
        assert any("brokers were stopped" in entry["value"] for entry in row["evidence"])
    compare("unproven_files.txt", (line.replace(str(tmp_path), "") for line in lines))


def incomplete_a_partition_of_the_coordinators_is_missing(staged: StagedFiles) -> None:
    staged.later.append(lambda: staged.folder(7).rename(staged.root.parent / "elsewhere"))


def incomplete_the_last_partitions_of_the_coordinators_are_missing(staged: StagedFiles) -> None:
    for number in range(40, 50):
        staged.later.append(partial(staged.folder(number).rename, staged.root.parent / f"gone {number}"))


def incomplete_a_partition_of_the_coordinators_has_no_segment(staged: StagedFiles) -> None:
    staged.later.append((staged.folder(7) / SEGMENT).unlink)


def incomplete_a_partition_of_the_coordinators_is_damaged(staged: StagedFiles) -> None:
    staged.later.append(lambda: (staged.folder(7) / SEGMENT).write_bytes(b"\x01" * 100))


def incomplete_a_record_of_the_coordinators_does_not_match_its_checksum(staged: StagedFiles) -> None:
    staged.states[1] = staged.states[1].replace(b"id-", b"ID-")


def incomplete_a_record_of_the_coordinators_is_of_a_newer_kafka(staged: StagedFiles) -> None:
    staged.states.append(state_record(2, OTHER, 9, "Empty", after(minutes=30), version=9))


def incomplete_ids_lie_where_another_number_of_partitions_puts_them(staged: StagedFiles) -> None:
    wrong = state_record(0, ids_of(8, 1)[0], 5, "Empty", after())
    staged.later.append(lambda: write_log(staged.root, f"{STATE_TOPIC}-7", [wrong]))


def incomplete_the_log_of_the_partition_has_a_hole(staged: StagedFiles) -> None:
    staged.orders[2] = marker(3, 8, after(minutes=10))
    staged.replicated[ORDERS] = 4


def incomplete_a_segment_of_the_partition_is_missing(staged: StagedFiles) -> None:
    later = [data(7, 9, after(minutes=11)), marker(8, 9, after(minutes=12))]
    staged.later.append(lambda: write_log(staged.root, "orders-0", later, base_offset=7))
    staged.later.append(lambda: write_snapshot(staged.root / "orders-0", 7, {7: 0}))
    staged.replicated[ORDERS] = 9


def incomplete_the_log_of_the_partition_is_damaged(staged: StagedFiles) -> None:
    staged.orders[1] = staged.orders[1].replace(b"value", b"wrong")


def incomplete_the_log_of_the_partition_is_damaged_before_the_transaction_and_after(staged: StagedFiles) -> None:
    """Of the wrong checksums of a piece of the log, only the first one counted, and it is before the transaction."""
    wrong = [data(offset, 8, after(minutes=offset)).replace(b"value", b"wrong") for offset in (0, 2)]
    staged.orders = [wrong[0], data(1, 7, after()), wrong[1], marker(3, 8, after(minutes=10))]
    staged.replicated[ORDERS] = 4


def incomplete_the_bytes_end_what_the_snapshot_has_open(staged: StagedFiles) -> None:
    staged.orders = [data(0, 7, after()), marker(1, 7, after(minutes=1)), marker(2, 8, after(minutes=10))]
    staged.later.append(lambda: write_snapshot(staged.root / "orders-0", 3, {7: 0}))


def incomplete_the_bytes_have_another_producer_where_the_snapshot_has_it_start(staged: StagedFiles) -> None:
    staged.orders[0] = data(0, 6, after())
    staged.later.append(lambda: write_snapshot(staged.root / "orders-0", 3, {7: 0}))


def incomplete_the_snapshot_of_a_later_segment_is_missing(staged: StagedFiles) -> None:
    later = [data(3, 9, after(minutes=11)), marker(4, 9, after(minutes=12))]
    staged.later.append(lambda: write_log(staged.root, "orders-0", later, base_offset=3))
    staged.replicated[ORDERS] = 5


def incomplete_the_files_begin_within_the_log_without_a_snapshot(staged: StagedFiles) -> None:
    """The transaction may have begun before them."""
    staged.orders = [data(4, 7, after()), data(5, 8, after(minutes=10)), marker(6, 8, after(minutes=10))]
    staged.replicated[ORDERS] = 7
    folder = staged.root / "orders-0"
    staged.later.append(lambda: (folder / SEGMENT).rename(folder / f"{4:020}.log"))


def incomplete_another_id_has_this_producer_id_next(staged: StagedFiles) -> None:
    staged.states.append(state_record(2, OTHER, 9, "Ongoing", after(minutes=30), next_producer_id=7))


def incomplete_a_part_of_the_files_is_of_another_cluster(staged: StagedFiles) -> None:
    """Producer ids count from 0 in every cluster."""
    other = staged.root.parent / "other"
    staged.later.append(lambda: write_root(other, broker_id=2, cluster_id="nuYagfUjSV-QqeIjFMsFWQ"))
    staged.later.append(lambda: (staged.root / "orders-0").rename(other / "orders-0"))
    staged.later.append(lambda: write_checkpoint(other, HIGH_WATERMARK, {ORDERS: 3}))


def incomplete_a_part_of_the_files_is_of_nobody_knows_which_cluster(staged: StagedFiles) -> None:
    other = staged.root.parent / "other"
    staged.later.append(lambda: write_log(other, "orders-0", staged.orders))
    staged.later.append(lambda: write_checkpoint(other, HIGH_WATERMARK, {ORDERS: 3}))
    staged.later.append(lambda: (staged.root / "orders-0").rename(staged.root.parent / "elsewhere"))


def incomplete_the_topic_was_created_again(staged: StagedFiles) -> None:
    for number, root in enumerate((staged.root, staged.replica(*staged.orders))):
        folder = write_log(root, "orders-0", staged.orders)
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {number}4R2yICtSb6sfxKDr3xtSQ")


def test_nothing_is_hanging_in_incomplete_files(tmp_path: Path) -> None:
    """Neither by their content, nor in a copy that is asserted to be consistent."""
    lines = list[str]()
    for name, spoil in spoilers("incomplete_"):
        lines.append(name)
        for consistent_copy in (False, True):
            staged = StagedFiles(tmp_path / f"{name} {consistent_copy}")
            spoil(staged)
            row = staged.judge(consistent_copy=consistent_copy)
            assert row["verdict"] == "unknown", row
            assert "kafka-txn abort" not in row["remedy"]
            lines += [f"  {'asserted' if consistent_copy else 'by content'}: {each}" for each in row["missing"]]
    compare("incomplete_files.txt", (line.replace(str(tmp_path), "") for line in lines))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def test_a_torn_end_contradicts_an_asserted_consistent_copy(staged: StagedFiles) -> None:
    staged.orders.append(data(3, 9, after(minutes=30)))
    staged.states.append(state_record(2, OTHER, 9, "Empty", after(minutes=30)))
    staged.later += [lambda: cut(staged.root / "orders-0" / SEGMENT), lambda: cut(staged.folder() / SEGMENT)]
    assert staged.judge()["verdict"] == "hanging"
    missing = staged.judge(consistent_copy=True)["missing"]
    assert [text.partition(":")[0] for text in missing] == ["the end of orders-0", f"the end of {STATE_TOPIC}-33"]


def test_a_checkpoint_beyond_the_end_contradicts_an_asserted_consistent_copy(staged: StagedFiles) -> None:
    """Without its last segment the coordinators' log disowned a live transaction, which was to be aborted."""
    del staged.orders[1:]
    staged.replicated |= {ORDERS: 1, STATES: 3}
    (missing,) = staged.judge(consistent_copy=True)["missing"]
    assert missing == (
        f"a complete {STATE_TOPIC}-33: OFFSETS_LOST: The files end at offset 2, before the high watermark 3 of "
        "replication-offset-checkpoint: the last segment is missing or incomplete"
    )
    staged.replicated |= {ORDERS: 2, STATES: 2}
    write_checkpoint(staged.root, HIGH_WATERMARK, staged.replicated)
    assert staged.judge(consistent_copy=True)["verdict"] == "unknown"
    staged.replicated[ORDERS] = 1
    write_checkpoint(staged.root, HIGH_WATERMARK, staged.replicated)
    assert staged.judge(consistent_copy=True)["verdict"] == "hanging"


def test_a_lock_that_cannot_be_read_contradicts_an_asserted_consistent_copy(staged: StagedFiles) -> None:
    """It was taken for a broker that does not run."""
    unproven_nothing_follows_on_the_partition(staged)
    lock = staged.root / ".lock"
    staged.later.append(lambda: lock.symlink_to(lock))
    assert only_missing(staged.judge(consistent_copy=True)) == (
        f"stopped brokers: whether one runs on {staged.root} is unknown, as .lock cannot be read: "
        f"{os.strerror(errno.ELOOP)}"
    )


def test_in_a_consistent_copy_only_cleaned_offsets_of_the_coordinator_are_missing(staged: StagedFiles) -> None:
    staged.states[1] = state_record(5, OTHER, 9, "Empty", after(minutes=20))
    staged.replicated[STATES] = 6
    assert (
        f"{STATE_TOPIC}-33 without missing offsets: 0 is followed by 5" in staged.judge(consistent_copy=True)["missing"]
    )
    write_checkpoint(staged.root, CLEANED, {STATES: 5})
    assert staged.judge(consistent_copy=True)["verdict"] == "hanging"


def test_the_number_of_coordinator_partitions_can_be_set(tmp_path: Path) -> None:
    root = write_root(tmp_path)
    owner = ids_of(2, 1, partitions=4)[0]
    write_state_topic(root, {2: [state_record(0, owner, 7, "Empty", ABORTED_AT)]}, partitions=4)
    write_log(root, "orders-0", [data(0, 7, after())])
    for count, verdict in ((4, "hanging"), (5, "unknown"), (3, "unknown"), (None, "unknown")):
        (row,) = LogDir(root, consistent_copy=True, txn_state_partitions=count).finding_rows()
        assert row["verdict"] == verdict, count


def test_a_live_transaction_is_ongoing_and_not_overdue_by_the_age_of_a_copy(staged: StagedFiles) -> None:
    staged.states[0] = state_record(0, OWNER, 7, "Ongoing", after(minutes=-1), on=[ORDERS])
    row = staged.judge()
    assert row["verdict"] == "overdue"  # the coordinator wrote on for 21 minutes and never aborted it
    cut(staged.folder() / SEGMENT)
    for as_of, period in (
        (None, "after which the files have no time"),  # a file's own times are of today, days later
        (after(), "for 1 min as of 2026-11-21 12:00:00 UTC"),
    ):
        row = staged.judge(as_of=as_of)
        assert row["verdict"] == "ongoing"
        assert period in row["reason"]
    row = staged.judge(as_of=after(minutes=30))
    assert row["verdict"] == "overdue"
    assert "as of 2026-11-21 12:30:00 UTC, by the asserted time of the copy (as_of)" in row["reason"]
    row = staged.judge(consistent_copy=True)
    assert row["verdict"] == "overdue"
    assert "as of 2026-11-21 12:10:00 UTC, by the newest marker in orders-0" in row["reason"]


def test_a_damaged_time_makes_nothing_overdue(staged: StagedFiles) -> None:
    """One bit of the newest record of the coordinator's log, whose checksum is wrong, was nine years later."""
    staged.states[0] = state_record(0, OWNER, 7, "Ongoing", after(minutes=-1), on=[ORDERS])
    spoiled = bytearray(state_record(1, OTHER, 9, "Empty", after()))
    spoiled[37] ^= 1 << 2  # of max_timestamp
    staged.states[1] = bytes(spoiled)
    row = staged.judge()
    assert row["verdict"] != "overdue"
    assert row["brokers_time"] < after(minutes=11)


def test_a_damaged_time_of_the_controllers_ends_no_copy(staged: StagedFiles) -> None:
    """In a consistent copy it would be the time up to which all that is open is aged."""
    spoiled = bytearray(data(1, -1, after()))
    spoiled[37] ^= 1 << 2  # of max_timestamp
    write_log(staged.root, "__cluster_metadata-0", [data(0, -1, after()), bytes(spoiled)])
    (log,) = found_in([staged.root]).metadata_logs
    assert end_time(log) == after()


def test_a_batch_with_a_wrong_checksum_clears_nothing(staged: StagedFiles) -> None:
    """One bit of the only open batch, which was no longer transactional, made the partition clear."""
    spoiled = bytearray(data(0, 7, after()))
    spoiled[22] ^= 0x10
    staged.write(bytes(spoiled), *staged.orders[1:])
    (row,) = LogDir(staged.root).finding_rows(topics=["orders"])
    assert row["verdict"] == "unknown"
    assert str(row["error"]).startswith("CORRUPT_BATCH: the checksum at offset 0 is wrong")
    (partition,) = LogDir(staged.root).partition_rows(topics=["orders"])
    assert partition["error"] == row["error"], "nor in a table of its state"
    staged.replica(*staged.orders)
    replicas = LogDir(staged.root.parent).finding_rows(topics=["orders"])
    assert [each["producer_id"] for each in replicas] == [7], "the intact replica has it open"


def test_a_copy_without_the_first_segments_and_snapshots_clears_nothing(tmp_path: Path) -> None:
    """Of a log whose newest segment alone was copied, the partition was clear: what is open may have begun before."""
    root = write_root(tmp_path / "one")
    folder = write_log(root, "orders-0", [write_batch([(None, b"v")], timestamp=NOON, base_offset=9)], base_offset=9)
    write_checkpoint(root, HIGH_WATERMARK, {("orders", 0): 10})
    (row,) = LogDir(root).finding_rows(topics=["orders"])
    assert (row["verdict"], row["last_stable_offset"]) == ("unknown", None)
    assert str(row["error"]).startswith("NO_SNAPSHOT: the files begin at offset 9")
    write_snapshot(folder, 9, {})
    (row,) = LogDir(root).finding_rows(topics=["orders"])
    assert (row["verdict"], row["last_stable_offset"]) == ("clear", 10)


def test_what_began_before_a_copy_without_snapshots_may_be_open_beside_what_it_shows(tmp_path: Path) -> None:
    """With a transaction in the newest segment, nothing said that an earlier one may hold the LSO."""
    root = write_root(tmp_path / "one")
    write_log(root, "orders-0", [data(9, 7, after()), data(10, 8, after()), marker(11, 8, after())], base_offset=9)
    write_checkpoint(root, HIGH_WATERMARK, {ORDERS: 12})
    opened, unread = LogDir(root).finding_rows(topics=["orders"])
    assert (opened["producer_id"], unread["producer_id"], unread["verdict"]) == (7, None, "unknown")
    assert "what is open may have begun before" in str(unread["error"])


@pytest.mark.parametrize("consistent_copy", [False, True])
def test_a_log_that_ends_before_its_start_offset_proves_nothing(staged: StagedFiles, consistent_copy: bool) -> None:
    """The checkpoint was copied later: all that the log has was deleted, and it was `hanging` with 0 records held."""
    staged.later.append(lambda: write_checkpoint(staged.root, "log-start-offset-checkpoint", {ORDERS: 10}))
    row = staged.judge(consistent_copy=consistent_copy)
    assert (row["verdict"], row["action"], row["records_held"], row["last_stable_offset"]) == ("unknown",) + (None,) * 3
    partition, *_ = LogDir(staged.root).partition_rows(topics=["orders"])
    assert partition["error"] == (
        "OFFSETS_LOST: The files end at offset 3, before the log start 10 of log-start-offset-checkpoint: the last "
        "segment is missing or incomplete"
    )


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
def test_a_coordinators_log_without_its_first_segment_is_not_whole(staged: StagedFiles, topic: str) -> None:
    """It was "read completely": the cleaner removes records, but never the first base offset."""
    assert staged.judge()["verdict"] == "hanging"
    folder = staged.root / f"{topic}-{K}"
    folder.mkdir(exist_ok=True)
    (folder / SEGMENT).unlink(missing_ok=True)
    record = state_record(501, OTHER, 9, "Empty", after()) if topic == STATE_TOPIC else marker(501, 9, after())
    write_snapshot(write_log(staged.root, folder.name, [record], base_offset=500), 500, {})
    files, lost = LogDir(staged.root), "OFFSETS_LOST: The files begin at offset 500, and the log at 0"
    if topic == STATE_TOPIC:
        assert any(each.startswith(f"a complete {topic}-{K}: {lost}") for each in files.observe().coverage.gaps)
        assert not files.observe().coverage.proofs
        assert any(str(each["error"]).startswith(lost) for each in files.transaction_history_rows())
    else:
        with pytest.raises(DecodeError, match=lost):
            files.committing_groups([TopicPartition(*ORDERS)])


def test_a_partition_that_was_moved_during_the_copy_is_not_absent(staged: StagedFiles) -> None:
    """Of two log directories the new one was copied first: "no transaction is open", with exit code 0."""
    staged.judge()
    moved = staged.root / "orders-0.0123456789abcdef0123456789abcdef-future"
    shutil.copytree(staged.root / "orders-0", moved)
    assert all(row["topic"] is not None for row in LogDir(staged.root).finding_rows()), "the copy is another one"
    shutil.rmtree(staged.root / "orders-0")
    (row,) = LogDir(staged.root).finding_rows()
    assert (row["verdict"], row["topic"]) == ("unknown", None)
    assert [each.partition(": ")[0] for each in row["missing"]] == [str(moved)]


def test_statistics_add_partitions_of_one_name_in_two_clusters(tmp_path: Path) -> None:
    """The total had one of them, as of two replicas."""
    for cluster in ("A-Cluster", "B-Cluster"):
        for broker in (1, 2):
            root = write_root(tmp_path / f"{cluster}-{broker}", broker_id=broker, cluster_id=cluster)
            write_log(root, "orders-0", [data(0, 7, after()), marker(1, 7, after())])
    found = LogDir(tmp_path).statistics()
    assert found.loc[found["topic"].notna(), "committed"].tolist() == [1, 1, 1, 1]
    assert found.loc[found["topic"].isna(), "committed"].tolist() == [2]


def test_a_follower_that_lags_clears_nothing_that_a_damaged_replica_may_hold(staged: StagedFiles) -> None:
    """The leader's replica has a damaged batch, so the follower's was read, which ends before the open transaction."""
    ended = [data(0, 8, after()), marker(1, 8, after())]
    follower = staged.replica(*ended)
    staged.replicated[ORDERS] = 4
    staged.write(*ended, b"x" * len(ended[0]), data(3, 7, after(minutes=2)))
    (row,) = LogDir(staged.root, follower).finding_rows(topics=["orders"])
    assert row["verdict"] == "unknown"
    error = "reaches further, to offset 4, and could not be read completely (CORRUPT_BATCH)"
    assert error in str(row["error"])
    # The record at 3 was "not written, or truncated", and nothing had held the LSO.
    files = LogDir(staged.root, follower)
    (row,) = files.offset_visibility_rows("orders", 0, 3)
    assert error in str(row["error"])
    assert any(error in str(each["error"]) for each in files.missing_offset_rows("orders", 0, start=0, stop=4))
    assert any(error in str(each["error"]) for each in files.lso_hold_rows(topics=["orders"]))


def test_a_follower_that_lags_ends_no_history_that_a_damaged_replica_may_have(staged: StagedFiles) -> None:
    """Its newest record, Ongoing, was that of the id: the damaged replica has the commit."""
    begun = [state_record(0, OWNER, 7, "Empty", after()), state_record(1, OWNER, 7, "Ongoing", after(), on=[ORDERS])]
    decided = state_record(2, OWNER, 7, "PrepareCommit", after(), on=[ORDERS])
    follower = write_root(staged.root.parent / "follower", broker_id=2)
    for root, more in (
        (follower, []),
        (staged.root, [b"x" * len(decided), state_record(3, OWNER, 7, "Empty", after())]),
    ):
        write_state_topic(root, {K: [*begun, *more]})
        write_checkpoint(root, HIGH_WATERMARK, {STATES: 2 + len(more)})
    files = LogDir(staged.root, follower)
    for rows in (
        files.transaction_history_rows(transactional_ids=[OWNER])[-1:],
        files.transaction_history_rows()[-1:],
        [each for each in files.transaction_rows(transactional_ids=[OWNER]) if each["error"]],
        [each for each in files.exposure_rows() if each["subject"] == "transactional_id" and each["error"]],
    ):
        (row,) = rows
        assert "reaches further, to offset 4" in str(row["error"])


def test_a_follower_clears_nothing_beside_a_replica_that_cannot_be_opened(staged: StagedFiles) -> None:
    """Only one that was read in part had a follower in doubt: of the leader's, nothing was known to reach further."""
    follower = staged.replica(data(0, 8, after()), marker(1, 8, after()))
    (write_log(staged.root, "orders-0", staged.orders) / SEGMENT).unlink()
    (row,) = LogDir(staged.root, follower).finding_rows(topics=["orders"])
    assert row["verdict"] == "unknown"
    assert "may reach further, and could not be read completely (EMPTY)" in str(row["error"])


def test_a_batch_with_a_wrong_checksum_is_no_evidence_of_files(staged: StagedFiles) -> None:
    """A marker before the open records shows what was closed: one bit of it showed another time, or epoch."""
    spoiled = bytearray(marker(0, 7, after(minutes=-1)))
    spoiled[37] ^= 1 << 2  # of max_timestamp
    folder = write_log(staged.root, "orders-0", [bytes(spoiled), data(1, 7, after())])
    write_snapshot(folder, 1, {})
    write_checkpoint(staged.root, HIGH_WATERMARK, {ORDERS: 2})
    contents = found_in([staged.root])
    observed = observe_files(contents, contents.named_logs(["orders"]))
    tp = TopicPartition(*ORDERS)
    start = ExcerptStart(tp=tp, leader=observed.observation.partitions[0], offset=1, producer_ids=frozenset({7}))
    for keeps in (True, False):
        if not keeps:
            observed.replicas[tp][0].window.neighbourhood = MarkerNeighbourhood()
        excerpt = observed.excerpts([start])[tp]
        assert (excerpt.headers["base_offset"].tolist(), excerpt.error) == (
            [1], "CORRUPT_BATCH: the checksum at offset 0 is wrong."
        )  # fmt: skip


def test_a_log_that_ends_early_has_not_all_histories(staged: StagedFiles) -> None:
    """Of an id whose records are in the segment that was not copied, nothing was said."""
    write_state_topic(staged.root, {K: staged.states[:1]})
    write_checkpoint(staged.root, HIGH_WATERMARK, {STATES: 2})
    (row,) = LogDir(staged.root, consistent_copy=True).transaction_history_rows(transactional_ids=[OTHER])
    assert str(row["error"]).startswith("OFFSETS_LOST: The files end at offset 1, before the high watermark 2")


def test_of_several_replicas_the_longest_is_diagnosed(staged: StagedFiles) -> None:
    staged.write()
    files = LogDir(staged.root, staged.replica(*staged.orders, marker(3, 7, after(minutes=11))))
    assert [row["broker_id"] for row in files.partition_rows(topics=["orders"])] == [1, 2]
    (row,) = files.finding_rows(topics=["orders"])
    assert (row["verdict"], row["broker_id"]) == ("clear", 2)
    assert any("2 replicas: the one of broker 2" in entry["value"] for entry in row["evidence"])
