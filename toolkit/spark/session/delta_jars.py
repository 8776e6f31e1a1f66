"""Delta Lake for a local Spark session: the matching release, its jars (downloaded once) and the settings."""

from __future__ import annotations

import importlib.metadata

from platformdirs import user_cache_path

from toolkit.errors import UsageError
from toolkit.java.jar_download import Download, download
from toolkit.java.maven import locked, repository_url

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

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # the default of 50 tasks is for clusters
}


def delta_settings(version: str | None = None) -> dict[str, str]:
    """Settings for a classic session to read and write Delta tables; the first call downloads two jars (8 MB).

    Databricks and most clusters have Delta Lake: this is for Spark on your own machine. The repository and the proxy
    are those of `toolkit.lab.server.jars.fetch_jars`. After the first call it works offline.

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
    return {"spark.jars": ",".join(map(str, jars)), **SETTINGS}
