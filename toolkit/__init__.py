"""Who holds this partition's last stable offset, why, and what is the safe remedy?"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit.actions.cluster import Cluster
    from toolkit.sources.logdir import LogDir
    from toolkit.sources.recording import Recording

__all__ = ["Cluster", "LogDir", "Recording", "__version__"]
__version__ = "0.1.0"

_LAZY = {
    "Cluster": "toolkit.actions.cluster",
    "LogDir": "toolkit.sources.logdir",
    "Recording": "toolkit.sources.recording",
}  # importing the package stays cheap (PEP 562)


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'toolkit' has no attribute {name!r}")


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext toolkit``: frames of its tables are shown sortable, with verdicts coloured and explained."""
    from toolkit.views.tables.extension import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """``%unload_ext toolkit``: they are shown as pandas shows them."""
    from toolkit.views.tables.extension import unload

    unload(ipython)
