"""Findings of a sample with log evidence, cached so that logs are not read with every sample."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from toolkit.analysis.diagnosis.decision.decide import decide
from toolkit.analysis.diagnosis.diagnose import Diagnosis, explained_by, transaction_key
from toolkit.analysis.diagnosis.evidence_kinds import LogFacts, OpenEvidence
from toolkit.schema.durations import elapsed_ms
from toolkit.schema.live import EvidenceEntry, Finding
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.sources.live.blocked_groups import with_groups
from toolkit.sources.live.client.broker_client import BrokerClient

MAX_AGE = dt.timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedEvidence:
    """Log evidence of a transaction."""

    facts: LogFacts  # what the logs show
    state: tuple[object, ...]  # the state of its coordinator for which they were read
    finding: Finding
    evidence: tuple[EvidenceEntry, ...]  # the evidence that the explanation added
    read_at: dt.datetime  # when it was read


Cache = Mapping[TransactionKey, CachedEvidence]


def cached_findings(
    client: BrokerClient, diagnosis: Diagnosis, cache: Cache
) -> tuple[list[Finding], dict[TransactionKey, CachedEvidence]]:
    """Decide on a sample with evidence from logs and groups, from the cache while it is fresh.

    Returns: the findings, and the cache for the next sample.
    `diagnosis`: from `sample_findings.sample_diagnosis`.
    `cache`: the cache of the previous sample.
    """
    to_read = diagnosis.to_read()
    now = diagnosis.observations[-1].observed_at
    states = {each.key: _state(each, diagnosis) for each in to_read}
    fresh = {
        each.key: cached
        for each in to_read
        if (cached := cache.get(each.key)) is not None
        and states[each.key] == cached.state
        and now - cached.read_at < MAX_AGE
        and decide(replace(each, log=cached.facts)).verdict == cached.finding.verdict  # what explains it, too
    }
    partitions = {each.txn.tp for each in to_read if each.key not in fresh}
    unread = [each for each in to_read if each.txn.tp in partitions]
    known = {key: cached for key, cached in fresh.items() if (key.topic, key.partition) not in partitions}
    facts = {key: cached.facts for key, cached in known.items()}
    if not unread:
        findings = diagnosis.findings(log=facts)
        return [_with_cached(each, known.get(transaction_key(each))) for each in findings], dict(known)
    return _read(client, diagnosis, unread, known, facts, states, now)


def _read(
    client: BrokerClient,
    diagnosis: Diagnosis,
    unread: Sequence[OpenEvidence],
    known: Cache,
    facts: Mapping[TransactionKey, LogFacts],
    states: Mapping[TransactionKey, tuple[object, ...]],
    now: dt.datetime,
) -> tuple[list[Finding], dict[TransactionKey, CachedEvidence]]:
    from toolkit.analysis.diagnosis.evidence.explanation import explain, log_facts  # imports numpy and Arrow
    from toolkit.sources.live.logs.log_evidence import read_contexts

    contexts = read_contexts(client, unread)
    new = {key: log_facts(context) for key, context in contexts.items()}
    before = diagnosis.findings(log={**facts, **new})
    partitions: set[TopicPartition] = {context.txn.tp for context in contexts.values()}
    read = [each for each in before if (each.topic, each.partition) in partitions]
    explained = with_groups(client, explain(read, contexts))
    after = {id(old): each for old, each in zip(read, explained, strict=True)}
    cache = dict(known)
    for finding in read:
        key, explained_finding = transaction_key(finding), after[id(finding)]
        context = contexts.get(key)
        excerpt = None if context is None or context.log is None else context.log.excerpts.get(context.txn.tp)
        if context is not None and excerpt is not None and not excerpt.error:  # what was not read is read again
            cache[key] = CachedEvidence(
                facts=new[key],
                state=states[key],
                finding=explained_finding,
                evidence=explained_finding.evidence[len(finding.evidence) :],
                read_at=now,
            )
    return [after.get(id(each)) or _with_cached(each, known.get(transaction_key(each))) for each in before], cache


def _state(evidence: OpenEvidence, diagnosis: Diagnosis) -> tuple[object, ...]:
    """What the evidence of the logs is valid for; what holds the LSO is explained in more detail than what follows."""
    txn = evidence.txn
    starts = [each.txn.start for each in diagnosis.opened[txn.tp] if each.txn.start is not None]
    is_first = txn.start == min(starts, default=None)
    return txn.producer.producer_epoch, txn.transactional_id, txn.owner_epoch, txn.state, txn.listed, is_first


def _with_cached(finding: Finding, cached: CachedEvidence | None) -> Finding:
    if cached is None or finding.verdict != cached.finding.verdict:
        return finding
    known = cached.finding
    if (finding.last_stable_offset, finding.high_watermark) != (known.last_stable_offset, known.high_watermark):
        known = replace(known, records_held=None, bytes_held=None)
    finding = explained_by(finding, replace(known, evidence=(*finding.evidence, *cached.evidence)))
    if finding.held_from is None or finding.held_to is not None:
        return finding
    return replace(finding, held_ms=elapsed_ms(finding.held_from, finding.brokers_time))
