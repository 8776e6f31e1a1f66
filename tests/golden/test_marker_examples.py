"""Markers that were removed, refused or not sent: what real brokers show of them, and what is safe."""

import pytest

from tests.causes import cause_names
from tests.golden.marker_examples import marker_findings

ACTIONS = {"marker-compacted": "complete", "marker-refused": None, "marker-not-sent": None}


@pytest.mark.lab
@pytest.mark.full
def test_a_commit_without_its_marker_is_known_by_its_cause() -> None:
    found = {cause: row for cause, row in marker_findings() if cause in cause_names(row)}
    assert {cause: row["action"] for cause, row in found.items()} == ACTIONS
    assert {(row["verdict"], row["outcome"]) for row in found.values()} == {("stuck_ending", "commit")}
