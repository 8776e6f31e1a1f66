"""The drawings of the concepts page and the home page, as SVG that takes the colours of the page, light or dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["drawings"]

WIDTH = 760


def drawings() -> dict[str, str]:
    """File name to SVG, in a frame that scrolls on a narrow screen."""
    made = {"lso": _lso, "markers": _markers, "hanging": _hanging, "outcomes": _outcomes, "decision": _decision}
    return {f"{name}.svg": f'<div class="drawing-frame">\n{draw()}</div>\n' for name, draw in made.items()}


def _lso() -> str:
    """A partition's log with an open transaction: what two kinds of consumers receive."""
    batches = [
        ("0", "A", "committed", 1.0),
        ("5", "A", "committed", 1.0),
        ("9", "COMMIT A", "marker", 1.2),
        ("10", "B", "open", 1.0),
        ("14", "C", "committed", 1.0),
        ("18", "COMMIT C", "marker", 1.2),
        ("19", "no transaction", "committed", 1.5),
        ("23", "B", "open", 1.0),
    ]
    parts, edges = _log(batches, y=70)
    lso, end = edges[3], edges[-1]
    parts += [
        _text(30, 28, "orders-0: batches in offset order; the number is the first offset of each", "strong"),
        _line(lso, 52, lso, 218),
        _text(lso + 6, 50, "LSO = 10, the first offset of open transaction B"),
        _line(end, 62, end, 218),
        _text(end - 4, 234, "high watermark = 27", anchor="end"),
        _span(edges[0], lso, 150, "read_committed receives A", "committed"),
        _span(lso, end, 150, "held: read_committed receives nothing of this, not even C", "held"),
        _span(edges[0], end, 188, "read_uncommitted receives all of it", "plain"),
    ]
    return _svg(
        248,
        parts,
        "The last stable offset",
        "A log with transactions A, B and C. A and C are committed, B is open from offset 10 on. The LSO is 10: "
        "read_committed consumers receive only A, although C is committed.",
    )


def _markers() -> str:
    """The requests of a commit: who writes what, and when."""
    actors = [(70, "client"), (290, "transaction coordinator"), (520, "leader of orders-0"), (690, "consumer")]
    steps = [
        (0, 1, "InitProducerId"),
        (0, 1, "AddPartitionsToTxn: orders-0"),
        (0, 2, "Produce: batches"),
        (0, 1, "EndTxn: commit"),
        (1, 1, "PrepareCommit: the decision, in __transaction_state"),
        (1, 0, "success"),
        (1, 2, "WriteTxnMarkers: COMMIT"),
        (1, 1, "CompleteCommit, once all partitions have theirs"),
        (2, 3, "records"),
    ]
    bottom = 70 + 40 * len(steps)
    parts: list[str] = []
    for x, name in actors:
        parts += [_box(x - len(name) * 4.2 - 10, 14, len(name) * 8.4 + 20, 30, name, "plain"), _line(x, 44, x, bottom)]
    for number, (source, target, text) in enumerate(steps):
        y = 78 + 40 * number
        if source == target:
            parts += [_dot(actors[source][0], y), _text(actors[source][0] + 12, y + 5, text, "strong over")]
        else:
            a, b = actors[source][0], actors[target][0]
            parts += [_arrow(a, y, b, y), _text((a + b) / 2, y - 6, text, "over", anchor="middle")]
    return _svg(
        bottom + 12,
        parts,
        "From produce to marker",
        "The client adds a partition, produces, and asks its coordinator to commit. The coordinator records "
        "PrepareCommit, answers, sends a marker to the leader of each partition, and records CompleteCommit. Then "
        "consumers receive the records.",
    )


def _hanging() -> str:
    """How a batch that arrives late opens a transaction that no coordinator knows."""
    batches = [
        ("0", "A", "committed", 1.0),
        ("5", "COMMIT A", "marker", 1.2),
        ("6", "late batch of A", "open", 1.7),
        ("7", "records of others", "committed", 2.0),
        ("40", "records of others", "committed", 2.0),
    ]
    parts, edges = _log(batches, y=150)
    x = (edges[2] + edges[3]) / 2
    parts += [
        _box(30, 20, 320, 56, "coordinator: A is CompleteCommit;", "plain", second="it expects no marker any more"),
        _box(410, 20, 320, 56, "producer: sent the batch before its commit,", "plain", second="or sent it again"),
        _arrow(570, 76, x, 146),
        _text(190, 112, "no marker will come", anchor="middle"),
        _line(edges[2], 134, edges[2], 250),
        _span(edges[2], edges[-1], 224, "held: no timeout, restart or retention ends it", "held"),
        _text(edges[2] - 6, 250, "LSO = 6", "strong", anchor="end"),
    ]
    return _svg(
        264,
        parts,
        "A hanging transaction",
        "A batch of transaction A arrives after A's COMMIT marker. The partition opens a transaction, the coordinator "
        "has completed A: nobody will end it, and everything after it is held.",
    )


