"""`gather`: the log evidence of open transactions of any source; a log is read if those before it leave something open.

The order matters: a partition's log is read after its last observation, and whether a transaction is still open after
the coordinators' log, so that a marker that came before a decision is no missing one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toolkit.analysis.diagnosis.case import Case
from toolkit.analysis.diagnosis.log_excerpts import excerpt_starts
from toolkit.analysis.diagnosis.observation import BEFORE_OPENING
from toolkit.analysis.diagnosis.verdicts import UNKNOWN
from toolkit.schema.table import TransactionKey
from toolkit.sources.evidence_source import EvidenceSource


def gather(source: EvidenceSource, to_read: Sequence[Case], *, search_all: bool = False) -> dict[TransactionKey, Case]:
    """Read the logs of open transactions.

    Returns: each with what its logs show.
    `to_read`: from `Diagnosis.to_read`.
    `search_all`: look for markers on other partitions for those that a coordinator owns, too.
    """
    excerpts = source.excerpts(excerpt_starts(to_read))
    # In doubt, too, unlike `Case.needs_markers`: a recorder keeps the outcome for later samples, a fence needs no more.
    disowned = {each.key for each in to_read if each.is_disowned}
    cases = {each.key: replace(each, excerpt=excerpts.get(each.tp)) for each in to_read}
    for coordinators in source.coordinator_logs(list(cases.values())):
        cases = {key: replace(each, coordinators=coordinators) for key, each in cases.items()}
        if all(cases[key].outcome.name != UNKNOWN for key in disowned):
            break
    written = [time for each in cases.values() if (time := each.written_at) is not None]
    if written and (events := source.cluster_events(min(written) - BEFORE_OPENING)):
        cases = {key: replace(each, cluster_log=events) for key, each in cases.items()}
    sought = [
        each
        for key, each in cases.items()
        if search_all or (source.searches_in_doubt and key in disowned) or each.needs_markers
    ]
    if sought:
        search = source.search_markers(sought)
        cases |= {each.key: replace(each, marker_search=search) for each in sought}
    decided = [each for each in cases.values() if each.outcome.is_decided]
    ended = source.ended(decided) if decided else ()
    return {key: replace(each, has_ended=True) if key in ended else each for key, each in cases.items()}
