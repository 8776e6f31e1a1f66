"""Record the samples again: ``python -m toolkit.lab.samples.make [NAME ...]``, all of them if none is named.

Each runs on its own broker, which is shut down cleanly; the archive must give the same findings as the complete log
directory. Ids, times and so the archives differ between runs; names and expected findings do not.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolkit.actions.audit import AUDIT_FILE
from toolkit.errors import LabError
from toolkit.lab.samples.archives import packed
from toolkit.lab.samples.incident_sample import AUDIT, DUMP, INDEX, LOG_DIR, IncidentSample
from toolkit.lab.samples.scripts import SCRIPTS, VERSION, SampleScript
from toolkit.lab.server.broker import Kafka
from toolkit.schema import Row
from toolkit.sources.logdir import LogDir

DATA = Path(__file__).parent / "data"
# Without the controller's log, and the lock of the stopped process.
LEFT_OUT = ("__cluster_metadata-0", ".lock")
EXPECTED_COLUMNS = (
    "verdict", "cause", "producer_id", "producer_epoch", "transactional_id", "start_offset", "last_stable_offset",
    "high_watermark", "records_held", "groups_held", "outcome", "action",
)  # fmt: skip
COMPARED_COLUMNS = (
    *EXPECTED_COLUMNS,
    "topic",
    "partition",
    "queue_position",
    "reason",
    "remedy",
    "missing",
    "opened_at",
    "bytes_held",
    "held_ms",
)


def make(script: SampleScript, into: Path) -> dict[str, Any]:
    """Run a script, write its archive, and return its row of the index.

    Raises
    ------
    LabError
        If the findings of the archive differ from those of the log directory, or from the script.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-txn-sample-") as temporary:
        folder = Path(temporary) / "packed"
        folder.mkdir()
        os.environ[AUDIT_FILE] = str(folder / AUDIT)  # these actions do not belong into the user's own audit trail
        with Kafka(VERSION, properties=script.properties) as kafka:
            played = script.play(kafka, folder)
            kafka.stop_broker(1)
            whole = Path(shutil.copytree(kafka.log_dirs[1], Path(temporary) / "whole"))
            if script.dump:
                (folder / DUMP).write_text(_dump(kafka, f"{played.topic}-{played.partition}"), encoding="utf-8")
        shutil.copytree(whole, folder / LOG_DIR, ignore=shutil.ignore_patterns(*LEFT_OUT))
        sample = IncidentSample(
            name=script.name,
            title=script.title,
            description=script.description,
            origin=script.origin,
            topic=played.topic,
            partition=played.partition,
            expected={},
            at=played.at,
            min_held_ms=played.min_held_ms,
            path=folder,
        )
        if _diagnosed(LogDir(whole, consistent_copy=True).finding_rows()) != _diagnosed(
            sample.log_dir().finding_rows()
        ):
            raise LabError(f"The archive of {script.name} has other findings than the complete log directory.")
        expected = _held_finding(script, sample.finding_rows())
        (into / f"{script.name}.tar.xz").write_bytes(packed(folder))
    return {
        "title": sample.title,
        "description": sample.description,
        "origin": sample.origin,
        "topic": sample.topic,
        "partition": sample.partition,
        "at": sample.at.isoformat() if sample.at else None,
        "min_held_ms": sample.min_held_ms,
        "expected": {name: expected[name] for name in EXPECTED_COLUMNS},
    }


def _diagnosed(rows: Sequence[Row]) -> list[Row]:
    return [{name: row[name] for name in COMPARED_COLUMNS} for row in rows]


def _held_finding(script: SampleScript, rows: Sequence[Row]) -> Row:
    """The row of the transaction that holds or held the LSO."""
    first = min((row for row in rows if row["start_offset"] is not None), key=lambda row: int(row["start_offset"]))
    if first["verdict"] != script.expected:
        raise LabError(f"{script.name} was to be {script.expected}, not {[row['verdict'] for row in rows]}.")
    return first


def _dump(kafka: Kafka, folder: str) -> str:
    segment = kafka.log_dirs[1] / folder / f"{0:020}.log"
    done = kafka.run_tool("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", str(segment))
    if done.returncode:
        raise LabError(f"kafka-dump-log.sh failed: {done.stderr[-600:]}")
    return done.stdout.replace(str(segment.parent.parent), "/var/lib/kafka/data")


def main(names: Sequence[str]) -> None:
    """Make the samples of these names, or all."""
    DATA.mkdir(exist_ok=True)
    index = DATA / INDEX
    entries = json.loads(index.read_text(encoding="utf-8")) if index.exists() else {}
    for name in names or SCRIPTS:
        entries[name] = make(SCRIPTS[name], DATA)
        ordered = {each: entries[each] for each in sorted(entries) if each in SCRIPTS}
        index.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        size = (DATA / f"{name}.tar.xz").stat().st_size
        sys.stdout.write(f"{name}: {size:,} bytes, {entries[name]['expected']['verdict']}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
