"""Ship this package to Spark's executors and other processes that lack it."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import pickle
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark import cloudpickle

from toolkit.errors import UsageError
from toolkit.spark.access import COMPILED, PURE, unavailable_to_executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

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