def _outcomes() -> str:
    """The same open records, and four answers of the coordinators' log."""
    rows = [
        ("no decision includes these records", "undecided", "open", "wait for the owner; if hanging: kafka-txn abort"),
        (
            "an abort, and its marker is missing here",
            "abort",
            "aborted",
            "if hanging: abort or complete, the same marker",
        ),
        ("a commit, and its marker is missing here", "commit", "committed", "complete: never an abort"),
        ("nothing: it begins after the records", "unknown", "plain", "get what is missing: no action"),
    ]
    parts = [
        _text(30, 28, "the coordinators' log says", "strong"),
        _text(372, 28, "outcome", "strong"),
        _text(500, 28, "what is safe", "strong"),
    ]
    for number, (log, outcome, kind, action) in enumerate(rows):
        y = 44 + 58 * number
        parts += [
            _box(30, y, 318, 44, log, "plain"),
            _arrow(348, y + 22, 370, y + 22),
            _box(372, y, 104, 44, outcome, kind),
            _arrow(476, y + 22, 498, y + 22),
            *_wrapped(504, y + 18, action, 34),
        ]
    return _svg(
        284, parts, "Outcomes", "; ".join(f"{log}: outcome {outcome}, {action}" for log, outcome, _, action in rows)
    )


def _decision() -> str:
    """From the verdict to the next step; each box links to its page."""
    rows = [
        ("Is the LSO below the high watermark?", "no", "clear", "look at the consumer"),
        ("Is anything open there?", "no", "unreplicated", "bring replicas back"),
        ("Is all evidence there, the outcome too?", "no", "unknown", "get what is missing"),
        ("Does a coordinator own it?", "yes", "ongoing", "wait: its owner ends it"),
        ("Was it committed?", "yes", "stuck_ending", "complete, if it is named"),
        ("Nobody owns it, and no commit has it", "", "hanging", "abort: dry run first"),
    ]
    parts: list[str] = []
    for number, (question, answer, verdict, action) in enumerate(rows):
        y = 14 + 66 * number
        last = number == len(rows) - 1
        parts.append(_box(20, y, 330, 44, question, "open" if last else "plain"))
        if not last:
            parts += [_arrow(185, y + 44, 185, y + 64), _text(193, y + 59, "no" if answer == "yes" else "yes")]
        parts += [
            _arrow(350, y + 22, 428, y + 22),
            _text(389, y + 16, answer, anchor="middle"),
            f'<a href="verdicts/{verdict}/">{_box(430, y, 124, 44, verdict, "link")}</a>',
            _text(566, y + 27, action),
        ]
    return _svg(
        14 + 66 * len(rows),
        parts,
        "Who holds the LSO, and what to do",
        ". ".join(f"{question} {answer}: {verdict}, {action}" for question, answer, verdict, action in rows),
    )


def _log(batches: Sequence[tuple[str, str, str, float]], *, y: float) -> tuple[list[str], list[float]]:
    """Batches side by side (first offset, label, kind, share of the width), and the x of their borders."""
    unit = (WIDTH - 60) / sum(share for *_, share in batches)
    parts, edges = [], [30.0]
    for offset, label, kind, share in batches:
        x, width = edges[-1], unit * share
        parts += [_box(x + 2, y, width - 4, 46, label, kind), _text(x + 4, y + 64, offset, "small")]
        edges.append(x + width)
    return parts, edges


def _svg(height: float, parts: Iterable[str], title: str, description: str) -> str:
    name = title.lower().replace(" ", "-").replace(",", "")
    return "\n".join(
        [
            f'<svg class="drawing" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
            f'aria-labelledby="{name}-title {name}-text">',
            f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-text">{escape(description)}</desc>',
            f'<defs><marker id="{name}-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
            *(part.replace("#tip", f"#{name}-tip") for part in parts),
            "</svg>",
            "",
        ]
    )


def _box(x: float, y: float, width: float, height: float, text: str, kind: str, *, second: str = "") -> str:
    middle = x + width / 2
    lines = [text, second] if second else [text]
    texts = (
        _text(middle, y + height / 2 + 5 + 18 * (number - (len(lines) - 1) / 2), line, anchor="middle")
        for number, line in enumerate(lines)
    )
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {place} rx="3"/>{"".join(texts)}'


def _span(start: float, stop: float, y: float, text: str, kind: str) -> str:
    return _box(start + 2, y, stop - start - 4, 26, text, kind)


def _text(x: float, y: float, text: str, kind: str = "", *, anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>' if text else ""


def _wrapped(x: float, y: float, text: str, width: int) -> list[str]:
    cut = text.rfind(" ", 0, width + 1) if len(text) > width else len(text)
    return [_text(x, y, text[:cut]), _text(x, y + 18, text[cut:].strip())]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="arrow" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" marker-end="url(#tip)"/>'


def _dot(x: float, y: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
