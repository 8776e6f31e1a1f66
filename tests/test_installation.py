"""An installation from a folder of wheels, without an index: by pip, pipx and uvx, as the docs say it."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.process import ROOT

pytestmark = [
    pytest.mark.full,
    pytest.mark.xdist_group("installation"),
]  # it needs a registry, for the wheels themselves

SLOW_S = 1200


def done(*command: object, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    ended = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=SLOW_S,
        check=False,
    )
    assert ended.returncode in {0, 1}, ended.stdout + ended.stderr  # 1: something hangs
    return ended.stdout


def said_by_docs() -> Mapping[str, list[str]]:
    """The commands for a machine without a network, by their program."""
    page = (ROOT / "docs" / "howto" / "install.md").read_text()
    section = page.partition("## Without a network")[2].partition("\n## ")[0]
    commands = [shlex.split(line) for line in re.findall(r"^    (\S.*)$", section, re.MULTILINE)]
    return {words[0] if words[0] != "python3" else words[3]: words for words in commands}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheelhouse."""
    path = tmp_path_factory.mktemp("installation")
    _, *wheel = said_by_docs()["wheel"]
    assert wheel[-1] == "."
    done(sys.executable, *wheel[:-1], ROOT, cwd=path)
    return path


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pipx and uv are."""
    path = tmp_path_factory.mktemp("tools")
    done(sys.executable, "-m", "venv", path, cwd=path)
    done(path / "bin" / "pip", "install", "-q", "pipx", "uv", cwd=path)
    return path / "bin"


def check(*kafka_txn: object, cwd: Path, env: Mapping[str, str] | None = None) -> None:
    """It reads files, and has its pages."""
    found = done(*kafka_txn, "find-hanging", "--log-dir", "sample:late-message", "--short", cwd=cwd, env=env)
    assert " hanging " in found
    assert done(*kafka_txn, "docs", "hanging", cwd=cwd, env=env).startswith("# `hanging`")


def test_pip_installs_it_without_an_index(folder: Path) -> None:
    done(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    done(folder / "venv" / "bin" / "pip", *said_by_docs()["pip"][1:], cwd=folder)
    check(folder / "venv" / "bin" / "kafka-txn", cwd=folder)


def test_pipx_installs_it_without_an_index(folder: Path, tools: Path) -> None:
    env = {name: str(folder / name.lower()) for name in ("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR")}
    done(tools / "pipx", *said_by_docs()["pipx"][1:], "--python", sys.executable, cwd=folder, env=env)
    check(folder / "pipx_bin_dir" / "kafka-txn", cwd=folder)


def test_uvx_runs_it_without_an_index(folder: Path, tools: Path) -> None:
    env = {"UV_CACHE_DIR": str(folder / "uv"), "UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON": sys.executable}
    _, *uvx = said_by_docs()["uvx"]
    check(tools / "uvx", *uvx[: uvx.index("kafka-txn") + 1], cwd=folder, env=env)
