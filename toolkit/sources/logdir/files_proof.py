"""What log directories prove as they are, what they do not, and what to do about that: the first line of an answer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import utc
from toolkit.sources.logdir.contents import Contents
from toolkit.sources.logdir.coordinator_state import StateTopic, read_state_topic
from toolkit.sources.logdir.replica.log_dir_layout import METADATA_TOPIC
from toolkit.sources.logdir.replica.metadata_log import furthest


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesProof:
    """What files prove, and what they do not."""

    proven: Sequence[str]  # what is proven, a clause each
    missing: Sequence[str]  # what is not, and what to do about it, a clause each

    @property
    def line(self) -> str:
        """Both in one line."""
        parts = (("Proven", self.proven), ("Not proven", self.missing))
        return " ".join(f"{name}: {'; '.join(clauses)}." for name, clauses in parts if clauses)


def files_proof(contents: Contents) -> FilesProof:
    """What files prove; it reads ``__transaction_state`` and manifests."""
    asserted = contents.assertions
    state_topic = read_state_topic(contents)
    newest = max((each.as_of for each in state_topic.partitions.values() if each.as_of is not None), default=None)
    moments, doubts = _copies(contents)
    proven, missing = [], []
    end = furthest(contents.metadata_ends)
    topics = {} if end is None or end.error else end.state.topics
    if topics and not state_topic.partitions and STATE_TOPIC not in topics.values():
        proven.append(f"by its metadata log the cluster has no {STATE_TOPIC}, so no coordinator has a transaction")
    elif state_topic.gaps:
        more = f" and {len(state_topic.gaps) - 1} more" if len(state_topic.gaps) > 1 else ""
        missing.append(f"{state_topic.gaps[0]}{more}: copy what is missing")
    else:
        proven.append(f"{STATE_TOPIC} is complete{_span(state_topic, newest)}")
    if moments and not doubts:
        proven.append(_copied(contents, moments))
    elif asserted.as_of is not None:
        proven.append(f"copied at {at(asserted.as_of)}, as asserted")
    elif newest is not None and not asserted.consistent_copy:
        missing.append(f"anything after {at(newest)}, so no age counts beyond it: say --as-of TIME of the copy")
    if asserted.consistent_copy:
        proven.append("the files are of one moment, as asserted")
    elif doubts:
        has_manifest = any(contents.copies.manifest(log.root) is not None for log in contents.logs)
        what = f" ({doubts[0]})" if has_manifest else ": copy with kafka-txn copy"
        missing.append(f"that the files are of one moment{what}")
    return FilesProof(proven=proven, missing=missing)


def _copies(contents: Contents) -> tuple[list[dt.datetime], list[str]]:
    """When the logs were copied, and why a manifest does not say it."""
    moments, doubts = set(), []
    for log in contents.logs:
        manifest, doubt = contents.copies.manifest(log.root), contents.copies.doubt(log)
        if doubt is not None and log.where.topic != METADATA_TOPIC:
            doubts.append(doubt)
        if manifest is not None and manifest.moment is not None:
            moments.add(manifest.moment)
    return sorted(moments), doubts


def _copied(contents: Contents, moments: Sequence[dt.datetime]) -> str:
    manifests = [contents.copies.manifest(root) for root in contents.layout.roots]
    changed = {folder for manifest in manifests if manifest is not None for folder in manifest.changed}
    if len(moments) > 1:
        return f"copied from {at(moments[0])} to {at(moments[-1])}, each log directory by itself"
    if not changed:
        return f"a copy of one moment, {at(moments[0])}"
    count = f"{len(changed)} partition{'s' if len(changed) > 1 else ''}"
    return f"what was open at {at(moments[0])}, although {count} changed during the copy"


def _span(state_topic: StateTopic, newest: dt.datetime | None) -> str:
    batch_times = [each.replica.window.batch_times for each in state_topic.partitions.values()]
    times = [utc(int(of_batches[0, 1])) for of_batches in batch_times if len(of_batches)]
    first = min((time for time in times if time is not None), default=None)
    if first is None:
        return ", without a record"
    partitions = f"({len(state_topic.partitions)} partitions)"
    if newest is None:
        return f" from {at(first)} {partitions}, to a time that is unknown without its high watermark"
    return f" from {at(first)} to {at(newest)} {partitions}"
