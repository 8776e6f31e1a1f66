"""Plugin of the pytest that runs nbval: only plain text is compared, as only that is stored; a warning fails a cell.

``python -m pytest -n0 -p tests.notebooks.plain -p nbval --nbval-lax --nbval-current-env notebooks/01_detection.ipynb``
"""

from collections.abc import Generator
from typing import Any

import pytest

STDERR = ("stream", "stderr")
RICH = ("text/html", "application/vnd.plotly.v1+json")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Make nbval ignore output formats that are not stored in git."""
    for file in {item.parent for item in items}:
        file.skip_compare += RICH


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, None, None]:
    """A notebook must not print warnings of its dependencies."""
    yield
    stderr = "".join(each.text for each in item.test_outputs if (each.output_type, each.get("name")) == STDERR)
    assert "Warning:" not in stderr, stderr
