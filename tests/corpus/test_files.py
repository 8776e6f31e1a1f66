"""The findings on files that were copied of running brokers are those on the cluster at that moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.causes import cause_names
from tests.corpus.clocks import controlled
from tests.corpus.file_calls import archives, clock_of, unpacked
from tests.sources.test_error_rows_of_brokers import load, rows_of
from toolkit import LogDir
from toolkit.schema import Row

SAME = (
    *("queue_position", "producer_epoch", "transactional_id", "verdict", "outcome", "action", "remedy", "opened_at"),
    *("opened_at_clock", "expires_at", "high_watermark", "records_held", "bytes_held", "broker_id", "error"),
)
ONLY_IN_FILES = {
    "head-deleted": ("opened_at", "opened_at_clock"),  # its first record is deleted, and still in the segment
    "old-event-times": ("records_held", "bytes_held"),  # a log that may not be read if its producer is young
}


def by_transaction(rows: Iterable[Row]) -> Mapping[tuple[Any, ...], Row]:
    names = ("topic", "partition", "producer_id", "start_offset")
    return {tuple(row[name] for name in names): row for row in rows if row["producer_id"] is not None}


@pytest.mark.parametrize("version", ["3.5.2", "3.9.2", "4.3.1"])
def test_files_have_the_findings_of_their_cluster(version: str) -> None:
    folder = unpacked(archives()[f"{version}-everyday-files"])
    with controlled(clock_of(folder)), LogDir(*sorted(folder.glob("log-dir*"))) as files:
        copied = by_transaction(files.finding_rows())
    live = by_transaction(rows_of(load(f"{version}-everyday"), "findings", recheck_after=5.0))
    assert copied.keys() == live.keys()
    assert len({row["verdict"] for row in live.values()}) > 1
    for key, row in live.items():
        left_out = next((columns for name, columns in ONLY_IN_FILES.items() if key[0].startswith(name)), ())
        assert {c: row[c] for c in SAME if c not in left_out} == {c: copied[key][c] for c in SAME if c not in left_out}
        assert {*cause_names(row)} <= {*cause_names(copied[key])}, (
            "a cluster's coordinators' log is not read completely"
        )
