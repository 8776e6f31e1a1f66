"""A real Kafka on this machine, which leaves nothing behind when it stops; with a ZooKeeper before Kafka 3.3.

``kafka.tools.StorageTool format`` needs a JVM, a third of a broker's start: it runs once for a version, and its files
are copied.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Self

import javaproperties
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from platformdirs import user_cache_path

from toolkit.errors import LabError, NotFound, UsageError
from toolkit.java import (
    UNVERIFIED,
    Download,
    class_archive_options,
    download,
    find_java,
    java_command,
    java_version,
    locked,
    repository_url,
)
from toolkit.lab.process_supervisor import ProcessSupervisor

LISTS = Path(__file__).with_name("jar_lists")
"""A file for each version of the lab: SHA-256 and path of every jar. ``python -m tests.jar_lists`` writes one."""


def fetch_jars(version: str) -> Path:
    """Return the directory with the jars of a Kafka version, after a download if they are not in the cache.

    The repository is KAFKA_TXN_MAVEN if set, else the mirror of Maven Central that ``~/.m2/settings.xml`` names, else
    Maven Central; HTTPS_PROXY is honoured. Afterwards it works offline. Raises SetupError if it could not be reached.
    """
    home = user_cache_path("kafka-txn-toolkit") / "kafka"
    jars = home / version
    if jars.is_dir():
        return jars
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / f"{version}.lock"):
        if not jars.is_dir():
            partial = home / f"{version}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            try:
                _fetch(version, partial)
                (partial / "jars").rename(jars)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return jars


def _fetch(version: str, directory: Path) -> None:
    jars = directory / "jars"
    jars.mkdir(parents=True)
    lines = (line.split() for line in (LISTS / f"{version}.txt").read_text().splitlines())
    downloads = [Download(path, jars / path.rpartition("/")[2], digest) for digest, path in lines]
    download(downloads, repository_url(), title=f"Fetching Kafka {version}")


def lab_versions() -> list[str]:
    """The Kafka versions of the lab, the oldest first."""
    return sorted((path.stem for path in LISTS.glob("*.txt")), key=version_numbers)


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


NOTHING: Mapping[str, str] = MappingProxyType({})
CLASSES = "classes.jsa"


class PortTaken(LabError):
    """Another process took the port before the broker did; other ports will work."""


class Kafka:
    """A Kafka cluster of one to three brokers on 127.0.0.1, in its own temporary directory.

    The first start of a version fetches its jars (about 45 MB, a minute); afterwards it works offline and one broker
    is ready in a few seconds. Leaving the ``with`` block, an exception, Ctrl-C, the end of the interpreter and even
    its SIGKILL all end the brokers and delete their directory.

    Parameters
    ----------
    version
        One of 2.8.2, 3.3.2, 3.5.2, 3.9.2, 4.0.1, 4.1.2, 4.2.1, 4.3.1 and 4.4.0. KRaft from 3.3.0 on, ZooKeeper before.
    brokers
        1 to 3, with the ids 1, 2, 3. Three brokers are three controllers too, of which any one may be missing; with
        one or two brokers, broker 1 is the only controller.
    properties
        Broker settings that win over the lab's: replication factors equal to `brokers`,
        ``transaction.state.log.min.isr=1``, ``group.initial.rebalance.delay.ms=0``, a broker session of 3 s so that
        restarts are quick, ``auto.create.topics.enable=false`` because an incident is staged on exactly the topics
        it names, few threads, and 10 partitions of ``__consumer_offsets``.
    users
        Names and passwords: clients must log in (SASL/PLAIN), and an authorizer refuses what no ACL allows. Empty
        for neither.
    super_users
        Those of `users` who may do everything.
    heap
        Heap of each broker, as Java writes it.
    timeout
        Seconds that a start may take, the fetching of jars apart.

    Examples
    --------
    >>> with Kafka("4.3.1") as kafka:  # doctest: +SKIP
    ...     kafka.bootstrap_servers
    '127.0.0.1:23017'
    """

    def __init__(
        self,
        version: str = "4.3.1",
        *,
        brokers: int = 1,
        properties: Mapping[str, object] = NOTHING,
        users: Mapping[str, str] = NOTHING,
        super_users: Sequence[str] = (),
        heap: str = "512m",
        timeout: float = 120,
    ) -> None:
        if version not in lab_versions():
            raise UsageError(f"{version!r} is not a Kafka version of the lab.", do=f"Use {', '.join(lab_versions())}.")
        if brokers not in (1, 2, 3):
            raise UsageError(f"The lab starts 1 to 3 brokers, not {brokers}.", do="Pass brokers=1, 2 or 3.")
        if unknown := set(super_users) - set(users):
            raise UsageError(
                f"super_users names {', '.join(sorted(unknown))}, which have no password in `users`.",
                do="Add them to `users`.",
            )
        if sys.platform == "win32":
            raise LabError("The lab runs on Linux and macOS.", do="On Windows, use it inside WSL.")
        self.version = version
        self.broker_ids = list(range(1, brokers + 1))
        self._properties = {key: _text(value) for key, value in properties.items()}
        self._users = dict(users)
        self._super_users = list(super_users)
        self._heap = heap
        self._timeout = timeout
        self._supervisor: ProcessSupervisor | None = None
        self._zookeeper_port: int | None = None
        self._ports = contextlib.ExitStack()
        self._nodes: dict[int, Node] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._log_starts: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<Kafka {self.version} at {self.bootstrap_servers}>" if self._supervisor else f"<Kafka {self.version}>"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    # The cluster

    def start(self) -> Self:
        """Fetch, format and start; return when every broker answers and a topic could be created.

        Raises
        ------
        LabError
            The jars could not be fetched, there is no fitting Java, or a broker ended or was not ready in time: then
            with what its log says.
        """
        if self._supervisor:
            return self
        # Before 3.9, Kafka's clients, and so its tools, cannot log in with SASL on Java 23 and newer.
        self._java = find_java(newest=None if version_numbers(self.version) >= (3, 9) else 22)
        self._classpath = self.classpath
        for attempts_left in (2, 1, 0):
            try:
                self._start()
                break
            except PortTaken:
                self.stop()
                if not attempts_left:
                    raise
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """Kill all brokers and delete their directory; does nothing if none runs."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor:
            atexit.unregister(self.stop)
            try:
                self._keep_classes()
            finally:
                supervisor.stop()
                self._ports.close()
            for past in (self._nodes, self._processes, self._log_starts):
                past.clear()

    def client_config(self, user: str | None = None) -> dict[str, str]:
        """Return the librdkafka settings that connect to this cluster.

        Parameters
        ----------
        user
            One of `users`; by default the first super user, or the first user if there is none.
        """
        config = {"bootstrap.servers": self.bootstrap_servers}
        if not self._users and user is None:
            return config
        name = user or next(iter([*self._super_users, *self._users]))
        if name not in self._users:
            raise NotFound(
                f"This Kafka has no user {name!r}; it has {', '.join(self._users) or 'none'}.",
                do="Pass it in `users` when it starts.",
            )
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        return config | login | {"sasl.username": name, "sasl.password": self._users[name]}

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, ``"127.0.0.1:port,..."``."""
        self._running()
        return ",".join(f"127.0.0.1:{node.client_port}" for node in self._nodes.values())

    @property
    def log_dirs(self) -> dict[int, Path]:
        """The directory with each broker's partitions, by broker id."""
        self._running()
        return {broker_id: node.log_dir for broker_id, node in self._nodes.items()}

    @property
    def broker_logs(self) -> dict[int, Path]:
        """Each broker's own log, by broker id."""
        self._running()
        return {broker_id: node.log for broker_id, node in self._nodes.items()}

    @property
    def classpath(self) -> str:
        """Java class path with this version's Kafka, its tools and a logger; downloaded if it is not in the cache."""
        return f"{fetch_jars(self.version)}/*"

    # One broker

    def kill(self, broker_id: int) -> None:
        """Kill a broker with SIGKILL, as in a crash; its data and its port stay."""
        process = self._process(broker_id)
        process.kill()
        process.wait()
        if len(self._nodes) == 1 and SESSION not in self._properties:  # it registers again when that is over
            self._configure(broker_id, {SESSION: SESSION_MS})

    def stop_broker(self, broker_id: int) -> None:
        """Shut down a broker cleanly: it writes its snapshots and checkpoints; its data and its port stay."""
        process = self._process(broker_id)
        process.terminate()
        try:
            process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            self.kill(broker_id)

    def start_broker(self, broker_id: int) -> None:
        """Start a broker that was stopped or killed; return when it answers and knows every running broker."""
        if self._process(broker_id).poll() is None:
            return
        if port := self._zookeeper_port:
            self._wait(broker_id, lambda: not is_registered(port, broker_id))
        self._launch(broker_id)
        self._wait_until_ready(broker_id)

    def restart(self, broker_id: int, *, properties: Mapping[str, object] = NOTHING) -> None:
        """Shut down a broker cleanly and start it again on the same data and port.

        Parameters
        ----------
        broker_id
            The broker.
        properties
            Settings that it has from now on, beside those of the cluster.
        """
        self.stop_broker(broker_id)
        self._configure(broker_id, properties)
        self.start_broker(broker_id)

    def pause(self, broker_id: int) -> None:
        """Pause a broker (SIGSTOP), as during a long garbage collection; its connections stay open."""
        process = self._process(broker_id)
        process.send_signal(signal.SIGSTOP)
        if hasattr(os, "waitid"):  # not on macOS; until its last thread has stopped, it may still answer
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self, broker_id: int) -> None:
        """Resume a paused broker (SIGCONT)."""
        self._process(broker_id).send_signal(signal.SIGCONT)

    def logs(self, broker_id: int, *, lines: int = 30) -> str:
        """Return the last lines of a broker's own log."""
        return "\n".join(_lines(self._node(broker_id).log)[-lines:])

    # Tools

    def run_tool(self, main_class: str, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run one of this version's Java programs and return its exit code, stdout and stderr.

        Parameters
        ----------
        main_class
            Its name in this version; for example ``"org.apache.kafka.tools.TransactionsCommand"``.
        *arguments
            Its command-line arguments.
        timeout
            Seconds until ``subprocess.TimeoutExpired``.
        """
        supervisor = self._running()
        return subprocess.run(
            java_command(self._java, main_class, *arguments, classpath=self._classpath, log_level="warn"),
            input="",
            capture_output=True,
            text=True,
            timeout=timeout,
            process_group=supervisor.group,
        )

    # Starting

    def _start(self) -> None:
        directory = Path(tempfile.mkdtemp(prefix="kafka-txn-lab-"))
        self._supervisor = ProcessSupervisor(directory)
        atexit.register(self.stop)
        self._lay_out(directory)
        if self._zookeeper_port:
            settings = directory / "zookeeper.properties"
            settings.write_text(properties_text(zookeeper_properties(directory, port=self._zookeeper_port)))
            self._run(ZOOKEEPER_CLASS, str(settings), log=directory / "zookeeper.log")
        else:
            self._format()
        for broker_id in self.broker_ids:
            self._launch(broker_id)
        self._wait_until_ready(*self.broker_ids)

    def _lay_out(self, directory: Path) -> None:
        """Give every broker its directory, its ports and its settings."""
        zookeeper_port, *ports = free_ports(1 + 3 * len(self.broker_ids))
        self._ports = reserved([zookeeper_port, *ports])
        self._zookeeper_port = zookeeper_port if version_numbers(self.version) < (3, 3) else None
        triples = zip(*[iter(ports)] * 3, strict=True)
        for broker_id, (client, internal, controller) in zip(self.broker_ids, triples, strict=True):
            self._nodes[broker_id] = Node(
                broker_id=broker_id,
                directory=directory / f"broker-{broker_id}",
                client_port=client,
                internal_port=internal,
                controller_port=controller,
            )
        for node in self._nodes.values():
            properties = server_properties(
                node,
                list(self._nodes.values()),
                zookeeper_port=self._zookeeper_port,
                users=self._users,
                super_users=self._super_users,
            )
            node.directory.mkdir()
            node.settings.write_text(properties_text(properties | self._properties))

    def _format(self) -> None:
        cluster_id, node, jars = random_uuid(), self._nodes[1], fetch_jars(self.version)
        is_own = any(name.startswith(READ_BY_FORMAT) for name in self._properties)
        formatted = node.log_dir if is_own else jars.with_name(f"{jars.name}-formatted")
        if not formatted.is_dir():
            arguments = "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config"
            process = self._run(*arguments, str(node.settings), log=node.log)
            self._wait(1, lambda: process.poll() is not None)
            if process.returncode:
                raise self._failure(1, f"could not format its storage (exit code {process.returncode})")
            if not is_own:
                keep_storage(node, formatted)
                formatted = node.log_dir
        write_storage(formatted, self._nodes.values(), cluster_id=cluster_id)

    def _keep_classes(self) -> None:
        """The first broker of a version that ends writes the archive of its loaded classes."""
        process = self._processes.get(1)
        if process is None or self._classes.exists():
            return
        process.terminate()
        partial = self._classes.with_suffix(f".{os.getpid()}")
        try:
            process.wait(20)
            shutil.copyfile(self._nodes[1].directory / CLASSES, partial)
            partial.rename(self._classes)
        except (OSError, subprocess.TimeoutExpired):  # it was killed, or the cache is full: the next start is no faster
            with contextlib.suppress(OSError):
                partial.unlink()

    def _launch(self, broker_id: int) -> None:
        node = self._node(broker_id)
        self._log_starts[broker_id] = len(_lines(node.log))
        options = class_archive_options(self._classes, new=node.directory / CLASSES)
        self._processes[broker_id] = self._run("kafka.Kafka", str(node.settings), log=node.log, options=options)

    @property
    def _classes(self) -> Path:
        """The archive of the classes of a broker of this version."""
        jars = fetch_jars(self.version)
        return jars.with_name(f"{jars.name}-java{java_version(self._java)}.jsa")

    def _run(self, main_class: str, *arguments: str, log: Path, options: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        options = [*UNVERIFIED, *options]
        command = java_command(
            self._java, main_class, *arguments, classpath=self._classpath, heap=self._heap, options=options
        )
        return self._running().start(command, log=log)

    def _wait_until_ready(self, *broker_ids: int) -> None:
        admins = [quiet_admin(f"127.0.0.1:{self._node(each).internal_port}") for each in broker_ids]

        def ready() -> bool:
            for each in broker_ids:
                if (code := self._process(each).poll()) is not None:
                    raise self._failure(each, f"ended with exit code {code}")
            running = {each for each, process in self._processes.items() if process.poll() is None}
            return all(is_ready(admin, running) for admin in admins)

        self._wait(broker_ids[0], ready)

    def _wait(self, broker_id: int, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._timeout
        while not condition():
            if time.monotonic() > deadline:
                raise self._failure(broker_id, f"was not ready after {self._timeout:g} s")
            time.sleep(0.05)

    def _failure(self, broker_id: int, happened: str) -> LabError:
        lines = _lines(self._node(broker_id).log)[self._log_starts.get(broker_id, 0) :]
        first = next((number for number, line in enumerate(lines) if "] ERROR " in line), -20)
        kind = PortTaken if any("Address already in use" in line for line in lines) else LabError
        return kind(
            f"Broker {broker_id} of Kafka {self.version} {happened}.",
            means="Its log says:\n" + "\n".join(lines[first:][:20]) + "\n",
            do="Correct `properties` if the log names one; on a slow machine, use a longer `timeout`.",
        )

    # Small things

    def _running(self) -> ProcessSupervisor:
        if not self._supervisor:
            raise LabError("This Kafka is not running.", do="Use it inside `with Kafka(...) as kafka:`, or start() it.")
        return self._supervisor

    def _node(self, broker_id: int) -> Node:
        self._running()
        if broker_id not in self._nodes:
            raise NotFound(f"This Kafka has no broker {broker_id}; it has {self.broker_ids}.", do="Pass one of these.")
        return self._nodes[broker_id]

    def _configure(self, broker_id: int, properties: Mapping[str, object]) -> None:
        with self._node(broker_id).settings.open("a") as settings:
            settings.write(properties_text({key: _text(value) for key, value in properties.items()}))

    def _process(self, broker_id: int) -> subprocess.Popen[bytes]:
        return self._processes[self._node(broker_id).broker_id]


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines() if log.exists() else []


def version_numbers(version: str) -> tuple[int, ...]:
    """The numbers of a release, for comparison."""
    return tuple(int(part) for part in version.split("."))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
