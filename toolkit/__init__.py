"""Find who holds a partition's last stable offset, why, and the safe remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.lazy_exports import lazy_exports
from toolkit.version import __version__

if TYPE_CHECKING:
    from toolkit.connections import connect
    from toolkit.formats.broker_logs import BrokerLogs
    from toolkit.formats.flink_checkpoint import FlinkCheckpoints
    from toolkit.sources.live.cluster import Cluster
    from toolkit.sources.logdir import LogDir
    from toolkit.sources.recording import Recording
    from toolkit.views.explained_error import explain

__all__ = ["BrokerLogs", "Cluster", "FlinkCheckpoints", "LogDir", "Recording", "__version__", "connect", "explain"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "BrokerLogs": "toolkit.formats.broker_logs",
        "Cluster": "toolkit.sources.live.cluster",
        "FlinkCheckpoints": "toolkit.formats.flink_checkpoint",
        "LogDir": "toolkit.sources.logdir",
        "Recording": "toolkit.sources.recording",
        "connect": "toolkit.connections",
        "explain": "toolkit.views.explained_error",
    },
)


def load_ipython_extension(ipython: Any) -> None:
    """Run on ``%load_ext toolkit``: show frames of its tables sortable, with verdicts coloured and explained."""
    from toolkit.views.show_table import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Run on ``%unload_ext toolkit``: show these frames as pandas does."""
    from toolkit.views.show_table import unload

    unload(ipython)
