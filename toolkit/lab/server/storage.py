"""The storage of KRaft nodes: ``kafka.tools.StorageTool format`` runs once for a version, and its files are copied.

The tool needs a JVM, a third of a broker's start.
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

from toolkit.lab.server.server_properties import Node

READ_BY_FORMAT = ("controller.", "inter.broker.protocol.", "metadata.", "process.", "unstable.")


def depends_on(properties: Mapping[str, str]) -> bool:
    """Whether the tool would write other files with these settings."""
    return any(name.startswith(READ_BY_FORMAT) for name in properties)


def keep_storage(node: Node, folder: Path) -> None:
    """Cache the files that the tool wrote for a node, also for other processes; does nothing if the cache is full."""
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    with contextlib.suppress(OSError):  # also if another process was faster
        shutil.copytree(node.log_dir, partial)
        partial.rename(folder)
    shutil.rmtree(partial, ignore_errors=True)


def write_storage(folder: Path, nodes: Iterable[Node], *, cluster_id: str) -> None:
    """Format the log directories of the nodes of a cluster: copy the files of a folder, with new ids."""
    for node in nodes:
        ids = {"cluster.id": cluster_id, "node.id": str(node.broker_id), "directory.id": random_uuid()}
        if node.log_dir != folder:
            shutil.copytree(folder, node.log_dir, dirs_exist_ok=True)  # from 4.4 on with a log of the metadata topic
        properties = node.log_dir / "meta.properties"
        properties.write_text(_with_ids(properties.read_text(), ids))


def random_uuid() -> str:
    """A random ``org.apache.kafka.common.Uuid``; never one with a leading dash, which tools take for a flag."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


def _with_ids(text: str, ids: dict[str, str]) -> str:
    for key, value in ids.items():
        text = re.sub(rf"(?m)^{re.escape(key)}=.*$", f"{key}={value}", text)
    return text
