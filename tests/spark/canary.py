"""Everything that Spark prints and writes while it reads a cluster with a password, searched for the password.

``CANARY=password python tests/spark/canary.py classic|connect HOST:PORT USER FOLDER`` prints what was shown, as JSON;
the topic ``watched`` has to be there. In a process of its own, for a process has one kind of session.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.spark import register, write_recording
from toolkit.spark.datasources.batches.batches_source import KafkaBatches
from toolkit.spark.session.local_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CANARY = os.environ["CANARY"]
CONTROLS = {"kafka.client.id": "seen-as-an-option"}  # not a secret: proves that the search would have found one
FEW = {
    "jaas": ("explain", "count"),
    "refused": ("count", "a wrong value", "stream"),
    "file": ("explain", "count"),
    "registered": ("explain", "count", "sample", "stream"),
}
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Search:
    """What was searched, and what was found in it."""

    def __init__(self) -> None:
        self.locations: list[str] = []
        self.output: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.controls: list[str] = []

    def search_in(self, location: str, text: str) -> None:
        self.locations.append(location)
        if CANARY in text:
            at = text.index(CANARY)
            self.output.setdefault(location, text[max(0, at - 100) : at].replace("\n", " "))
        if CONTROLS["kafka.client.id"] in text:
            self.controls.append(location)

    def during(self, name: str, action: Callable[[], object]) -> bool:
        """What an action returns, raises and prints; whether it went well."""
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


def ways(server: str, user: str, folder: Path) -> Mapping[str, Mapping[str, str]]:
    """Options that connect, each with the password in another way."""
    base = {
        "kafka.bootstrap.servers": server,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
    }
    unused = {"kafka.ssl.key.pem": f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n", "kafka.ssl.key.password": CANARY}
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


def use(spark: SparkSession, search: Search, name: str, options: Mapping[str, str], folder: Path) -> list[str]:
    """Do with a source what people do; which of it did not go well."""

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
        "sample": lambda: spark.read.format("kafka_txn_samples").options(**options).load().collect(),
        "stream": lambda: patient_stream(spark, options, folder / name),
    }
    return [action for action in FEW.get(name, actions) if not search.during(f"{name}: {action}", actions[action])]


def patient_stream(spark: SparkSession, options: Mapping[str, str], folder: Path) -> str:
    """Spark gives the process of a batch function 10 seconds to connect (PythonWorkerFactory)."""
    try:
        return stream(spark, options, folder)
    except Exception as error:
        if "failed to connect back" not in str(error):
            raise
    return stream(spark, options, folder)


def stream(spark: SparkSession, options: Mapping[str, str], folder: Path) -> str:
    everything = spark.readStream.format("kafka_txn_samples").options(**options).load()
    writer = write_recording(everything, folder / "recording").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.queryName(folder.name).trigger(availableNow=True).start()
    assert query.awaitTermination(600), f"{query.status} {query.lastProgress}"
    assert query.exception() is None, query.exception()
    return f"{query.lastProgress} {query.recentProgress} {query.status}"


def use_sql(spark: SparkSession, search: Search, options: Mapping[str, str]) -> list[str]:
    options_clause = ", ".join(f"'{name}' '{value}'" for name, value in {**options, "subscribe": "watched"}.items())
    create = f"CREATE OR REPLACE TEMPORARY VIEW by_sql USING kafka_log_live OPTIONS ({options_clause})"
    texts = (create, "SELECT count(*) FROM by_sql", f"EXPLAIN EXTENDED {create}")
    return [text[:20] for text in texts if not search.during(f"sql: {text[:20]}", lambda: spark.sql(text).collect())]  # noqa: B023


def pages(root: str) -> Iterator[tuple[str, str]]:
    """All pages of the UI, and all that its REST interface answers."""
    application = json.loads(get(f"{root}/api/v1/applications"))[0]["id"]
    current_findings = (
        "sql?details=true&planDescription=true&length=1000",
        "jobs",
        "stages?details=true",
        "environment",
    )
    waiting = [
        f"/{name}/" for name in ("jobs", "SQL", "stages", "environment", "executors", "connect", "StreamingQuery")
    ]
    waiting += [f"/api/v1/applications/{application}/{answer}" for answer in current_findings]
    observed: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in observed:
            continue
        observed.add(path)
        with contextlib.suppress(OSError):  # there is no page of that name
            body = get(root + path)
            yield path, body
            links = (link.replace("&amp;", "&") for link in re.findall(r'href="(/[^"#]+)"', body))
            waiting += [link for link in links if not re.search(r"kill|/static/|log", link)]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode(errors="replace"))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main(mode: str, server: str, user: str, folder: Path) -> None:
    tempfile.tempdir = str(folder)  # Java's output
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
    all_ways = ways(server, user, folder)
    options = all_ways["password"]
    spark.dataSource.register(KafkaBatches)  # by hand: nothing is hidden, so a secret has to be refused
    before = search.during("by hand", lambda: read(spark, {**options, "kafka.sasl.password": "not-a-canary"}))
    register(spark, config={name.removeprefix("kafka."): value for name, value in options.items()})
    failed = {name: use(spark, search, name, options, folder) for name, options in all_ways.items()}
    failed["sql"] = use_sql(spark, search, all_ways["jaas"])
    time.sleep(1)  # what listens for events is late
    for path, body in pages(f"http://127.0.0.1:{port}"):
        search.search_in(f"page {path}", body)
    version = f"{type(spark).__module__} {spark.version}"
    spark.stop()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name != "client.properties":
            search.search_in(f"file {file.relative_to(folder)}", file.read_text(errors="replace"))
    found = {"spark": version, "by_hand": before, "failed": failed, "shown": search.output, "controls": search.controls}
    found["errors"] = search.errors
    print(json.dumps(found | {"locations": search.locations}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
