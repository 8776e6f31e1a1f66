"""`explain`: from a pasted error to the answer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.analysis.symptoms.named_resources import NamedResources
from toolkit.analysis.symptoms.recognition import RecognizedSymptom, recognize
from toolkit.schema import FINDINGS
from toolkit.sources.resource_checks import ResourceChecks, check_resources
from toolkit.views.html_page import page
from toolkit.views.symptoms.explanation_lines import (
    TITLE_OF_UNKNOWN,
    WHAT_TO_COLLECT,
    answer_lines,
    checked_lines,
    explanation_lines,
    named_line,
)
from toolkit.views.symptoms.explanation_rows import EXPLANATIONS, explanation_rows

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.schema import Row
    from toolkit.sources.source import Source

TEXT_WIDTH = 120
TEMPLATE = "explanation.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedError:
    """A pasted error, and the state of the cluster about it.

    Parameters
    ----------
    recognized
        The symptoms that were recognized; empty if the text is unknown.
    named
        Ids, groups and partitions in the text, and those of the caller.
    checks
        State of them in a source; null without a source.
    """

    recognized: tuple[RecognizedSymptom, ...]
    named: NamedResources
    checks: ResourceChecks | None = None

    @property
    def symptoms(self) -> tuple[str, ...]:
        """Names of the symptoms, as in `toolkit.analysis.symptoms.recognition.SYMPTOMS`."""
        return tuple(each.symptom.name for each in self.recognized)

    def rows(self) -> list[Row]:
        """A row for each symptom, or one that says what to collect (`EXPLANATIONS`)."""
        return explanation_rows(self.recognized, self.named, self.checks)

    def frame(self) -> pd.DataFrame:
        """`rows` as a pandas DataFrame."""
        return EXPLANATIONS.frame(self.rows())

    def findings(self) -> pd.DataFrame:
        """The findings about them (``schema.FINDINGS``); empty without a source."""
        return FINDINGS.frame(self.checks.findings if self.checks else ())

    def lines(self, *, width: int | None = None) -> list[str]:
        """The explanation as lines of text, wrapped at `width` columns."""
        return explanation_lines(self.recognized, self.named, self.checks, now=_now(self.checks), width=width)

    def __repr__(self) -> str:
        return "\n".join(self.lines(width=TEXT_WIDTH))

    def _repr_html_(self) -> str:
        """The same as HTML for a notebook, without network access.

        Raises
        ------
        UsageError
            If jinja2 is not installed.
        """
        return page(
            __name__.rpartition(".")[0],
            TEMPLATE,
            what="An explanation",
            recognized=[(each, list(answer_lines(each.symptom))) for each in self.recognized],
            unknown=TITLE_OF_UNKNOWN,
            collect=WHAT_TO_COLLECT,
            named=named_line(self.named),
            checked=checked_lines(self.checks, self.named, now=_now(self.checks), width=TEXT_WIDTH)
            if self.checks
            else None,
        )


def explain(
    text: str,
    source: Source | None = None,
    *,
    transactional_ids: Sequence[str] = (),
    groups: Sequence[str] = (),
    topics: Sequence[str] = (),
    partitions: Sequence[int] = (),
    recheck_after: float = 5.0,
) -> ExplainedError:
    """Explain a pasted error: its possible causes, what to check, what is safe, and what not to do.

    Parameters
    ----------
    text
        An error message, a stack trace, log lines, or the output of ``kafka-consumer-groups.sh``. Of more than a
        million characters the first and the last half a million are read. Nothing of it is shown but the ids, groups
        and partitions that it names.
    source
        A cluster, files or a recording to look up the named ids and partitions: the explanation includes its findings.
        If the text names nothing, these are of all partitions.
    transactional_ids, groups, topics, partitions
        Also look up these; partitions are numbers of each of `topics`.
    recheck_after
        Delay in seconds before the confirming second check of a cluster; 0 disables it.

    Returns
    -------
    ExplainedError
        Without a symptom where the text is unknown. What could not be looked up is in ``checks.not_checked``.

    Examples
    --------
    >>> explain("org.apache.kafka.common.errors.ProducerFencedException: ...").symptoms
    ('producer-fenced',)
    """
    recognized, named = recognize(text)
    named = named.with_more(transactional_ids=transactional_ids, groups=groups, topics=topics, partitions=partitions)
    checks = None if source is None else check_resources(source, named, recheck_after=recheck_after)
    return ExplainedError(recognized=recognized, named=named, checks=checks)


def _now(checks: ResourceChecks | None) -> dt.datetime:
    times = [row["observed_at"] for row in checks.findings] if checks else []
    return max(times, default=dt.datetime.now(dt.UTC))
