"""The tool that seeds faults: the text that it writes has the fault, and nothing else."""

import ast
from contextlib import suppress

from tests.tools.mutation.faults import faults, modules


def test_the_text_of_a_fault_has_this_one_change() -> None:
    kinds = set[str]()
    for module in modules()[::60]:
        for fault in list(faults(module))[::20]:
            with suppress(SyntaxError):
                changed = ast.dump(ast.parse(fault.text()))
                fault.place.put(fault.changed)
                assert changed == ast.dump(ast.parse(ast.unparse(module.tree)))
                kinds.add(fault.kind)
            fault.place.put(fault.place.child)
    assert len(kinds) > 10
