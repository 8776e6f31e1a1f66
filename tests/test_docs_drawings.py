"""The drawings of the docs: well-formed, described in words, and each text within its box."""

import importlib.util
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
SVG = "{http://www.w3.org/2000/svg}"
CHARACTER = 7.3
"""Width of an average character of 14 px in a wide font."""


def drawings() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("drawings", DOCS / "_ext/drawings.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault("drawings", importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    made: dict[str, str] = module.drawings()
    return made


DRAWINGS = drawings()


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_described_and_its_texts_fit(name: str) -> None:
    (root,) = ElementTree.fromstring(DRAWINGS[name])
    described = [root.findtext(f"{SVG}title"), root.findtext(f"{SVG}desc")]
    assert all(described)
    assert root.get("aria-labelledby") == " ".join(each.get("id", "") for each in root[:2])
    height = float(root.get("viewBox", "").split()[-1])
    boxes = [
        tuple(float(each.get(key, "")) for key in ("x", "y", "width", "height")) for each in root.iter(f"{SVG}rect")
    ]
    for text in root.iter(f"{SVG}text"):
        x, y, wide = float(text.get("x", "")), float(text.get("y", "")), len(text.text or "") * CHARACTER
        left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor", "")]
        assert left >= 0, text.text
        assert left + wide <= 760, text.text
        assert 0 < y < height, text.text
        if inside := [box for box in boxes if box[0] < x < box[0] + box[2] and box[1] < y < box[1] + box[3]]:
            assert wide <= min(box[2] for box in inside), text.text


def test_each_drawing_is_in_a_page() -> None:
    pages = "".join(path.read_text() for path in DOCS.glob("*.md"))
    assert [name for name in DRAWINGS if f":file: drawings/{name}" not in pages] == []
