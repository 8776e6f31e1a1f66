"""Findings of a cluster whose logs were read."""

from __future__ import annotations

from collections.abc import Iterable

from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.evidence.explanation import explain, log_facts
from toolkit.schema.live import Finding
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.log_evidence import read_contexts


def explained_findings(
    client: BrokerClient, diagnosis: Diagnosis, *, requested: Iterable[TopicPartition] = ()
) -> list[Finding]:
    """Read the logs that the diagnosis needs, decide, and explain."""
    contexts = read_contexts(client, diagnosis.to_read())
    facts = {key: log_facts(context) for key, context in contexts.items()}
    return explain(diagnosis.findings(requested=requested, log=facts), contexts)
