"""Parts of a document through each renderer: ids of others stay data, and commands run as they stand."""

from __future__ import annotations

import datetime as dt
import html
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer.main

from tests.actions.rows import found
from tests.corpus.answers import ANSWERS
from tests.stored import compare
from toolkit.cli.commands import app
from toolkit.command_line import ACTIONS, command_in, command_line
from toolkit.schema.verdict import DOCS_URL
from toolkit.views.document import (
    Bullets,
    Code,
    Command,
    Connection,
    Count,
    Field,
    Fields,
    Grid,
    Options,
    Paragraph,
    Part,
    Quote,
    Section,
    text_values,
)
from toolkit.views.finding_document import remedy
from toolkit.views.renderers import html_text, json_value, markdown_lines, text_lines

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


def test_an_id_is_no_formula_of_a_notebook() -> None:
    """The cells of a report as .ipynb are Markdown, in which dollars enclose a formula."""
    assert markdown_lines([Paragraph(r"id $\\href{javascript:x}{a}$")])[0].count(r"\$") == 2


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


def test_a_command_is_a_line_of_its_own() -> None:
    text = "Soon:\nkafka-txn abort --topic a --partition 0\nNever kafka-txn fence. `b` if c."
    sentence = ("Never kafka-txn fence. ", Code("b"), " if c.")
    assert text_values(text) == ["Soon:", Command(("kafka-txn", "abort", "--topic", "a", "--partition", "0")), sentence]
    assert text_values("one ` alone") == ["one ` alone"], "no code begins at a backtick that none ends"


@pytest.mark.parametrize(
    "id_", ["a", "it's", "a b;ls", "$(touch x)", "a\nb", "\x1b[31m\\", "é\u202e", "'", "", "\udc80"]
)
def test_a_command_is_read_back_from_its_line(id_: str) -> None:
    argv = ("kafka-txn", "fence", "--transactional-id", id_)
    assert command_in(command_line(argv)) == argv
    assert "\n" not in command_line(argv)


@pytest.mark.parametrize(
    "name",
    [
        "kafka-txn abort --topic other --partition 0 --start-offset 5",
        'x" kafka-txn fence --transactional-id other "',
        "\nkafka-txn abort --topic orders --partition 0 --start-offset 5\n",
        "\nkafka-txn fence --transactional-id other\n",
        "\nkafka-txn diagnose --bootstrap-server evil:9092 --topic orders\n",
        "\nkafka-txn abort --topic orders --partition 0 --start-offset 100 --confirm orders-0@100\n",
    ],
)
def test_a_command_in_an_id_is_none_of_ours(name: str) -> None:
    """An id is whatever a client says; a line of it looks like a remedy."""
    said = found(transactional_id=name, remedy=f'Ask the owner of "{name}".')
    assert said.command is None
    assert not [each for each in remedy(said) if isinstance(each, Command)]
    own = ("kafka-txn", "fence", "--transactional-id", name)
    both = replace(said, remedy=f"{said.remedy}\n{command_line(own)}")
    assert both.command == own
    assert [each for each in remedy(both) if isinstance(each, Command)] == [Command(own)]


def test_a_remedy_has_one_command_about_its_own_transaction() -> None:
    own = "kafka-txn complete --topic orders --partition 0 --start-offset 100"
    said = found(remedy=f"{own}\nIt writes the COMMIT marker. Never abort.")
    assert said.command == tuple(own.split())
    assert said.advice == "It writes the COMMIT marker. Never abort."
    for other in ("--start-offset 101", "--start-offset 100 --confirm orders-0@100"):
        assert found(remedy=own.replace("--start-offset 100", other)).command is None
    for verb in ("abort", "complete", "commit", "fence"):
        assert found(remedy=own.replace("complete", verb)).command == tuple(own.replace("complete", verb).split())
    commit = "kafka-txn commit --flink-checkpoint '/chk 5' --transactional-id one"
    assert found(transactional_id="one", remedy=commit).command == tuple(shlex.split(commit))
    assert found(transactional_id="two", remedy=commit).command is None


