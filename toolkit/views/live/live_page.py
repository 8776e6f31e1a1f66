"""A page for an incident room: the overview and the timeline of a partition, redrawn from a cluster or a recording."""

from __future__ import annotations

import datetime as dt
import threading
from collections import deque
from collections.abc import Sequence
from html import escape
from typing import Any

import ipywidgets as widgets

from toolkit.errors import ToolkitError, UsageError
from toolkit.schema.coerce import records_of
from toolkit.schema.durations import duration
from toolkit.schema.live import Finding
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.recording import Recording
from toolkit.sources.recording.recording_folder import AN_INSTANT
from toolkit.views.plots.figure_svg import figure_svg
from toolkit.views.plots.live_timeline import LiveTimeline
from toolkit.views.plots.overview_plot import PartitionLine, partition_lines, plot_overview
from toolkit.views.plots.plot_theme import DARK_VARIABLES, follow_theme
from toolkit.views.row_formats import count, printable
from toolkit.views.show_table import show
from toolkit.views.urgency import newest

MAX_LINES = 25
MAX_AGE = dt.timedelta(hours=8)
WORST = "the worst partition"
STYLE = f"""<style>
.kafka-txn-live, .kafka-txn-live .widget-html-content {{ overflow: visible; height: auto; line-height: 1.45; }}
.kafka-txn-live {{ max-width: 1100px; gap: 8px; }}
.kafka-txn-live .widget-select {{ width: 100%; max-width: 60em; height: auto; }}
.kafka-txn-live svg {{ width: 100%; height: auto; display: block; }}
[data-jp-theme-light="false"] .kafka-txn-live {{ {DARK_VARIABLES}}}
</style>"""
CLICK = (  # a click on a line of the overview chooses it in the list, which the kernel listens to
    "const list = this.closest('.kafka-txn-live').querySelector('select');"
    "list.selectedIndex = Number(this.dataset.row) + 1;"
    "for (const kind of ['input', 'change']) list.dispatchEvent(new Event(kind, {bubbles: true}));"
)


