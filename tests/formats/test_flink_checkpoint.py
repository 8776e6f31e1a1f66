"""Committables in a checkpoint of Flink: every version of its metadata, every place of a state, and what is refused."""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.formats.flink_bytes import (
    CHECKPOINT,
    SAVEPOINT,
    collector,
    committable,
    in_metadata,
    metadata,
    operator_state,
    sized,
    state_file,
    utf,
    write_checkpoint,
    writer_state,
)
from toolkit.errors import DecodeError, NotFound, ToolkitError, UsageError
from toolkit.formats.flink_checkpoint import FlinkCheckpoints, newer, newer_of_other_job, read_checkpoint
from toolkit.schema.checkpoint import Committable

ONE, TWO = Committable("tx-0-6", 4001, 0, 5), Committable("tx-1-6", 4002, 3, 5)
COMMITTER, WRITER = "streaming_committer_raw_states", "writer_raw_states"


def written(folder: Path, data: bytes, *, name: str = "chk-5") -> Path:
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    (path / "_metadata").write_bytes(data)
    return path


def both(**more: object) -> bytes:
    """A checkpoint with two subtasks, each with a committable."""
    subtasks = []
    for each in (ONE, TWO):
        data, offsets = state_file({WRITER: writer_state("tx"), COMMITTER: collector(5, [committable(each)])})
        subtasks.append(operator_state(offsets, in_metadata(data)))
    return metadata(5, subtasks, **more)  # type: ignore[arg-type]


KEYED: dict[str, bytes] = {
    "none": b"\x00",
    "key groups": b"\x03" + struct.pack(">iiq", 0, 1, 7) + in_metadata(b"abc"),
    "key groups with an id": b"\x0c" + struct.pack(">iiq", 0, 1, 7) + in_metadata(b"abc") + utf("id"),
    "savepoint": b"\x07" + struct.pack(">iiq", 0, 1, 7) + b"\x02" + struct.pack(">q", 3) + utf("file:/a"),
    "incremental": b"\x05" + struct.pack(">q", 4) + utf("backend") + struct.pack(">ii", 0, 128) + b"\x00"
    + struct.pack(">i", 1) + utf("a.sst") + b"\x06" + utf("a") + struct.pack(">q", 9) + struct.pack(">i", 0),
    "incremental with an id": b"\x0b" + struct.pack(">q", 4) + utf("backend") + struct.pack(">iiq", 0, 128, 9) + b"\x10"
    + struct.pack(">ii", 0, 0) + utf("id"),
    "changelog": b"\x08" + struct.pack(">iiqi", 0, 128, 9, 1) + b"\x03" + struct.pack(">iiq", 0, 1, 7) + b"\x00"
    + struct.pack(">iq", 0, 1) + utf("id"),
    "newer changelog": b"\x0e" + struct.pack(">iiqii", 0, 128, 9, 0, 0) + struct.pack(">qq", 1, 2) + utf("id"),
    "changes": b"\x09" + struct.pack(">iiqqi", 0, 128, 1, 2, 1) + struct.pack(">i", 3) + sized(b"abc") + utf("id"),
    "files of changes": b"\x0a" + struct.pack(">iii", 0, 128, 1) + struct.pack(">q", 1) + in_metadata(b"abc")
    + struct.pack(">qq", 1, 2) + utf("id"),
    "newer files of changes": b"\x0d" + struct.pack(">iii", 0, 128, 0) + struct.pack(">qq", 1, 2) + utf("id")
    + utf("filesystem"),
}  # fmt: skip


@pytest.mark.parametrize("version", range(2, 7))
@pytest.mark.parametrize("keyed", KEYED)
def test_each_version_of_the_metadata(version: int, keyed: str, tmp_path: Path) -> None:
    path = written(tmp_path, both(version=version, keyed=KEYED[keyed]))
    found = read_checkpoint(path)
    assert (found.checkpoint_id, list(found.committables), found.prefixes) == (5, [ONE, TWO], frozenset({"tx"}))
    assert (found.is_savepoint, found.others, found.path) == (False, 0, path / "_metadata")
    assert found.name == f"checkpoint 5 ({path})"
    assert (found.committable("tx-0-6"), found.committable("tx-0-7")) == (ONE, None)


