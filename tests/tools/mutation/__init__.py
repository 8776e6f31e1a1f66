"""Mutation testing: does a test fail if the toolkit has a fault?

    python -m tests.tools.mutation --map -m "not lab"         # once, and after changes: which tests reach which lines
    python -m tests.tools.mutation --draw 300 --seed SEED          # faults of all kinds at lines of all modules
    python -m tests.tools.mutation toolkit.analysis.diagnosis.decision
    python -m tests.tools.mutation toolkit.actions.transaction tests/actions/test_impact.py --kinds text

A draw writes a line of JSON for each fault to ``build/mutation/SEED.jsonl``, which a second run continues, and prints
how many were caught, by kind and folder. A module prints the faults that survive, and fails if there is one.

A fault is written to a copy of the repository, so that processes of a test have it, too. Tests that reach its line run
there, the fastest first, each time in a fork that has imported other packages, but nothing of the toolkit. A test that
fails runs again without the fault: what fails then as well has caught nothing.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "build" / "mutation"
