"""Why a transaction that has ended held the LSO, as far as its log and its coordinator's records show.

The names are those of `toolkit.analysis.diagnosis.evidence.cause_table.CAUSES`.
"""

from __future__ import annotations

from collections.abc import Callable

from toolkit.analysis.coordinator.transaction_states import PREPARE_GRACE, TWO_PHASE_COMMIT
from toolkit.analysis.diagnosis.evidence.causes import CauseIndicator, habit
from toolkit.analysis.history.attribution import Attribution
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.schema.derived import LsoHold
from toolkit.schema.durations import duration

LEFT_BEHIND = {"timeout", "fence"}


def past_cause(hold: LsoHold, attribution: Attribution) -> str | None:
    """The root cause as a sentence with its names; null if none was found.

    Parameters
    ----------
    hold
        A hold that is over.
    attribution
        Whose transaction it was.
    """
    indicators = [found for check in CHECKS if (found := check(hold, attribution)) is not None]
    names = dict.fromkeys(name for indicator in indicators for name in indicator.names)
    suffix = f" ({', '.join(names)})" if names else ""
    return "; ".join(indicator.text for indicator in indicators) + suffix if indicators else None


def _unknown_to_coordinator(hold: LsoHold, attribution: Attribution) -> CauseIndicator | None:
    if attribution.was_known:
        return None
    text = "its coordinator did not know of it: a batch came late or was resent, or its partition was never added"
    return CauseIndicator(text=text, names=("late-after-commit", "late-after-abort", "never-added"))


def _mixed_epochs(hold: LsoHold, attribution: Attribution) -> CauseIndicator | None:
    first, last = hold.first_epoch, hold.producer_epoch
    if first is None or last is None or first >= last:
        return None
    return CauseIndicator(
        text=f"mixed epochs in one transaction: epoch {first} opened it, and epoch {last} wrote into it"
    )


def _dead_epoch(hold: LsoHold, attribution: Attribution) -> CauseIndicator | None:
    epoch = None if attribution.history is None else attribution.history.producer_epoch
    if epoch is None or hold.producer_epoch is None or epoch <= hold.producer_epoch:
        return None
    text = f"superseded epoch: the marker of epoch {epoch} decided what epoch {hold.producer_epoch} had left open"
    return CauseIndicator(text=f"{text}, and made it visible" if hold.marker == "COMMIT" else text)


def _timed_out(hold: LsoHold, attribution: Attribution) -> CauseIndicator | None:
    if attribution.history is None or attribution.history.ended != "timeout":
        return None
    return CauseIndicator(text="its client did not end it in time", names=("client-too-slow",))


def _fenced(hold: LsoHold, attribution: Attribution) -> CauseIndicator | None:
    if attribution.history is None or attribution.history.ended != "fence":
        return None
    return CauseIndicator(text="its client left it open, until a new instance took over the id")


def _late_marker(hold: LsoHold, attribution: Attribution) -> CauseIndicator | None:
    decided_at = None if attribution.history is None else attribution.history.decided_at
    if attribution.history is None or decided_at is None or hold.held_to is None:
        return None
    late = hold.held_to - decided_at
    if late <= PREPARE_GRACE:
        return None
    text = f"its coordinator had decided, and took {duration(late)} to write its marker"
    return CauseIndicator(
        text=text,
        names=("marker-not-written", "marker-not-sent")
        if attribution.history.client_transaction_version == 2
        else ("marker-not-written",),
    )


def _two_phase(hold: LsoHold, attribution: Attribution) -> CauseIndicator | None:
    if attribution.history is None or attribution.history.timeout_ms != TWO_PHASE_COMMIT:
        return None
    return CauseIndicator(
        text="a two-phase commit: its external coordinator took that long to decide", names=("two-phase-commit",)
    )


def _of_groups(hold: LsoHold, attribution: Attribution) -> CauseIndicator | None:
    return (
        CauseIndicator(text="it held offsets of consumer groups", names=("group-offsets",))
        if hold.topic == OFFSETS_TOPIC
        else None
    )


def _habit(hold: LsoHold, attribution: Attribution) -> CauseIndicator | None:
    if attribution.history is None or attribution.history.ended not in LEFT_BEHIND:
        return None
    return habit(attribution.transactional_id or "", attribution.history.timeout_ms)


CHECKS: tuple[Callable[[LsoHold, Attribution], CauseIndicator | None], ...] = (
    _unknown_to_coordinator,
    _mixed_epochs,
    _dead_epoch,
    _timed_out,
    _fenced,
    _late_marker,
    _two_phase,
    _of_groups,
    _habit,
)
