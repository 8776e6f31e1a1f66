"""The progress bar of a long read: only in a terminal."""

import sys
from types import ModuleType

import pytest

from toolkit.sources import progress_bar as progress_module
from toolkit.sources.progress_bar import progress


def read() -> None:
    with progress("orders-0", total=100, unit="offsets") as advance:
        advance(40)
        advance(60)


def test_a_pipe_gets_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    read()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("where", ["terminal", "notebook"])
def test_a_terminal_shows_progress(
    where: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "DELAY", 0.0)
    if where == "terminal":
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    else:
        monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    read()
    output = capsys.readouterr()
    assert output.out == ""
    assert "orders-0" in output.err
