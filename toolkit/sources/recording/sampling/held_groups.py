"""Groups with offsets beyond a held LSO, by their committed offsets; requested only while an LSO is held."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.analysis.diagnosis.consumer_lag import group_lag
from toolkit.analysis.diagnosis.verdicts import BRIEF
from toolkit.schema.live import Finding
from toolkit.schema.offsets import GroupLag
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.state.group_offsets import offsets_of_groups


def held_groups(client: BrokerClient, findings: Sequence[Finding]) -> list[GroupLag] | None:
    """The lag of the groups with offsets beyond a held LSO; markers count as records.

    Parameters
    ----------
    client
        The connection to the brokers.
    findings
        The findings. Partitions whose LSO is held only briefly are left out.

    Returns
    -------
    list of GroupLag, or None
        Null if the offsets of a group could not be read.
    """
    held: dict[TopicPartition, Finding] = {}
    for each in findings:
        lso, high_watermark = each.last_stable_offset, each.high_watermark
        is_held = lso is not None and high_watermark is not None and lso < high_watermark
        if each.tp is not None and each.verdict not in BRIEF and is_held:
            held[each.tp] = each
    if not held:
        return []
    groups = offsets_of_groups(client, sorted(held))
    if groups is None:
        return None
    return [
        _lag(group, held[tp], committed)
        for group, offsets in groups
        for tp, committed in offsets.items()
        if 0 <= committed < (held[tp].high_watermark or 0)
    ]


def _lag(group: str, finding: Finding, committed: int) -> GroupLag:
    lso, high_watermark = finding.last_stable_offset or 0, finding.high_watermark or 0
    parts = group_lag(committed, last_stable_offset=lso, high_watermark=high_watermark)
    return GroupLag(
        group_id=group,
        topic=finding.topic,
        partition=finding.partition,
        committed_offset=committed,
        last_stable_offset=lso,
        high_watermark=high_watermark,
        lag=parts.lag,
        client_lag=parts.client_lag,
        behind=parts.behind,
        held=parts.held,
        markers=parts.markers,
        broker_id=finding.broker_id,
        observed_at=finding.observed_at,
    )
