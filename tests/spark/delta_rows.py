"""The pipeline into Delta tables: ``python -m tests.spark.delta_rows classic|connect LOGS OUT``, a process of its own.

Prints, for each table, how many rows several runs and a single one left; and whether all of them are the same.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from toolkit.lab.session import local_session
from toolkit.spark.delta import delta_settings
from toolkit.spark.pipeline import run
from toolkit.spark.tables import KEPT, read

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def main(mode: str, history: str, out: str) -> None:
    logs = Path(out, "logs")
    shutil.copytree(history, logs, copy_function=shutil.copy2)
    folder = next(path for path in sorted(logs.glob("plain-*-0")) if len(list(path.glob("*.log"))) > 2)
    newest, oldest = sorted(folder.glob("*.log"))[-1], sorted(folder.glob("*.log"))[0]
    shutil.move(newest, out)
    spark = local_session(
        master="local[2]",
        remote="local[2]" if mode == "connect" else None,
        config={**SETTINGS, **delta_settings(), "spark.sql.warehouse.dir": f"{out}/warehouse"},
    )
    several, single = f"{out}/several", f"{out}/single"
    run(spark, logs, several, format="delta", at_rest=True)
    shutil.move(Path(out, newest.name), newest)
    run(spark, logs, several, format="delta", at_rest=True)
    metadata = folder / "partition.metadata"
    metadata.write_text(re.sub(r"(topic_id: ).{4}", r"\1AAAA", metadata.read_text()))
    for path in folder.glob(f"{oldest.stem}.*"):
        path.unlink()  # the topic was created again, and has less: what was kept of it goes
    run(spark, logs, several, format="delta", at_rest=True)
    run(spark, logs, single, format="delta", at_rest=True)
    same, counts = True, {}
    for table in KEPT:
        one, other = (read(spark, target, table, format="delta") for target in (several, single))
        counts[table] = [one.count(), other.count()]
        same &= one.exceptAll(other).isEmpty() and other.exceptAll(one).isEmpty()
    spark.stop()
    print(json.dumps({**counts, "same": [int(same)]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
