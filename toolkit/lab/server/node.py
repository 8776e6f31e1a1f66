"""The files of a node on this machine: its server.properties and its storage; and the ZooKeeper before Kafka 3.3.

``kafka.tools.StorageTool format`` needs a JVM, a third of a broker's start: it runs once for a version, and its files
are copied.
"""

from __future__ import annotations

import base64
import contextlib
import os
import random
import re
import shutil
import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import javaproperties
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

# Below the ephemeral ports of Linux and macOS, so that the port of a stopped broker stays free.
PORTS = range(20_000, 32_000)

# With Kafka's session timeout of 9 s (18 s with ZooKeeper), every restart of a killed broker would take that long.
SESSION, SESSION_MS = "broker.session.timeout.ms", 6_000
# On a busy machine heartbeats are late, and the controller fences a broker that nobody has stopped.
ONLY_BROKER_SESSION_MS = 60_000

# Idle threads and controllers wake up several times a second.
SMALL = {
    "background.threads": "2",
    "group.coordinator.threads": "1",
    "num.io.threads": "2",
    "num.network.threads": "1",
    "log.index.size.max.bytes": str(256 << 10),  # of each of the two index files of a new partition, and of its copies
    "metadata.max.idle.interval.ms": "0",
    "offsets.topic.num.partitions": "10",  # a new broker takes longest to create these partitions
}

# Prefixes of the settings with which the tool would write other files.
READ_BY_FORMAT = ("controller.", "inter.broker.protocol.", "metadata.", "process.", "unstable.")
ZOOKEEPER_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A broker's id, directory and ports on 127.0.0.1."""

    broker_id: int
    directory: Path
    client_port: int
    internal_port: int
    controller_port: int

    @property
    def settings(self) -> Path:
        return self.directory / "server.properties"

    @property
    def log_dir(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 on which nothing listens now."""
    # An own random generator: processes with the same seed would take the same ports.
    return list(islice(filter(_is_free, random.SystemRandom().sample(PORTS, len(PORTS))), count))


def reserved(ports: Iterable[int]) -> contextlib.ExitStack:
    """Keep `free_ports` of other processes from these ports, also while the broker of one is down; until closed.

    A socket that is bound and does not listen lets a broker listen on its port, as both set SO_REUSEADDR.
    """
    sockets = contextlib.ExitStack()
    for port in ports:
        holder = sockets.enter_context(socket.socket())
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # somebody listens: the broker will say so
            holder.bind(("127.0.0.1", port))
    return sockets


def server_properties(
    node: Node,
    nodes: Sequence[Node],
    *,
    zookeeper_port: int | None,
    users: Mapping[str, str],
    super_users: Sequence[str],
) -> dict[str, str]:
    """Return the settings of one broker of a cluster.

    Clients connect to the listener CLIENT (SASL/PLAIN if there are users); brokers talk over INTERNAL and CONTROLLER,
    which are plain and whose anonymous user may do everything, as the brokers listen on a loopback address only.
    """
    listeners = {"CLIENT": node.client_port, "INTERNAL": node.internal_port}
    shared = {
        "log.dirs": str(node.log_dir),
        "inter.broker.listener.name": "INTERNAL",
        "advertised.listeners": _listeners(listeners),
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(len(nodes)),
        "offsets.topic.replication.factor": str(len(nodes)),
        "transaction.state.log.replication.factor": str(len(nodes)),
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": str(len(nodes)),
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
        **SMALL,
        **_security(users, super_users, zookeeper=bool(zookeeper_port)),
    }
    if zookeeper_port:
        return shared | {
            "broker.id": str(node.broker_id),
            "listeners": _listeners(listeners),
            "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
            "zookeeper.session.timeout.ms": str(SESSION_MS),
        }
    voters = nodes if len(nodes) > 2 else nodes[:1]
    is_voter = node in voters
    return shared | {
        "node.id": str(node.broker_id),
        "process.roles": "broker,controller" if is_voter else "broker",
        "listeners": _listeners(listeners | ({"CONTROLLER": node.controller_port} if is_voter else {})),
        SESSION: str(SESSION_MS if len(nodes) > 1 else ONLY_BROKER_SESSION_MS),
        "broker.heartbeat.interval.ms": "500",
        # Not before the lab gives up: on a slow machine a broker of three registers late.
        "initial.broker.registration.timeout.ms": "3600000",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{each.broker_id}@127.0.0.1:{each.controller_port}" for each in voters),
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """Return a Java properties file; non-ASCII characters are escaped."""
    return javaproperties.dumps(properties, timestamp=None)


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
        text = properties.read_text()
        for key, value in ids.items():
            text = re.sub(rf"(?m)^{re.escape(key)}=.*$", f"{key}={value}", text)
        properties.write_text(text)


def random_uuid() -> str:
    """A random ``org.apache.kafka.common.Uuid``; never one with a leading dash, which tools take for a flag."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


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


def _security(users: Mapping[str, str], super_users: Sequence[str], *, zookeeper: bool) -> dict[str, str]:
    protocol = "SASL_PLAINTEXT" if users else "PLAINTEXT"
    mapping = {"listener.security.protocol.map": f"CLIENT:{protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    if not users:
        return mapping
    kraft, old = "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "kafka.security.authorizer.AclAuthorizer"
    passwords = " ".join(f"user_{user}={_quoted(password)}" for user, password in users.items())
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return mapping | {
        "authorizer.class.name": old if zookeeper else kraft,
        "super.users": ";".join(f"User:{user}" for user in ("ANONYMOUS", *super_users)),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{login} required {passwords};",
    }


def _is_free(port: int) -> bool:
    with socket.socket() as probe:  # without SO_REUSEADDR: it must not share a port that is reserved
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def quiet_admin(server: str) -> AdminClient:
    """Return a client that retries without logging while no broker answers."""
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": server,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        "log_level": 0,
    }
    return AdminClient(config)


def is_ready(admin: AdminClient, broker_ids: set[int]) -> bool:
    """Whether all these brokers are registered and a topic could be placed on all of them; creates none."""
    try:
        if not broker_ids <= set(admin.list_topics(timeout=1).brokers):
            return False
        attempt = NewTopic("ready", num_partitions=1, replication_factor=len(broker_ids))
        admin.create_topics([attempt], validate_only=True, request_timeout=5)["ready"].result()
    except KafkaException:
        return False
    return True