class LivePage(widgets.VBox):  # type: ignore[misc]
    """Overview of all partitions; timeline, evidence and remedy of one, the worst until another is chosen.

    It samples in a thread until `stop`, or until the kernel ends. Its memory is bounded: a sample replaces the one
    before, except for the offsets of the drawn partition: the timeline keeps the last 5,000 samples of a cluster, and
    reads 8 hours of a recording.

    Parameters
    ----------
    source
        A `Cluster`, or a `Recording`, whose samples are shown one after the other, and then each that is added.
    every_s
        Seconds from one sample to the next.
    recheck_after
        Of a cluster, seconds before the confirming second observation; 0 disables it, and no transaction is `hanging`
        that only a second one can prove.
    is_running
        False if only `refresh` takes samples.

    Raises
    ------
    UsageError
        For another source: files do not change.

    Examples
    --------
    >>> LivePage(cluster)  # doctest: +SKIP
    """

    def __init__(
        self, source: Cluster | Recording, *, every_s: float = 5.0, recheck_after: float = 2.0, is_running: bool = True
    ) -> None:
        if not isinstance(source, Cluster | Recording):
            raise UsageError(
                f"{source!r} does not change.", do="Use a cluster or a recording; plot_timeline draws files."
            )
        self.source, self.every_s, self.recheck_after = source, every_s, recheck_after
        self.error: Exception | None = None
        self._findings: list[Finding] = []
        self._lines: list[PartitionLine] = []
        self._timeline: LiveTimeline | None = None
        self._due: dt.datetime | None = None
        self._times: deque[tuple[dt.datetime, dt.datetime]] = deque()
        self._at: dt.datetime | None = None
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._status, self._overview, self._drawn, self._details = (widgets.HTML() for _ in range(4))
        self._list = widgets.Select(options=[(WORST, None)], rows=4, layout={"width": "100%"})
        self._list.observe(self._on_choice, "value")
        super().__init__([widgets.HTML(STYLE), self._status, self._overview, self._list, self._drawn, self._details])
        self.add_class("kafka-txn-live")
        if is_running:
            threading.Thread(target=self._run, name="kafka-txn live page", daemon=True).start()

    def refresh(self) -> None:
        """Take a sample and draw it; an error is shown, and the last pictures stay."""
        with self._lock:
            started = dt.datetime.now(dt.UTC)
            try:
                self._at = self._next_time()
                rows = self._finding_rows()
                self._findings = records_of(rows, Finding)
                self._lines = partition_lines(self._findings, newest(self._findings))
                self._draw_overview()
                self._set_choices(self._lines[:MAX_LINES])
                self._draw_partition()
                self.error = None
            except Exception as error:  # noqa: BLE001 - a page that stands still has to say so
                self.error = error
            self._draw_status(started)

    def stop(self) -> None:
        """Take no more samples."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.refresh()
            self._stopped.wait(self.every_s)

    def _next_time(self) -> dt.datetime | None:
        """Of a recording, the time of the next sample, or of the newest again until the recorder adds one."""
        if isinstance(self.source, Recording) and not self._times:
            added = self.source.samples(start=None if self._due is None else self._due + AN_INSTANT)
            rows = added.dropna(subset=["observed_at"])
            self._times.extend(zip(rows["sampled_at"], rows["observed_at"], strict=True))
        if not self._times:
            return self._at
        self._due, time = self._times.popleft()
        return time

    def _finding_rows(self) -> Sequence[Any]:
        if isinstance(self.source, Recording):
            return self.source.finding_rows(at=self._at)
        return self.source.finding_rows(recheck_after=self.recheck_after)

    def _draw_overview(self) -> None:
        figure = plot_overview(self._findings, most=MAX_LINES)
        self._overview.value = follow_theme(figure_svg(figure, row_click=CLICK))

    def _set_choices(self, lines: Sequence[PartitionLine]) -> None:
        """Keep the choice of the reader, even if its partition is clear by now."""
        options = [(WORST, None), *((_choice_text(line), _key(line.finding)) for line in lines)]
        chosen = self._list.value
        if chosen is not None and chosen not in {key for _, key in options}:
            options.append((f"clear: {printable(chosen[0] or '')}-{chosen[1]}", chosen))
        if tuple(options) != self._list.options:
            self._list.unobserve(self._on_choice, "value")
            self._list.options, self._list.value = options, chosen
            self._list.rows = min(len(options), 8)
            self._list.observe(self._on_choice, "value")

    def _on_choice(self, change: object) -> None:
        with self._lock:
            try:
                self._draw_partition()
            except ToolkitError as error:
                self.error = error
                self._draw_status(dt.datetime.now(dt.UTC))

    def _draw_partition(self) -> None:
        place = self._list.value or (_key(self._lines[0].finding) if self._lines else None)
        here = [each for each in self._findings if _key(each) == place]
        self._details.value = show(here, now=newest(self._findings))._repr_html_() + _evidence_html(here)
        if place is None or place[0] is None:
            self._drawn.value = ""
            return
        timeline = self._timeline
        if timeline is None or (timeline.topic, timeline.partition) != place:
            timeline = LiveTimeline(self.source, *place, recheck_after=0, max_age=MAX_AGE)
        figure = timeline.figure(at=self._at)
        self._timeline = timeline
        self._drawn.value = follow_theme(figure_svg(figure))

    def _draw_status(self, started: dt.datetime) -> None:
        took = (dt.datetime.now(dt.UTC) - started).total_seconds()
        time = self._at or started
        problem = "" if self.error is None else f'<p role="alert"><b>No sample:</b> {escape(str(self.error))}</p>'
        problem += "".join(f"<p>{escape(text)}</p>" for text in (self._timeline.problems if self._timeline else ()))
        sample = f"Sample of <b>{time:%Y-%m-%d %H:%M:%S} UTC</b>, {took:.1f} s; the next one in {self.every_s:g} s."
        self._status.value = f"<div>{sample}</div>{problem}"


def _key(finding: Finding) -> tuple[str | None, int | None]:
    return finding.topic, finding.partition


def _choice_text(line: PartitionLine) -> str:
    parts = [line.verdict, printable(line.name)]
    parts += [duration(line.age)] if line.age is not None else []
    parts += [count(line.waiting, line.unit or "record")] if line.waiting else []
    return " · ".join(parts)


def _evidence_html(findings: Sequence[Finding]) -> str:
    rows = "".join(
        f"<tr><td>{escape(printable(str(entry.source)))}</td><td>{escape(printable(str(entry.name)))}</td>"
        f"<td>{escape(printable(str(entry.value)))}</td></tr>"
        for finding in findings
        for entry in finding.evidence
    )
    table = f'<div class="scroll"><table>{rows}</table></div>'
    return f'<details class="kafka-txn"><summary>Evidence</summary>{table}</details>' if rows else ""
