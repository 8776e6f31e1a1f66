"""What has to be proven before a marker is written, and whether it is: about every open batch, as a marker decides all.

Sources: KIP-664 (markers), KIP-890 (transaction version 2); docs/outcomes.md says what proves each claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit.analysis.diagnosis.decision.disowned_rules import doubts
from toolkit.analysis.diagnosis.decision.owned_rules import first_owned_rule
from toolkit.analysis.diagnosis.evidence_kinds import OpenEvidence
from toolkit.analysis.diagnosis.verdicts import NOT_PROVEN, PROVEN, REFUTED, UNKNOWN, Claim
from toolkit.schema.live import EvidenceEntry, Finding

NOT_OWNED, NO_COMMIT, ALL_COMMITTED = "claim_not_owned", "claim_no_commit", "claim_all_committed"
"""Names of the entries of a finding's evidence that have its claims, as ``no commit includes offset 4: proven``."""

NEEDED = {"abort": (NOT_OWNED, NO_COMMIT), "complete": (NOT_OWNED, ALL_COMMITTED)}
"""The claims that an action needs."""


def claim_entries(e: OpenEvidence) -> Iterator[EvidenceEntry]:
    """The claims about an open transaction as evidence; none if a coordinator owns it."""
    rule = first_owned_rule(e)
    if e.txn.start is None or (rule is not None and rule.verdict != UNKNOWN):
        return
    not_owned = Claim(
        words=f"no live transaction owns {e.outcome.offsets}",
        status=NOT_PROVEN if rule is not None or doubts(e) else PROVEN,
    )
    claims = {NOT_OWNED: not_owned, NO_COMMIT: e.outcome.no_commit, ALL_COMMITTED: e.outcome.all_committed}
    for name, claim in claims.items():
        yield EvidenceEntry(
            source="claims",
            observed_at=e.txn.observation.observed_at,
            name=name,
            value=f"{claim.words}: {claim.status}",
        )


def claims_of(finding: Finding, action: str) -> Sequence[Claim]:
    """The claims that an action on a finding needs; none if it has none, as no marker may be written."""
    found = {entry.name: (entry.value or "").rpartition(": ") for entry in finding.evidence}
    needed = [found[name] for name in NEEDED[action] if name in found]
    return [Claim(words=words, status=status) for words, _, status in needed]


def needed_override(finding: Finding, action: str) -> str | None:
    """The claims, in words, that an operator has to assert for an action that is not proven to be safe.

    Null if nothing is to be overridden, or nothing may be: a claim is refuted, or the transaction has an owner.
    """
    claims = claims_of(finding, action)
    if finding.verdict != UNKNOWN or not claims or any(each.status == REFUTED for each in claims):
        return None
    return ", and ".join(each.words for each in claims if each.status == NOT_PROVEN) or None
