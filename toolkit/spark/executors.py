"""What the driver and the executors of a session can use, and how this package gets to those that lack it."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import pickle
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from pyspark import cloudpickle

from toolkit.config import ClientConfig
from toolkit.errors import ToolkitError, UsageError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


PURE = ("toolkit", "kafka", "javaproperties")
COMPILED = ("confluent_kafka", "cramjam", "google_crc32c", "numpy", "pandas", "pyarrow")
"""Packages that executors need."""

AccessCheck = Callable[[], list[tuple[Any, ...]]]
TASKS = 4  # so that more than one executor answers
TIMEOUT_S = 5.0


class Access(NamedTuple):
    """Whether a process can use something.

    Parameters
    ----------
    kind
        ``gateway``, ``cluster`` (a login), ``package``, ``path`` or ``broker``.
    name
        Its name.
    available
        Whether the process can use it.
    detail
        The error; else the file of a package, the id of a cluster, the master of a gateway.
    """

    kind: str
    name: str
    available: bool
    detail: str | None = None


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
    """Whether the executors reach every broker that this process reaches.

    Parameters
    ----------
    spark
        The session.
    addresses
        ``host:port`` of the brokers.
    """
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

_SENT: WeakKeyDictionary[SparkSession, bytes] = WeakKeyDictionary()


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
    missing = sorted(name for name in absent if importlib.util.find_spec(name) is not None)
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
    _SENT[spark] = data


def ship_if_missing(spark: SparkSession) -> None:
    """`ship_package`, if an executor does not have this package."""
    if unavailable_to_executors(spark, packages=PURE):
        ship_package(spark)


def sent(spark: SparkSession) -> bytes | None:
    """The zip that was sent to a session; null if none was."""
    return _SENT.get(spark)


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
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise UsageError(f"{package} is not installed.", do=f"pip install {package}")
    return Path(spec.origin).parent


def self_contained_source(source: type[DataSource], package: bytes) -> type[DataSource]:
    """A data source that carries the package in its pickle.

    `ship_package` reaches Spark's workers, but not the process of a streaming source (4.0 to 4.3). So this class only
    uses functions that need nothing but Python and pyspark.

    Parameters
    ----------
    source
        The data source.
    package
        A zip of pure Python packages, including this one.
    """
    load = _loader(source, package)
    format_name = source.name()
    from pyspark.sql.datasource import DataSource

    class SelfContained(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> StructType:
            found: StructType = load()(self.options).schema()
            return found

        def reader(self, schema: StructType) -> DataSourceReader:
            found: DataSourceReader = load()(self.options).reader(schema)
            return found

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            found: DataSourceStreamReader = load()(self.options).streamReader(schema)
            return found

    return SelfContained


def _loader(thing: object, package: bytes) -> Callable[[], Any]:
    """A function that makes the package importable and unpickles `thing`; nested, so that it is pickled by value."""
    pickled = cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]
    name = __name__.partition(".")[0]
    loads = pickle.loads  # noqa: S301  # of what is pickled above

    def load() -> Any:
        import importlib.util
        import os
        import sys

        if importlib.util.find_spec(name) is None:
            memory = os.memfd_create(name)  # Linux only; leaves no file behind, even after a crash
            with open(memory, "wb", closefd=False) as file:
                file.write(package)
            sys.path.append(f"/proc/self/fd/{memory}")
        return loads(pickled)

    return load
