"""Search all that Spark prints and writes while it reads a cluster with a password for the password.

``CANARY=password python tests/spark/canary.py classic|connect SERVERS USER FOLDER CERTIFICATES`` prints the matches as
JSON. The topic ``watched`` must exist. Runs in its own process, because a process has one kind of session.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import socket
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from toolkit import Cluster
from toolkit.config import config_from_scope
from toolkit.spark import register
from toolkit.spark.datasources.data_sources import KafkaBatches
from toolkit.spark.pipeline.pipeline_run import run
from toolkit.spark.pipeline.stored_tables import KEPT
from toolkit.spark.pipeline.stored_tables import read as read_table
from toolkit.spark.spark_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CANARY = os.environ["CANARY"]
CONTROLS = {"kafka.client.id": "seen-as-an-option"}  # not a secret; finding it proves that the search works
SELECTED_ACTIONS = {
    "jaas": ("explain", "count"),
    "refused": ("count", "a wrong value"),
    "file": ("explain", "count"),
    "registered": ("explain", "count"),
}
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Search:
    """The searched locations, and the matches."""

    def __init__(self) -> None:
        self.locations: list[str] = []
        self.matches: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.controls: list[str] = []

    def search_in(self, location: str, text: str) -> None:
        self.locations.append(location)
        if CANARY in text:
            at = text.index(CANARY)
            self.matches.setdefault(location, text[max(0, at - 100) : at].replace("\n", " "))
        if CONTROLS["kafka.client.id"] in text:
            self.controls.append(location)

    def run(self, name: str, action: Callable[[], object]) -> bool:
        """Run an action, search what it returns, raises and prints, and return whether it succeeded."""
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                self.search_in(f"result of {name}", str(action()))
        except Exception as error:  # noqa: BLE001
            self.search_in(f"error of {name}", "".join(traceback.format_exception(error)))
            self.errors[name] = "".join(traceback.format_exception_only(error))[-2000:]
            return False
        finally:
            self.search_in(f"output of {name}", printed.getvalue())
        return True


def connection_options(server: str, user: str, folder: Path, certificates: Path) -> Mapping[str, Mapping[str, str]]:
    """Connection options by the name of the means that passes the password."""
    base = {
        "kafka.bootstrap.servers": server,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(certificates / "ca.crt"),
        "kafka.sasl.mechanism": "PLAIN",
    }
    key = (certificates / "client.key").read_text()
    unused = {
        "kafka.ssl.key.pem": f"{key}\n{CANARY}\n",  # the broker asks for none
        "kafka.ssl.certificate.pem": (certificates / "client.crt").read_text(),
        "kafka.ssl.key.password": CANARY,
    }
    jaas = f'{LOGIN} username="{user}" password="{CANARY}";'
    path = folder / "client.properties"
    properties = {name.removeprefix("kafka."): value for name, value in base.items()} | {"sasl.jaas.config": jaas}
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return {
        "password": {**base, **CONTROLS, **unused, "kafka.sasl.username": user, "kafka.sasl.password": CANARY},
        "jaas": {**base, **CONTROLS, **unused, "kafka.sasl.jaas.config": jaas},
        "refused": {**base, "kafka.sasl.username": user, "kafka.sasl.password": f"{CANARY}-which-is-wrong"},
        "file": {"commandConfig": str(path)},
        "registered": {},
    }


def read(spark: SparkSession, options: Mapping[str, str], **more: str) -> DataFrame:
    return spark.read.format("kafka_log_live").options(**options, subscribe="watched", **more).load()


def use_source(spark: SparkSession, search: Search, name: str, options: Mapping[str, str], folder: Path) -> list[str]:
    """Run the actions of typical users on a source; return the names of those that failed."""

    def view() -> list[Any]:
        read(spark, options).createOrReplaceTempView("watched")
        texts = ("SELECT count(*) FROM watched", "EXPLAIN EXTENDED SELECT * FROM watched", "DESCRIBE EXTENDED watched")
        return [spark.sql(text).collect() for text in texts]

    actions: dict[str, Callable[[], object]] = {
        "load": lambda: f"{read(spark, options)} {read(spark, options)!r}",
        "explain": lambda: read(spark, options).explain(extended=True),
        "explain formatted": lambda: read(spark, options).explain("formatted"),
        "count": lambda: read(spark, options).count(),
        "write": lambda: read(spark, options).write.mode("overwrite").parquet(str(folder / "parquet")),
        "view": view,
        "a wrong column": lambda: read(spark, options).select("no_such_column").collect(),
        "a wrong option": lambda: read(spark, options, such="none").count(),
        "a wrong value": lambda: read(spark, options, startingOffsets="nowhere").count(),
        "a failing task": lambda: read(spark, options).selectExpr("assert_true(1 = 2)").collect(),
    }
    return [
        action for action in SELECTED_ACTIONS.get(name, actions) if not search.run(f"{name}: {action}", actions[action])
    ]


def use_source_in_sql(spark: SparkSession, search: Search, options: Mapping[str, str]) -> list[str]:
    options_clause = ", ".join(f"'{name}' '{value}'" for name, value in {**options, "subscribe": "watched"}.items())
    create = f"CREATE OR REPLACE TEMPORARY VIEW by_sql USING kafka_log_live OPTIONS ({options_clause})"
    texts = (create, "SELECT count(*) FROM by_sql", f"EXPLAIN EXTENDED {create}")
    return [text[:20] for text in texts if not search.run(f"sql: {text[:20]}", lambda: spark.sql(text).collect())]  # noqa: B023


def run_pipeline(
    spark: SparkSession, options: Mapping[str, str], user: str, folder: Path, *, password: str
) -> list[Any]:
    """Read the cluster into tables, with the password in a secret scope."""
    scope = SimpleNamespace(secrets=SimpleNamespace(get=lambda scope, key: password))
    properties = {name.removeprefix("kafka."): value for name, value in options.items()} | {"sasl.username": user}
    config = config_from_scope(properties, {"sasl.password": "password"}, scope="kafka", dbutils=scope)
    out = str(folder / "tables")
    with Cluster(config, timeout=60) as cluster:
        summary = run(spark, cluster, out, format="parquet", min_held_ms=0, with_batches=True)
    rows = {name: read_table(spark, out, name, format="parquet").collect() for name in KEPT}
    assert {(row.partition, row.error) for row in rows["batches"] if row.topic == "watched"} == {
        (partition, None) for partition in range(3)
    }
    return [summary, config, rows]


def pages(root: str, *, follow: bool = True) -> Iterator[tuple[str, str]]:
    """All pages of the UI, or those of its menu only, and all responses of its REST API."""
    application = json.loads(get(f"{root}/api/v1/applications"))[0]["id"]
    endpoints = ("sql?details=true&planDescription=true&length=1000", "jobs", "stages?details=true", "environment")
    pending = [f"/{name}/" for name in ("jobs", "SQL", "stages", "environment", "executors", "connect")]
    pending += [f"/api/v1/applications/{application}/{endpoint}" for endpoint in endpoints]
    visited: set[str] = set()
    while pending:
        path = pending.pop()
        if path in visited:
            continue
        visited.add(path)
        with contextlib.suppress(OSError):  # no such page
            body = get(root + path)
            yield path, body
            links = (link.replace("&amp;", "&") for link in re.findall(r'href="(/[^"#]+)"', body))
            pending += [link for link in links if follow and not re.search(r"kill|/static/|log", link)]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=300) as response:
        return str(response.read().decode(errors="replace"))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main(mode: str, server: str, user: str, folder: Path, certificates: Path) -> None:
    tempfile.tempdir = str(folder)  # for the output of Java
    (folder / "events").mkdir()
    port = free_port()
    settings = {
        "spark.driver.memory": "1g",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.rolling.enabled": "false",
        "spark.log.level": "INFO",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
    }
    spark = local_session(master="local[2]", remote="local[2]" if mode == "connect" else None, config=settings)
    search = Search()
    options_by_name = connection_options(server, user, folder, certificates)
    options = options_by_name["password"]
    spark.dataSource.register(KafkaBatches)  # without redaction: a secret must be refused
    secret_was_accepted = search.run("by hand", lambda: read(spark, {**options, "kafka.sasl.password": "not-a-canary"}))
    register(spark, config={name.removeprefix("kafka."): value for name, value in options.items()})
    failed = {name: use_source(spark, search, name, options, folder) for name, options in options_by_name.items()}
    failed["sql"] = use_source_in_sql(spark, search, options_by_name["jaas"])
    # Spark hides all that follows a secret option, in no fixed order: this view has none.
    shown = {**CONTROLS, "kafka.bootstrap.servers": server, "subscribe": "watched"}
    controls = ", ".join(f"'{name}' '{value}'" for name, value in shown.items())
    spark.sql(f"CREATE TEMPORARY VIEW controls USING kafka_log_live OPTIONS ({controls})").collect()
    plain = {name: value for name, value in options_by_name["refused"].items() if "sasl." not in name}
    plain["kafka.sasl.mechanism"] = "PLAIN"
    for name, password in (("scope", CANARY), ("wrong scope", f"{CANARY}-which-is-wrong")):
        action = partial(run_pipeline, spark, plain, user, folder / name, password=password)
        failed[name] = [] if search.run(f"{name}: pipeline", action) else ["pipeline"]
    time.sleep(1)  # event listeners are asynchronous
    for path, body in pages(f"http://127.0.0.1:{port}"):
        search.search_in(f"page {path}", body)
    version = f"{type(spark).__module__} {spark.version}"
    spark.stop()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name != "client.properties":
            search.search_in(f"file {file.relative_to(folder)}", file.read_text(errors="replace"))
    report = {
        "spark": version,
        "by_hand": secret_was_accepted,
        "failed": failed,
        "matches": search.matches,
        "controls": search.controls,
    }
    report["errors"] = search.errors
    print(json.dumps(report | {"locations": search.locations}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), Path(sys.argv[5]))
