"""A report as a Jupyter notebook to edit: a Markdown cell for each section, with its pictures attached."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence

from toolkit.views.report.report_parts import ReportSection, charts_of, markdown_parts

PNG = "image/png"  # JupyterLab attaches no SVG


def notebook(
    title: str, summary: Sequence[str], sections: Sequence[ReportSection], *, pictures: Sequence[bytes] = ()
) -> str:
    """The JSON of a notebook (nbformat 4.5) without code.

    `title`, `summary`, `sections`: as for `report_parts.markdown`. `pictures`: the charts as PNG, in their order.
    """
    names = [f"lso-{number}.png" for number, _ in enumerate(pictures, start=1)]
    parts = markdown_parts(title, summary, sections, pictures=[f"attachment:{name}" for name in names])
    attached = iter(zip(names, pictures, strict=True))
    counts = [0, *(len(charts_of([section])) for section in sections)]
    cells = [
        _cell(number, part, attached, count) for number, (part, count) in enumerate(zip(parts, counts, strict=True))
    ]
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _cell(number: int, part: str, attached: Iterator[tuple[str, bytes]], count: int) -> dict[str, object]:
    images = dict(next(attached) for _ in range(count))
    attachments = {name: {PNG: base64.b64encode(picture).decode()} for name, picture in images.items()}
    cell: dict[str, object] = {
        "cell_type": "markdown",
        "id": f"section-{number}",
        "metadata": {},
        "source": part.splitlines(keepends=True),
    }
    return {**cell, "attachments": attachments} if attachments else cell
