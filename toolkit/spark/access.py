"""What the driver and the executors of a session can use: brokers, paths, packages, the JVM gateway."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from toolkit.config import ClientConfig
from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import SparkSession

PURE = ("toolkit", "kafka", "javaproperties")
COMPILED = ("confluent_kafka", "cramjam", "google_crc32c", "numpy", "pandas", "pyarrow")
"""Packages that executors need."""

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
    look = _look(names=(*PURE, *COMPILED), paths=tuple(paths), addresses=tuple(addresses), timeout=timeout)
    rows = [("driver", *each) for each in [_gateway(spark), *answers, *map(Access._make, look())]]
    rows += [("executors", *each) for each in _on_executors(spark, look)]
    return pd.DataFrame(rows, columns=["process", *Access._fields])


def executors_reach(spark: SparkSession, addresses: Iterable[str], *, timeout: float = TIMEOUT_S) -> bool:
    """Whether the executors reach every broker that this process reaches.

    Parameters
    ----------
    spark
        The session.
    addresses
        ``host:port`` of the brokers.
    timeout
        Seconds for each connection.
    """
    look = _look(names=(), paths=(), addresses=tuple(addresses), timeout=timeout)
    reached = {name for _, name, available, _ in look() if available}
    return not reached & {each.name for each in _on_executors(spark, look) if not each.available}


def missing_packages(spark: SparkSession, names: Iterable[str]) -> list[str]:
    """The packages that an executor cannot import."""
    look = _look(names=tuple(names), paths=(), addresses=(), timeout=TIMEOUT_S)
    return sorted(each.name for each in _on_executors(spark, look) if not each.available)


def unreadable_paths(spark: SparkSession, paths: Iterable[str]) -> set[str]:
    """The files and folders that an executor cannot read."""
    look = _look(names=(), paths=tuple(paths), addresses=(), timeout=TIMEOUT_S)
    return {each.name for each in _on_executors(spark, look) if not each.available}


def _look(
    *, names: tuple[str, ...], paths: tuple[str, ...], addresses: tuple[str, ...], timeout: float
) -> Callable[[], list[tuple[str, str, bool, str | None]]]:
    """A function for any process; nested, so that it is pickled by value: executors may lack this package."""

    def look() -> list[tuple[str, str, bool, str | None]]:
        import os
        import socket
        from concurrent.futures import ThreadPoolExecutor
        from importlib.util import find_spec

        def connect(address: str) -> tuple[str, str, bool, str | None]:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout).close()
            except OSError as error:
                return "broker", address, False, str(error)
            return "broker", address, True, None

        def stat(path: str) -> tuple[str, str, bool, str | None]:
            try:
                os.listdir(path) if os.path.isdir(path) else os.stat(path)
            except OSError as error:
                return "path", path, False, str(error)
            return "path", path, True, None

        found: list[tuple[str, str, bool, str | None]] = []
        for name in names:
            spec = find_spec(name)
            found.append(("package", name, spec is not None, spec.origin if spec else None))
        with ThreadPoolExecutor(16) as pool:
            return [*found, *map(stat, paths), *pool.map(connect, addresses)]

    return look


def _on_executors(spark: SparkSession, look: Callable[[], list[tuple[str, str, bool, str | None]]]) -> list[Access]:
    def of_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            columns = [list(column) for column in zip(*look(), strict=True)]
            types = (pa.string(), pa.string(), pa.bool_(), pa.string())
            arrays = [pa.array(*each) for each in zip(columns, types, strict=False)]
            if arrays:
                yield pa.RecordBatch.from_arrays(arrays, ["kind", "name", "available", "detail"])

    tasks = spark.range(0, TASKS, 1, TASKS)
    rows = tasks.mapInArrow(of_batches, "kind string, name string, available boolean, detail string").collect()
    found: dict[tuple[str, str], Access] = {}
    for each in map(Access._make, rows):
        known = found.setdefault(each[:2], each)
        if known.available and not each.available:
            found[each[:2]] = each
    return list(found.values())


def _addresses(config: ClientConfig, timeout: float) -> tuple[Collection[str], Access]:
    from toolkit.sources.live.client.broker_client import BrokerClient

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
