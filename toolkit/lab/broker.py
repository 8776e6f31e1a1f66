"""A real Kafka on this machine, gone without a trace when it is no longer wanted."""

from __future__ import annotations

import atexit
import base64
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from toolkit.errors import LabError, NotFound, UsageError
from toolkit.lab.jars import fetch_jars
from toolkit.lab.java import find_java
from toolkit.lab.keeper import Keeper
from toolkit.lab.settings import Node, properties_text, server_properties, zookeeper_properties

__all__ = ["Kafka"]

NOTHING: Mapping[str, str] = MappingProxyType({})
FAST_START = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
# Below the ports that Linux and macOS hand out to outgoing connections, so that a stopped broker's port stays free.
PORTS = range(20_000, 32_000)
PORT_TAKEN = "Address already in use"


class Kafka:
    """A Kafka cluster of one to three brokers on 127.0.0.1, in its own temporary directory.

    The first start of a version fetches its jars (about 45 MB, a minute); afterwards it works offline and one broker
    is ready in a few seconds. Leaving the ``with`` block, an exception, Ctrl-C, the end of the interpreter and even
    its SIGKILL all end the brokers and delete their directory.

    Parameters
    ----------
    version
        A released Kafka version from 2.8.0 on. KRaft from 3.3.0 on, ZooKeeper before.
    brokers
        1 to 3, with the ids 1, 2, 3. Three brokers are three controllers too, of which any one may be missing; with
        one or two brokers, broker 1 is the only controller.
    properties
        Broker settings that win over the lab's: replication factors equal to `brokers`,
        ``transaction.state.log.min.isr=1``, ``group.initial.rebalance.delay.ms=0``, and
        ``auto.create.topics.enable=false`` because an incident is staged on exactly the topics it names.
    users
        Names and passwords. If given, clients must log in (SASL/PLAIN) and an authorizer refuses what no ACL allows.
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
        timeout: float = 90,
    ) -> None:
        if not re.fullmatch(r"\d+\.\d+\.\d+", version) or _numbers(version) < (2, 8):
            raise UsageError(f"{version!r} is not a Kafka version of the lab.", do="Ask for 2.8.0 or newer: '4.3.1'.")
        if brokers not in (1, 2, 3):
            raise UsageError(f"The lab starts 1 to 3 brokers, not {brokers}.")
        if strangers := set(super_users) - set(users):
            raise UsageError(f"super_users names {', '.join(sorted(strangers))}, for whom `users` has no password.")
        if sys.platform == "win32":
            raise LabError("The lab runs on Linux and macOS.", do="On Windows, use it inside WSL.")
        self.version = version
        self.broker_ids = list(range(1, brokers + 1))
        self._properties = {key: _text(value) for key, value in properties.items()}
        self._users = dict(users)
        self._super_users = list(super_users)
        self._heap = heap
        self._timeout = timeout
        self._keeper: Keeper | None = None
        self._nodes: dict[int, Node] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __repr__(self) -> str:
        state = self.bootstrap_servers if self._keeper else "stopped"
        return f"<Kafka {self.version}, {len(self.broker_ids)} broker(s), {state}>"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # The cluster

    def start(self) -> Self:
        """Fetch, format and start; return when every broker answers and a topic could be created.

        Raises
        ------
        LabError
            The jars could not be fetched, there is no fitting Java, or a broker ended or was not ready in time: then
            with the last lines of its log.
        """
        if self._keeper:
            return self
        self._java = str(find_java(newest=self._newest_java))
        self._jars = fetch_jars(self.version)
        for _ in range(3):
            try:
                self._start()
            except BaseException as error:
                self.stop()
                if isinstance(error, LabError) and PORT_TAKEN in str(error):
                    refused = error
                    continue
                raise
            return self
        raise refused

    def stop(self) -> None:
        """End all brokers at once and delete their directory; nothing happens if none runs."""
        keeper, self._keeper = self._keeper, None
        atexit.unregister(self._stop_at_exit)
        if keeper:
            keeper.stop()
        self._processes.clear()

    def client_config(self, user: str | None = None) -> dict[str, str]:
        """Return the librdkafka settings that connect to this cluster.

        Parameters
        ----------
        user
            Which of `users` to log in as; None takes the first super user, or the first user if there is none.
        """
        config = {"bootstrap.servers": self.bootstrap_servers}
        if not self._users and user is None:
            return config
        name = user or next(iter([*self._super_users, *self._users]))
        if name not in self._users:
            raise NotFound(f"This Kafka has no user {name!r}; it has {', '.join(self._users) or 'none'}.")
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        return config | login | {"sasl.username": name, "sasl.password": self._users[name]}

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, ``"127.0.0.1:port,..."``."""
        return ",".join(f"127.0.0.1:{node.client_port}" for node in self._nodes.values())

    @property
    def log_dirs(self) -> dict[int, Path]:
        """The directory with each broker's partitions, by broker id."""
        return {broker_id: node.log_dir for broker_id, node in self._nodes.items()}

    @property
    def classpath(self) -> str:
        """Java class path with this version's Kafka, its tools and a logger."""
        return f"{fetch_jars(self.version)}/*"

    # One broker

    def kill(self, broker_id: int) -> None:
        """End a broker with SIGKILL, as a crash would; its data and its port stay."""
        process = self._process(broker_id)
        process.kill()
        process.wait()

    def stop_broker(self, broker_id: int) -> None:
        """End a broker in good order, so that it writes its snapshots and checkpoints; its data and its port stay."""
        process = self._process(broker_id)
        process.terminate()
        try:
            process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            self.kill(broker_id)

    def start_broker(self, broker_id: int) -> None:
        """Start a broker that was stopped or killed; return when it answers and sees every running broker."""
        if self._process(broker_id).poll() is None:
            return
        self._launch(broker_id)
        self._wait_until_ready([broker_id])

    def restart(self, broker_id: int) -> None:
        """Stop a broker in good order and start it again on the same data and port."""
        self.stop_broker(broker_id)
        self.start_broker(broker_id)

    def logs(self, broker_id: int, *, lines: int = 30) -> str:
        """Return the last lines of a broker's own log."""
        return _tail(self._node(broker_id).log, lines)

    # Tools

    def run_tool(
        self, main_class: str, *arguments: str, input: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run one of this version's Java programs and return its exit code, stdout and stderr.

        Parameters
        ----------
        main_class
            Its name in this version; for example ``"org.apache.kafka.tools.TransactionsCommand"``.
        arguments
            As on a command line.
        input
            Text for its standard input.
        timeout
            Seconds until ``subprocess.TimeoutExpired``.
        """
        return subprocess.run(
            [
                self._java,
                "-Xmx512m",
                *FAST_START,
                *self._logging("warn"),
                "-cp",
                self.classpath,
                main_class,
                *arguments,
            ],
            input=input or "",
            capture_output=True,
            text=True,
            timeout=timeout,
            process_group=self._running().group,
        )

    # Starting

    def _start(self) -> None:
        directory = Path(tempfile.mkdtemp(prefix="kafka-txn-lab-"))
        self._keeper = Keeper(directory)
        atexit.register(self._stop_at_exit)
        self._owner = os.getpid()
        ports = iter(_free_ports(3 * len(self.broker_ids) + 1))
        zookeeper_port = None if self._is_kraft else next(ports)
        self._nodes = {
            each: Node(
                broker_id=each,
                directory=directory / f"broker-{each}",
                client_port=next(ports),
                internal_port=next(ports),
                controller_port=next(ports),
            )
            for each in self.broker_ids
        }
        for node in self._nodes.values():
            self._write_properties(node, zookeeper_port)
        if zookeeper_port:
            self._start_zookeeper(directory, zookeeper_port)
        else:
            self._format()
        for broker_id in self.broker_ids:
            self._launch(broker_id)
        self._wait_until_ready(self.broker_ids)

    def _write_properties(self, node: Node, zookeeper_port: int | None) -> None:
        properties = server_properties(
            node,
            list(self._nodes.values()),
            zookeeper_port=zookeeper_port,
            users=self._users,
            super_users=self._super_users,
        )
        node.directory.mkdir()
        _properties_file(node).write_text(properties_text(properties | self._properties))

    def _start_zookeeper(self, directory: Path, port: int) -> None:
        settings = directory / "zookeeper.properties"
        settings.write_text(properties_text(zookeeper_properties(directory, port=port)))
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._run(main_class, str(settings), log=directory / "zookeeper.log")

    def _format(self) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = "kafka.tools.StorageTool"
        formatting = {
            node: self._run(
                tool, "format", f"--cluster-id={cluster_id}", f"--config={_properties_file(node)}", log=node.log
            )
            for node in self._nodes.values()
        }
        for node, process in formatting.items():
            if process.wait(self._timeout):
                raise self._failure(node, f"its storage could not be formatted (exit code {process.returncode})")

    def _launch(self, broker_id: int) -> None:
        node = self._node(broker_id)
        self._processes[broker_id] = self._run("kafka.Kafka", str(_properties_file(node)), log=node.log)

    def _run(self, main_class: str, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        command = [self._java, f"-Xmx{self._heap}", *FAST_START, *self._logging("info"), "-cp", f"{self._jars}/*"]
        return self._running().start([*command, main_class, *arguments], log=log)

    def _logging(self, level: str) -> list[str]:
        simple = "-Dorg.slf4j.simpleLogger"
        return [
            f"{simple}.defaultLogLevel={level}",
            f"{simple}.showDateTime=true",
            f"{simple}.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
        ]

    def _wait_until_ready(self, broker_ids: Sequence[int]) -> None:
        """Ask until these brokers answer, each one knows every running broker, and a topic could be created."""
        deadline = time.monotonic() + self._timeout
        running = {each for each, process in self._processes.items() if process.poll() is None} | set(broker_ids)
        for node in (self._node(broker_id) for broker_id in broker_ids):
            admin = _quiet_admin(f"127.0.0.1:{node.internal_port}")
            while not _is_ready(admin, running):
                self._check_alive(broker_ids)
                if time.monotonic() > deadline:
                    raise self._failure(node, f"it was not ready after {self._timeout:g} s")
                time.sleep(0.05)

    def _check_alive(self, broker_ids: Sequence[int]) -> None:
        for broker_id in broker_ids:
            code = self._process(broker_id).poll()
            if code is not None:
                raise self._failure(self._node(broker_id), f"it ended with exit code {code}")

    def _failure(self, node: Node, happened: str) -> LabError:
        return LabError(
            f"Kafka {self.version}, broker {node.broker_id}: {happened}.",
            means=f"Its log ends with:\n{_tail(node.log, 30)}\n",
            do="Correct `properties` if the log names one; a machine short of memory or time needs a longer `timeout`.",
        )

    # Small things

    @property
    def _is_kraft(self) -> bool:
        return _numbers(self.version) >= (3, 3)

    @property
    def _newest_java(self) -> int | None:
        return None if _numbers(self.version) >= (4, 0) else 23

    def _running(self) -> Keeper:
        if not self._keeper:
            raise LabError(
                "This Kafka is not running.", do="Use it inside `with Kafka(...) as kafka:`, or call start()."
            )
        return self._keeper

    def _node(self, broker_id: int) -> Node:
        if broker_id not in self._nodes:
            raise NotFound(f"This Kafka has no broker {broker_id}; it has {self.broker_ids}.")
        return self._nodes[broker_id]

    def _process(self, broker_id: int) -> subprocess.Popen[bytes]:
        self._running()
        self._node(broker_id)
        return self._processes[broker_id]

    def _stop_at_exit(self) -> None:
        if os.getpid() == self._owner:
            self.stop()


def _is_ready(admin: AdminClient, broker_ids: set[int]) -> bool:
    try:
        if not broker_ids <= set(admin.list_topics(timeout=1).brokers):
            return False
        attempt = NewTopic("ready", num_partitions=1, replication_factor=len(broker_ids))
        admin.create_topics([attempt], validate_only=True, request_timeout=5)["ready"].result()
    except KafkaException:
        return False
    return True


def _quiet_admin(server: str) -> AdminClient:
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": server,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        "log_level": 0,
    }
    return AdminClient(config)


def _free_ports(count: int) -> list[int]:
    return list(islice(filter(_is_free, random.sample(PORTS, len(PORTS))), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _properties_file(node: Node) -> Path:
    return node.directory / "server.properties"


def _tail(log: Path, lines: int) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no log)"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
