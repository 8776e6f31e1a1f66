"""Explore all worlds, and print states, seconds, verdicts, witnesses, mutants: ``python -m tests.exploration``."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence

from tests.exploration.campaign import Report, explore_actions, explore_races, explore_states, merged
from tests.exploration.explore import controlled
from tests.exploration.mutants import MUTANTS, hunt
from tests.exploration.properties import KNOWN_LIMITS
from tests.exploration.world import World
from tests.exploration.worlds import BEHIND, RACES, SMALL, STAGED, WORLDS, world_of


def main() -> None:
    """Parse the arguments, explore, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.exploration", description=__doc__)
    parser.add_argument("--states", type=int, default=300, help="states of each world (default: 300)")
    parser.add_argument("--depth", type=int, default=1, help="steps of the model between our requests (default: 1)")
    parser.add_argument("--runs", type=int, default=500, help="schedules from each state (default: 500)")
    parser.add_argument("--world", help="only worlds whose name contains this")
    parser.add_argument("--mutants", action="store_true", help="the mutants, too")
    parser.add_argument("--witnesses", action="store_true", help="print a trace to each verdict and rule")
    arguments = parser.parse_args()
    gc.disable()  # a million tuples that live as long as the process

    def chosen(worlds: Sequence[World]) -> list[World]:
        return [world for world in worlds if (arguments.world or "") in world.name]

    with controlled():
        found = [
            _shown(explore_states(each, limit=arguments.states)) for each in chosen((*SMALL, *WORLDS, *BEHIND, *STAGED))
        ]
        total = merged(found, "states")
        races = [
            _shown(explore_races(each, steps=arguments.depth, limit=1, of_each=arguments.runs))
            for each in chosen(RACES)
        ]
        names = ("a late batch", "a partition that was never added", "a lost ABORT", "a lost COMMIT")
        actions = [
            _shown(explore_actions(each, steps=arguments.depth + 1, limit=5, of_each=arguments.runs))
            for each in chosen([world_of(name) for name in names])
        ]
        for report in (total, merged(races, "races"), merged(actions, "actions")):
            _shown(report)
        if arguments.witnesses:
            for name, trace in sorted(total.witnesses.items()):
                print(f"{name}\n    " + "\n    ".join(trace))
        for mutant in MUTANTS if arguments.mutants else ():
            report = hunt(mutant)
            word = "caught" if report.violations else "SURVIVED"
            cost = f"{report.states} states, {report.runs} runs, {report.seconds:.1f} s"
            print(f"mutant {mutant.guard!r}: {word} after {cost}")
        for name, why in KNOWN_LIMITS.items():
            print(f"known limit: {name}. {why}")


def _shown(report: Report) -> Report:
    verdicts = ", ".join(
        f"{'/'.join(str(part) for part in key)} {count}" for key, count in report.verdicts.most_common()
    )
    print(f"{report.name}: {report.states} states, {report.runs} runs, {report.seconds:.1f} s: {verdicts}", flush=True)
    for word, found in (("WRONG", report.violations), ("known", report.known)):
        for violation, trace in found.items():
            print(f"  {word}: {violation.rule}: {violation.how}\n      " + "\n      ".join(trace))
    return report


if __name__ == "__main__":
    main()
