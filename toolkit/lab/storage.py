"""The storage of KRaft nodes: what ``kafka.tools.StorageTool format`` wrote for one serves the next ones.

The tool takes a Java of its own for each node, a third of what a broker takes to start.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Iterable

from toolkit.lab.settings import Node

__all__ = ["Storage", "random_uuid"]


class Storage:
    """The files of a formatted log directory: ``meta.properties``, ``bootstrap.checkpoint``.

    Parameters
    ----------
    node
        Whose log directory was formatted.
    """

    def __init__(self, node: Node) -> None:
        self._files = {path.name: path.read_bytes() for path in node.log_dir.iterdir()}

    def write(self, nodes: Iterable[Node], *, cluster_id: str) -> None:
        """Format the log directories of the nodes of a cluster: same files, with ids of their own."""
        for node in nodes:
            ids = {"cluster.id": cluster_id, "node.id": str(node.broker_id), "directory.id": random_uuid()}
            node.log_dir.mkdir(parents=True, exist_ok=True)
            for name, content in self._files.items():
                own = _with_ids(content.decode(), ids).encode() if name == "meta.properties" else content
                (node.log_dir / name).write_bytes(own)


def random_uuid() -> str:
    """A random ``org.apache.kafka.common.Uuid``; never one that begins with a dash, which tools take for a flag."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


def _with_ids(text: str, ids: dict[str, str]) -> str:
    for key, value in ids.items():
        text = re.sub(rf"(?m)^{re.escape(key)}=.*$", f"{key}={value}", text)
    return text
