"""A real Kafka on this machine, which leaves nothing behind when it stops."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from toolkit.errors import LabError, NotFound, UsageError
from toolkit.java import UNVERIFIED, class_archive_options, find_java, java_command, java_version
from toolkit.lab.server.jars import fetch_jars
from toolkit.lab.server.node import (
    READ_BY_FORMAT,
    SESSION,
    SESSION_MS,
    ZOOKEEPER_CLASS,
    Node,
    free_ports,
    is_ready,
    is_registered,
    keep_storage,
    properties_text,
    quiet_admin,
    random_uuid,
    reserved,
    server_properties,
    write_storage,
    zookeeper_properties,
)
from toolkit.lab.server.process_supervisor import ProcessSupervisor

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
        A released Kafka version from 2.8.0 on. KRaft from 3.3.0 on, ZooKeeper before.
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
        if not re.fullmatch(r"\d+\.\d+\.\d+", version) or version_numbers(version) < (2, 8):
            raise UsageError(f"{version!r} is not a Kafka version of the lab.", do="Use 2.8.0 or newer: '4.3.1'.")
        if brokers not in (1, 2, 3):
            raise UsageError(f"The lab starts 1 to 3 brokers, not {brokers}.")
        if unknown := set(super_users) - set(users):
            raise UsageError(f"super_users names {', '.join(sorted(unknown))}, which have no password in `users`.")
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
            raise NotFound(f"This Kafka has no user {name!r}; it has {', '.join(self._users) or 'none'}.")
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

    def run_tool(
        self, main_class: str, *arguments: str, stdin: str = "", timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run one of this version's Java programs and return its exit code, stdout and stderr.

        Parameters
        ----------
        main_class
            Its name in this version; for example ``"org.apache.kafka.tools.TransactionsCommand"``.
        *arguments
            Its command-line arguments.
        stdin
            Its standard input.
        timeout
            Seconds until ``subprocess.TimeoutExpired``.
        """
        supervisor = self._running()
        return subprocess.run(
            java_command(self._java, main_class, *arguments, classpath=self._classpath, log_level="warn"),
            input=stdin,
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
            raise NotFound(f"This Kafka has no broker {broker_id}; it has {self.broker_ids}.")
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
