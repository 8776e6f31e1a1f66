"""Parts of a document through each renderer: ids of others stay data, and commands run as they stand."""

from __future__ import annotations

import datetime as dt
import html
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer.main

from tests.corpus.answers import ANSWERS
from toolkit.cli.commands import app
from toolkit.views.document import (
    ACTIONS,
    Bullets,
    Code,
    Command,
    Connection,
    Field,
    Fields,
    Grid,
    Options,
    Paragraph,
    Part,
    Quote,
    Section,
    with_commands,
)
from toolkit.views.renderers import command_line, html_text, json_value, markdown_lines, text_lines

HOSTILE = 'it\'s \x1b[31m\a\n$(touch x) `touch x` <script>alert(1)</script> | \u202e "q" \\ *b* ```'
COMMAND = Command(("kafka-txn", "fence", "--transactional-id", HOSTILE))
PARTS: dict[str, Part] = {
    "paragraph": Paragraph(HOSTILE),
    "code": Paragraph(("id ", Code(HOSTILE), " at ", 12)),
    "options": Paragraph(("add: ", Options(("--confirm", HOSTILE)))),
    "bullets": Bullets((HOSTILE,)),
    "fields": Fields((Field(HOSTILE, (HOSTILE,)), Field("remedy", (HOSTILE, COMMAND, HOSTILE)))),
    "command": COMMAND,
    "quote": Quote(HOSTILE),
    "grid": Grid(title=HOSTILE, columns=("a", HOSTILE), rows=((HOSTILE, HOSTILE),), note=HOSTILE),
    "section": Section(title=HOSTILE, lead=HOSTILE, parts=(Paragraph(HOSTILE),)),
    "folded": Section(title=HOSTILE, parts=(Paragraph(HOSTILE),), is_folded=True),
}
RENDERED: dict[str, Callable[[Sequence[Part]], str]] = {
    "text": lambda parts: "\n".join(text_lines(parts)),
    "narrow text": lambda parts: "\n".join(text_lines(parts, width=40)),
    "html": html_text,
    "markdown": lambda parts: "\n".join(markdown_lines(parts)),
    "json": lambda parts: json.dumps(json_value(parts)),
}


@pytest.mark.parametrize("renderer", RENDERED)
@pytest.mark.parametrize("part", PARTS)
def test_a_hostile_id_stays_data(part: str, renderer: str) -> None:
    text = RENDERED[renderer]([PARTS[part]])
    assert "touch" in text
    assert all(each.isprintable() for each in text.replace("\n", "")), "a terminal obeys no control character of it"
    if renderer == "html":
        tags = Tags()
        tags.feed(text)
        assert tags.found.isdisjoint({"script", "b", "img"})
    if renderer == "markdown":
        outside = re.sub(r"^ *(`{3,})\n.*?^ *\1$|(?<![\\`])(`+)(?!`).*?(?<!`)\2(?!`)", "", text, flags=re.M | re.S)
        assert not re.search(r"(?<!\\)[`<|*](?!.*---)", re.sub(r"^\*\*|\*\*$|^\| | \|$| \| ", "", outside, flags=re.M))


class Tags(HTMLParser):
    """The tags of an HTML text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.add(tag)


def test_a_command_is_pasted_as_it_is(tmp_path: Path) -> None:
    """A client's id was a part of the line: pasted, it ran what the id said."""
    for argv in (COMMAND.argv, ("kafka-txn", "why", "a b;ls", "\t", "é\u202e", "")):
        echoed = ["bash", "-c", f"printf '%s\\0' {command_line(argv)}"]
        done = subprocess.run(echoed, capture_output=True, check=True, cwd=tmp_path)
        assert done.stdout.decode().split("\0")[:-1] == list(argv)
    assert not list(tmp_path.iterdir())


