"""In files, too, markers on other partitions prove an outcome where the coordinators' log does not.

Producer 7 of id OWNER, a client of transaction version 2, committed a transaction of epoch 5 on left-0 and right-0; the
marker on left-0 is missing. It committed two more on right-0, and of its records the cleaner has left the last one.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.sources.log_files import (
    HIGH_WATERMARK,
    STATE_TOPIC,
    after,
    data,
    ids_of,
    marker,
    state_record,
    write_checkpoint,
    write_log,
    write_root,
    write_state_topic,
)
from tests.spark.read_log import plan_read, read
from toolkit import Cluster, LogDir
from toolkit.formats.batches import read_header
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.schema import FINDINGS, Row
from toolkit.sources.logdir import observe_files
from toolkit.sources.logdir.consistency import foreign_id_doubts
from toolkit.sources.logdir.contents import found_in
from toolkit.sources.logdir.replica_log import FolderLog
from toolkit.sources.offset_queries import milliseconds

K = 33
OWNER, OTHER = ids_of(K, 2)
LEFT, RIGHT, EARLIER = ("left", 0), ("right", 0), ("earlier", 0)


FIRST, MARKED = data(0, 7, after(), epoch=5), marker(1, 7, after(seconds=1), epoch=6)
ABORTED = marker(1, 7, after(seconds=1), epoch=6, commit=False)
AT_LEFT = [data(0, 7, after(), epoch=5), data(1, 8, after(minutes=1)), marker(2, 8, after(minutes=1))]
AT_RIGHT = [
    *(FIRST, MARKED, data(2, 7, after(seconds=2), epoch=6), marker(3, 7, after(seconds=3), epoch=7)),
    *(data(4, 7, after(seconds=4), epoch=7), marker(5, 7, after(seconds=5), epoch=8)),
]


class SkippedMarker:
    """The files, to be spoiled before they are written."""

    def __init__(self, path: Path) -> None:
        self.root = write_root(path / "data")
        self.right_root = self.root
        self.state, self.epoch, self.written_at = "CompleteCommit", 8, after(minutes=3)
        # The commit that began epoch 5: the client was of version 2 then.
        earlier = [data(0, 7, after(seconds=-2), epoch=4), marker(1, 7, after(seconds=-1), epoch=5)]
        self.logs: dict[tuple[str, int], Sequence[bytes] | None] = {LEFT: AT_LEFT, RIGHT: AT_RIGHT, EARLIER: earlier}
        self.replicated: dict[tuple[str, int], int | None] = {}  # where it is not the end; null if it is not known
        self.before: list[bytes] = []  # records of the id before its last one

    def add_earlier_marker(self) -> None:
        """A broker's time before the open records: they are younger than an InitProducerId, also a repeated one."""
        self.logs[LEFT] = [
            *(marker(0, 8, after(seconds=-1)), data(1, 7, after(), epoch=5)),
            *(data(2, 8, after(minutes=1)), marker(3, 8, after(minutes=1))),
        ]

    def finding(self) -> Row:
        """The finding on producer 7; only its partition is selected."""
        last = state_record(20, OWNER, 7, self.state, self.written_at, epoch=self.epoch)
        newest = state_record(21, OTHER, 8, "CompleteCommit", after(minutes=10))
        write_state_topic(self.root, {K: [*self.before, last, newest]})
        ends: dict[tuple[str, int], int | None] = {(STATE_TOPIC, K): 22}
        for tp, batches in self.logs.items():
            if batches is not None:
                write_log(self.root if tp == LEFT else self.right_root, "-".join(map(str, tp)), batches)
                ends[tp] = read_header(batches[-1]).last_offset + 1
        known = {tp: end for tp, end in {**ends, **self.replicated}.items() if end is not None}
        for root in {self.root, self.right_root}:
            write_checkpoint(root, HIGH_WATERMARK, known)
        rows = LogDir(self.root.parent, consistent_copy=True).finding_rows(partitions=[LEFT])
        FINDINGS.arrow(rows)
        (row,) = (row for row in rows if row["producer_id"] == 7)
        return row


@pytest.fixture
def files(tmp_path: Path) -> SkippedMarker:
    return SkippedMarker(tmp_path)


