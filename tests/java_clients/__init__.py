"""Java frameworks that write transactions, from Maven Central, run against a broker of the lab.

What they need beyond the jars of Kafka itself is written down beside this file: SHA-256 and path of every jar.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from platformdirs import user_cache_path

from toolkit.java import UNVERIFIED, Download, download, find_java, java_command, locked, repository_url
from toolkit.lab import Kafka
from toolkit.lab.process_supervisor import ProcessSupervisor

__all__ = ["FlinkJob", "JavaClient", "jars_of"]

FOLDER = Path(__file__).parent


class JavaClient:
    """A Java program of a framework, killed (SIGKILL) at the end of its block.

    `framework`: the jar list beside this file, for the version of the cluster. The program's only argument is the file
    with its properties.
    """

    options: tuple[str, ...] = ()
    """More options of Java."""

    def __init__(self, kafka: Kafka, framework: str, main_class: str, properties: dict[str, str]) -> None:
        self.kafka = kafka
        self.main_class = main_class
        self.properties = {"bootstrap.servers": kafka.bootstrap_servers, **properties}
        self.classpath = f"{kafka.classpath}:{jars_of(f'{framework}-{kafka.version}')}/*"

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="kafka-txn-java-"))
        self.supervisor = ProcessSupervisor(self.folder)
        settings = self.folder / "client.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        command = java_command(
            find_java(),
            self.main_class,
            str(settings),
            classpath=self.classpath,
            log_level="warn",
            options=[*UNVERIFIED, f"-Djava.io.tmpdir={self.folder}", *self.options],
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


class FlinkJob(JavaClient):
    """Numbers from 0 on, each a record, to a topic by Flink's KafkaSink with exactly-once delivery (``FlinkJob.java``).

    It can be frozen after a checkpoint is complete and before the job has committed its transactions.

    `naming`: ``INCREMENTING`` or ``POOLING``; `prefix`: of its transactional ids; `restored`: from this checkpoint.
    `records`, `rate`: how many it writes before it ends, and per second while there is no file `unpaced`.
    """

    options = ("--add-opens=java.base/java.util=ALL-UNNAMED",)

    def __init__(
        self,
        kafka: Kafka,
        folder: Path,
        *,
        topic: str,
        prefix: str,
        naming: str = "INCREMENTING",
        restored: Path | None = None,
        records: int = 600,
        rate: float = 100,
        parallelism: int = 2,
        timeout_ms: int = 600_000,
        after: int = 5,
    ) -> None:
        self.kafka, self.main_class = kafka, "FlinkJob"
        self.classpath = f"{_flink_classes()}:{jars_of(FLINK)}/*"
        self.checkpoints = folder / "checkpoints"
        self.freezes = folder / "freeze"
        self.unpaced = folder / "unpaced"
        self.parallelism = parallelism
        self.properties = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "topic": topic,
            "prefix": prefix,
            "naming": naming,
            "records": str(records),
            "rate": str(rate),
            "parallelism": str(parallelism),
            "timeout": str(timeout_ms),
            "freeze": str(self.freezes),
            "unpaced": str(self.unpaced),
            "after": str(after),
            "execution.checkpointing.interval": "400 ms",
            "execution.checkpointing.mode": "EXACTLY_ONCE",
            "execution.checkpointing.storage": "filesystem",
            "execution.checkpointing.dir": self.checkpoints.as_uri(),
            "execution.checkpointing.num-retained": "20",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            **({} if restored is None else {"execution.state-recovery.path": restored.as_uri()}),
        }

    def freeze(self, checkpoint_id: int) -> None:
        """Let each subtask stop some records after a later checkpoint, which is complete then: nothing is committed."""
        new = self.freezes.with_suffix(".new")
        new.write_text(f"{checkpoint_id}")
        new.rename(self.freezes)

    @property
    def is_frozen(self) -> bool:
        """Whether all subtasks have stopped."""
        return len(list(self.freezes.parent.glob(f"{self.freezes.name}-frozen-*"))) == self.parallelism

    def thaw(self) -> None:
        """Let the next job of the folder run freely."""
        for each in self.freezes.parent.glob(f"{self.freezes.name}*"):
            each.unlink()

    def last_checkpoint(self) -> Path | None:
        """The last completed checkpoint of all jobs of the folder; null before the first.

        A restored job counts on from its checkpoint. The newest folder of a job may have no completed checkpoint yet:
        who goes by it restores nothing, and the job writes all records again.
        """
        complete = (each.parent for each in self.checkpoints.glob("*/chk-*/_metadata"))
        return max(complete, key=lambda each: int(each.name[4:]), default=None)

    def kill(self) -> None:
        """SIGKILL: nothing is closed, committed or aborted."""
        self.process.kill()
        self.process.wait(60)


FLINK = "flink-2.1.1"


def _flink_classes() -> Path:
    """The folder of the compiled ``FlinkJob.java``."""
    compiler = shutil.which("javac", path=str(find_java().resolve().parent)) or shutil.which("javac")
    if compiler is None:
        raise FileNotFoundError("FlinkJob.java needs a JDK, and this machine has only a Java runtime.")
    source, jars = FOLDER / "FlinkJob.java", jars_of(FLINK)
    folder = jars.parent / f"{FLINK}-classes-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    with locked(jars.parent / f"{FLINK}-classes.lock"):
        if not folder.exists():
            new = Path(tempfile.mkdtemp(dir=jars.parent))
            subprocess.run([compiler, "-d", str(new), "-cp", f"{jars}/*", str(source)], check=True, timeout=120)
            new.rename(folder)
    return folder


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
