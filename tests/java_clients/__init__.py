"""Java frameworks that write transactions, from Maven Central, run against a broker of the lab.

What they need beyond the jars of Kafka itself is written down beside this file: SHA-256 and path of every jar.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from platformdirs import user_cache_path

from toolkit.java.java_runtime import UNVERIFIED, find_java, java_command
from toolkit.java.maven import Download, download, locked, repository_url
from toolkit.lab import Kafka
from toolkit.lab.server.process_supervisor import ProcessSupervisor

__all__ = ["JavaClient", "jars_of"]

FOLDER = Path(__file__).parent


class JavaClient:
    """A Java program of a framework, killed (SIGKILL) at the end of its block.

    Parameters
    ----------
    kafka
        The cluster it writes to; its jars are of that version, too.
    framework
        The jar list beside this file: ``streams`` or ``connect``.
    main_class
        What to run; its only argument is the file with `properties`.
    properties
        Settings, beside ``bootstrap.servers``.
    """

    def __init__(self, kafka: Kafka, framework: str, main_class: str, properties: dict[str, str]) -> None:
        self.kafka = kafka
        self.main_class = main_class
        self.properties = {"bootstrap.servers": kafka.bootstrap_servers, **properties}
        self.jars = jars_of(f"{framework}-{kafka.version}")

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="kafka-txn-java-"))
        self.supervisor = ProcessSupervisor(self.folder)
        settings = self.folder / "client.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        command = java_command(
            find_java(),
            self.main_class,
            str(settings),
            classpath=f"{self.kafka.classpath}:{self.jars}/*",
            log_level="warn",
            options=[*UNVERIFIED, f"-Djava.io.tmpdir={self.folder}"],
        )
        self.process: subprocess.Popen[bytes] = self.supervisor.start(command, log=self.folder / "log")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.supervisor.stop()

    def check(self) -> None:
        """Fail with its log if it has ended."""
        assert self.process.poll() is None, (self.folder / "log").read_text()[-4000:]


def jars_of(name: str) -> Path:
    """The folder with the jars of a list, fetched once."""
    home = user_cache_path("kafka-txn-toolkit") / "kafka-clients"
    folder = home / name
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / f"{name}.lock"):
        folder.mkdir(exist_ok=True)
        lines = [line.split() for line in (FOLDER / f"{name}.txt").read_text().splitlines()]
        wanted = [Download(path, folder / path.rpartition("/")[2], digest) for digest, path in lines]
        missing = [each for each in wanted if not each.target.exists()]
        if missing:
            download(missing, repository_url(), title=f"Fetching {name}")
    return folder
