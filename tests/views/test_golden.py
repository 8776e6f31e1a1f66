"""The picture of the README is what the command really shows of what real brokers really answered."""

import html
import re

from tests.golden import FOLDER, finding_rows, picture, text
from toolkit.schema import FINDINGS

LINES = list(text(finding_rows()))


def words(svg: str) -> str:
    """All that is written in an SVG, without any space."""
    return "".join(html.unescape(part) for part in re.findall(r"<text [^>]*>([^<]*)</text>", svg))


def without_space(text: str) -> str:
    return re.sub(r"\s", "", text)


def test_the_rows_have_the_columns_of_the_table() -> None:
    assert all(list(row) == FINDINGS.names for row in finding_rows())


def test_the_text_matches_the_recorded_one() -> None:
    assert (FOLDER / "findings.txt").read_text().splitlines() == LINES


def test_the_picture_matches_the_text() -> None:
    output = without_space(words((FOLDER / "findings.svg").read_text()))
    assert output == without_space(words(picture(LINES)))
    assert all(without_space(line) in output for line in LINES)
