"""What has to be proven before a marker is written, and whether it is: about every open batch, as a marker decides all.

Sources: KIP-664 (markers), KIP-890 (transaction version 2); docs/outcomes.md says what proves each claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.decision.disowned_rules import are_markers_unread, doubts
from toolkit.analysis.diagnosis.evidence_kinds import ALL_COMMITTED, NO_COMMIT, NOT_OWNED, recorded_claims
from toolkit.analysis.diagnosis.verdicts import NOT_PROVEN, PROVEN, REFUTED, Claim
from toolkit.schema.live import EvidenceEntry, Finding
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.case import Case

NEEDED = {"abort": (NOT_OWNED, NO_COMMIT), "complete": (NOT_OWNED, ALL_COMMITTED)}
"""The claims that an action needs."""


def claim_entries(e: Case) -> Iterator[EvidenceEntry]:
    """The claims about an open transaction as evidence; none if a coordinator owns it, and its log was not read."""
    rule = e.owned_rule
    if e.start is None or (rule is not None and rule.verdict is not Verdict.UNKNOWN and not e.is_read):
        return
    status = PROVEN if rule is None and not doubts(e) else NOT_PROVEN
    if rule is not None and rule.verdict is not Verdict.UNKNOWN:
        status = REFUTED
    not_owned = Claim(words=f"no live transaction owns {e.outcome.offsets}", status=status)
    no_commit = e.outcome.no_commit
    if rule is None and no_commit.status == PROVEN and are_markers_unread(e):
        no_commit = Claim(words=no_commit.words, status=NOT_PROVEN)
    claims = {NOT_OWNED: not_owned, NO_COMMIT: no_commit, ALL_COMMITTED: e.outcome.all_committed}
    for name, claim in claims.items():
        yield EvidenceEntry(
            source="claims", observed_at=e.observation.observed_at, name=name, value=f"{claim.words}: {claim.status}"
        )


def claims_of(finding: Finding, action: str) -> Sequence[Claim]:
    """The claims that an action on a finding needs; none if it has none, as no marker may be written."""
    found = recorded_claims(finding)
    return [found[name] for name in NEEDED[action] if name in found]


def needed_override(finding: Finding, action: str) -> str | None:
    """The claims, in words, that an operator has to assert for an action that is not proven to be safe.

    Null if nothing is to be overridden, or nothing may be: a claim is refuted, or the transaction has an owner.
    """
    claims = claims_of(finding, action)
    if finding.verdict is not Verdict.UNKNOWN or not claims or any(each.status == REFUTED for each in claims):
        return None
    return ", and ".join(each.words for each in claims if each.status == NOT_PROVEN) or None
