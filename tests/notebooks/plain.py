"""Plugin of the pytest that runs nbval: plain text is compared, claims are checked, and a warning fails a cell.

``python -m pytest -n0 -p tests.notebooks.plain -p nbval --nbval-lax --nbval-current-env notebooks/01_detection.ipynb``
"""

import os
import re
from collections.abc import Generator
from queue import Empty
from typing import Any

import pytest

from tests.notebooks.books import PLOTLY
from tests.notebooks.claims import claimed_cells

STDERR = ("stream", "stderr")
RICH = ("text/html", "image/svg+xml", PLOTLY)  # pictures and tables have times
CLAIM_TIMEOUT_S = 300
WORDS = "KAFKA_TXN_NOTEBOOK_WORDS"
"""Set where a notebook runs unchanged: the words of every stored output are then compared."""
VARYING = {"under"}  # of "under 1 s"
NAMES = re.compile(r"\S*(?:[a-z_]+-[0-9a-f]{6}|/tmp/)\S*")  # of the lab's ids, and of temporary files


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Make nbval compare plain text only."""
    for file in {item.parent for item in items}:
        file.skip_compare += RICH


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, None, None]:
    """A notebook must not print warnings of its dependencies, and what is claimed of its cells must hold."""
    yield
    stderr = "".join(each.text for each in item.test_outputs if (each.output_type, each.get("name")) == STDERR)
    assert "Warning:" not in stderr, stderr
    if os.environ.get(WORDS) and item.cell.outputs:
        stored, now = _words(item.cell.outputs), _words(item.test_outputs)
        assert stored ^ now <= VARYING, f"stored: {sorted(stored - now)}; now: {sorted(now - stored)}"
    _check_claims(item)


def _words(outputs: list[Any]) -> set[str]:
    """The words of texts: times, numbers and ids differ, and advice that the code has corrected since must not stay."""
    texts = ("".join(each.get("text", each.get("data", {}).get("text/plain", ""))) for each in outputs
             if (each.output_type, each.get("name")) != STDERR)  # fmt: skip
    return set(re.findall(r"[A-Za-z]{4,}", NAMES.sub("", " ".join(texts))))


def _check_claims(item: Any) -> None:
    """Run the claims of the cell in its kernel; the cell fails if one does."""
    notebook, cell_id, kernel = item.path.stem, item.cell.get("id"), item.parent.kernel
    if cell_id not in claimed_cells(notebook):
        return
    message = kernel.execute_cell_input(
        f"from tests.notebooks import claims as _claims\n_claims.check({notebook!r}, {cell_id!r}, globals())",
        allow_stdin=False,
    )
    failure = ""
    try:
        kernel.await_reply(message, timeout=CLAIM_TIMEOUT_S)
        while True:
            answer = kernel.get_message("iopub", timeout=CLAIM_TIMEOUT_S)
            if answer["parent_header"].get("msg_id") != message:
                continue
            if answer["msg_type"] == "error":
                failure = "\n".join(answer["content"]["traceback"])
            if answer["msg_type"] == "status" and answer["content"]["execution_state"] == "idle":
                break
    except Empty:
        failure = f"It took more than {CLAIM_TIMEOUT_S} s."
    if failure:
        item.raise_cell_error("A claim does not hold", failure)
