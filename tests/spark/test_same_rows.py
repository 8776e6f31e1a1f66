"""The same rows from pandas, classic Spark and Spark Connect, for every table, on the histories of real clients.

By the newest pyspark, which is installed here, and by the oldest that is supported, with the oldest pandas and pyarrow
that it goes with, in an environment of its own.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import venv
from pathlib import Path

import pyarrow.feather
import pytest

from tests.spark.rows import CLASSES, MADE, MIN_HELD_MS, READ
from toolkit import LogDir
from toolkit.schema import TABLES, Row

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]  # a new venv, and its own Spark that reads every table

ROWS = Path(__file__).with_name("rows.py")
PACKAGES = ("pyspark[connect]==4.0.0", "pandas==2.2.3", "pyarrow==18.1.0", "numpy<2.3", "setuptools")

WITHOUT_THE_PACKAGE = """\
#!/bin/sh
# Without site, an editable installation is not found.
export PYTHONPATH="{site}:$PYTHONPATH"
exec "{python}" -S "$@"
"""


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the oldest Spark that is supported."""
    folder = tmp_path_factory.mktemp("oldest")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--editable",
        str(ROOT),
        *PACKAGES,
    ]
    done = subprocess.run(install, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return python


@pytest.fixture(scope="module", params=[f"{mode}-{age}" for age in ("newest", "oldest") for mode in CLASSES])
def current_findings(request: pytest.FixtureRequest, history: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The history as read by a process with its own session."""
    out = tmp_path_factory.mktemp(request.param)
    mode, age = request.param.split("-")
    python = request.getfixturevalue("oldest") if age == "oldest" else Path(sys.executable)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    if mode == "connect":
        bare = out / "python"
        bare.write_text(WITHOUT_THE_PACKAGE.format(site=site_packages(python), python=python))
        bare.chmod(0o755)
        environment["PYSPARK_PYTHON"] = str(bare)
    command = [str(python), str(ROWS), mode, str(history), str(out)]
    done = subprocess.run(command, cwd=out, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    version = "4.0.0" if age == "oldest" else importlib.metadata.version("pyspark")
    assert done.stdout.startswith(f"{CLASSES[mode]} {version} "), done.stdout
    return out


def site_packages(python: Path) -> str:
    script = "import sysconfig; print(sysconfig.get_path('purelib'))"
    command = [str(python), "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.strip()


@pytest.mark.parametrize("table", READ)
def test_the_data_source_matches_pandas(current_findings: Path, history: Path, table: str) -> None:
    expected = rows_of_log_dir(history, table)
    assert expected or table == "violations", "nothing to compare"
    compare(current_findings / f"read-{table}.arrow", expected)


@pytest.mark.parametrize("table", MADE)
def test_the_pipeline_matches_pandas(current_findings: Path, history: Path, table: str) -> None:
    files = LogDir(history, consistent_copy=True)
    expected = files.findings(min_held_ms=MIN_HELD_MS) if table == "findings" else getattr(files, table)()
    compare(current_findings / f"made-{table}.arrow", TABLES[table].rows(expected))


def rows_of_log_dir(folder: Path, table: str) -> list[Row]:
    files = LogDir(folder, consistent_copy=table == "findings")
    return TABLES[table].rows(getattr(files, table)())


def compare(file: Path, expected: list[Row]) -> None:
    """Row by row, every column; the order is no one's promise."""
    found = pyarrow.feather.read_table(file).to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
