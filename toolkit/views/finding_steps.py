"""What to do for each finding, with the notebook that goes on from there."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.command_line import command_line
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.live import Finding
from toolkit.schema.verdict import Verdict
from toolkit.sources.source import CLUSTER, RECORDING
from toolkit.views.document import NOWHERE, Code, Command, Connection, Paragraph
from toolkit.views.finding_document import by_urgency, clusters, first_names, partition_name
from toolkit.views.renderers import markdown_lines
from toolkit.views.row_formats import plain, printable

if TYPE_CHECKING:
    from toolkit.sources.source import Source

MAX_PARTITIONS = 5  # named for a verdict
_BRACKET = re.compile(r"([\[\]])")  # of a link or a picture, which an id may be
TIMELINE = ("02_lso_timeline.ipynb", "when it began, and who waits")
COORDINATOR = ("03_coordinator.ipynb", "why its coordinator does not end it")
ABORT = ("04_abort.ipynb", "end it")
PANEL = ("10_panel.ipynb", "end it with buttons")
FENCE = ("04_abort.ipynb", "*When it has an owner*; never abort it")
COMPLETE = ("04_abort.ipynb", "*When the records are committed*; never abort it")
POSTMORTEM = ("07_postmortem.ipynb", "write the postmortem")
NOTEBOOKS = {
    "hanging": (TIMELINE, COORDINATOR, ABORT, PANEL),
    "stuck_ending": (COORDINATOR, COMPLETE),
    "overdue": (COORDINATOR, FENCE),
    "unknown": (COORDINATOR, ("05_offline.ipynb", "read the missing evidence from files")),
    "ended": (TIMELINE, POSTMORTEM),
}
CLUSTERS_ONLY = {ABORT[0], PANEL[0]}
OF_RECORDING = (("06_spark_pipeline.ipynb", "what was held, over all samples"), POSTMORTEM)
"""A recording has no log and no coordinators' records, which the other notebooks read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextSteps:
    """The findings by verdict, the most urgent first, each with what to do; Markdown in a notebook."""

    findings: Sequence[Finding]  # the findings in the order of their urgency
    kind: str = CLUSTER  # of their source
    connection: Connection = NOWHERE  # what commands need to reach it

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_markdown_(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        by_verdict: dict[Verdict, list[Finding]] = {}
        for finding in self.findings:
            if finding.verdict is not Verdict.CLEAR:
                by_verdict.setdefault(finding.verdict, []).append(finding)
        if not by_verdict:
            if not self.findings:
                return ["No findings: nothing was read, or this is an empty selection."]
            partitions = len({(each.cluster_id, each.topic, each.partition) for each in self.findings})
            where = "this partition" if partitions == 1 else f"these {partitions:,} partitions"
            return [
                f"No transaction blocks a consumer of {where}: check the consumers themselves.",
                _link("02_lso_timeline.ipynb", "the lag of a group in parts"),
            ]
        return [line for verdict, found in by_verdict.items() for line in self._of_verdict(verdict, found)]

    def _of_verdict(self, verdict: Verdict, found: Sequence[Finding]) -> list[str]:
        first = found[0]
        many = len(clusters(found)) > 1
        names = list(
            dict.fromkeys(  # a partition may have several
                _name(each) + (f" of cluster `{printable(each.cluster_id or 'not known')}`" if many else "")
                for each in found
            )
        )
        lines = [f"- **{verdict}**: {first_names(names, MAX_PARTITIONS)}. {verdict.sentence}"]
        advice = _BRACKET.sub(r"\\\1", plain(first.advice))
        lines += [f"    - remedy for {names[0]}: {advice}".rstrip()] if first.remedy else []
        if first.command:
            command = Code(command_line(self.connection.argv(Command(first.command))))
            lines.append(f"        - {markdown_lines([Paragraph((command,))])[0]}")
        for file, what in OF_RECORDING if self.kind == RECORDING else NOTEBOOKS.get(verdict, (TIMELINE,)):
            where = "" if self.kind == CLUSTER or file not in CLUSTERS_ONLY else ", with the cluster as its source"
            lines.append(f"    {_link(file, what + where)}")
        if first.topic is not None and self.kind != RECORDING:
            lines.append(f"    - parameters: `topic = {first.topic!r}`, `partition = {first.partition}`")
        return lines


def next_steps(findings: Data, *, source: Source | None = None, now: dt.datetime | None = None) -> NextSteps:
    """What to do for findings: by verdict, with the notebook that goes on, and its parameters.

    Parameters
    ----------
    findings
        ``schema.FINDINGS``.
    source
        Where they were read, as not every notebook takes every source; a cluster if null.
    now
        Time up to which ages are counted, for the order; that of the newest finding if null.

    Returns
    -------
    NextSteps
        Markdown in a notebook, text elsewhere.
    """
    kind, connection = (CLUSTER, NOWHERE) if source is None else (source.kind, Connection.of(source))
    return NextSteps(findings=by_urgency(records_of(findings, Finding), now), kind=kind, connection=connection)


def _link(file: str, what: str) -> str:
    """A line that is nothing but a link: JupyterLab and nbconvert do not underline one within a text."""
    return f"- [{file}: {what}]({file})"


def _name(finding: Finding) -> str:
    name = printable(partition_name(finding))
    return name if finding.tp is None else f"`{name}`"
