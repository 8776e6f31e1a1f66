"""Missing offsets in a log: removed by the cleaner, or lost when the files were copied."""

from __future__ import annotations

import numpy as np

from toolkit.formats.log.headers import Headers

__all__ = ["Contiguity"]


class Contiguity:
    """Follows the batches of a log and records missing offsets between them.

    Attributes
    ----------
    gaps
        For each missing range, the expected offset and the base offset of the next batch; only the last `MOST`.
    """

    MOST = 1000

    def __init__(self) -> None:
        self.gaps: list[tuple[int, int]] = []
        self._next: int | None = None

    def add(self, headers: Headers) -> None:
        """Add the next batches of the log."""
        if not len(headers):
            return
        begins, ends = headers["base_offset"], headers["last_offset"] + 1
        expected = np.concatenate(([begins[0] if self._next is None else self._next], ends[:-1]))
        wrong = np.flatnonzero(begins != expected)
        self.gaps += zip(expected[wrong].tolist(), begins[wrong].tolist(), strict=True)
        del self.gaps[: -self.MOST]
        self._next = int(ends[-1])

    def after(self, offset: int) -> tuple[int, int] | None:
        """The last missing range that ends after an offset."""
        return next((gap for gap in reversed(self.gaps) if max(gap) > offset), None)
