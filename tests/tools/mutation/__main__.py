"""Make the map, draw faults, or try those of a module."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests.tools import mutation
from tests.tools.mutation import FOLDER, ROOT
from tests.tools.mutation.coverage_map import CoverageMap, make_map
from tests.tools.mutation.faults import DECISIONS, Fault, Module, draw, faults
from tests.tools.mutation.runner import CollectedRunner, Outcome, Runner, collect, copied, import_others


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=mutation.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="?")
    parser.add_argument("tests", nargs="*", help="files of tests; by default all of the map")
    parser.add_argument("--map", nargs=argparse.REMAINDER, help="make the map; what follows is for pytest")
    parser.add_argument("--draw", type=int, help="so many faults of all modules")
    parser.add_argument("--seed", default="1", help="for --draw")
    parser.add_argument("--limit", type=float, default=120, help="seconds of tests for a fault")
    parser.add_argument("--without-lab", action="store_true", help="no tests that start Kafka")
    parser.add_argument("--jobs", type=int, default=1, help="so many faults of a draw at a time")
    parser.add_argument("--mypy", action="store_true", help="also say what mypy sees of what survives a draw")
    parser.add_argument("--kinds", default=",".join(sorted(DECISIONS)), help="kinds of faults of a module")
    parser.add_argument("--only", default="", help="only lines, functions or, of a draw, paths with this")
    requested = parser.parse_args()
    if requested.map is not None:
        sys.exit(make_map(requested.map))
    import_others()
    if requested.draw:
        _draw(requested)
    else:
        sys.exit(_of_module(requested))


def _draw(requested: argparse.Namespace) -> None:
    path = FOLDER / f"{requested.seed}.jsonl"
    path.touch()
    known = {(row["file"], row["line"], row["change"]) for row in _rows(path)}
    drawn = list(draw(requested.draw, requested.seed, requested.only))
    new = [each for each in drawn if (each.module, each.place.line, each.change) not in known]
    coverage, linters = CoverageMap(lab=not requested.without_lab), ["ruff", *["mypy"] * requested.mypy]
    children = []
    for number in range(requested.jobs):
        if (child := os.fork()) == 0:
            try:
                with copied() as copy, path.open("a") as file:
                    _try(new[number :: requested.jobs], Runner(copy, coverage, limit_s=requested.limit), file, linters)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    print(f"\nSeed {requested.seed}\n{_summary(_rows(path))}")


def _try(drawn: Sequence[Fault], runner: Runner, file: TextIO, linters: Sequence[str]) -> None:
    """Write a row for each fault: first for those in functions, in a process that has collected the tests."""
    others = Path(file.name).with_suffix(f".{os.getpid()}")

    def write(fault: Fault, outcome: Outcome) -> None:
        row = _row(fault, outcome)
        file.write(json.dumps(row) + "\n")
        file.flush()
        print(_line(row), flush=True)

    def of_functions(session: pytest.Session) -> None:
        collected = CollectedRunner(runner.copy, runner.coverage, limit_s=runner.limit_s, session=session)
        left = []
        for number, fault in enumerate(drawn):
            if collected.takes(fault):
                write(fault, collected.run(fault, linters=linters))
            else:
                left.append(number)
        others.write_text(json.dumps(left))

    collect(runner.copy, sorted(runner.coverage.sizes), of_functions)
    for number in json.loads(others.read_text()):
        write(drawn[number], runner.run(drawn[number], linters=linters))
    others.unlink()


def _rows(path: Path) -> Sequence[Mapping[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _row(fault: Fault, outcome: Outcome) -> Mapping[str, Any]:
    where, _, text = fault.at.partition(": ")
    return {
        "file": fault.module, "line": fault.place.line, "function": where, "source": text, "kind": fault.kind,
        "change": fault.change, **asdict(outcome),
    }  # fmt: skip


def _line(row: Mapping[str, Any]) -> str:
    ran = f"{row['by'] or ''} {row['ran']} of {row['reached']} tests, {row['seconds']:.0f} s".strip()
    return f"{row['outcome']:9} {row['file']}:{row['line']} {row['function']} | {row['kind']}: {row['change']} | {ran}"


def _summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """The share that was caught, by kind and folder, and what was not."""
    lines = list[str]()
    for title, key in (("kind", lambda row: row["kind"]), ("folder", lambda row: "/".join(row["file"].split("/")[:2]))):
        by_key: dict[str, Counter[str]] = defaultdict(Counter)
        for row in rows:
            by_key[key(row)][row["outcome"]] += 1
        total = sum(by_key.values(), Counter[str]())
        lines += ["", f"| {title} | caught | mypy | survived | unreached | share |", f"|{' --- |' * 6}"]
        for name, counts in [*sorted(by_key.items()), ("all", total)]:
            caught = counts["caught"] + counts["timeout"]
            share = caught / counts.total()
            others = " | ".join(str(counts[each]) for each in ("mypy", "survived", "unreached"))
            lines.append(f"| {name} | {caught} | {others} | {share:.0%} |")
    return "\n".join(lines)


def _of_module(requested: argparse.Namespace) -> bool:
    """Whether a fault of a module survives."""
    os.environ.setdefault("KAFKA_TXN_TEST_AMOUNT", "0.1")
    if requested.tests:
        arguments = ["--map", "-m", "not lab", *requested.tests]
        subprocess.run([sys.executable, "-m", "tests.tools.mutation", *arguments], cwd=ROOT, check=True)
    module = Module.read(ROOT / (requested.module.replace(".", "/") + ".py"))
    started, counts = time.monotonic(), Counter[str]()
    with copied() as copy:
        runner = Runner(copy, CoverageMap(requested.tests or [""], lab=False), limit_s=requested.limit)
        for fault in _valid(faults(module, frozenset(requested.kinds.split(",")))):
            if requested.only in fault.at:
                is_caught = runner.run(fault).is_caught
                counts["caught" if is_caught else "survived"] += 1
                if not is_caught:
                    print(f"{fault.place.line}: {fault.at} | {fault.change}", flush=True)
    figures = f"{counts.total()} faults, {counts['survived']} survive"
    print(f"{requested.module}: {figures}, {time.monotonic() - started:.0f} s")
    return bool(counts["survived"])


def _valid(found: Iterable[Fault]) -> Iterable[Fault]:
    for fault in found:
        try:
            fault.text()
        except (SyntaxError, ValueError):
            continue
        yield fault


if __name__ == "__main__":
    main()
