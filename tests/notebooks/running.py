"""Run a notebook with nbval, in its own process and with its own folders."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.notebooks.plain import WORDS

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Cells by name (``Cell 3``) with null, or nbval's message if they failed; and the complete output."""

    cells: Mapping[str, str | None]
    output: str

    @property
    def failed(self) -> dict[str, str]:
        """Failed cells, with nbval's messages."""
        return {name: text for name, text in self.cells.items() if text is not None}


def own_folders(folder: Path) -> dict[str, str]:
    """Environment variables that isolate a kernel from the user's Jupyter folders and audit file."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "TMPDIR")
    for name in names:
        (folder / name.lower()).mkdir(parents=True, exist_ok=True)
    variables = {name: str(folder / name.lower()) for name in names}
    return {**variables, "JUPYTER_PLATFORM_DIRS": "1", "KAFKA_TXN_AUDIT_FILE": str(folder / "audit.jsonl")}


def run(path: Path, folder: Path, *, seconds: float = 900, compares_words: bool = False) -> Outcome:
    """Run a notebook with nbval, which compares the outputs of its checked cells.

    `compares_words`: those of every stored output, too, of a notebook that is run unchanged.
    """
    report = folder / "nbval.xml"
    plugins = ("tests.notebooks.plain", "nbval", "no:cacheprovider", "no:hypothesispytest")
    arguments = ["-m", "pytest", "-q", "-n0", *(f"-p{each}" for each in plugins), "--nbval-lax", "--nbval-current-env",
                 "--color=no", "--rootdir", str(ROOT), f"--junitxml={report}", str(path)]  # fmt: skip
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))  # kernels import the claims
    environment = {
        **os.environ,
        **own_folders(folder),
        "PYTEST_ADDOPTS": "",
        "PYTHONPATH": paths,
        WORDS: "1" * compares_words,
    }
    process = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds
    )
    assert report.is_file(), process.stdout + process.stderr
    cases = ET.parse(report).getroot().iter("testcase")
    return Outcome({case.get("name", ""): _failure(case) for case in cases}, process.stdout + process.stderr)


def _failure(case: ET.Element) -> str | None:
    failures = [*case.iter("failure"), *case.iter("error")]
    return "\n".join(each.text or "" for each in failures) if failures else None
