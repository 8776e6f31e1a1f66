"""Verdicts: what each says, how urgent it is, how it is shown; and the pages of the docs on them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, Self

from toolkit.errors import UsageError

Tone = Literal["alarm", "warn", "calm", "muted"]
TONES: Mapping[str, Mapping[str, str]] = {
    "light": {"alarm": "#b83a00", "warn": "#755800", "calm": "#0b5fa5", "muted": "#5b6570"},
    "dark": {"alarm": "#ff8a4c", "warn": "#e8c547", "calm": "#6cb6ff", "muted": "#a6afb9"},
}
"""The colours of verdicts, in plots, tables, reports and the panel: distinct for colour-blind people."""


class Verdict(StrEnum):
    """Who holds a partition's LSO, in a word; the most urgent verdict is first.

    Attributes
    ----------
    sentence
        What it says.
    tone
        Its colour on pages, in plots and in a terminal: a role of the theme.
    symbol
        Its marker in plots, as Plotly names it; each verdict has its own.
    colour
        Its colour on a dashboard, as Grafana names it.
    exit_code
        That of a command with such a finding: 1 if there is something to do, 3 if it is not known, 0 if neither.
    """

    sentence: str
    tone: Tone
    symbol: str
    colour: str
    exit_code: int

    HANGING = "hanging", "No coordinator owns this transaction, so none will end it.", "alarm", "x", "red", 1
    UNKNOWN = "unknown", "Evidence is missing; the finding names it.", "warn", "cross", "purple", 3
    STUCK_ENDING = (
        "stuck_ending",
        "The coordinator decided long ago, and its marker is not written here.",
        "warn",
        "diamond",
        "orange",
        1,
    )
    OVERDUE = (
        "overdue",
        "Ongoing past its own timeout: its coordinator should have aborted it.",
        "warn",
        "triangle-up",
        "yellow",
        1,
    )
    PREPARED = (
        "prepared",
        "Prepared by two-phase commit, or by a checkpoint of Flink: only that external coordinator may decide.",
        "warn",
        "square",
        "light-orange",
    )
    UNREPLICATED = "unreplicated", "Nothing is open; the LSO waits for replication.", "warn", "hexagon"
    ENDED = "ended", "It was open and has ended; it holds nothing any more.", "muted", "square-open"
    ENDING = "ending", "The coordinator is writing its markers.", "calm", "diamond-open", "super-light-blue"
    LONG = (
        "long",
        "A live transaction within its own timeout, but open longer than brokers allow by default (Flink).",
        "calm",
        "triangle-up-open",
        "light-blue",
    )
    ONGOING = "ongoing", "A live transaction within its own timeout.", "calm", "circle-open", "blue"
    CLEAR = "clear", "Nothing is held back.", "muted", "circle"

    def __new__(
        cls,
        name: str,
        sentence: str = "",
        tone: Tone = "calm",
        symbol: str = "",
        colour: str = "text",
        exit_code: int = 0,
    ) -> Self:
        self = str.__new__(cls, name)
        self._value_ = name
        self.sentence, self.tone, self.symbol, self.colour, self.exit_code = sentence, tone, symbol, colour, exit_code
        return self

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise UsageError(f"There is no verdict {value!r}.", do=f"Verdicts are {', '.join(cls)}.")

    @property
    def urgency(self) -> int:
        """Its place among the verdicts, 0 for the most urgent one."""
        return _URGENCY[self]

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, or may be."""
        return self not in (Verdict.UNREPLICATED, Verdict.ENDED, Verdict.CLEAR)

    @property
    def is_live(self) -> bool:
        """Whether its owner is alive as far as its coordinator knows: within its own timeout."""
        return self in (Verdict.LONG, Verdict.ONGOING)

    @property
    def is_healthy(self) -> bool:
        """Whether it needs no action."""
        return self.is_live or self in (Verdict.ENDING, Verdict.CLEAR)

    @property
    def is_brief(self) -> bool:
        """Whether it is healthy and nothing waits long behind it: what waits behind a `long` one is worth showing."""
        return self.is_healthy and self is not Verdict.LONG

    @property
    def is_owned(self) -> bool:
        """Whether its coordinator will end it or has ended it, or another system has to decide it."""
        return self.is_live or self in (Verdict.STUCK_ENDING, Verdict.OVERDUE, Verdict.PREPARED, Verdict.ENDING)


_URGENCY = {verdict: place for place, verdict in enumerate(Verdict)}


DOCS_URL = "https://kafka-txn-toolkit.github.io/kafka-txn-toolkit/"
"""URL of the documentation site, as in pyproject.toml."""

RUNBOOK_URL = f"{DOCS_URL}alerts/"
"""URL of the page with a section for each alert."""


def verdict_page(verdict: str) -> str:
    """URL of a verdict's page."""
    return f"{DOCS_URL}verdicts/{verdict}/"


def cause_page(name: str) -> str:
    """URL of a cause's page."""
    return f"{DOCS_URL}causes/{name}/"


def symptom_page(name: str) -> str:
    """URL of a symptom's page."""
    return f"{DOCS_URL}symptoms/{name}/"
