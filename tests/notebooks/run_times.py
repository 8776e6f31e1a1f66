"""How long Run All takes: ``python -m tests.notebooks.run_times [NUMBER ...]``.

Prints a table in Markdown: each notebook on the lab, which it starts, and on a cluster that runs already, as one's own.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.notebooks.books import BOOKS
from tests.notebooks.test_papermill import OF_CLUSTERS, PLACES, run
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY
from toolkit.lab.lab_source import stage_between


def seconds(number: str, *parameters: str) -> str:
    """Wall time of a run with papermill, the start of its kernel included; a failure says so."""
    started = time.monotonic()
    with TemporaryDirectory() as folder:
        try:
            run(number, Path(folder), *parameters)
        except AssertionError as error:
            return f"failed: {str(error).splitlines()[-1][:80]}"
    return f"{time.monotonic() - started:.0f}"


def main(numbers: list[str]) -> None:
    """Print a row for each notebook as soon as it has run."""
    print("| notebook | lab, s | own cluster, s |\n| --- | ---: | ---: |")
    with Kafka("4.3.1", properties=EVERYDAY.properties) as kafka:
        staged = stage_between(kafka, "late_message", topic="invoices", group="papermill")
        place = ("topic=invoices", f"partition={staged.partition}", "group=papermill")
        for number in numbers:
            own = "-"
            if number in OF_CLUSTERS:
                own = seconds(number, f"source={kafka.bootstrap_servers}", *place[: PLACES.get(number, 0)])
            print(f"| {number} | {seconds(number)} | {own} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or [path.stem[:2] for path in BOOKS])
