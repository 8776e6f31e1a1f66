"""Walk for a time, and print what was done and found: ``python -m tests.tools.large --seed one``."""

from __future__ import annotations

import argparse
import json
import sys

from tests.tools.large import walks
from tests.tools.large.sitting import Sitting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="Versions, or version/cluster/round.")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", default="one")
    arguments = parser.parse_args()
    sitting = Sitting(seed=arguments.seed, seconds=arguments.seconds)
    try:
        walks.run(sitting, *arguments.parts)
    finally:
        print(json.dumps({"counts": dict(sorted(sitting.counts.items())), "problems": sitting.problems}, indent=1))
    sys.exit(bool(sitting.problems))


if __name__ == "__main__":
    main()
