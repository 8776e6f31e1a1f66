"""What driver and executors can use is found out, and the pipeline reads where the brokers can be reached."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from tests.process import started
from tests.spark.settings import QUICK
from toolkit import Cluster
from toolkit.errors import UsageError
from toolkit.lab import Kafka
from toolkit.lab.clients import until
from toolkit.lab.incidents import INCIDENTS
from toolkit.spark import probe, register, require_data_sources, spark_session
from toolkit.spark.pipeline import run_sources
from toolkit.spark.pipeline.log_fold import LogWork, folded
from toolkit.spark.pipeline.stored_tables import open_store
from toolkit.spark.spark_session import _java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
NOT_OF_THE_RUNTIME = ("cramjam", "google_crc32c", "confluent_kafka", "kafka", "javaproperties")

PYTHON = """\
#!/bin/sh
# Executors have what a runtime has, and reach no broker. Without site, no editable installation is found.
export PYTHONPATH="{runtime}"
exec "{python}" -S -c 'import runpy, socket, sys
connect, connect_ex = socket.socket.connect, socket.socket.connect_ex
def blocked(call):
    def connect(self, address):
        if isinstance(address, tuple) and address[1] == {port}:
            raise OSError(101, "Network is unreachable")
        return call(self, address)
    return connect
socket.socket.connect, socket.socket.connect_ex = blocked(connect), blocked(connect_ex)
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)' "$@"
"""

PROGRAM = """\
import json
import sys

from toolkit.cli import main
from toolkit.spark import probe, spark_session

ship = spark_session.ship_if_missing
servers = sys.argv[sys.argv.index("--bootstrap-server") + 1]


def probe_and_ship(spark):
    print(json.dumps(probe(spark, servers, paths=["/", "/no/such/folder"]).to_dict("records")))
    ship(spark)
    print(json.dumps(probe(spark).to_dict("records")))
    spark_session.ship_package(spark)