def test_a_commit_marker_elsewhere_proves_the_commit(files: SkippedMarker) -> None:
    row = files.finding()
    assert (row["verdict"], row["outcome"], row["action"]) == ("stuck_ending", "commit", "complete"), row["missing"]
    assert "COMMIT marker at offset 1 of right-0 is of the same transaction (epoch 5)" in row["reason"]
    (entry,) = (entry for entry in row["evidence"] if entry["name"] == "marker_elsewhere")
    assert entry["value"].startswith("offsets 1..1: COMMIT, epoch 6")


def test_an_abort_marker_elsewhere_proves_the_abort_if_a_commit_shows_version_2(files: SkippedMarker) -> None:
    files.logs[RIGHT] = [FIRST, ABORTED, *AT_RIGHT[2:]]
    row = files.finding()
    assert (row["verdict"], row["outcome"], row["action"]) == ("hanging", "abort", "abort"), row["missing"]


def test_a_replica_that_lags_hides_nothing(files: SkippedMarker) -> None:
    """The replica with most of the log is read."""
    lagging = write_root(files.root.parent / "lagging", broker_id=2)
    write_log(lagging, "right-0", [FIRST])
    write_checkpoint(lagging, HIGH_WATERMARK, {RIGHT: 1})
    assert files.finding()["outcome"] == "commit"


UNPROVEN: Mapping[str, Mapping[tuple[str, int], Sequence[bytes] | None]] = {
    "the log elsewhere is missing": {RIGHT: None},
    # With version 1, a new instance aborts what the last one left open, with the next epoch.
    "no commit has raised the epoch": {
        RIGHT: [FIRST, ABORTED],
        EARLIER: [data(0, 7, after(seconds=-2), epoch=4), marker(1, 7, after(seconds=-1), epoch=5, commit=False)]},
    # With version 1, the epoch of the open records is that of many transactions.
    "the commit has the epoch of its data": {
        RIGHT: [FIRST, marker(1, 7, after(seconds=1), epoch=5), data(2, 7, after(), epoch=6),
                marker(3, 7, after(seconds=1), epoch=6)]},
    # With version 1, a COMMIT of the next instance whose data was at offsets 1 and 2.
    "data of the next epoch is cleaned away": {RIGHT: [FIRST, marker(3, 7, after(seconds=1), epoch=6)]},
    # With version 1, a next instance that has added the partition and not written to it.
    "the commit is of a transaction without data there": {
        RIGHT: [FIRST, marker(1, 7, after(seconds=1), epoch=5), marker(2, 7, after(seconds=9), epoch=6)]},
    "the marker has a wrong checksum": {RIGHT: [FIRST, MARKED[:-1] + b"\x7f", *AT_RIGHT[2:]]},
    # A late batch of a transaction that did not include the partition.
    "the records are newer than the marker": {
        LEFT: [marker(0, 8, after(minutes=1)), data(1, 7, after(), epoch=5), marker(2, 8, after(minutes=2))]},
    # A late batch after that commit, on a partition that has its marker.
    "the records are of the next transaction": {LEFT: [FIRST, MARKED, data(2, 7, after(seconds=2), epoch=8)]},
    # A client that went from version 1 to 2 within an epoch.
    "the records are not the first of their epoch": {
        LEFT: [data(0, 7, after(), epoch=5, sequence=3), *AT_LEFT[1:]]},
    "markers contradict each other": {("right", 1): [FIRST, ABORTED]},
}  # fmt: skip


@pytest.mark.parametrize("case", UNPROVEN)
def test_without_that_marker_the_outcome_is_unknown(files: SkippedMarker, case: str) -> None:
    files.logs |= UNPROVEN[case]
    proves_nothing(files)


def proves_nothing(files: SkippedMarker) -> None:
    row = files.finding()
    assert (row["verdict"], row["outcome"], row["action"]) == ("unknown", "unknown", None), row["reason"]


@pytest.mark.parametrize("replicated", [1, None])
def test_a_marker_that_may_be_a_deposed_leaders_proves_nothing(files: SkippedMarker, replicated: int | None) -> None:
    files.replicated[RIGHT] = replicated
    proves_nothing(files)


def test_a_marker_of_another_cluster_proves_nothing(files: SkippedMarker) -> None:
    """Producer ids count from 0 in every cluster."""
    files.right_root = write_root(files.root.parent / "other", broker_id=2, cluster_id="nuYagfUjSV-QqeIjFMsFWQ")
    proves_nothing(files)


