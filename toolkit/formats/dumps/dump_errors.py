"""Errors that ``kafka-dump-log.sh`` prints, on either of its streams."""

from __future__ import annotations

import re

from toolkit.formats.dumps.text_lines import TextLines

INDEX = "INDEX_MISMATCH: kafka-dump-log.sh reports: "
REPORTS = (  # first words of a line, and the error
    (re.compile(r"Found \d+ invalid bytes at the end of \S"), "TORN_TAIL: kafka-dump-log.sh reports: "),
    (re.compile(r"Mismatches in :"), INDEX),
    (re.compile(r"Found timestamp mismatch in :"), INDEX),
    (re.compile(r"Found out of order timestamp in :"), INDEX),
    (re.compile(r"The following indexed offsets are not found in the log\."), INDEX),
    (re.compile(r"Non-consecutive offsets in \S"), "OFFSET_GAPS: normal after compaction; kafka-dump-log.sh reports: "),
    (re.compile(r"Ignoring unknown file \S"), "SKIPPED: kafka-dump-log.sh reports: "),
    (re.compile(r'Exception in thread "main" \S'), "TOOL_FAILED: the dump may end before its file does: "),
    (re.compile(r"(?:Error: )?Could not \S"), "TOOL_FAILED: the dump may end before its file does: "),
    (
        re.compile(r"Snapshot (?:contained an unknown|is corrupt|failed schema)"),
        "CORRUPT_SNAPSHOT: kafka-dump-log.sh reports: ",
    ),
)
DETAIL = re.compile(
    r"  Index (?:offset|timestamp): -?\d+, .*|Indexed offset: -?\d+, found log offset: .*|  -?\d+ is followed by -?\d+"
)
LONGEST = 400  # characters of a quoted line


def read_report(line: str) -> str | None:
    """The error in a line; null for any other line."""
    for shape, text in REPORTS:
        if shape.match(line):
            return text + _start(line)
    return None


def is_detail(line: str) -> bool:
    """Whether a line belongs to the error before it."""
    return DETAIL.fullmatch(line) is not None


def malformed(line: str, lines: TextLines) -> str:
    """The error for a line that should be a row of a dump."""
    start = _start(line)
    if lines.perhaps_cut:
        return f"TORN_TAIL: The text ends within a line: {start}"
    return f"MALFORMED_LINE: This should be a row of a dump, and is none: {start}"


def _start(line: str) -> str:
    return line[:LONGEST].encode("utf-8", "replace").decode()
