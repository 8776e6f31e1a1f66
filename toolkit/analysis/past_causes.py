"""Why a transaction held the LSO that has ended since, as far as its log and its coordinator's records show.

The codes are those of `toolkit.analysis.causes`, and R19: its client was too slow, and its coordinator aborted it.
"""

from __future__ import annotations

from collections.abc import Callable

from toolkit.analysis.behind import Behind
from toolkit.analysis.cases import TWO_PHASE_COMMIT
from toolkit.analysis.causes import Sign, habit
from toolkit.analysis.verdicts import PREPARE_GRACE
from toolkit.analysis.wording import duration
from toolkit.formats.group_records import OFFSETS_TOPIC
from toolkit.schema import Row

__all__ = ["past_cause"]

LEFT_BEHIND = {"timeout", "fence"}


def past_cause(hold: Row, who: Behind) -> str | None:
    """The root cause, a sentence with its codes; null where none shows.

    Parameters
    ----------
    hold
        A row of `toolkit.analysis.holds.HOLDS` with a marker.
    who
        Who was behind it.
    """
    signs = [sign for look in SIGNS if (sign := look(hold, who)) is not None]
    codes = dict.fromkeys(code for sign in signs for code in sign.codes)
    named = f" ({', '.join(codes)})" if codes else ""
    return "; ".join(sign.text for sign in signs) + named if signs else None


def _not_known(hold: Row, who: Behind) -> Sign | None:
    if who.was_known:
        return None
    text = "its coordinator did not know of it: a batch came late or again, or its partition was never added"
    return Sign(text=text, codes=("R1", "R2", "R3"))


def _mixed_epochs(hold: Row, who: Behind) -> Sign | None:
    first, last = hold["first_epoch"], hold["producer_epoch"]
    if first is None or last is None or first >= last:
        return None
    return Sign(text=f"mixed epochs in one transaction: epoch {first} opened it, and epoch {last} wrote into it")


def _dead_epoch(hold: Row, who: Behind) -> Sign | None:
    epoch = None if who.history is None else who.history["producer_epoch"]
    if epoch is None or hold["producer_epoch"] is None or epoch <= hold["producer_epoch"]:
        return None
    text = f"superseded epoch: the marker of epoch {epoch} decided what epoch {hold['producer_epoch']} had left open"
    return Sign(text=f"{text}, and made it visible" if hold["marker"] == "COMMIT" else text)


def _timed_out(hold: Row, who: Behind) -> Sign | None:
    if who.history is None or who.history["ended"] != "timeout":
        return None
    return Sign(text="its client did not end it in time", codes=("R19",))


def _fenced(hold: Row, who: Behind) -> Sign | None:
    if who.history is None or who.history["ended"] != "fence":
        return None
    return Sign(text="its client left it open, until a new instance took over the id")


def _late_marker(hold: Row, who: Behind) -> Sign | None:
    decided_at = None if who.history is None else who.history["decided_at"]
    if who.history is None or decided_at is None or hold["held_to"] is None:
        return None
    late = hold["held_to"] - decided_at
    if late <= PREPARE_GRACE:
        return None
    text = f"its coordinator had decided, and took {duration(late)} to write its marker"
    return Sign(text=text, codes=("R8", "R9") if who.history["client_transaction_version"] == 2 else ("R8",))


def _two_phase(hold: Row, who: Behind) -> Sign | None:
    if who.history is None or who.history["timeout_ms"] != TWO_PHASE_COMMIT:
        return None
    return Sign(text="a two-phase commit: its external coordinator took that long to decide", codes=("R20",))


def _of_groups(hold: Row, who: Behind) -> Sign | None:
    return Sign(text="it held offsets of consumer groups", codes=("R14",)) if hold["topic"] == OFFSETS_TOPIC else None


def _habit(hold: Row, who: Behind) -> Sign | None:
    if who.history is None or who.history["ended"] not in LEFT_BEHIND:
        return None
    return habit(who.transactional_id or "", who.history["timeout_ms"])


SIGNS: tuple[Callable[[Row, Behind], Sign | None], ...] = (
    _not_known,
    _mixed_epochs,
    _dead_epoch,
    _timed_out,
    _fenced,
    _late_marker,
    _two_phase,
    _of_groups,
    _habit,
)
