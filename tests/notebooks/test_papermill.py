"""papermill runs the notebooks with parameters for a cluster of one's own, and of its files."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.notebooks.books import BOOKS, code_cells, read
from tests.notebooks.running import ROOT, own_folders
from toolkit.lab import Kafka
from toolkit.lab.lab_source import stage_between
from toolkit.lab.samples import load

pytestmark = pytest.mark.skipif(importlib.util.find_spec("papermill") is None, reason="papermill is not installed")
OF_CLUSTERS = ("00", "01", "02", "03", "04", "09", "10")
PLACES = {"02": 3, "03": 2, "04": 2}  # how many parameters name the place of the incident
TIMEOUT_S = 600


def run(number: str, folder: Path, *parameters: str) -> Path:
    """Run a notebook as a command, and return the executed copy."""
    (path,) = (path for path in BOOKS if path.stem.startswith(number))
    copy = folder / path.name
    options = [text for parameter in parameters for text in ("-p", *parameter.split("=", 1))]
    command = [sys.executable, "-m", "papermill", str(path), str(copy), "--log-level", "ERROR", "--no-progress-bar"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **own_folders(folder)}
    process = subprocess.run(
        [*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert process.returncode == 0, process.stderr
    return copy


@pytest.mark.full
@pytest.mark.lab
def test_notebooks_run_on_a_cluster_of_ones_own(kafka: Kafka, tmp_path: Path) -> None:
    staged = stage_between(kafka, "late_message", topic="invoices", group="papermill")
    place = ("topic=invoices", f"partition={staged.partition}", "group=papermill")
    for number in OF_CLUSTERS:
        parameters = (f"source={kafka.bootstrap_servers}", *place[: PLACES.get(number, 0)])
        cells = code_cells(read(run(number, tmp_path, *parameters)))
        assert "invoices-0" in "".join(str(cell.outputs) for cell in cells) or number in {"09", "10"}
    with pytest.raises(AssertionError, match="has no topic 'nope'"):  # it said that nothing hangs on nope-0
        run("04", tmp_path, f"source={kafka.bootstrap_servers}", "topic=nope")


def test_a_notebook_runs_on_copied_files(tmp_path: Path) -> None:
    (folder,) = load("late-message").log_dir().paths
    cells = code_cells(read(run("05", tmp_path, f"source={folder}", "consistent_copy=True")))
    (who,) = (cell for cell in cells if cell.id == "who")
    assert "hanging" in who.outputs[0].data["text/plain"]