def test_states_of_channels_are_skipped(tmp_path: Path) -> None:
    channel = struct.pack(">iiiiqq", 0, 0, 1, 1, 8, 9) + in_metadata(b"abc")
    merged = struct.pack(">iq", 0, 9) + in_metadata(b"abc") + sized(b"offsets")
    for version, channels in (
        (3, struct.pack(">i", 1) + channel + struct.pack(">i", 2) + channel * 2),
        (6, struct.pack(">i", 2) + b"\x01" + channel + b"\x03" + merged + struct.pack(">i", 1) + b"\x04" + merged),
    ):
        found = read_checkpoint(written(tmp_path, both(version=version, channels=channels)))
        assert (list(found.committables), found.others) == ([ONE, TWO], 6)


def test_where_a_state_is(tmp_path: Path) -> None:
    """In a file of the checkpoint, one that its job named elsewhere, one of several subtasks, or nowhere."""
    data, offsets = state_file({COMMITTER: collector(5, [committable(ONE)])})
    path = tmp_path / "chk-5"
    handles: dict[str, bytes] = {
        "relative": b"\x06" + utf("state") + struct.pack(">q", len(data)),
        "absolute": b"\x02" + struct.pack(">q", len(data)) + utf(f"file:{path / 'state'}"),
        "moved": b"\x02" + struct.pack(">q", len(data)) + utf("file:/jobs/chk-5/state"),
        "of an object store": b"\x02" + struct.pack(">q", len(data)) + utf("s3://bucket/jobs/chk-5/state"),
        "key groups": b"\x03" + struct.pack(">iiq", 0, 1, 7) + in_metadata(data),
    }
    for handle in handles.values():
        written(tmp_path, metadata(5, [operator_state(offsets, handle)]))
        (path / "state").write_bytes(data)
        assert list(read_checkpoint(path).committables) == [ONE]
    shared = b"\x0f" + struct.pack(">qqi", 100, len(data), 0) + utf("file:/jobs/shared/merged") + utf("id")
    (path / "merged").write_bytes(b"\x00" * 100 + data + b"\x00" * 50)
    of_several = operator_state(offsets, utf("task") + utf("shared") + b"\x00" + shared)
    written(tmp_path, metadata(5, [b"\x11" + of_several[1:]]))
    assert list(read_checkpoint(path).committables) == [ONE]
    written(tmp_path, metadata(5, [operator_state(offsets, handles["of an object store"])]))
    (path / "state").unlink()
    with pytest.raises(NotFound, match="Copy that file beside _metadata"):
        read_checkpoint(path)


def test_which_checkpoint_a_path_names(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"has no completed checkpoint.* Name the folder of the job"):
        read_checkpoint(tmp_path)
    older = write_checkpoint(tmp_path, 9, [ONE], prefix="tx")
    newest = write_checkpoint(tmp_path, 10, [], prefix="tx")
    (tmp_path / "chk-11").mkdir()  # it is not complete
    (tmp_path / "chk-x").mkdir()
    (tmp_path / "chk-x" / "_metadata").touch()
    assert read_checkpoint(tmp_path).checkpoint_id == 10
    for path in (older, older / "_metadata"):
        found = read_checkpoint(path)
        assert (found.checkpoint_id, newer(found)) == (9, newest / "_metadata")
    assert newer(read_checkpoint(newest)) is None
    assert [each.checkpoint_id for each in FlinkCheckpoints(older)()] == [9, 10]
    assert [each.checkpoint_id for each in FlinkCheckpoints(newest)()] == [10]
    assert list(read_checkpoint(newest).committables) == []
    assert read_checkpoint(newest).has_prefix_of("tx-3-4")
    assert not read_checkpoint(newest).has_prefix_of("tx-x-3-4")


def test_what_was_completed_since_is_read_again_and_kept(tmp_path: Path) -> None:
    """A recorder of days knew the checkpoint of its first sample."""
    first = write_checkpoint(tmp_path / "job", 9, [], prefix="tx")
    read = FlinkCheckpoints(first, shutil.copytree(first, tmp_path / "savepoint-1"), tmp_path / "job")
    for _ in range(2):
        assert [each.checkpoint_id for each in read()] == [9, 9, 9]
    write_checkpoint(tmp_path / "job", 10, [Committable("tx-0-5", 7, 0, 10)], prefix="tx")
    known = read()
    assert [each.checkpoint_id for each in known] == [9, 10, 9, 9, 10]
    for number in (10, 11):  # of the last one only
        known = read()
        assert [each.checkpoint_id for each in known] == [9, number, 9, 9, number]
        write_checkpoint(tmp_path / "job", number + 1, [], prefix="tx")
    shutil.rmtree(tmp_path / "job")
    assert read() == known, "that it cannot be read any more does not make it commit nothing"


