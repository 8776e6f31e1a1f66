"""The lag of a group on a real broker: what is held from it, and what is only a marker."""

import pytest

from toolkit import Cluster
from toolkit.analysis.lag import GROUP_LAG
from toolkit.errors import NotFound
from toolkit.lab import Kafka
from toolkit.lab.consumer import blocked_consumer
from toolkit.lab.incidents import INCIDENTS
from toolkit.lab.samples import load
from toolkit.sources.group_lag import group_lag_frame, group_lag_rows


@pytest.mark.lab
def test_r18_the_lag_of_a_group_that_has_read_everything_is_the_marker(kafka: Kafka) -> None:
    staged = INCIDENTS["marker_only"](kafka)
    with Cluster(kafka.bootstrap_servers) as cluster:
        (row,) = GROUP_LAG.rows(group_lag_frame(cluster, staged.group))
    assert (row["topic"], row["partition"]) == (staged.topic, staged.partition)
    assert (row["behind"], row["held"]) == (0, 0)
    assert row["lag"] == row["markers"] == 1
    assert row["error"] is None


@pytest.mark.lab
def test_what_hangs_holds_records_from_the_group(kafka: Kafka) -> None:
    staged = INCIDENTS["never_added"](kafka, records=5)
    with blocked_consumer(kafka, staged.topic, "lag-of-held"), Cluster(kafka.bootstrap_servers) as cluster:
        (row,) = group_lag_rows(cluster, "lag-of-held")
        (unread,) = group_lag_rows(cluster, "lag-of-held", most_offsets=0)
    assert (row["behind"], row["held"]) == (0, 5)
    assert row["lag"] == row["held"] + row["markers"]
    assert unread["markers"] is None
    assert unread["lag"] == row["lag"]


@pytest.mark.lab
def test_an_offset_that_an_open_transaction_committed_is_an_error_row(kafka: Kafka) -> None:
    read = INCIDENTS["marker_only"](kafka)
    INCIDENTS["offsets_never_added"](kafka, topic=read.topic, group=read.group)
    with Cluster(kafka.bootstrap_servers) as cluster:
        (row,) = group_lag_rows(cluster, read.group)
    assert row["error"].startswith("UNSTABLE_OFFSET_COMMIT")
    assert row["high_watermark"] is not None


@pytest.mark.lab
def test_a_group_that_nobody_lists_is_not_found(kafka: Kafka) -> None:
    with Cluster(kafka.bootstrap_servers) as cluster, pytest.raises(NotFound, match="No broker lists"):
        group_lag_rows(cluster, "nobody")


def test_files_tell_the_same_of_a_group() -> None:
    (row,) = group_lag_rows(load("late-message").log_dir(), "billing")
    assert (row["topic"], row["partition"], row["committed_offset"]) == ("orders", 0, 12)
    assert (row["behind"], row["held"]) == (1, 21)
    assert row["lag"] == 25 == row["behind"] + row["held"] + row["markers"]
    assert row["error"] is None


def test_files_show_an_offset_that_an_open_transaction_committed() -> None:
    (row,) = group_lag_rows(load("offsets-never-added").log_dir(), "billing")
    assert row["error"].startswith("UNSTABLE_OFFSET_COMMIT")
    assert row["committed_offset"] is None


def test_a_group_that_files_do_not_have_is_not_found() -> None:
    with pytest.raises(NotFound, match="have no offset of the group"):
        group_lag_rows(load("orphan").log_dir(), "nobody")