@pytest.mark.parametrize("damage", [b"", b"x" * 200, data(1, 8, after(minutes=2))[:-1] + b"\x7f"])
def test_damage_elsewhere_may_hide_a_marker(files: SkippedMarker, damage: bytes) -> None:
    """What could not be read of another partition was taken for nothing found."""
    files.add_earlier_marker()
    files.state, files.epoch, files.written_at = "Empty", 5, after(minutes=-1)
    begun = [data(0, 8, after(), epoch=5), data(1, 7, after(seconds=1), epoch=5)]
    files.logs |= {RIGHT: [*begun, damage, data(3, 8, after(minutes=3))], EARLIER: None}
    row = files.finding()
    assert row["verdict"] == ("unknown" if damage else "hanging")
    assert any("right-0 could not be read" in each for each in row["missing"]) == bool(damage)


@pytest.mark.parametrize(
    ("right", "most", "verdict"),
    [
        ([data(20, 7, after(seconds=1), epoch=5), marker(21, 7, after(seconds=2), epoch=5)], 22, "unknown"),
        ([data(20, 7, after(seconds=1), epoch=5), marker(21, 7, after(seconds=2), epoch=5)], 5, "unknown"),
        ([data(20, 7, after(seconds=1), epoch=5)], 20, "hanging"),
        ([], 5, "hanging"),
    ],
    ids=["read", "beyond what is read", "open there", "ended before"],
)
def test_a_marker_beyond_what_is_read_of_a_busy_partition_is_not_known(
    files: SkippedMarker, monkeypatch: pytest.MonkeyPatch, right: Sequence[bytes], most: int, verdict: str
) -> None:
    """Records of a lost commit of a client of version 1 were `hanging`: 20,000 others were before its marker."""
    monkeypatch.setattr(observe_files, "MAX_OFFSETS", 4)
    monkeypatch.setattr(observe_files, "MOST_OFFSETS", most)
    files.state, files.epoch, files.written_at = "Empty", 5, after(minutes=-8)
    others = [data(0, 8, after(minutes=-2)), marker(1, 8, after(minutes=-2))]
    later = [data(3, 8, after(minutes=1)), marker(4, 8, after(minutes=1))]
    ended = [data(0, 7, after(minutes=-9), epoch=4), marker(1, 7, after(minutes=-8), epoch=4)]
    ended += [marker(number, 8, after(seconds=-110)) for number in range(2, 20)]
    files.logs = {LEFT: [*others, data(2, 7, after(), epoch=5), *later], RIGHT: [*ended, *right]}
    row = files.finding()
    assert row["verdict"] == verdict, row["missing"]


@pytest.mark.parametrize(
    ("where", "missing"),
    [
        ("read", None),
        ("absent", "it is not among the files"),
        ("large", "more than 0 GiB of segments would have to be read"),
        ("large and not named", "more than 0 GiB of segments would have to be read"),
        ("ends early", "OFFSETS_LOST"),
    ],
)
def test_what_coordinators_name_and_was_not_read_may_hide_a_marker(
    files: SkippedMarker, monkeypatch: pytest.MonkeyPatch, where: str, missing: str | None
) -> None:
    """Files that lack it, and logs beyond a gigabyte, were left out in silence: the verdict was `hanging`."""
    ended = partial(state_record, epoch=5, at=after(minutes=-2))
    files.before = [
        state_record(17, OWNER, 7, "Empty", epoch=5, at=after(minutes=-3)),
        ended(18, OWNER, 7, "Ongoing", on=[RIGHT]),
        ended(19, OWNER, 7, "PrepareCommit", on=[RIGHT]),
    ]
    files.state, files.epoch, files.written_at = "CompleteCommit", 5, after(minutes=-2)
    files.add_earlier_marker()
    files.logs[RIGHT] = [data(0, 8, after(minutes=-3)), marker(1, 8, after(minutes=-2))]
    files.logs[EARLIER] = None
    if where == "absent":
        files.logs[RIGHT] = None
    if where == "large":
        monkeypatch.setattr(observe_files, "MAX_SEARCHED", 1)
    if where == "large and not named":
        monkeypatch.setattr(observe_files, "MAX_SEARCHED", sum(map(len, files.logs[RIGHT] or ())))
        files.logs[EARLIER] = [data(0, 8, after())]
    if where == "ends early":
        files.replicated[RIGHT] = 3
    row = files.finding()
    of_spark = read(*plan_read(files.root.parent, table="findings", subscribe="left", consistentCopy=True)).to_pylist()
    assert [each["missing"] for each in of_spark if each["producer_id"] == 7] == [row["missing"]], "in tasks, too"
    assert row["verdict"] == ("unknown" if missing else "hanging"), row["missing"]
    name = "earlier-0" if where == "large and not named" else "right-0"
    assert any(f"{name} could not be read ({missing}" in each for each in row["missing"]) == bool(missing), row


