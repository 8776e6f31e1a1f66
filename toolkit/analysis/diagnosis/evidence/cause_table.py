"""Root causes and a sentence for each; ``docs/causes`` has a page for each."""

from __future__ import annotations

from collections.abc import Mapping

CAUSES: Mapping[str, str] = {
    "late-after-commit": "A batch, or a retry of it, arrived after the COMMIT marker.",
    "late-after-abort": "A batch, or a retry of it, arrived after the ABORT marker.",
    "torn-transaction": "An EndTxn request that was delayed may have committed the first half of it.",
    "never-added": "The producer wrote to a partition without AddPartitionsToTxn.",
    "no-owner": "The transactional id has expired, or now has another producer id.",
    "marker-refused": "The partition refuses the marker: it knows a higher coordinator epoch.",
    "marker-compacted": "The log cleaner removed the marker.",
    "marker-lost": "The marker was lost when another replica became leader.",
    "marker-skipped": "The coordinator completed the transaction without the marker of a partition that had no leader.",
    "marker-not-written": "The coordinator has decided but has not written the marker.",
    "marker-not-sent": "The coordinator cannot reach the partition's leader.",
    "flink-timeout": "The id and the timeout are those of Flink's KafkaSink, which aborts only after a restart.",
    "random-id": "The transactional id is random, so no restart fences it.",
    "group-offsets": "It holds offsets of a consumer group.",
    "head-deleted": "Its first records are deleted.",
    "client-too-slow": "The client did not end it within its timeout, and the coordinator aborted it.",
    "two-phase-commit": "It is prepared, and an external coordinator decides (KIP-939).",
}
"""Causes by name."""
