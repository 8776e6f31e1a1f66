"""What the driver and the executors of a session can use: brokers, paths, packages, the JVM gateway."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkit.config import ClientConfig
from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import SparkSession

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
