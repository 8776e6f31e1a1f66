"""Find the end of a record's text: keys and payloads are printed unchanged, with their line breaks.

A payload can look like the next batch line. The sizes in a record line state how many bytes its text has, unless a
decoder printed something else, the bytes were not UTF-8 or the text was damaged later; and the next line must fit the
lines before. Lines are skipped only if both agree.
"""

from __future__ import annotations

from collections.abc import Callable

from toolkit.formats.dumps.line_patterns import RecordLine, looks_like_a_row
from toolkit.formats.dumps.text_lines import TextLines

LONGEST = 16 << 20  # bytes; a message is 1 MiB at most by default
UNKNOWN_LONGEST = 1 << 16  # if the size is unknown
KEY, PAYLOAD = " key: ", " payload: "
BARE = ("| key: ", "| payload: ", " payload: ")  # without metadata; the last one up to 3.7, where there is no key


def text_of(record: RecordLine) -> str | None:
    """The part of key and payload on the line; null if the line ends within the keys of headers."""
    rest = record.rest
    if not record.keys:
        return rest
    if rest == "]" or rest.startswith(("] key: ", "] payload: ")):
        return rest[1:]
    starts = [at for at in (rest.find("]" + KEY), rest.find("]" + PAYLOAD)) if at >= 0]
    if starts:
        return rest[min(starts) + 1 :]
    return "" if rest.endswith("]") else None


def printed_size(record: RecordLine) -> int:
    """Bytes of key and payload as the default decoders print them."""
    key = len(KEY) + record.key_size if record.key_size >= 0 else 0
    return key + (len(PAYLOAD) + record.value_size if record.value_size >= 0 else 0)


def byte_sizes(text: str) -> tuple[int, int]:
    """Minimum and maximum bytes of a printed text.

    Invalid UTF-8 is printed as U+FFFD, for up to three bytes; a character that the terminal's encoding lacks as a
    question mark, for up to four.
    """
    marks = text.count("?")
    if text.isascii():
        return len(text), len(text) + 3 * marks
    size = len(text.encode("utf-8", "replace"))
    replaced = text.count("\ufffd")
    return size - 2 * replaced, size + 3 * marks


def pass_over(
    lines: TextLines, text: str, *, size: int | None, comes_next: Callable[[str, bool], bool]
) -> list[str] | None:
    """The further lines of a record's text, consumed from ``lines``; null, and none consumed, if its end is not found.

    Parameters
    ----------
    lines
        The lines after the first line of the text.
    text
        The text on its first line.
    size
        Bytes of the whole text, if they are known.
    comes_next
        Whether a line can follow a record whose text ends exactly (or only possibly) before it.
    """
    further: list[str] = []
    rows = False  # whether the consumed lines look like rows: then only the very next batch proves that they are not
    least, most = byte_sizes(text)
    longest = UNKNOWN_LONGEST if size is None else min(size, LONGEST)
    while least <= longest:
        following = lines.peek()
        if size is None:
            ends = following is not None and (comes_next(following, False) or (not rows and following.startswith(BARE)))
        else:
            ends = least <= size <= most and (following is None or comes_next(following, least == size))
        if ends:
            return further
        line = next(lines, None)
        if line is None:
            break
        further.append(line)
        rows = rows or looks_like_a_row(line)
        fewest, greatest = byte_sizes(line)
        least, most = least + 1 + fewest, most + 1 + greatest
    lines.push_back(further)
    return None
