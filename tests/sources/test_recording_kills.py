"""A kill at any instant loses nothing that was written and leaves nothing twice, for any reader."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import ROOT
from tests.sources.killed import SCENES

FULL = dict.fromkeys(("merge_again", "merge_what_a_kill_left"), pytest.mark.full)


@pytest.mark.parametrize("context", [pytest.param(each, marks=FULL.get(each, pytest.mark.longer)) for each in SCENES])
def test_killed_before_every_operation_on_files(context: str, tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "tests.sources.killed", context, str(tmp_path)]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=300, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15, "so many times it was killed"
