"""What the commands abort and complete share: their options, the finding that they are about, and how the LSO moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.errors import ActionRefused, NotFound

if TYPE_CHECKING:
    from toolkit.actions.abort import AbortResult
    from toolkit.actions.abort_impact import AbortImpact
    from toolkit.actions.audit import Audit
    from toolkit.actions.complete import CompleteResult
    from toolkit.actions.complete_impact import CompleteImpact
    from toolkit.schema.live import Finding
    from toolkit.sources.live.cluster import Cluster

StartOffset = Annotated[
    int, typer.Option("--start-offset", metavar="OFFSET", min=0, help="First offset of the transaction.")
]
ConfirmTransaction = Annotated[
    str | None,
    typer.Option(
        "--confirm",
        metavar="TOPIC-PARTITION@OFFSET",
        help="Do it: name the transaction, orders-0@913095344. Default: ask at a terminal, else a dry run.",
    ),
]


def find_transaction(
    cluster: Cluster, topic: str, partition: int, *, start_offset: int, recheck_after: float
) -> Finding:
    """The finding of the transaction that starts at an offset.

    Raises
    ------
    NotFound
        If none does.
    """
    from toolkit.schema.live import Finding

    for row in cluster.finding_rows(topics=[topic], partitions=[partition], recheck_after=recheck_after):
        if row["start_offset"] == start_offset:
            return Finding.of(row)
    raise NotFound(
        f"{topic}-{partition} has no open transaction that starts at offset {start_offset}.",
        do="Run kafka-txn diagnose; it may have ended.",
    )


@contextmanager
def audited_plan(action: str, cluster: Cluster, finding: Finding, audit: Audit | None) -> Iterator[None]:
    """Write to the audit trail that a confirmed action was refused when it was planned.

    Parameters
    ----------
    action, cluster, finding
        The action, and what it is for.
    audit
        Null unless it was confirmed.
    """
    try:
        yield
    except ActionRefused as error:
        if audit is not None:
            names = ("topic", "partition", "start_offset", "producer_id", "producer_epoch", "verdict", "outcome")
            about = {name: getattr(finding, name) for name in names}
            target = f"{finding.topic}-{finding.partition}@{finding.start_offset}"
            audit.refused(error, action=action, bootstrap_servers=cluster.bootstrap_servers, target=target, **about)
        raise


def lso_texts(impact: AbortImpact | CompleteImpact) -> Iterator[str]:
    """Where the LSO goes, and who holds it then."""
    now, then = impact.last_stable_offset, impact.next_stable_offset
    yield f"the LSO stays at {now}" if then == now else f"the LSO goes from {now} to {then}"
    if impact.next_start_offset is not None:
        yield f"then held by producer {impact.next_producer_id}, from offset {impact.next_start_offset} on"


def resume_texts(finding: Finding) -> Iterator[str]:
    """What no check can rule out: the protocol has no conditional marker."""
    if finding.transactional_id is not None:
        yield (
            f'if a client with transaction version 1 begins again as "{finding.transactional_id}" on this partition in '
            "the milliseconds between the last check and the marker, the marker ends that transaction here, too"
        )


def groups_text(groups: Sequence[str] | None) -> str:
    """Names of groups."""
    return "not known" if groups is None else ", ".join(groups) or "none"


def moved_texts(name: str, done: AbortResult | CompleteResult) -> list[str]:
    """How the LSO moved, and what is open now."""
    moved = f"{name}: the LSO moved from {done.last_stable_offset_before} to {done.last_stable_offset_after}"
    if done.next_start_offset is not None:
        return [f"{moved}.", f"The next transaction open on it starts at offset {done.next_start_offset}."]
    return [f"{moved}, and nothing else is open on it. The high watermark is {done.high_watermark}."]


def bytes_text(size: int | None) -> str:
    """A size for a person: ``1.2 MB``."""
    if size is None:
        return "of unknown size"
    value, units = float(size), ["bytes", "kB", "MB", "GB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{size} bytes" if units[0] == "bytes" else f"{value:.1f} {units[0]}"
