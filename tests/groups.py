"""Which tests one worker runs, and in which order workers take them.

``--dist loadgroup`` puts the groups into node ids, and from pytest 9.2 on that does nothing (pytest-xdist issue 1386).
Here workers write them to a file that the scheduler reads.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SLOW = (
    "outcomes",
    "tests/exploration/test_exploration.py",
    "outages",
    "kills",
    "spark",
    "kept rows",
    "history",
    "campaign of streams",
    "campaign of mirror",
    "campaign of flink",
    "flink",
    "tests/test_oracle.py",
    "tests/sources/test_logdir_copies.py",
    "tests/sources/test_live_races.py",
    "tests/test_security_modes.py",
    "mypy",
    "tests/test_docs.py",
    "06_spark_pipeline",
    "08_databricks",
    "04_abort",
    "tests/sources/test_unreadable_files.py",  # from here on they need no broker, and would come last
    "tests/sources/test_recording.py",
    "corpus 3.5.2-everyday",
    "corpus 4.3.1-everyday",
    "tests/test_damaged_files.py",
    "tests/test_cli.py",
    "corpus 2.8.2-everyday",
    "corpus sample-long-history",
    "corpus 3.9.2-everyday",
    "tests/spark/test_log_fold.py",
    "tests/analysis/test_hold_findings.py",
)
"""Groups of tests, and notebooks, that take minutes: workers start with them, the longest first."""

_FOLDER = pytest.StashKey[Path]()


def group_of(item: pytest.Item) -> str:
    """The test's mark, else its file; expensive fixtures are made by one worker for all files."""
    if marker := item.get_closest_marker("xdist_group"):
        return str(marker.args[0])
    fixtures = getattr(item, "fixturenames", ())
    costly = (name for name in ("history", "spark", "segments") if name in fixtures)
    return next(costly, item.nodeid.partition("::")[0])


def order(item: pytest.Item) -> int:
    """Workers start with what takes long, and end with what takes no time."""
    group = group_of(item)
    return SLOW.index(group) if group in SLOW else len(SLOW) + (item.get_closest_marker("lab") is None)


def folder_of(config: pytest.Config) -> Path:
    """Where workers write; made, and deleted at the end, by the one that starts them."""
    if _FOLDER not in config.stash:
        folder = Path(tempfile.mkdtemp(prefix="kafka-txn-tests-"))
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.stash[_FOLDER] = folder
    return config.stash[_FOLDER]


def send_folder(node: WorkerController) -> None:
    """Send a worker the folder to write to."""
    node.workerinput["groups_folder"] = str(folder_of(node.config))


def write_groups(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Write the groups of a worker's tests."""
    worker: Mapping[str, Any] = getattr(config, "workerinput", {})
    if "groups_folder" in worker:
        groups = {item.nodeid: group_of(item) for item in items}
        Path(worker["groups_folder"], f"{worker['workerid']}.json").write_text(json.dumps(groups))


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker a complete group at a time, in the order of the tests."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._folder = folder_of(config)

    @cached_property
    def _groups(self) -> Mapping[str, str]:
        """As any worker has written them: all have the same tests."""
        groups: Mapping[str, str] = json.loads(next(self._folder.glob("*.json")).read_text())
        return groups

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]
