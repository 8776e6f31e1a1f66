"""Groups with offsets beyond a held LSO, by their committed offsets; requested only while an LSO is held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.analysis.diagnosis.consumer_lag import group_lag
from toolkit.analysis.diagnosis.verdicts import BRIEF
from toolkit.schema import GROUP_LAG, Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.state.group_offsets import offsets_of_groups

OF_FINDING = ("topic", "partition", "last_stable_offset", "high_watermark", "broker_id", "observed_at")


def held_groups(client: BrokerClient, findings: Sequence[Row]) -> list[Row] | None:
    """Rows of ``schema.GROUP_LAG`` of the groups with offsets beyond a held LSO; markers count as records.

    Parameters
    ----------
    client
        The connection to the brokers.
    findings
        Rows of ``schema.FINDINGS``. Partitions whose LSO is held only briefly are left out.

    Returns
    -------
    list of Row, or None
        Null if the offsets of a group could not be read.
    """
    held: Mapping[TopicPartition, Row] = {
        TopicPartition(row["topic"], row["partition"]): row
        for row in findings
        if row["topic"] is not None
        and row["verdict"] not in BRIEF
        and row["last_stable_offset"] is not None
        and row["high_watermark"] is not None
        and row["last_stable_offset"] < row["high_watermark"]
    }
    if not held:
        return []
    groups = offsets_of_groups(client, sorted(held))
    if groups is None:
        return None
    return [
        _row(group, held[tp], committed)
        for group, offsets in groups
        for tp, committed in offsets.items()
        if 0 <= committed < held[tp]["high_watermark"]
    ]


def _row(group: str, finding: Row, committed: int) -> Row:
    lso, high_watermark = finding["last_stable_offset"], finding["high_watermark"]
    row: dict[str, Any] = dict.fromkeys(GROUP_LAG.names) | {name: finding[name] for name in OF_FINDING}
    row |= {"group_id": group, "committed_offset": committed}
    return {**row, **group_lag(committed, last_stable_offset=lso, high_watermark=high_watermark)._asdict()}