def test_a_command_names_the_cluster_as_the_user_did() -> None:
    secured = Connection(server="broker:9092", config="my client.properties", checkpoints=("/chk-5",))
    named = "--bootstrap-server broker:9092 --command-config 'my client.properties'"

    def line(command: str, connection: Connection = secured) -> str:
        return command_line(connection.argv(Command(tuple(shlex.split(command)))))

    fence = "kafka-txn fence --transactional-id a"
    assert line(fence) == f"kafka-txn fence {named} --flink-checkpoint /chk-5 --transactional-id a"
    assert line("kafka-txn commit --flink-checkpoint /c --transactional-id a").count("--flink-checkpoint") == 1
    assert line("kafka-txn diagnose --log-dir /copy") == "kafka-txn diagnose --log-dir /copy"
    assert line("kafka-acls.sh --list") == f"kafka-acls.sh {named} --list"
    tool = "kafka-transactions.sh --bootstrap-server one:9092 abort --topic a"
    assert line(tool).startswith("kafka-transactions.sh --bootstrap-server one:9092 --command-config 'my client")
    assert line(fence, Connection()) == fence
    assert line("kafka-acls.sh --list", Connection()) == "kafka-acls.sh --bootstrap-server HOST:PORT --list"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("Wait.", ["Wait."]),
        ("Never kafka-txn abort.", ["Never kafka-txn abort."]),
        ("Soon: kafka-txn abort --topic a --partition 0", ["Soon:", ["abort", "--topic", "a", "--partition", "0"]]),
        ("kafka-txn abort --topic a (it drops b)", [["abort", "--topic", "a"], "It drops b."]),
        ("kafka-txn complete --topic a writes b. Never c.", [["complete", "--topic", "a"], "It writes b. Never c."]),
        ("See kafka-txn diagnose --topic a.", ["See", ["diagnose", "--topic", "a"]]),
        ("kafka-txn fence --topic 'a'\"'\"'b c' ends it", [["fence", "--topic", "a'b c"], "It ends it"]),
        ("kafka-txn list --state Ongoing: which one.", [["list", "--state", "Ongoing"], "Which one."]),
        ("kafka-txn lag --group G: `a` if b.", [["lag", "--group", "G"], (Code("a"), " if b.")]),
    ],
)
def test_a_command_is_never_inside_a_sentence(text: str, values: list[object]) -> None:
    found = [
        list(each.argv[1:]) if isinstance(each, Command) else each for each in with_commands(text, own=["a", "a'b c"])
    ]
    assert found == values


@pytest.mark.parametrize(
    "name",
    [
        "kafka-txn abort --topic other --partition 0 --start-offset 5",
        'x" kafka-txn fence --transactional-id other "',
        "kafka-txn abort --topic a --partition 0 --confirm a-0@5",
        "kafka-txn diagnose --bootstrap-server evil:9092 --topic a",
        "kafka-txn report --topic a --output /etc/passwd",
    ],
)
def test_a_command_in_an_id_is_none_of_ours(name: str) -> None:
    text = f'Ask the owner of "{name}".'
    assert with_commands(text, own=["a", name]) == [text]


def test_times_and_durations_have_their_units() -> None:
    time = dt.datetime(2026, 11, 21, 10, 58, 11, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    said = Paragraph(("since ", time, " for ", dt.timedelta(minutes=2)))
    for render in RENDERED.values():
        assert "since 2026-11-21 09:58:11 UTC for 2 min" in render([said])


def test_every_command_of_every_answer_is_accepted_by_the_parser() -> None:
    """A remedy was "... --start-offset 0 (the offsets ..." and "... --start-offset 2 writes the COMMIT marker"."""
    commands = {tuple({"P": "0", "N": "0"}.get(word, word) for word in argv) for argv in commands_of_answers()}
    verbs = {argv[1] for argv in commands}
    assert verbs > ACTIONS
    group = typer.main.get_command(app)
    for argv in sorted(commands):
        context = group.make_context("kafka-txn", list(argv[1:]), resilient_parsing=False)
        name, command, rest = group.resolve_command(context, list(argv[1:]))  # type: ignore[attr-defined]
        parsed = command.make_context(name, list(rest), parent=context)
        assert not parsed.args, argv


def commands_of_answers() -> Iterator[list[str]]:
    """The commands in the stored answers: lines of their own, `code` and lists of JSON."""
    for path in sorted(ANSWERS.rglob("*.txt")):
        text = path.read_text(encoding="utf-8")
        lines = re.findall(r"^ *(kafka-txn [a-z-]+ --.*?)(?: [>|] .*)?$", text, re.MULTILINE)
        lines += map(html.unescape, re.findall(r"<code>(kafka-txn .*?)</code>", text))
        yield from map(shlex.split, lines)
        for found in re.findall(r'"command": (\[\s*"kafka-txn".*?\])', text, re.DOTALL):
            yield json.loads(found)
