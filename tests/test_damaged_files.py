"""Files of a real broker, damaged at random: rows or one clear error, never a crash, a hang or a silent loss."""

import contextlib
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.tiers import fuzzed
from toolkit import LogDir
from toolkit.cli.file_commands import TABLE_NAMES
from toolkit.errors import ToolkitError
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS
from toolkit.schema import BATCHES, TABLES
from toolkit.views.row_formats import json_pieces

pytestmark = pytest.mark.lab

MOST_MEMORY = 300 << 20


@pytest.fixture(scope="module")
def sound(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A few partitions of every kind, and what Kafka prints of them."""
    data = tmp_path_factory.mktemp("sound") / "data"
    staged = [INCIDENTS[name](kafka) for name in ("late_message", "offsets_never_added", "superseded_written")]
    wanted = {f"{each.topic}-{each.partition}" for each in staged}
    shutil.copytree(kafka.log_dirs[1], data, ignore=lambda folder, names: [] if "-" in Path(folder).name else [
        name for name in names if "-" in name and "checkpoint" not in name and name not in wanted
        and not name.startswith("__transaction_state")
    ])  # fmt: skip
    for folder in data.glob("__transaction_state-*"):
        if not any(log.stat().st_size for log in folder.glob("*.log")):
            shutil.rmtree(folder)
    logs = ",".join(str(log) for log in data.glob("*/*.log") if log.stat().st_size)
    dump = kafka.run_tool("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", logs)
    (data / "dump.txt").write_text(dump.stdout)
    yield data
    for each in staged:
        each.close()


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "insert", "repeat", "zero", "truncate"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 64),
        st.binary(min_size=1, max_size=16),
    ),
    min_size=1,
    max_size=4,
)


def changed(data: bytes, changes: list[tuple[str, float, int, bytes]]) -> bytes:
    for kind, where, size, new in changes:
        at = int(where * len(data))
        before, hit, after = data[:at], data[at : at + size], data[at + size :]
        data = {
            "flip": before + bytes(byte ^ new[0] for byte in hit) + after,
            "cut": before + after,
            "insert": before + new + hit + after,
            "repeat": before + hit + hit + after,
            "zero": before + bytes(len(hit)) + after,
            "truncate": before,
        }[kind]
    return data


@fuzzed(20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(selected=st.floats(0, 1, exclude_max=True), changes=CHANGES, table=st.sampled_from(TABLE_NAMES))
def test_a_damaged_file_gives_rows_or_one_error(
    selected: float, changes: list[tuple[str, float, int, bytes]], table: str, sound: Path
) -> None:
    files = sorted(path for path in sound.rglob("*") if path.is_file() and path.stat().st_size)
    path = files[int(selected * len(files))]
    original = path.read_bytes()
    try:
        path.write_bytes(changed(original, changes))
        tracemalloc.start()
        with contextlib.suppress(ToolkitError):
            rows = getattr(LogDir(sound), table)()
            "".join(json_pieces(TABLES[table], TABLES[table].rows(rows)))
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()
        path.write_bytes(original)


@fuzzed(20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES)
def test_no_byte_of_a_damaged_segment_is_lost(
    changes: list[tuple[str, float, int, bytes]], sound: Path, tmp_path: Path
) -> None:
    """Each is in a batch, or in a row with the reason why not."""
    segment = max(sound.glob("*-0/*.log"), key=lambda path: path.stat().st_size)
    damaged = tmp_path / segment.parent.name / segment.name
    damaged.parent.mkdir(exist_ok=True)
    damaged.write_bytes(changed(segment.read_bytes(), changes))
    if not damaged.stat().st_size:
        return
    try:
        rows = BATCHES.rows(LogDir(damaged).batches(crc=True))
    except ToolkitError:
        return  # even its first bytes are not a segment's
    reached = 0
    for row in sorted(rows, key=lambda row: row["position"]):
        assert row["position"] == reached
        assert row["size"] > 0
        reached += row["size"]
    assert reached == damaged.stat().st_size


def test_a_damaged_batch_of_transaction_state_is_an_error_row(sound: Path, tmp_path: Path) -> None:
    """Such a row lacked columns without a value, and transaction_history() raised a KeyError."""
    folder = next(path for path in sorted(sound.glob("__transaction_state-*")))
    copy = Path(shutil.copytree(folder, tmp_path / folder.name))
    [log] = copy.glob("*.log")
    log.write_bytes(b"\x80" + log.read_bytes()[1:])
    files = LogDir(copy)
    assert files.transaction_log()["error"].notna().any()
    assert files.transaction_history()["transactional_id"].notna().all()