def test_a_coordinator_that_may_still_write_the_marker_comes_first(files: SkippedMarker) -> None:
    """While the id is in PrepareCommit, the marker is not missing."""
    files.state = "PrepareCommit"
    assert files.finding()["action"] is None


def test_without_the_coordinators_log_nothing_is_proven(files: SkippedMarker) -> None:
    """The marker may be on its way."""
    files.finding()
    for folder in files.root.glob(f"{STATE_TOPIC}-*"):
        folder.rename(files.root.parent.parent / folder.name)
    (row,) = (row for row in LogDir(files.root, consistent_copy=True).finding_rows() if row["producer_id"] == 7)
    assert (row["verdict"], row["action"]) == ("unknown", None)
    assert row["missing"] == [f"the coordinators' state: no partition of {STATE_TOPIC} is among the files"]


def test_time_indexes_show_the_offset_to_begin_at(tmp_path: Path) -> None:
    """As of a broker: no record with a newer time than an entry's is at its offset or below."""
    root = write_root(tmp_path / "data")
    for base_offset, seconds in ((0, range(10)), (10, range(10, 20)), (20, range(20, 30))):
        batches = [data(second, 7, after(seconds=second)) for second in seconds]
        folder = write_log(root, "left-0", batches, base_offset=base_offset)
        entries = [(milliseconds(after(seconds=second)), second - base_offset) for second in (seconds[4], seconds[9])]
        index = b"".join(struct.pack(">qi", *entry) for entry in entries)
        (folder / f"{base_offset:020}.timeindex").write_bytes(index)
    (log,) = found_in([root]).logs
    assert isinstance(log, FolderLog)
    starts = {
        second: log.offset_before(milliseconds(after(seconds=second))) for second in (0, 4, 5, 10, 14, 15, 29, 40)
    }
    assert starts == {0: 0, 4: 0, 5: 4, 10: 10, 14: 10, 15: 14, 29: 24, 40: 29}
    (folder / f"{20:020}.timeindex").unlink()
    (log,) = found_in([root]).logs
    assert isinstance(log, FolderLog)
    assert log.offset_before(milliseconds(after(seconds=29))) == 20


FOREIGN = 4_000_000


@pytest.mark.lab
@pytest.mark.parametrize("version", [pytest.param("3.5.2", marks=pytest.mark.full), "4.3.1"])
def test_a_transaction_with_an_id_of_another_cluster_never_hangs(version: str) -> None:
    """Its start looks as that of a hanging one beside it; only the metadata log tells that it was copied here."""
    with Kafka(version, properties=EVERYDAY.properties) as kafka:
        own = INCIDENTS["never_added"](kafka)
        with Cluster(kafka.bootstrap_servers) as cluster:
            copied = TxnProducer(cluster.client, "elsewhere")
            copied.producer_id, copied.producer_epoch = FOREIGN, 0
            copied.send(own.topic, own.partition)
        kafka.stop_broker(1)
        files = LogDir(kafka.log_dirs[1], consistent_copy=True)
        rows = {row["producer_id"]: row for row in files.finding_rows(topics=[own.topic]) if row["producer_id"]}
        reader, tasks = plan_read(kafka.log_dirs[1], table="findings", subscribe=own.topic, consistentCopy=True)
        of_spark = {row["producer_id"]: row["missing"] for row in read(reader, tasks).to_pylist()}
    assert rows[own.producer_id]["verdict"] == "hanging", rows[own.producer_id]["missing"]
    assert (rows[FOREIGN]["verdict"], rows[FOREIGN]["action"]) == ("unknown", None)
    (missing,) = rows[FOREIGN]["missing"]
    assert of_spark[FOREIGN] == [missing], "tasks of Spark read the metadata log, too"
    assert missing.startswith(f"the cluster that gave out producer id {FOREIGN}: this one has not, by its metadata log")


def test_an_id_from_the_next_block_on_is_foreign() -> None:
    assert foreign_id_doubts(None, 5000) == []
    assert foreign_id_doubts(2000, 1999) == []
    assert len(foreign_id_doubts(2000, 2000)) == 1
