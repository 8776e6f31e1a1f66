"""`gather`: the log evidence of open transactions of any source; a log is read if those before it leave something open.

The order matters: a partition's log is read after its last observation, and whether a transaction is still open after
the coordinators' log, so that a marker that came before a decision is no missing one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from toolkit.analysis.diagnosis.decision.decide import needs_markers
from toolkit.analysis.diagnosis.decision.owned_rules import is_disowned
from toolkit.analysis.diagnosis.evidence.diagnosis_context import (
    BEFORE_OPENING,
    DiagnosisContext,
    LogEvidence,
    select_logs,
)
from toolkit.analysis.diagnosis.evidence.explanation import log_facts
from toolkit.analysis.diagnosis.evidence_kinds import OpenEvidence
from toolkit.analysis.diagnosis.verdicts import UNKNOWN
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.sources.evidence_source import EvidenceSource

Contexts = dict[TransactionKey, DiagnosisContext]


def gather(source: EvidenceSource, to_read: Sequence[OpenEvidence], *, search_all: bool = False) -> Contexts:
    """Read the logs of open transactions.

    Returns: the context of each.
    `to_read`: from `Diagnosis.to_read`.
    `search_all`: look for markers on other partitions for those that a coordinator owns, too.
    """
    selection = select_logs(to_read)
    log = LogEvidence(excerpts=source.excerpts(selection.excerpts))
    contexts: Contexts = {}
    for coordinators in source.coordinator_logs(selection, log.excerpts):
        log = replace(log, coordinators=coordinators)
        contexts = _with_log(to_read, log)
        # In doubt, too, unlike `needs_markers`: a recorder keeps the outcome for later samples, a fence needs no more.
        disowned = [contexts[each.key] for each in to_read if is_disowned(each)]
        if all(each.outcome.name != UNKNOWN for each in disowned):
            break
    written = [time for each in contexts.values() if (time := each.written_at) is not None]
    if written and (events := source.cluster_events(min(written) - BEFORE_OPENING)):
        log = replace(log, cluster_events=events)
        contexts = _with_log(to_read, log)
    sought = [
        each
        for each in to_read
        if search_all
        or (source.searches_in_doubt and is_disowned(each))
        or needs_markers(replace(each, log=log_facts(contexts[each.key])))
    ]
    if sought:
        search = source.search_markers([contexts[each.key] for each in sought])
        contexts |= _with_log(sought, replace(log, marker_search=search))
    decided = [each for each in contexts.values() if each.outcome.is_decided]
    ended = source.ended(decided) if decided else ()
    return {key: _with_ended(each, ended) for key, each in contexts.items()} if ended else contexts


def _with_log(to_read: Sequence[OpenEvidence], log: LogEvidence) -> Contexts:
    return {each.key: DiagnosisContext(each.txn, log) for each in to_read}


def _with_ended(context: DiagnosisContext, ended: Collection[tuple[TopicPartition, int, int]]) -> DiagnosisContext:
    return DiagnosisContext(context.txn, context.log and replace(context.log, ended=ended))
