"""The ZooKeeper that Kafka needs before 3.3."""

from __future__ import annotations

import socket
from pathlib import Path

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def zookeeper_properties(directory: Path, *, port: int) -> dict[str, str]:
    """Return the settings of a ZooKeeper on 127.0.0.1 with short sessions and the command ``dump``."""
    return {
        "dataDir": str(directory / "zookeeper"),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "tickTime": "500",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "dump",
    }


def is_registered(port: int, broker_id: int) -> bool:
    """Whether a session still has this broker's id; a new broker with that id would stop."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"dump")
        answer = connection.makefile("rb").read()
    return f"\t/brokers/ids/{broker_id}\n".encode() in answer
