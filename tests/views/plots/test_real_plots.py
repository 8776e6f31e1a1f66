"""Plots of the files of a real broker."""

import pytest

from tests.views.plots.drawn import bars, hovers, traces, words
from toolkit.lab import samples
from toolkit.views.plots import plot_timeline


@pytest.mark.parametrize(("name", "hanging"), [("late-message", 1), ("several-open", 2)])
def test_the_timeline_of_a_log_directory_shows_partition_and_coordinator(name: str, hanging: int) -> None:
    sample = samples.load(name)
    files = sample.log_dir()
    topics, partitions = [sample.topic], [sample.partition]
    findings = files.findings(topics=topics, partitions=partitions)
    figure = plot_timeline(
        files.log_transactions(topics=topics, partitions=partitions),
        lso_timeline=files.lso_timeline(topics=topics, partitions=partitions),
        partitions=files.partitions(topics=topics, partitions=partitions),
        findings=findings,
        transaction_history=files.transaction_history(),
    )
    starts = findings.loc[findings["verdict"] == "hanging", "start_offset"].tolist()
    assert len(starts) == hanging
    assert [offset for _, _, offset in bars(traces(figure)["HANGING ✕"])] == starts
    assert f"LSO held at {sample.expected['start_offset']}" in words(figure)
    text = "\n".join(hovers(figure))
    for row in findings.to_dict("records"):
        assert f"producer <b>{row['producer_id']}<" in text
        assert f"transactional id <b>{row['transactional_id']}<" in text
    lso = traces(figure)["LSO"]["y"]
    assert lso[-1] == sample.expected["start_offset"]
    state = "CompleteAbort" if name == "late-message" else "Empty"
    assert sample.expected["transactional_id"] in traces(figure)[state]["y"]
