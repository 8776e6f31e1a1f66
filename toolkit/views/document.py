"""An answer as typed parts, which `renderers` writes for a terminal, as HTML, as Markdown and as JSON.

Texts are of us or of others: a renderer escapes both. A command is its arguments, never a part of a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from toolkit.command_line import command_in

if TYPE_CHECKING:
    import datetime as dt

    from toolkit.sources.live.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Code:
    """A name, an option or a value as it is typed."""

    text: str


@dataclass(frozen=True, slots=True)
class Options:
    """Options to add to a command line; ``Options(("--confirm", "orders-0@12"))``."""

    argv: tuple[str, ...]


Inline: TypeAlias = "str | int | dt.datetime | dt.timedelta | Code | Options"
"""Of a sentence: an offset or a number, a time, a duration. An address of the docs in a text is a link."""
Sentence: TypeAlias = "str | tuple[Inline, ...]"


@dataclass(frozen=True, slots=True)
class Command:
    """A command, its program first: ``kafka-txn`` or a tool of Kafka. A renderer adds the options of the connection."""

    argv: tuple[str, ...]


Value: TypeAlias = "Sentence | Command"


@dataclass(frozen=True, slots=True)
class Field:
    """A label, and what it says in one or more lines."""

    label: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A sentence or more; `kind`: lead or soft."""

    text: Sentence
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences."""

    items: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class Fields:
    """Labels with what they say; `indent`: in a terminal; without any, they are a block of their own."""

    fields: tuple[Field, ...]
    indent: int = 2


@dataclass(frozen=True, slots=True)
class Quote:
    """Lines that stay as they are: of a broker, a traceback, a listing."""

    text: str


Columns: TypeAlias = "Mapping[str, str | Callable[[Any], object]]"
"""Of a grid, by heading: an attribute of a record, or what a function makes of it."""


class Count(int):
    """A number of things, written with separators, which an offset or an id is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of values: a renderer writes each by its type, and aligns numbers.

    `note`: about its rows. `empty`: of one without rows. `is_precise`: whether times are to the millisecond.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    note: str = ""
    empty: str = "None."
    is_precise: bool = False

    @classmethod
    def of(cls, title: str, records: Iterable[Any], columns: Columns, **more: Any) -> Grid:
        """A row for each record."""
        readers = [attrgetter(each) if isinstance(each, str) else each for each in columns.values()]
        rows = tuple(tuple(read(record) for read in readers) for record in records)
        return cls(title=title, columns=tuple(columns), rows=rows, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Parts under a title.

    `lead`: the answer in a line, beside the title in a terminal. `badge`: a verdict. `tone`: a colour. `is_folded`:
    opened by a click, in HTML.
    """

    title: str
    parts: tuple[Part, ...]
    lead: str = ""
    badge: str = ""
    tone: str = ""
    is_folded: bool = False

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of its parts."""
        return tuple(field for part in self.parts if isinstance(part, Fields) for field in part.fields)


Part: TypeAlias = Paragraph | Bullets | Fields | Quote | Grid | Section | Command


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What the commands of an answer need to reach its source.

    `server`, `config`: of a cluster. `cluster`: its name in the file of clusters, which has both. `checkpoints`: of
    Flink, which abort and fence ask first. `log_dirs`: of files, for commands that read them.
    """

    server: str = ""
    config: str = ""
    cluster: str = ""
    checkpoints: tuple[str, ...] = ()
    log_dirs: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: object) -> Connection:
        """That of a cluster; of another source none. A file of properties that is not known is a FILE to be named."""
        from toolkit.sources.source import CLUSTER

        if getattr(source, "kind", None) != CLUSTER:
            return NOWHERE
        cluster = cast("Cluster", source)
        is_plain = cluster.config.masked().get("security.protocol", "plaintext").lower() == "plaintext"
        config = cluster.config.file or ("" if is_plain else "FILE")
        checkpoints = tuple(str(each.path) for each in cluster.flink_checkpoints)
        return cls(server=cluster.bootstrap_servers, config=config, checkpoints=checkpoints)

    def argv(self, command: Command) -> tuple[str, ...]:
        """A command that runs as it stands: ours has its options behind the verb, Kafka's tools before it."""
        program, *rest = command.argv
        if program != "kafka-txn":
            server = {"--bootstrap-server": self.server or "HOST:PORT"} if "--bootstrap-server" not in rest else {}
            config = _options({"--command-config": self.config})
            at = 0 if server else 2  # behind the server
            return (program, *_options(server), *rest[:at], *config, *rest[at:])
        verb, *rest = rest
        if verb in OFFLINE or {"--bootstrap-server", "--cluster", "--log-dir", "--recording"} & set(rest):
            return (program, verb, *rest)
        address = {"--bootstrap-server": self.server, "--command-config": self.config}
        named = _options({"--cluster": self.cluster} if self.cluster else address)
        files = self.log_dirs if verb in READ_FILES else ()
        checked = self.checkpoints if verb in {"abort", "fence"} else ()
        named += tuple(word for each in files for word in ("--log-dir", each))
        return (program, verb, *named, *(word for each in checked for word in ("--flink-checkpoint", each)), *rest)


NOWHERE = Connection()
OFFLINE = frozenset({"scan", "txn-stat", "copy", "abort-command"})
"""Commands that take paths and no cluster."""
READ_FILES = frozenset({"diagnose", "find-hanging", "history", "coordinator", "exposure", "lag", "why", "gaps"})
"""Commands that read log directories, too."""


def _options(named: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(word for option, value in named.items() if value for word in (option, value))


def text_values(text: str) -> list[Value]:
    """The lines of a text of ours: a command that is a line of its own, and sentences."""
    lines = text.split("\n")
    return [marked(line) if (argv := command_in(line)) is None else Command(argv) for line in lines]


def marked(text: str) -> Sentence:
    """A text of ours, with what it has in backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0 or len(parts) == 1:
        return text
    return tuple(Code(part) if index % 2 else part for index, part in enumerate(parts) if part)
