"""Delta Lake for a Spark session of one's own: the release that fits, its jars fetched once, and the settings."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import urllib.request
from pathlib import Path
from urllib.error import URLError

from platformdirs import user_cache_path
from tqdm.auto import tqdm

from toolkit.errors import LabError, UsageError
from toolkit.lab.jars import alone, repository_url

__all__ = ["delta_settings"]

RELEASES = {
    "4.0": ("delta-spark_2.13", "4.0.1"),
    "4.1": ("delta-spark_4.1_2.13", "4.3.1"),
    "4.2": ("delta-spark_4.2_2.13", "4.4.0"),
}
"""Artifact and version by Spark's version; each goes with the artifact delta-storage of the same version."""

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # 50 tasks for the few files of a table are for clusters
}
CHUNK = 1 << 16


def delta_settings(version: str | None = None) -> dict[str, str]:
    """Settings with which a classic session reads and writes Delta tables; the first call fetches two jars (8 MB).

    Databricks and most clusters have Delta Lake: this is for Spark on one's own machine. The repository and the proxy
    are those of `toolkit.lab.jars.fetch_jars`. Afterwards it works offline.

    Parameters
    ----------
    version
        Of Spark; that of the installed pyspark if null.

    Raises
    ------
    UsageError
        If no release of Delta Lake is known to fit it.
    LabError
        If the jars cannot be fetched.
    """
    version = version or importlib.metadata.version("pyspark")
    release = RELEASES.get(".".join(version.split(".")[:2]))
    if release is None:
        raise UsageError(
            f"No release of Delta Lake is known that fits Spark {version}.",
            do=f"Install pyspark {' or '.join(RELEASES)}, or use a cluster that has Delta Lake.",
        )
    artifact, number = release
    home = user_cache_path("kafka-txn-toolkit") / "delta"
    home.mkdir(parents=True, exist_ok=True)
    jars = [_jar(home, name, number) for name in (artifact, "delta-storage")]
    return {"spark.jars": ",".join(map(str, jars)), **SETTINGS}


def _jar(home: Path, artifact: str, version: str) -> Path:
    jar = home / f"{artifact}-{version}.jar"
    if not jar.exists():
        with alone(home / f"{jar.name}.lock"):
            if not jar.exists():
                partial = jar.with_suffix(".partial")
                _fetch(f"{repository_url().rstrip('/')}/io/delta/{artifact}/{version}/{jar.name}", partial)
                partial.replace(jar)
    return jar


def _fetch(url: str, target: Path) -> None:
    """Download a file, and check it by the digest that lies beside it."""
    digest = hashlib.sha1(usedforsecurity=False)
    try:
        with urllib.request.urlopen(f"{url}.sha1", timeout=60) as response:  # noqa: S310  the user's own repository
            expected = response.read().split()[0].decode()
        with urllib.request.urlopen(url, timeout=60) as response, target.open("wb") as file:  # noqa: S310
            size = int(response.headers.get("Content-Length") or 0) or None
            with tqdm(desc=f"Fetching {os.path.basename(url)}", total=size, unit="B", unit_scale=True) as bar:
                while chunk := response.read(CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    bar.update(len(chunk))
    except (URLError, OSError, IndexError) as error:
        raise LabError(
            f"{url} could not be fetched: {error}",
            means="Delta Lake is fetched once for each version of Spark, and is not here yet; nothing was kept.",
            do="Go online for the first run, name a mirror in KAFKA_TXN_MAVEN, or write --format parquet.",
        ) from None
    if digest.hexdigest() != expected:
        raise LabError(
            f"{url} is not what its digest says.",
            means="A proxy or mirror answered with something else; nothing was kept.",
            do="Try again, or name another mirror in KAFKA_TXN_MAVEN.",
        )
