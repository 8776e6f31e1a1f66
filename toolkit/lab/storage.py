"""The storage of KRaft nodes: what ``kafka.tools.StorageTool format`` wrote once for a version serves all its brokers.

The tool takes a Java of its own, a third of what a broker takes to start.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from toolkit.lab.server_properties import Node

__all__ = ["depends_on", "keep_storage", "random_uuid", "write_storage"]

READ_BY_FORMAT = ("controller.", "inter.broker.protocol.", "metadata.", "process.", "unstable.")


def depends_on(properties: Mapping[str, str]) -> bool:
    """Whether the tool writes something else with these settings."""
    return any(name.startswith(READ_BY_FORMAT) for name in properties)


def keep_storage(node: Node, folder: Path) -> None:
    """Keep what the tool wrote for a node, for this and for other processes; a cache that is full is none."""
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    with contextlib.suppress(OSError):  # also where another process was faster
        shutil.copytree(node.log_dir, partial)
        partial.rename(folder)
    shutil.rmtree(partial, ignore_errors=True)


def write_storage(folder: Path, nodes: Iterable[Node], *, cluster_id: str) -> None:
    """Format the log directories of the nodes of a cluster: the files of a folder, with ids of their own."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}  # meta.properties, bootstrap.checkpoint
    for node in nodes:
        ids = {"cluster.id": cluster_id, "node.id": str(node.broker_id), "directory.id": random_uuid()}
        node.log_dir.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            own = _with_ids(content.decode(), ids).encode() if name == "meta.properties" else content
            (node.log_dir / name).write_bytes(own)


def random_uuid() -> str:
    """A random ``org.apache.kafka.common.Uuid``; never one that begins with a dash, which tools take for a flag."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


def _with_ids(text: str, ids: dict[str, str]) -> str:
    for key, value in ids.items():
        text = re.sub(rf"(?m)^{re.escape(key)}=.*$", f"{key}={value}", text)
    return text
