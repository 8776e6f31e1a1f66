"""Sections of a report, and the tables that it is made from."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.views.document import Field, Fields, Grid, Section
from toolkit.views.renderers import DocumentView
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from toolkit.schema.live import Exposure, Finding, Partition
    from toolkit.schema.log import ClusterEvent, LogTransaction, LsoStep, OffsetsLogRecord, PastTransaction
    from toolkit.schema.recorded import ActionStep
    from toolkit.views.plots.plot_theme import ThemeName

UNKNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReportSection:
    """A section of the page with a heading."""

    title: str
    verdict: str = ""
    lead: str = ""
    fields: tuple[Field, ...] = ()
    grids: tuple[Grid, ...] = ()
    charts: tuple[Callable[[ThemeName], go.Figure], ...] = ()  # drawn when they are called
    figure: bool = False
    appendix: bool = False

    @property
    def head(self) -> Section:
        """Its heading, and what is above its pictures."""
        parts = (Fields(self.fields),) if self.fields else ()
        title = f"Appendix: {self.title}" if self.appendix else self.title
        return Section(title=title, badge=self.verdict, lead=self.lead, parts=parts)

    def __repr__(self) -> str:
        return repr(DocumentView((self.head, *self.grids)))

    def _repr_html_(self) -> str:
        return DocumentView((self.head, *self.grids))._repr_html_()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTables:
    """The tables beside the findings; of a recording with the times of its samples."""

    log_transactions: Sequence[LogTransaction] = ()
    lso_timeline: Sequence[LsoStep] = ()
    transaction_history: Sequence[PastTransaction] = ()
    partitions: Sequence[Partition] = ()
    sampled_at: Sequence[dt.datetime | None] = ()  # of each of these partitions, when its sample was due
    recorded_findings: Sequence[tuple[dt.datetime, Finding]] = ()  # each with the time of its sample
    offsets_log: Sequence[OffsetsLogRecord] = ()
    exposure: Sequence[Exposure] = ()
    cluster_events: Sequence[ClusterEvent] = ()
    actions: Sequence[ActionStep] = ()
    absent: Collection[str] = ()  # names of tables that were not given
    problems: Sequence[str] = ()  # what could not be read

    def partition_samples(self, finding: Finding) -> Iterator[tuple[dt.datetime, Partition]]:
        """The samples of a finding's partition that could be read, with the time of each."""
        for sampled_at, sample in zip(self.sampled_at, self.partitions, strict=False):
            is_own = (sample.topic, sample.partition) == (finding.topic, finding.partition)
            if is_own and sampled_at is not None and sample.error is None:
                yield sampled_at, sample


def text(value: dt.datetime | int | str | None) -> str:
    """A value as text, without control characters."""
    if value is None:
        return "-"
    if isinstance(value, dt.datetime):
        return f"{value.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03}"
    return printable(str(value))


def partition_name(finding: Finding) -> str:
    """``orders-0``, or "the whole cluster"."""
    return "the whole cluster" if finding.topic is None else f"{printable(finding.topic)}-{finding.partition}"


def moment(time: dt.datetime | None, *, otherwise: str = UNKNOWN) -> str:
    """A time to the second, or "not known"."""
    return otherwise if time is None else at(time)


Figure = Any
"""A plotly Figure, or a function that returns one for ``"light"`` and for ``"dark"``; plotly is not imported here."""
