"""What to do next: the most urgent first, with the notebook that goes on."""

import re

from tests.notebooks.books import FOLDER
from tests.views.plots.busy import finding
from toolkit.views import next_steps
from toolkit.views.finding_steps import NOTEBOOKS


def test_each_verdict_has_its_notebooks_and_the_parameters_for_them() -> None:
    text = repr(next_steps([finding(topic="clicks", verdict="ongoing"), finding(topic="a`b"), finding(partition=3)]))
    assert text.index("**hanging**") < text.index("**ongoing**")
    assert "[04_abort.ipynb](04_abort.ipynb): end it" in text
    assert "parameters: `topic, partition = 'a`b', 0`" in text or "`topic, partition = 'orders', 3`" in text
    assert "04_abort" not in text[text.index("**ongoing**") :], "nobody aborts a live transaction"


def test_a_commit_is_never_sent_to_the_abort() -> None:
    text = repr(next_steps([finding(verdict="stuck_ending", outcome="commit")]))
    assert re.findall(r"04_abort.ipynb\): (.*)", text) == ["*When the records are committed*; never abort it"]


def test_nothing_held_leads_to_the_consumers() -> None:
    assert "check the consumers themselves" in repr(next_steps([finding(verdict="clear")]))


def test_the_notebooks_are_there() -> None:
    assert all((FOLDER / file).is_file() for steps in NOTEBOOKS.values() for file, _ in steps)
