"""The timeline of a live partition, from the log around the transaction, for light and dark pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from toolkit.errors import ToolkitError
from toolkit.schema import LOG_TRANSACTIONS, LSO_TIMELINE, Row
from toolkit.views.report.gap_chart import gap_chart

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.schema import Table
    from toolkit.sources.live.cluster import Cluster
    from toolkit.views.plots.plot_theme import ThemeName

BEFORE, BEHIND = 2_000, 50_000  # offsets of the log to read around the start of the transaction

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePicture:
    """A timeline by theme, the shapes of a static one, and sentences about unreadable data."""

    figures: Mapping[str, Any]
    still: Mapping[str, Any] | None
    problems: Sequence[str]


def picture(cluster: Cluster, selected: Row, *, findings: Sequence[Row], samples: Sequence[Row]) -> TimelinePicture:
    """Read the log around the start of a transaction, and draw it.

    Parameters
    ----------
    selected
        The selected finding: its start is drawn, and the states of its id, even if it has ended.
    findings
        The current findings of its partition, at least one.
    samples
        Rows of ``schema.PARTITIONS`` of the partition at several times, at least one, the newest last.
    """
    from toolkit.views.plots import plot_timeline

    topic, partition, start = selected["topic"], selected["partition"], selected["start_offset"]
    problems: list[str] = [f"The partition could not be read: {samples[-1]['error']}"] if samples[-1]["error"] else []

    def attempt(what: str, read: Callable[[], Read], otherwise: Read) -> Read:
        try:
            return read()
        except ToolkitError as error:
            problems.append(f"{what} could not be read: {error}")
            return otherwise

    middle = samples[-1]["last_stable_offset"] or 0 if start is None else start
    bounds = {"start": max(samples[-1]["log_start_offset"] or 0, middle - BEFORE), "stop": middle + BEHIND}

    def rows(table: Table, read: Callable[..., pd.DataFrame], what: str) -> list[Row]:
        return (
            []
            if samples[-1]["error"]
            else attempt(what, lambda: table.rows(read(topics=topic, partitions=partition, **bounds)), [])
        )

    log_transactions = rows(LOG_TRANSACTIONS, cluster.log_transactions, "The log")
    steps = rows(LSO_TIMELINE, cluster.lso_timeline, "How the LSO moved")
    ids = sorted({row["transactional_id"] for row in (selected, *findings) if row["transactional_id"] is not None})
    events = (
        attempt("Records of the coordinators", lambda: cluster.transaction_log(transactional_ids=ids), None)
        if ids
        else None
    )
    themes: tuple[ThemeName, ...] = ("light", "dark")
    figures: dict[str, Any] = {
        theme: plot_timeline(
            log_transactions,
            lso_timeline=steps,
            partitions=samples,
            findings=findings,
            transaction_log=events,
            topic=topic,
            partition=partition,
            theme=theme,
        )
        for theme in themes
    }
    still = gap_chart(findings[0], steps=steps, log_transactions=log_transactions, samples=samples)
    return TimelinePicture(figures=figures, still=still, problems=problems)
