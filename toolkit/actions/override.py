"""Which verdict may be overridden, and which never: an abort marker on what has an owner loses half of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.analysis.coordinator.transaction_states import TWO_PHASE_COMMIT
from toolkit.errors import ActionRefused
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC

if TYPE_CHECKING:
    from toolkit.schema import Row

__all__ = ["check_override"]


def check_override(fresh: Row, override: str | None, *, target: str) -> None:
    """Refuse a transaction that is not hanging, unless its fresh verdict is ``unknown`` and overridden by that name.

    Parameters
    ----------
    fresh
        Its fresh row of ``schema.FINDINGS``.
    override
        The verdict that a person overrides; null for none.
    target
        Its name, for the error.

    Raises
    ------
    ActionRefused
        If it is refused.
    """
    verdict, why = fresh["verdict"], "; ".join(fresh["missing"]) or fresh["reason"]
    if verdict == "hanging" and override is None:
        return
    if override is None:
        what = f"{target} is {verdict} now, not proven to be hanging: {why}"
    elif override != verdict:
        what = f"{target} is {verdict} now, not {override}: {why}"
    elif never := _never(fresh):
        what = f"{target} is {verdict} now, which cannot be overridden: {never}"
    else:
        return
    raise ActionRefused(what, means="Nothing was written.", do=f"Remedy: {fresh['remedy']}")


def _never(fresh: Row) -> str:
    """Why not even a person's word is enough; empty where it is."""
    if fresh["verdict"] != "unknown":
        return str(fresh["reason"])
    if fresh["topic"] == STATE_TOPIC:
        return "no marker belongs on the coordinators' own topic."
    values = {(entry["name"], entry["value"]) for entry in fresh["evidence"]}
    if any(name == "state" and value.startswith("Prepare") for name, value in values):
        return "its coordinator has decided a transaction of this producer."
    if ("timeout_ms", str(TWO_PHASE_COMMIT)) in values:
        return "it belongs to a two-phase commit, which only its external coordinator decides."
    return ""
