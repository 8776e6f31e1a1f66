"""The command line ``kafka-txn``."""

import gc
import sys

__all__ = ["main"]


def main() -> None:
    """Run ``kafka-txn``.

    The garbage collector is off during imports and exit, which leave nothing to collect: a seventh of a short run.
    """
    gc.disable()
    try:
        from toolkit.cli.commands import run
    except KeyboardInterrupt:
        sys.stderr.write("kafka-txn: interrupted.\n")
        sys.exit(130)

    gc.freeze()
    gc.enable()
    try:
        run()
    finally:
        gc.freeze()
