"""What the jobs of the bundle in ``notebooks/databricks.yml`` run: pipeline and recorder, with secrets of a scope."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from toolkit.config import ClientConfig, config_from_scope
from toolkit.config.properties import read_properties
from toolkit.errors import UsageError
from toolkit.schema.durations import duration_s
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.recording.recorder import Recorder, Sampler, SampleWriter
from toolkit.sources.recording.recording import Sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_S = 10
SECRETS = {"sasl.password": "password"}
"""Name of the secret in the scope by configuration key."""


def main(arguments: Sequence[str] | None = None, *, spark: SparkSession | None = None, dbutils: Any = None) -> None:
    """Run a task of a job; `kafka-txn-databricks` calls it.

    Raises UsageError if neither or both of a folder and a cluster are named, and as for `config_from_scope`.
    `arguments`: of the process if null. A parameter of a job that is not set is empty text.
    `spark`, `dbutils`: those of the job if null.
    """
    options = _arguments(arguments)
    if bool(options.bootstrap_server) == bool(options.input):
        raise UsageError(
            "Neither or both of --input and --bootstrap-server are set.",
            do="Set one of these parameters of the job, and leave the other empty.",
        )
    if options.task == "record":
        _record(_config(options, dbutils), options.output, dt.timedelta(seconds=duration_s(options.duration)))
        return
    from pyspark.sql import SparkSession

    from toolkit.spark import register
    from toolkit.spark.pipeline import run

    session = spark or SparkSession.builder.getOrCreate()
    register(session)
    with ExitStack() as stack:
        source = options.input or stack.enter_context(Cluster(_config(options, dbutils)))
        summary = run(session, source, options.output)
    for sentence in (summary.proof, *summary.assumptions, *summary.repairs):
        if sentence is not None:
            _show(sentence)
    for name, counts in summary.tables.items():
        _show(f"{name}: {counts.rows:,} rows, {counts.new:,} new")
    verdicts = [f"{number:,} {verdict}" for verdict, number in summary.verdicts.items()]
    _show(", ".join(verdicts) or "No LSO is or was held.")


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Arguments of a task; one that is not set is empty."""
    parser = argparse.ArgumentParser(prog="kafka-txn-databricks", description=__doc__)
    parser.add_argument("task", choices=["pipeline", "record"])
    parser.add_argument("--output", required=True, help="catalog.schema of the tables, or the folder of a recording")
    parser.add_argument("--input", default="", help="a volume with copied log directories or recordings")
    parser.add_argument("--bootstrap-server", default="", help="a running cluster")
    parser.add_argument("--command-config", default="", help="properties file of the client, without its password")
    parser.add_argument("--scope", default="", help=f"secret scope with {SECRETS}")
    parser.add_argument("--duration", default="58m", help="how long to record")
    return parser.parse_args(arguments)


def _config(options: argparse.Namespace, dbutils: Any) -> ClientConfig:
    properties = read_properties(options.command_config) if options.command_config else {}
    properties["bootstrap.servers"] = options.bootstrap_server
    if not options.scope:
        return ClientConfig(properties)
    return config_from_scope(properties, SECRETS, scope=options.scope, dbutils=dbutils)


def _record(config: ClientConfig, output: str, duration: dt.timedelta) -> None:
    timeout, interval_ms = 0.8 * INTERVAL_S, 1000 * INTERVAL_S
    sampler = Sampler(connect=lambda: Cluster(config, timeout=timeout), interval_ms=interval_ms)
    with SampleWriter(output) as writer:
        recorder = Recorder(sampler=sampler, writer=writer, listener=_Lines())
        _show(f"{recorder.run(threading.Event(), until=dt.datetime.now(dt.UTC) + duration):,} samples")


class _Lines:
    """Warnings of a recorder, for the log of the job."""

    def on_resume(self, sample: Sample) -> None:
        pass

    def on_wait(self, due: dt.datetime) -> None:
        pass

    def on_sample(self, sample: Sample, *, written: bool) -> None:
        if sample.error is not None:
            _show(f"{sample.due:%Y-%m-%d %H:%M:%S} UTC: {sample.error}")

    def on_skip(self, count: int) -> None:
        _show(f"{count} samples were skipped, as others took longer than the interval.")

    def on_warning(self, text: str) -> None:
        _show(text)
