"""This package for executors that do not have it."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from toolkit.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["sent", "ship"]

PURE = ("toolkit", "kafka")  # packages of Python only: a zip of them runs anywhere
COMPILED = ("confluent_kafka", "cramjam", "google_crc32c", "numba", "numpy", "pandas", "pyarrow")
LIVE_ONLY = {"confluent_kafka"}
EPOCH = (2020, 1, 1, 0, 0, 0)  # the same zip for the same files, so that it is sent once

_SENT: WeakKeyDictionary[SparkSession, bytes] = WeakKeyDictionary()


def ship(spark: SparkSession) -> None:
    """Send this package to the executors of a session, under classic Spark as under Spark Connect; before `register`.

    A wheel that is installed on the cluster (``%pip install`` on Databricks) is better: this is for a cluster that one
    may not install on. What is compiled cannot be sent, and has to be there: numpy, pandas, pyarrow, numba, cramjam,
    google-crc32c; confluent-kafka for live clusters.

    Parameters
    ----------
    spark
        The session.

    Raises
    ------
    UsageError
        If executors lack a compiled package that this one needs, and which.
    """
    data = _zipped()
    path = (
        Path(tempfile.mkdtemp(prefix="kafka-txn-")) / f"kafka_txn_toolkit_{hashlib.sha256(data).hexdigest()[:16]}.zip"
    )
    path.write_bytes(data)
    spark.addArtifact(str(path), pyfile=True)
    _SENT[spark] = data
    if missing := _missing(spark):
        raise UsageError(
            f"The package is on the executors now, but {', '.join(missing)} is not, and cannot be sent.",
            do=f"Install it there: %pip install {' '.join(name.replace('_', '-') for name in missing)}",
        )


def sent(spark: SparkSession) -> bytes | None:
    """The zip that was sent to a session; null where none was."""
    return _SENT.get(spark)


def _zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PURE:
            root = _folder(package)
            for path in sorted(root.rglob("*")):
                if path.is_file() and path.suffix in {".py", ".json", ".typed"}:
                    entry = zipfile.ZipInfo(f"{package}/{path.relative_to(root).as_posix()}", date_time=EPOCH)
                    archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise UsageError(f"{package} is not installed here.", do="pip install kafka-txn-toolkit")
    return Path(spec.origin).parent


def _missing(spark: SparkSession) -> list[str]:
    """Names of compiled packages that executors cannot import; those that only live clusters need are left out."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from importlib.util import find_spec

        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": [name for name in COMPILED if find_spec(name) is None]})

    found = spark.range(1).mapInArrow(look, "name string").toArrow()
    return sorted(set(found["name"].to_pylist()) - LIVE_ONLY)
