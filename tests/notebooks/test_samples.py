"""What explains, and what needs no broker, runs from a recorded sample."""

from pathlib import Path

import pytest

from tests.notebooks.books import BOOKS, read, with_parameters, write
from tests.notebooks.running import run

SAMPLES = {
    "02": ["open-young"],
    "03": ["superseded-same-partition"],
    "05": ["late-message"],
    "06": ["flight-recording"],
    "07": ["flight-recording"],
}
CASES = [(path, name) for path in BOOKS for name in SAMPLES.get(path.stem[:2], ())]


@pytest.mark.parametrize(("path", "sample"), CASES, ids=[f"{path.stem}-{name}" for path, name in CASES])
def test_a_notebook_runs_from_a_sample(
    path: Path, sample: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # no broker could be started
    copy = write(with_parameters(read(path), source=f"sample:{sample}"), tmp_path / path.name)
    outcome = run(copy, tmp_path)
    assert outcome.failed == {}, outcome.printed
