"""A finding for each verdict and cause, recorded on real brokers: ``python -m tests.golden.examples`` (ten minutes).

The pages of the docs show them under "How to prove it", as the code prints them today.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from confluent_kafka import Producer

from tests.builders import create_topics
from tests.causes import cause_names
from tests.golden import FOLDER, TIMES
from tests.golden.marker_examples import marker_findings
from tests.incident_matrix import PATIENCE_S, SETUPS, exists, finding_of, short_graces
from toolkit.errors import ToolkitError
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, Incident
from toolkit.lab.samples import load
from toolkit.lab.samples import names as sample_names
from toolkit.schema import FINDINGS, Row
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.logdir import LogDir
from toolkit.views.finding_document import finding_lines
from toolkit.views.row_formats import json_pieces

__all__ = ["FILE", "example_text", "examples"]

FILE = FOLDER / "examples.json"
BEST = {"hanging": "late_after_commit", "stuck_ending": "skipped_marker", "ongoing": "open_young"}
"""The incident to show where several have the verdict."""
VERSION = "4.3.1"
LONG_IDS = ("orders-sink-0-12", "orders-8f14e45f-ceea-467f-a9d2-0b6f7f3c1a55")
"""Ids of the forms that Flink's sink and a client with a random id have."""
PAGE_WIDTH = 76
"""Columns that a code block of the site shows without scrolling, on a laptop."""


def examples() -> Mapping[str, Row]:
    """Name of a verdict or cause to its finding."""
    return {
        name: {**row, **{each: row[each] and dt.datetime.fromisoformat(row[each]) for each in TIMES}}
        for name, row in json.loads(FILE.read_text()).items()
    }


def example_text(row: Row) -> str:
    """What ``kafka-txn diagnose`` prints of it, without the link to the page; ages count to when it was observed."""
    lines = finding_lines([row], width=PAGE_WIDTH)
    return "\n".join(line for line in lines if not line.startswith("  docs ")).rstrip() + "\n"


def record() -> dict[str, dict[str, object]]:
    """Stage every incident, and take the first finding with each verdict and cause, one that it decides if possible."""
    found: dict[str, dict[str, object]] = {}
    others: dict[str, dict[str, object]] = {}
    for incident, row in _findings():
        (plain,) = json.loads("".join(json_pieces(FINDINGS, [row])))
        plain["evidence"] = []  # a page has no room for it
        deciding, *named = [*cause_names(row)] or [""]
        for name in {row["verdict"], deciding} - {""}:
            if name not in found or BEST.get(name) == incident:
                found[name] = plain
        for name in named:
            others.setdefault(name, plain)
        print(incident, row["verdict"], deciding, named, file=sys.stderr, flush=True)
    return dict(sorted({**others, **found}.items()))


def _findings() -> Iterator[tuple[str, Row]]:
    for setup in SETUPS.values():
        with Kafka(VERSION, brokers=setup.brokers, properties=setup.properties) as kafka:
            for incident in INCIDENTS.values():
                if incident.setup is setup and exists(incident, VERSION):
                    yield from ((incident.name, row) for row in _of_incident(kafka, incident))
            if setup is EVERYDAY:
                yield from ((each, _long(kafka, each)) for each in LONG_IDS)
                yield from (("ended in files", row) for row in _ended(kafka.log_dirs[1]))
    yield from ((cause, _as_orders(row, row["topic"])) for cause, row in marker_findings())
    for sample in map(load, sample_names()):
        with sample.log_dir() as log_dir:
            rows = log_dir.finding_rows(topics=[sample.topic], min_held_ms=sample.min_held_ms)
        yield from ((sample.name, row) for row in rows)


def _of_incident(kafka: Kafka, incident: Incident) -> Iterator[Row]:
    with (
        incident(kafka) as staged,
        Cluster(kafka.bootstrap_servers, timeout=10 if incident.brokers > 1 else 30) as cluster,
    ):
        yield _as_orders(finding_of(cluster, staged), staged.topic)
        if staged.later:
            deadline = time.monotonic() + PATIENCE_S
            with short_graces():
                while (row := finding_of(cluster, staged, long_ms=500))["verdict"] != staged.later:
                    if time.monotonic() > deadline:
                        raise ToolkitError(f"{incident.name} did not become {staged.later}", do="")
                yield _as_orders(row, staged.topic)


def _long(kafka: Kafka, transactional_id: str) -> Row:
    """A live transaction of an id of that form, with the timeout of Flink's sink."""
    topic = f"orders-of-{LONG_IDS.index(transactional_id)}"
    create_topics(kafka, topic, partitions=2)
    login = {"transactional.id": transactional_id, "transaction.timeout.ms": 3_600_000}
    producer = Producer({**kafka.client_config(), **login})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"", partition=0)
    producer.flush(60)
    with Cluster(kafka.bootstrap_servers) as cluster, short_graces():
        for _ in range(PATIENCE_S):
            (row,) = cluster.finding_rows(
                topics=[topic], partitions=[0], recheck_after=1, max_transaction_timeout_ms=500
            )
            if row["verdict"] == "long" and row["cause"]:
                producer.abort_transaction(60)
                return _as_orders(row, topic)
    raise ToolkitError(f"{transactional_id} did not become long", do="")


def _ended(path: Path) -> Iterator[Row]:
    """What held an LSO and has ended, by the files of the broker."""
    rows = LogDir(path).finding_rows(min_held_ms=500)
    yield from (_as_orders(row, row["topic"]) for row in rows if row["verdict"] == "ended")


def _as_orders(row: Row, topic: str) -> Row:
    """The row with the topic's random name replaced, in sentences too; not the name of Kafka's own topics."""
    if topic.startswith("__"):
        return row
    swapped = json.loads(re.sub(rf"(?<!\w){re.escape(topic)}(?!\w)", "orders", json.dumps(row, default=str)))
    return {**swapped, **{name: row[name] for name in TIMES}}


if __name__ == "__main__":
    FILE.write_text(json.dumps(record(), indent=1) + "\n")
