"""Tables as files."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolkit.errors import UsageError
from toolkit.schema import ABORTED, Row
from toolkit.views.row_formats import write_file

ROWS: list[Row] = [
    {"topic": "orders", "partition": 0, "producer_id": 7, "last_offset": 9},
    {"error": "TORN_TAIL: cut."},
]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json"])
def test_rows_and_errors_are_counted_and_no_other_file_remains(suffix: str, tmp_path: Path) -> None:
    written = write_file(tmp_path / f"out{suffix}", ABORTED, iter([ABORTED.arrow(ROWS), ABORTED.arrow(ROWS[:1])]))
    assert written == (3, 1)
    assert [path.name for path in tmp_path.iterdir()] == [f"out{suffix}"]


def test_without_tables_the_file_has_only_columns(tmp_path: Path) -> None:
    assert write_file(tmp_path / "out.parquet", ABORTED, []) == (0, 0)
    assert pq.read_schema(tmp_path / "out.parquet") == ABORTED.arrow_schema
    assert write_file(tmp_path / "out.csv", ABORTED, []) == (0, 0)
    assert (tmp_path / "out.csv").read_text() == ",".join(ABORTED.names) + "\n"


def test_an_incomplete_write_keeps_the_previous_file(tmp_path: Path) -> None:
    def breaks() -> Iterator[pa.Table]:
        yield ABORTED.arrow(ROWS)
        raise RuntimeError("halfway")

    (tmp_path / "out.csv").write_text("earlier")
    with pytest.raises(RuntimeError, match="halfway"):
        write_file(tmp_path / "out.csv", ABORTED, breaks())
    assert [path.read_text() for path in tmp_path.iterdir()] == ["earlier"]


def test_another_suffix_or_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in none of \.parquet, \.csv, \.json"):
        write_file(tmp_path / "out.xlsx", ABORTED, [])
    with pytest.raises(UsageError, match=r"cannot be written: No such file or directory"):
        write_file(tmp_path / "gone" / "out.csv", ABORTED, [])
