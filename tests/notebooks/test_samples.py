"""Notebooks that need no broker run from a recorded sample."""

from pathlib import Path

import pytest

from tests.notebooks.books import BOOKS, code_cells, read, with_parameters, write
from tests.notebooks.running import run

SAMPLES = {
    "00": ["late-message"], "02": ["open-young", "long-history"], "03": ["superseded-same-partition"],
    "05": ["late-message"], "06": ["flight-recording"], "07": ["flight-recording"], "09": ["several-open"],
}  # fmt: skip
CASES = [
    pytest.param(path, name, id=f"{path.stem}-{name}") for path in BOOKS for name in SAMPLES.get(path.stem[:2], ())
]


@pytest.mark.full  # in the first tier, tests/notebooks/test_compared.py runs one from a sample
@pytest.mark.parametrize(("path", "sample"), CASES)
def test_a_notebook_runs_from_a_sample(path: Path, sample: str, tmp_path: Path) -> None:
    book = with_parameters(read(path), source=f"sample:{sample}")
    code_cells(book)[-1].source += "\nassert opened.kafka is None"  # no broker was started
    outcome = run(write(book, tmp_path / path.name), tmp_path)
    assert outcome.failed == {}, outcome.output
