"""The same rows from pandas, classic Spark and Spark Connect, for every table, on the histories of real clients.

With the installed newest pyspark, and in a separate environment with the oldest supported pyspark, pandas and pyarrow.
All other tests of this folder run in classic sessions of the newest.
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

from tests.spark.rows import MIN_HELD_MS, PIPELINE_TABLES, READ_TABLES, SESSION_MODULES
from toolkit import LogDir
from toolkit.schema import TABLES, Row

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]  # creates a venv, and reads every table with its Spark

ROWS_PROGRAM = Path(__file__).with_name("rows.py")
RUN_HERE = (  # the driver imports this working tree, and the executors of Spark Connect do not
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); del sys.argv[0]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
PACKAGES = ("pyspark[connect]==4.0.0", "pandas==2.2.3", "pyarrow==18.1.0", "numpy<2.3", "setuptools")

PYTHON_WITHOUT_PACKAGE = """\
#!/bin/sh
# Without site, an editable installation is not found.
export PYTHONPATH="{site}:$PYTHONPATH"
exec "{python}" -S "$@"
"""


@pytest.fixture(scope="module")
def oldest_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    process = subprocess.run(install, capture_output=True, text=True, timeout=900)
    assert process.returncode == 0, process.stderr
    return python


@pytest.fixture(scope="module", params=["connect-newest", "classic-oldest", "connect-oldest"])
def spark_output(request: pytest.FixtureRequest, history: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the tables that a process with its own session read and wrote."""
    out = tmp_path_factory.mktemp(request.param)
    mode, age = request.param.split("-")
    python = request.getfixturevalue("oldest_python") if age == "oldest" else Path(sys.executable)
    not_inherited = ("PYSPARK_", "SPARK_", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(not_inherited)}
    if mode == "connect":
        wrapper = out / "python"
        wrapper.write_text(PYTHON_WITHOUT_PACKAGE.format(site=site_packages(python), python=python))
        wrapper.chmod(0o755)
        environment["PYSPARK_PYTHON"] = str(wrapper)
    command = [str(python), "-c", RUN_HERE, str(ROOT), str(ROWS_PROGRAM), mode, str(history), str(out)]
    process = subprocess.run(command, cwd=out, env=environment, capture_output=True, text=True, timeout=1500)
    assert process.returncode == 0, process.stderr
    version = "4.0.0" if age == "oldest" else importlib.metadata.version("pyspark")
    assert process.stdout.startswith(f"{SESSION_MODULES[mode]} {version} "), process.stdout
    return out


def site_packages(python: Path) -> str:
    script = "import sysconfig; print(sysconfig.get_path('purelib'))"
    command = [str(python), "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.strip()


@pytest.mark.parametrize("table", READ_TABLES)
def test_the_data_source_matches_pandas(spark_output: Path, history: Path, table: str) -> None:
    expected = rows_of_log_dir(history, table)
    assert expected, "nothing to compare"
    assert_same_rows(spark_output / f"read-{table}.arrow", expected)


@pytest.mark.parametrize("table", PIPELINE_TABLES)
def test_the_pipeline_matches_pandas(spark_output: Path, history: Path, table: str) -> None:
    files = LogDir(history, consistent_copy=True)
    expected = files.findings(min_held_ms=MIN_HELD_MS) if table == "findings" else getattr(files, table)()
    assert_same_rows(spark_output / f"made-{table}.arrow", TABLES[table].rows(expected))


def rows_of_log_dir(folder: Path, table: str) -> list[Row]:
    files = LogDir(folder, consistent_copy=table == "findings")
    return TABLES[table].rows(getattr(files, table)())


def assert_same_rows(file: Path, expected: list[Row]) -> None:
    """Compare all columns of all rows, in any order."""
    actual = pyarrow.feather.read_table(file).to_pylist()
    assert sorted(map(repr, actual)) == sorted(map(repr, expected))
