"""Run a campaign for a time, and add what it did and found to `results.jsonl`; or print the sums of all runs.

``python -m tests.tools.large disks --seconds 300 --seed one``, or only a part: ``races model``, ``chaos flink``.
``python -m tests.tools.large table`` rewrites the table of docs/about/testing.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from importlib import import_module

from tests.tools.large.figures import CAMPAIGNS, write_table
from tests.tools.large.sitting import Sitting, append


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("campaign", choices=[*CAMPAIGNS, "table"])
    parser.add_argument("parts", nargs="*", help="Of a campaign that has some; all if none is named.")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", default="one")
    parser.add_argument("--no-append", action="store_true", help="Print only.")
    arguments = parser.parse_args()
    if arguments.campaign == "table":
        write_table()
        return
    sitting = Sitting(seed=arguments.seed, seconds=arguments.seconds)
    try:
        import_module(f"tests.tools.large.{arguments.campaign}").run(sitting, *arguments.parts)
    except Exception as error:  # noqa: BLE001 - what was done until then counts
        traceback.print_exc()
        sitting.check(False, f"{error!r:.2000}")
    line = sitting.line(arguments.campaign)
    print(json.dumps(line, indent=1))
    if not arguments.no_append:
        append(line)
        write_table()
    sys.exit(bool(sitting.problems))


if __name__ == "__main__":
    main()
