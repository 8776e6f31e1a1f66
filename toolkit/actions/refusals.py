"""What a person confirms, what the fresh finding has to say for an abort or complete, and what may be overridden."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.analysis.broker_software import is_of_another_system
from toolkit.analysis.coordinator.transaction_states import TWO_PHASE_COMMIT
from toolkit.analysis.diagnosis.decision.claims import claims_of, needed_override
from toolkit.analysis.diagnosis.evidence_kinds import CHECKPOINT_ENTRY, TO_COMMIT
from toolkit.analysis.diagnosis.verdicts import REFUTED
from toolkit.errors import ActionRefused
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    from toolkit.schema.live import Finding

NOTHING_WRITTEN = "Nothing was written."
DISCARDED = {"undecided", "abort"}
"""Outcomes of records that an abort marker may discard: the coordinator has not decided to commit them."""
COMPLETED = {"commit", "abort"}
"""Outcomes that `complete` carries out."""


def check_confirmation(confirm: str, target: str, *, means: str) -> None:
    """Raise unless the confirmation is exactly the target.

    `means`: what the refusal means, as a sentence.
    Raises ActionRefused if they differ.
    """
    if confirm != target:
        raise ActionRefused(
            f"The confirmation {confirm!r} does not name {target!r}.",
            means=means,
            do=f"To continue, confirm with exactly {target}.",
        )


def abort_refusal(finding: Finding) -> str | None:
    """Why an abort of it is refused; null where it is not."""
    if finding.outcome == "commit":
        return f"its records were committed, and an abort marker would discard them: {_why(finding)}"
    if finding.action == "abort" and finding.outcome in DISCARDED:
        return None
    return _why(finding)


def check_abort(fresh: Finding, override: str | None, *, target: str) -> None:
    """Refuse an abort, unless it is the safe action, or a person asserts what is not proven.

    `override`: the claims that are not proven, in words; null for none. A claim that is refuted is never overridden.
    `target`: its name, for the error.
    Raises ActionRefused if it is refused.
    """
    refusal = abort_refusal(fresh)
    if fresh.outcome == "commit":
        raise ActionRefused(
            f"{target} is never aborted: {refusal}", means=NOTHING_WRITTEN, do=f"Remedy: {fresh.remedy}"
        )
    if override is None and refusal is not None:
        raise ActionRefused(
            f"{target} is {fresh.verdict} now, not proven to be hanging: {refusal}",
            means=NOTHING_WRITTEN,
            do=f"Remedy: {fresh.remedy}",
        )
    _check_override("abort", fresh, override, target=target)


def allowed_override(finding: Finding, action: str) -> str | None:
    """What `--override` has to repeat for an action that is not proven to be safe; null where nothing is overridden."""
    return None if _never(finding) else needed_override(finding, action)


def _check_override(action: str, fresh: Finding, override: str | None, *, target: str) -> None:
    """Raise ActionRefused unless an override, if there is one, repeats the claims that are not proven now."""
    if override is None or override == (allowed := allowed_override(fresh, action)):
        return
    if abort_refusal(fresh) is None if action == "abort" else complete_refusal(fresh) is None:
        what = f"{target}: the override {override!r} is not needed, as everything is proven: leave it out."
    elif never := _never(fresh):
        what = f"{target} is {fresh.verdict} now, which cannot be overridden: {never}"
    elif allowed is None:
        refuted = [each.words for each in claims_of(fresh, action) if each.status == REFUTED]
        why = f"it is refuted that {' and that '.join(refuted)}" if refuted else _why(fresh)
        what = f"{target} is {fresh.verdict} now, and there is nothing to override: {why}"
    else:
        what = f"{target}: the override {override!r} is not what is not proven now: {allowed}"
    raise ActionRefused(what, means=NOTHING_WRITTEN, do=f"Remedy: {fresh.remedy}")


def check_saving(finding: Finding, override: str | None, *, is_saved: bool) -> None:
    """Refuse to discard records without a copy, unless their outcome is proven.

    Raises ActionRefused if they have to be saved.
    """
    if is_saved or (override is None and finding.outcome in DISCARDED):
        return
    raise ActionRefused(
        "The records have to be saved, as what was decided about them is not proven.",
        means=NOTHING_WRITTEN,
        do="Leave out --no-save-records.",
    )


def complete_refusal(finding: Finding) -> str | None:
    """Why the marker that is missing cannot be written; null where it can."""
    if finding.topic == STATE_TOPIC:
        return "no marker belongs on the coordinators' own topic."
    if finding.outcome == "commit" and finding.action == "complete":
        return None
    if finding.outcome == "abort" and finding.action in {"abort", "complete"}:
        return None
    if finding.outcome in COMPLETED:
        return f"its coordinator may still write the marker. {_why(finding)}"
    return f"its outcome is {finding.outcome or 'not known'}, so no marker is known to be missing. {_why(finding)}"


def check_complete(fresh: Finding, override: str | None, *, target: str) -> None:
    """Refuse unless the outcome is proven and nobody will write its marker any more, or a person asserts a commit.

    `override`: the claims that are not proven, in words; null for none.
    Raises ActionRefused if it is refused.
    """
    refusal = complete_refusal(fresh)
    if override is None and refusal is not None:
        raise ActionRefused(
            f"{target} is {fresh.verdict} now, and cannot be completed: {refusal}",
            means=NOTHING_WRITTEN,
            do=f"Remedy: {fresh.remedy}",
        )
    _check_override("complete", fresh, override, target=target)


def _why(finding: Finding) -> str:
    return "; ".join(finding.missing) or finding.reason


def _never(fresh: Finding) -> str:
    """Why not even a person's word is enough; empty where it is."""
    if fresh.verdict is not Verdict.UNKNOWN:
        return fresh.reason
    if fresh.topic == STATE_TOPIC:
        return "no marker belongs on the coordinators' own topic."
    if other := next(filter(is_of_another_system, fresh.missing), None):
        return f"its brokers end transactions by other rules, with a remedy of their own: {other}"
    values = {(entry.name, entry.value or "") for entry in fresh.evidence}
    if to_commit := next((text for name, text in values if name == CHECKPOINT_ENTRY and TO_COMMIT in text), None):
        return f"{to_commit}: its Flink job considers the records written."
    if any(name == "state" and value.startswith("Prepare") for name, value in values):
        return "its coordinator has decided a transaction of this producer."
    if ("timeout_ms", str(TWO_PHASE_COMMIT)) in values:
        return "it belongs to a two-phase commit, which only its external coordinator decides."
    return ""
