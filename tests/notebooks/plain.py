"""Plugin of the pytest that runs nbval: only plain text is stored, so only that is compared.

``python -m pytest -p tests.notebooks.plain --nbval-lax --nbval-current-env notebooks/01_detection.ipynb``
"""

from typing import Any

__all__ = ["pytest_collection_modifyitems"]

RICH = ("text/html", "application/vnd.plotly.v1+json")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Have nbval leave out the forms of an output that are not kept in git."""
    for file in {item.parent for item in items}:
        file.skip_compare += RICH