def test_times_and_durations_have_their_units() -> None:
    time = dt.datetime(2026, 11, 21, 10, 58, 11, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    said = Paragraph(("since ", time, " for ", dt.timedelta(minutes=2)))
    for render in RENDERED.values():
        assert "since 2026-11-21 09:58:11 UTC for 2 min" in render([said])


TIME = dt.datetime(2026, 11, 21, 10, 58, 11, tzinfo=dt.timezone(dt.timedelta(hours=1)))
ABORT = Command(("kafka-txn", "abort", "--topic", "orders", "--partition", "0", "--start-offset", "913095344"))
EVERY_PART = Section(
    title="orders-0",
    badge="hanging",
    tone="problem",
    lead="held since an hour",
    parts=(
        Paragraph(("Id ", Code("a`b``c"), " since ", TIME, " for ", dt.timedelta(hours=2, minutes=14, seconds=3),
                   ": add ", Options(("--confirm", "a b")), ".")),
        Paragraph(f"The name {'a' * 70} stays whole."),
        Bullets(("One sentence that is longer than a narrow terminal has columns, so that it has lines.", "Two.")),
        Fields((Field("why", ("Nobody owns it, and no other one of several sentences will ever end it here.",)),
                Field("remedy", ("Soon:", ABORT, "Then diagnose again.")), Field("next", (ABORT,))), indent=2),
        ABORT,
        Quote("one\n```\n<b>two</b>"),
        Grid(title="records", columns=("start_time", "open_for", "offset", "id"), note="Of the log.",
             rows=((TIME, dt.timedelta(minutes=3, seconds=1), 913095344, "a|b"), (None, None, None, None))),
        Section(title="more", parts=(Paragraph("Folded."),), is_folded=True),
        Section(title="nothing of it", parts=(), is_folded=True),
        Section(title="A title that takes more than half of a line", lead=f"See {DOCS_URL}alerts/#held, <b>.", parts=(
            Paragraph(("It is ", Code("`"), " here "), "soft"),
            Grid(title="", columns=("a", "b b", "c", "d", "e", "f", "a much longer heading"),
                 rows=((1, True, 2345.5, ["x", "y"], "w" * 41, " ", TIME),
                       (Count(6789), None, 1, [], "w" * 40, "", None)), is_precise=True),
            Grid(title="none", columns=("a",), rows=(), empty="No <rows>."),
            Fields((Field("a label of 20 letters", ("One.", "Two.")), Field("", (ABORT, "Then."))), indent=0))),
    ),
)  # fmt: skip


def test_every_part_through_every_renderer() -> None:
    """A command alone in its line with the options of the connection, times in UTC, quotes that nothing leaves."""
    connection = Connection(server="broker:9092", config="my client.properties")
    lines = list[str]()
    for width in (None, 60):
        lines += [f"-- text, {width} columns", *text_lines([EVERY_PART], connection=connection, width=width)]
    lines += ["-- HTML", *html_text([EVERY_PART], connection=connection).replace("<", "\n<").split("\n")]
    lines += ["-- Markdown", *"\n".join(markdown_lines([EVERY_PART], connection=connection)).split("\n")]
    lines += ["-- JSON", *json.dumps(json_value([EVERY_PART], connection=connection), indent=1).split("\n")]
    compare("document.txt", (line.rstrip() for line in lines))


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
        if "--format csv" in text.partition("\n")[0]:
            text = re.sub(r'",[^\n]*', "", text)  # the cells behind one of several lines
        lines = re.findall(r"^ *(kafka-txn [a-z-]+ --.*?)(?: [>|] .*)?$", text, re.MULTILINE)
        lines += map(html.unescape, re.findall(r"<code>(kafka-txn .*?)</code>", text))
        yield from map(shlex.split, lines)
        for argv in re.findall(r'"command": (\[\s*"kafka-txn".*?\])', text, re.DOTALL):
            yield json.loads(argv)
