"""``python -m tests.tools.framework_campaigns streams --seed one --seconds 300`` prints what was seen."""

from __future__ import annotations

import argparse
import sys

from tests.tools.framework_campaigns.campaign import APPLICATIONS, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=[*APPLICATIONS])
    parser.add_argument("--seed", default="one")
    parser.add_argument("--seconds", type=float, default=300)
    arguments = parser.parse_args()
    sys.exit(bool(run(arguments.framework, arguments.seed, arguments.seconds).problems))


if __name__ == "__main__":
    main()