def test_the_number_in_the_metadata_decides_which_checkpoint_it_is(tmp_path: Path) -> None:
    """A folder that was renamed, or copied to another number, would pass for the last completed checkpoint."""
    older = write_checkpoint(tmp_path, 5, [ONE], prefix="tx")
    os.utime(older / "_metadata", (2e9, 2e9))
    newer = write_checkpoint(tmp_path, 6, [], prefix="tx")
    os.utime(newer / "_metadata", (1e9, 1e9))
    assert read_checkpoint(tmp_path).checkpoint_id == 6, "the time of a file says nothing"
    older.rename(tmp_path / "chk-7")
    for path in (tmp_path, tmp_path / "chk-7"):
        with pytest.raises(UsageError, match=r"chk-7/_metadata is checkpoint 5.*with chk-5"):
            read_checkpoint(path)


def test_a_newer_checkpoint_of_another_job_with_the_prefix(tmp_path: Path) -> None:
    """A restored job has a folder of its own beside that of the job before."""
    first, second = (tmp_path / (f"{number}" * 32) for number in (1, 2))
    own = read_checkpoint(write_checkpoint(first, 5, [ONE], prefix="tx"))
    assert newer_of_other_job(own) is None
    write_checkpoint(second, 5, [], prefix="tx")
    write_checkpoint(second, 6, [], prefix="other")
    write_checkpoint(tmp_path / "no job", 9, [], prefix="tx")
    (tmp_path / ("3" * 32)).mkdir()
    assert newer_of_other_job(own) is None
    path = write_checkpoint(second, 7, [], prefix="tx")
    other = newer_of_other_job(own)
    assert other is not None
    assert (other.checkpoint_id, other.path.parent, newer_of_other_job(other)) == (7, path, None)
    (path / "_metadata").write_bytes(metadata(7, []))
    assert newer_of_other_job(own) is None, "that job writes no transactions"
    (path / "_metadata").write_bytes(b"")
    with pytest.raises(DecodeError):
        newer_of_other_job(own)
    outside = read_checkpoint(write_checkpoint(tmp_path / "copied", 5, [ONE], prefix="tx"))
    assert newer_of_other_job(outside) is None


def test_a_job_that_was_restored_from_an_earlier_checkpoint_counts_from_there(tmp_path: Path) -> None:
    """Its checkpoint 4 comes after checkpoint 5 of the job before, whose records it writes again."""
    own = read_checkpoint(write_checkpoint(tmp_path / ("1" * 32), 5, [ONE], prefix="tx"))
    restored = write_checkpoint(tmp_path / ("2" * 32), 4, [], prefix="tx")
    for time, is_later in ((1e9, False), (2e9, True)):
        os.utime(restored / "_metadata", (time, time))
        os.utime(own.path, (1.5e9, 1.5e9))
        assert (newer_of_other_job(own) is not None) is is_later


def test_a_savepoint_is_one_by_its_properties_or_its_folder(tmp_path: Path) -> None:
    assert read_checkpoint(written(tmp_path, both(properties=SAVEPOINT))).is_savepoint
    saved = written(tmp_path, both(properties=CHECKPOINT), name="savepoint-4f2c")
    assert read_checkpoint(saved).is_savepoint
    assert read_checkpoint(saved).name.startswith("savepoint 5 (")
    assert newer(read_checkpoint(saved)) is None


@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_savepoint_that_ends_within_its_properties_is_no_checkpoint(version: int, tmp_path: Path) -> None:
    """It passed for one, and `commit` was to commit what only a restored job commits."""
    data = both(version=version, properties=SAVEPOINT)
    for end in (len(data) - len(SAVEPOINT), data.index(b"SavepointType"), len(data) - 1):
        with pytest.raises(DecodeError, match="which say whether it is a savepoint, end early"):
            read_checkpoint(written(tmp_path, data[:end]))


