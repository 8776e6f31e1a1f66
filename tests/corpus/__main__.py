"""Write the stored answers again: ``python -m tests.corpus [INPUT ...]``, or those on all inputs."""

from __future__ import annotations

import argparse
import shutil
import time

from tests.corpus.answers import ANSWERS, answers_on, inputs


def main() -> None:
    """Write what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(inputs())}")
    parser.add_argument("--call", default="", help="only calls whose name contains this")
    arguments = parser.parse_args()
    found: dict[str, dict[str, str]] = {}
    for name in arguments.names or inputs():
        began = time.process_time()
        found[name] = dict(answers_on(name, arguments.call))
        print(f"{name}: {len(found[name])} answers, {time.process_time() - began:.1f} s", flush=True)
    for name, answers in found.items():  # all at the end: a run that is cut short changes nothing
        folder = ANSWERS / name
        if not arguments.call:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        for call, text in answers.items():
            (folder / f"{call}.txt").write_text(text)
    print(f"written: the answers on {len(found)} inputs")


if __name__ == "__main__":
    main()