spark_session.ship_if_missing = probe_and_ship
main()
"""


def available(answers: Any) -> dict[tuple[str, str, str], bool]:
    return {(row["process"], row["kind"], row["name"]): row["available"] for row in answers}


def test_the_probe_lists_what_driver_and_executors_can_use(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    found = available(probe(spark, kafka.bootstrap_servers, paths=[str(tmp_path), gone]).to_dict("records"))
    assert found["driver", "gateway", "JVM"]
    assert found["driver", "cluster", kafka.bootstrap_servers]
    for process in ("driver", "executors"):
        assert [ok for (each, kind, _), ok in found.items() if (each, kind) == (process, "broker")] == [True]
        assert (found[process, "path", str(tmp_path)], found[process, "path", gone]) == (True, False)
        assert found[process, "package", "toolkit"]
    nowhere = probe(spark, "127.0.0.1:1", timeout=1)
    refused = nowhere[nowhere.kind.isin(["cluster", "broker"])]
    assert not refused.available.any()
    assert refused.detail.notna().all()


def test_the_driver_reads_the_same_rows_as_executors(
    spark: SparkSession, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with INCIDENTS["late_message"](kafka) as staged, Cluster(kafka.bootstrap_servers) as cluster:
        register(spark, config=cluster.config)
        listed = run_sources.list_partitions(spark, cluster, topics=[staged.topic])
        plans = listed.plans({})
        listings = listed.listings
        works = [LogWork(log=log, listing=listings[log], plan=plan, state=None) for log, plan in plans.items()]
        options = listed.options(min_held_ms=0, with_batches=True)
        read = []
        for reach in (True, False):
            monkeypatch.setattr(run_sources, "executors_reach", lambda *_, reach=reach: reach)
            store = open_store(spark, f"{tmp_path}/tables")
            frames, _ = folded(store, works, options, here=listed.reads_here)
            read.append({name: sorted(map(repr, rows.toArrow().to_pylist())) for name, rows in frames.items()})
    assert read[0]["batches"]
    assert read[0]["log_transactions"]
    assert read[0] == read[1]


@contextmanager
def connect_server(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A Spark Connect server as start-connect-server.sh starts it, and its address."""
    home = Path(pyspark.__file__).parent
    settings = {
        **QUICK,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    variables = {**environment, "SPARK_HOME": str(home), "JAVA_HOME": str(_java_home(folder))}
    log = folder / "server.log"
    with log.open("w") as output, started(command, cwd=folder, env=variables, stdout=output, stderr=output):
        found = until(
            lambda: re.search(r"server started at: (\S+)", log.read_text()), awaited="the server", timeout=900
        )
        yield f"sc://{found[1]}"


@pytest.mark.full
@pytest.mark.timeout(2400)
def test_the_command_runs_on_a_connect_server_without_network_and_without_the_package(
    kafka: Kafka, tmp_path: Path
) -> None:
    """Without a JVM gateway and jars of Delta Lake: the server has what a runtime has, and a volume has the rest."""
    site = Path(pytest.__file__).parents[1]
    runtime, volume, out = (tmp_path / name for name in ("runtime", "volume", "out"))
    runtime.mkdir()
    volume.mkdir()
    for path in site.iterdir():
        (volume if path.name.startswith(NOT_OF_THE_RUNTIME) else runtime).joinpath(path.name).symlink_to(path)
    (volume / "toolkit").symlink_to(ROOT / "toolkit")
    wrapper = tmp_path / "python"
    port = kafka.bootstrap_servers.rpartition(":")[2]
    wrapper.write_text(PYTHON.format(runtime=runtime, python=sys.executable, port=port))
    wrapper.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    of_server = environment | {"PYSPARK_PYTHON": str(wrapper), "PYTHONPATH": str(runtime)}
    environment |= {"PYTHONPATH": f"{runtime}:{volume}"}
    command = [sys.executable, "-S", "-c", PROGRAM, "pipeline", "--bootstrap-server", kafka.bootstrap_servers]
    command += ["--format", "parquet", "--output", str(out), "--min-held", "0s"]
    with INCIDENTS["late_message"](kafka) as staged, connect_server(tmp_path, of_server) as address:
        command += ["--topic", staged.topic, "--remote", address]  # other tests leave what hangs on this broker, too
        process = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1200, check=False
        )
    assert (process.returncode, process.stderr) == (1, "")
    first, shipped, *lines = process.stdout.splitlines()
    assert all(row["available"] for row in json.loads(shipped) if row["kind"] == "package")
    found = available(json.loads(first))
    assert not found["driver", "gateway", "JVM"]
    assert found["driver", "package", "toolkit"]
    assert not found["executors", "package", "toolkit"]
    assert not found["executors", "package", "cramjam"]
    assert found["executors", "package", "pandas"]
    assert found["executors", "path", "/"]
    reach = {process: available for (process, kind, _), available in found.items() if kind == "broker"}
    assert reach == {"driver": True, "executors": False}
    assert lines[-1] == "1 partition hangs"
    assert [line for line in lines if " with error" in line] == []


def test_a_compiled_package_that_executors_lack_is_an_error_sentence(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = {"confluent_kafka", "cramjam"}
    monkeypatch.setattr(
        spark_session, "unavailable_to_executors", lambda spark, packages=missing, paths=(): {*paths} or missing
    )
    with pytest.raises(UsageError, match=r"^The executors lack compiled packages: cramjam\. .* %pip install cramjam$"):
        spark_session.ship_package(spark)


def test_a_spark_without_data_sources_is_an_error_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Databricks runtime 15.4 has data sources whose readers return no Arrow batches."""
    from pyspark.sql import datasource

    require_data_sources()
    monkeypatch.delattr(datasource, "DataSourceArrowWriter")
    with pytest.raises(UsageError, match=r"^Spark 4\S+ has no Python data sources that return Arrow batches\. "):
        require_data_sources()