def test_what_is_committed_or_of_another_sink_is_left_out(tmp_path: Path) -> None:
    requests = [committable(ONE, state=1), committable(TWO, state=2), committable(TWO, state=3)]
    requests += [committable(TWO, version=2), struct.pack(">i", 1) + sized(b"a file") + struct.pack(">ii", 0, 0)]
    requests += [committable(Committable("plain", 1, 0, 5)), committable(Committable("tx-0-1", -1, 0, 5))]
    data, offsets = state_file({COMMITTER: collector(5, requests)})
    found = read_checkpoint(written(tmp_path, metadata(5, [operator_state(offsets, in_metadata(data))])))
    assert (list(found.committables), found.others) == ([ONE], 4)


@pytest.mark.parametrize("versions", [(0, 0), (1, 1), (1, 2)])
def test_each_version_of_the_committables(versions: tuple[int, int], tmp_path: Path) -> None:
    data, offsets = state_file({COMMITTER: collector(5, [committable(ONE)], versions=versions)})
    path = written(tmp_path, metadata(5, [operator_state(offsets, in_metadata(data))]))
    assert list(read_checkpoint(path).committables) == [ONE]


@pytest.mark.parametrize("version", [1, 2])
def test_a_sink_without_committables_is_one_by_its_prefix(version: int, tmp_path: Path) -> None:
    data, offsets = state_file({WRITER: writer_state("täx", version=version)})
    found = read_checkpoint(written(tmp_path, metadata(5, [operator_state(offsets, in_metadata(data))])))
    assert (list(found.committables), found.prefixes) == ([], frozenset({"täx"}))


REFUSED: dict[str, tuple[type[ToolkitError], str, Callable[[], bytes]]] = {
    "no sink": (UsageError, "no state of a KafkaSink", lambda: metadata(5, [])),
    "another writer": (
        UsageError,
        "no state of a KafkaSink",
        lambda: metadata(5, [operator_state(*reversed_state({WRITER: struct.pack(">i", 1) + sized(b"\x00\x01ab")}))]),
    ),
    "compressed": (
        UsageError,
        "compressed",
        lambda: metadata(5, [operator_state(*reversed_state({WRITER: writer_state("tx")}, compressed=True))]),
    ),
    "no checkpoint": (DecodeError, "no checkpoint of Flink", lambda: b"\x00" * 64),
    "a later version": (DecodeError, "version 7; versions 2 to 6", lambda: both(version=7)),
    "no committables": (
        DecodeError,
        "committables begin with other bytes",
        lambda: metadata(5, [operator_state(*reversed_state({COMMITTER: struct.pack(">i", 1) + sized(b"abcdefgh")}))]),
    ),
    "an unknown keyed state": (DecodeError, "a keyed state is of kind 99", lambda: both(keyed=b"\x63")),
    "nested": (DecodeError, "a keyed state is of kind 8", lambda: both(keyed=nested(20))),
}


def reversed_state(items: dict[str, bytes], *, compressed: bool = False) -> tuple[dict[str, int], bytes]:
    data, offsets = state_file(items, compressed=compressed)
    return offsets, in_metadata(data)


def nested(depth: int) -> bytes:
    return (b"\x08" + struct.pack(">iiqi", 0, 128, 9, 1)) * depth + b"\x00"


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_an_error(case: str, tmp_path: Path) -> None:
    error, text, made = REFUSED[case]
    with pytest.raises(error, match=text):
        read_checkpoint(written(tmp_path, made()))


GOLDEN = Path(__file__).parents[1] / "golden" / "flink-2.1.1" / "chk-5"
"""Of a job of Flink 2.1.1 with flink-connector-kafka 4.0.1-2.0, two subtasks (tests/actions/test_commit_flink.py)."""


def test_a_checkpoint_that_flink_wrote() -> None:
    found = read_checkpoint(GOLDEN)
    assert list(found.committables) == [
        Committable("flink-incrementing-0-5", 8, 0, 5),
        Committable("flink-incrementing-1-5", 9, 0, 5),
    ]
    assert (found.prefixes, found.is_savepoint, found.others) == (frozenset({"flink-incrementing"}), False, 0)
