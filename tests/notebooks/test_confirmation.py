"""No notebook confirms on the reader's behalf: on their own cluster nothing is written until they type the name."""

import re
from pathlib import Path

import pytest

from tests.notebooks.books import BOOKS, code_cells, read, with_parameters, write
from tests.notebooks.running import run
from toolkit import Cluster
from toolkit.lab import Kafka
from toolkit.lab.lab_source import stage_between

ABORT = next(path for path in BOOKS if path.stem.startswith("04"))


@pytest.mark.lab
def test_the_transaction_of_the_demonstration_on_another_cluster_stays_open(kafka: Kafka, tmp_path: Path) -> None:
    """There, the very transaction hangs that the lab's would be called."""
    staged = stage_between(kafka, "late_message", topic="refunds", group="notebook-billing")
    assert (staged.partition, staged.start_offset) == (0, 15)
    book = with_parameters(read(ABORT), source=kafka.bootstrap_servers)
    outcome = run(write(book, tmp_path / ABORT.name), tmp_path)
    assert outcome.failed == {}, outcome.output
    with Cluster(kafka.bootstrap_servers) as cluster:
        (row,) = cluster.finding_rows(topics=["refunds"], partitions=[0], recheck_after=0.1)
    assert (row["verdict"], row["last_stable_offset"]) == ("hanging", 15)


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_no_confirmation_is_made_from_the_plan_or_filled_in(path: Path) -> None:
    for cell in code_cells(read(path)):
        assert not re.search(r"confirm=(?:\w+\.target|[\"'])", cell.source), cell.source
        assert set(re.findall(r"(?m)^confirm\w* = (.*?)  #", cell.source)) <= {'""'}, cell.source
