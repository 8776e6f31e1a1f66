"""A chart of a report as PNG, without its texts: the one kind of picture that every notebook shows in Markdown."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Pixels: TypeAlias = npt.NDArray[np.uint8]
Points: TypeAlias = npt.NDArray[np.float64]

SCALE = 2
PAPER, FRAME, HELD, GAP = (255, 255, 255), (213, 217, 223), (251, 233, 231), (243, 194, 190)
ENDS, STABLE = (87, 96, 106), (179, 38, 30)
_POINT = re.compile(r"[ML](-?[\d.]+) (-?[\d.]+)")


def chart_png(chart: Mapping[str, Any]) -> bytes:
    """A chart of `gap_chart` in its light colours."""
    pixels: Pixels = np.full((chart["height"] * SCALE, chart["width"] * SCALE, 3), PAPER, np.uint8)
    for window in chart["windows"]:
        x, y = window["x"], window["y"]
        _fill(pixels, (x, y, x + window["width"], y + window["height"]), HELD)
    _fill_polygon(pixels, _points(chart["gap"]), GAP)
    frame = chart["frame"]
    left, top, right, bottom = frame["x"], frame["y"], frame["x"] + frame["width"], frame["y"] + frame["height"]
    border = np.array([(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], np.float64)
    for path, width, colour in ((border, 1.0, FRAME), (_points(chart["ends"]), 1.5, ENDS)):
        _draw(pixels, path, width, colour)
    _draw(pixels, _points(chart["stable"]), 2.5, STABLE)
    return _encoded(pixels)


def _points(path: str) -> Points:
    return np.array([(float(x), float(y)) for x, y in _POINT.findall(path)], np.float64).reshape(-1, 2)


def _fill(pixels: Pixels, box: tuple[float, float, float, float], colour: tuple[int, int, int]) -> None:
    left, top, right, bottom = (max(0, round(each * SCALE)) for each in box)
    pixels[top : max(bottom, top + 1), left : max(right, left + 1)] = colour


def _draw(pixels: Pixels, points: Points, width: float, colour: tuple[int, int, int]) -> None:
    """A stepped line: each of its parts is horizontal or vertical."""
    half = width / 2
    for (x0, y0), (x1, y1) in pairwise(points):
        box = (min(x0, x1) - half, min(y0, y1) - half, max(x0, x1) + half, max(y0, y1) + half)
        _fill(pixels, box, colour)


def _fill_polygon(pixels: Pixels, points: Points, colour: tuple[int, int, int]) -> None:
    """Fill between each pair of the vertical edges that a row of pixels crosses."""
    corners = points * SCALE
    starts, ends = corners, np.roll(corners, -1, axis=0)
    for row in range(pixels.shape[0]):
        y = row + 0.5
        crossed = (starts[:, 1] <= y) != (ends[:, 1] <= y)
        edges = np.sort(starts[crossed, 0])
        for left, right in zip(edges[::2], edges[1::2], strict=False):
            pixels[row, round(left) : round(right)] = colour


def _encoded(pixels: Pixels) -> bytes:
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits a channel, RGB
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
