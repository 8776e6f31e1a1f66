"""What to do next: the most urgent first, with the notebook that goes on."""

import re
from types import SimpleNamespace
from typing import Any

from tests.notebooks.books import FOLDER
from tests.views.plots.busy import finding
from toolkit.config import ClientConfig
from toolkit.lab.samples import load
from toolkit.sources.source import CLUSTER
from toolkit.views import next_steps
from toolkit.views.finding_steps import NOTEBOOKS


def test_a_recording_is_sent_to_no_notebook_that_refuses_it() -> None:
    text = repr(next_steps([finding()], source=load("flight-recording").recording()))
    assert re.findall(r"\[(\d\d)_", text) == ["06", "07"]


def test_a_remedy_runs_as_it_stands() -> None:
    """Its command lacked the cluster, in the notebook where a newcomer begins."""
    config = ClientConfig("broker:9092")
    cluster: Any = SimpleNamespace(kind=CLUSTER, config=config, bootstrap_servers="broker:9092", flink_checkpoints=())
    text = repr(next_steps([finding()], source=cluster))
    assert "kafka-txn abort --bootstrap-server broker:9092 --topic orders --partition 0" in text


def test_an_id_in_a_remedy_is_no_picture() -> None:
    """JupyterLab fetched it from where the id said."""
    text = repr(next_steps([finding(remedy='Fence "![x](http://evil/x.png)", and wait.')]))
    assert r"!\[x\](http" in text


def test_a_partition_is_named_once() -> None:
    """500 partitions with two hanging transactions each were "and 995 others", and one was named twice."""
    text = repr(next_steps([finding(partition=number // 2, queue_position=1 + number % 2) for number in range(1000)]))
    assert "`orders-0`, `orders-1`, `orders-2`, `orders-3`, `orders-4` and 495 more. " in text
    text = repr(next_steps([finding(partition=number, remedy=f"Of {number}.") for number in range(2)]))
    assert "remedy for `orders-0`: Of 0." in text, "the first one's"


def test_the_notebooks_are_there() -> None:
    assert all((FOLDER / file).is_file() for steps in NOTEBOOKS.values() for file, _ in steps)
