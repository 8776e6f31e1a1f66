"""What a person needs to write a command: examples that the parser accepts, and what a shell completes."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.process import run
from toolkit.cli.commands import COMPLETE, app, examples
from toolkit.cli.commands import run as run_command_line
from toolkit.config.clusters import CLUSTERS_VARIABLE

GROUP: Any = typer.main.get_command(app)


def commands(example: str) -> Iterator[list[str]]:
    """Those of ours in a line of a shell, without what it redirects."""
    for part in example.split(" | "):
        words = shlex.split(part.split(" > ")[0])
        if words[0] == "kafka-txn":
            yield words


@pytest.mark.parametrize("name", GROUP.commands)
def test_the_examples_of_each_command_are_accepted(name: str) -> None:
    """By the parser that runs them; a person sees them at the end of the help, on one line each."""
    said = run(name, "--help").stdout
    for example in examples()[name]:
        assert f"  {example}\n" in said
        for _, verb, *arguments in commands(example):
            assert verb == name
            GROUP.commands[verb].make_context(verb, arguments)


def test_no_example_is_of_a_command_that_is_gone() -> None:
    assert examples().keys() == GROUP.commands.keys()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_this_program(shell: str) -> None:
    script = run("completion", shell).stdout
    assert f"{COMPLETE}=complete_{shell}" in script
    assert "kafka-txn" in script


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("kafka-txn find-h", ["find-hanging"]),
        ("kafka-txn abort --ov", ["--override"]),
        ("kafka-txn list --format j", ["json"]),
        ("kafka-txn list --cluster prod", ["prod-eu", "prod-us"]),
        ("kafka-txn diagnose --log-dir sample:late-m", ["sample:late-message"]),
    ],
)
def test_bash_completes(
    typed: str,
    completed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text("".join(f'[{name}]\nbootstrap-server = "b:9092"\n' for name in ("prod-eu", "prod-us", "test")))
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), COMPLETE: "complete_bash"}
    for name, value in {**words, CLUSTERS_VARIABLE: str(file)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        run_command_line()
    assert capsys.readouterr().out.split() == completed


def test_a_sample_is_read_by_its_name() -> None:
    found = run("find-hanging", "--log-dir", "sample:late-message", "--short")
    assert found.returncode == 1
    assert " hanging " in found.stdout
    assert run("find-hanging", "--log-dir", "sample:none").returncode == 4
    assert "read alone" in run("find-hanging", "--log-dir", "sample:late-message", "--consistent-copy").stderr
    figures = run("txn-stat", "sample:late-message")
    assert figures.returncode == 0
    assert figures.stdout.startswith("61 logs without transactions\n\norders-0 (broker 1)\n")
    assert "read alone" in run("txn-stat", "sample:late-message", "sample:overdue").stderr
