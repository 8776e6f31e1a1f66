"""The claims of a finding: what has to be proven before a marker is written, and what may be asserted."""

from dataclasses import replace

import pytest

from tests.analysis.build import COMPLETE, ago, observation, only, partition, producer, transaction, twice
from tests.analysis.logged import HERE, by_logs, data, diagnosed, ended_records, excerpt, init, marker, record
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.rules import claim_entries, claims_of, needed_override
from toolkit.analysis.diagnosis.verdicts import NOT_PROVEN, PROVEN, REFUTED, Claim, Outcome
from toolkit.formats.headers import COMMIT
from toolkit.schema.live import Finding, Transaction
from toolkit.schema.verdict import Verdict

OFFSETS, OLDER = "offset 100 of orders-0", "records of offset 100 are older than the commit of 10:02:11"
OUTCOMES = {
    "undecided": Outcome(name="undecided", reason="", offsets=OFFSETS),
    "abort": Outcome(name="abort", reason="", offsets=OFFSETS),
    "commit": Outcome(name="commit", reason="", offsets=OFFSETS),
    "unknown": Outcome(name="unknown", reason="", offsets=OFFSETS),
    "a commit is likely": Outcome(name="unknown", reason="", offsets=OFFSETS, commit_claim=OLDER),
    "committed, and free": Outcome(
        name="unknown", reason="", offsets=OFFSETS, is_partly_committed=True, is_partly_free=True
    ),
    "committed, and likely": Outcome(
        name="unknown", reason="", offsets=OFFSETS, is_partly_committed=True, commit_claim=OLDER
    ),
    "free, and likely": Outcome(name="unknown", reason="", offsets=OFFSETS, is_partly_free=True, commit_claim=OLDER),
}


@pytest.mark.parametrize(
    ("name", "no_commit", "all_committed", "words"),
    [
        ("undecided", PROVEN, REFUTED, f"a commit includes {OFFSETS}"),
        ("abort", PROVEN, REFUTED, f"a commit includes {OFFSETS}"),
        ("commit", REFUTED, PROVEN, f"a commit includes {OFFSETS}"),
        ("unknown", NOT_PROVEN, REFUTED, f"a commit includes {OFFSETS}"),
        ("a commit is likely", NOT_PROVEN, NOT_PROVEN, OLDER),
        ("committed, and free", REFUTED, REFUTED, f"a commit includes {OFFSETS}"),
        ("committed, and likely", REFUTED, NOT_PROVEN, OLDER),
        ("free, and likely", NOT_PROVEN, REFUTED, f"a commit includes {OFFSETS}"),
    ],
)
def test_the_claims_of_an_outcome(name: str, no_commit: str, all_committed: str, words: str) -> None:
    outcome = OUTCOMES[name]
    assert outcome.no_commit == Claim(words=f"no commit includes {OFFSETS}", status=no_commit)
    assert outcome.all_committed == Claim(words=words, status=all_committed)


def test_no_outcome_proves_both_claims_or_leaves_a_commit_out() -> None:
    for each in OUTCOMES.values():
        statuses = {each.no_commit.status, each.all_committed.status}
        assert statuses != {PROVEN}
        assert (each.name == "commit") == (each.all_committed.status == PROVEN)


HANGING = observation()
FREE = replace(OUTCOMES["undecided"], are_markers_sought=True)


def entries(one: Observation, shown: Outcome = FREE) -> dict[str, str | None]:
    (evidence,) = Diagnosis.of(twice(one)).to_read()
    found = list(claim_entries(replace(evidence, known_outcome=shown)))
    assert {each.source for each in found} <= {"claims"}
    assert {each.observed_at for each in found} <= {one.observed_at}
    return {each.name or "": each.value for each in found}


def test_the_claims_are_evidence_of_a_finding() -> None:
    assert entries(HANGING) == {
        "claim_not_owned": "no live transaction owns offset 100 of orders-0: proven",
        "claim_no_commit": "no commit includes offset 100 of orders-0: proven",
        "claim_all_committed": "a commit includes offset 100 of orders-0: refuted",
    }
    row = only(Diagnosis.of(twice(HANGING)).findings(read={}))
    assert [each.name for each in row.evidence if each.source == "claims"] == list(entries(HANGING))


def test_a_doubt_leaves_open_whether_a_live_transaction_owns_it() -> None:
    gap = observation(coverage=replace(COMPLETE, gaps=("broker 2 did not answer",)))
    two = observation(transaction(), transaction(coordinator_id=2))
    words = "no live transaction owns offset 100 of orders-0: not proven"
    assert entries(gap)["claim_not_owned"] == words
    assert entries(two)["claim_not_owned"] == words, "a rule on its owners leaves it unknown"
    unread = entries(HANGING, OUTCOMES["unknown"])
    assert unread["claim_not_owned"] == "no live transaction owns offset 100 of orders-0: proven", "that is another one"


@pytest.mark.parametrize(
    "owner",
    [
        transaction(start_time=ago(minutes=20)),
        transaction(start_time=ago(minutes=20), timeout_ms=3_600_000),
        transaction(timeout_ms=2**31 - 1),
        transaction(state="PrepareCommit", last_update_time=ago(minutes=5)),
    ],
    ids=["overdue", "long", "prepared", "being ended"],
)
def test_of_what_has_an_owner_no_claim_can_be_asserted(owner: Transaction) -> None:
    """No marker is written; a recording keeps what was known of its records."""
    one = observation(owner)
    for outcome in OUTCOMES.values():
        found = entries(one, replace(outcome, are_markers_sought=True))
        assert found["claim_not_owned"] == f"no live transaction owns {OFFSETS}: refuted"
        assert found["claim_no_commit"] == f"{outcome.no_commit.words}: {outcome.no_commit.status}"
        assert found["claim_all_committed"] == f"{outcome.all_committed.words}: {outcome.all_committed.status}"
    (evidence,) = Diagnosis.of(twice(one)).to_read()
    assert list(claim_entries(evidence)) == [], "nothing is known of its records if no log was read"


@pytest.mark.parametrize("name", ["undecided", "abort"])
def test_that_no_commit_includes_it_is_not_proven_before_markers_elsewhere_were_read(name: str) -> None:
    outcome = OUTCOMES[name]
    words = "no commit includes offset 100 of orders-0"
    unsought = outcome
    unread = replace(outcome, are_markers_sought=True, markers_unread="payments-3 could not be read")
    for log, status in (
        (unsought, "not proven"),
        (unread, "not proven"),
        (replace(unsought, are_markers_sought=True), "proven"),
    ):
        assert entries(HANGING, log)["claim_no_commit"] == f"{words}: {status}"
    diagnosis = Diagnosis.of(twice(HANGING))
    row = only(diagnosis.findings(read=by_logs(diagnosis, unread)))
    assert needed_override(row, "abort") == words
    refuted = OUTCOMES["committed, and free"]
    assert entries(HANGING, refuted)["claim_no_commit"] == f"{words}: refuted", "nothing makes that better"
    owned = entries(observation(transaction(start_time=ago(minutes=20))), unsought)
    assert owned["claim_no_commit"] == f"{words}: proven", "of what has an owner, they are not looked for"


def test_a_transaction_that_has_written_nothing_here_has_no_claims() -> None:
    one = observation(transaction(start_time=ago(minutes=2)), producers=[], partitions=[partition(lso=150)])
    ((evidence,),) = Diagnosis.of(twice(one)).opened.values()
    assert evidence.start is None
    assert list(claim_entries(evidence)) == []
    assert list(claim_entries(replace(evidence, known_outcome=FREE))) == []


def test_what_may_have_an_owner_has_claims_whether_its_log_was_read_or_not() -> None:
    two = observation(transaction(), transaction(coordinator_id=2))
    (evidence,) = Diagnosis.of(twice(two)).to_read()
    assert [each.name for each in claim_entries(evidence)] == list(entries(two))
    (owned,) = Diagnosis.of(twice(observation(transaction(start_time=ago(minutes=20))))).to_read()
    assert list(claim_entries(owned)) == []


def finding(*values: tuple[str, str], verdict: Verdict = Verdict.UNKNOWN) -> Finding:
    row = only(diagnosed(twice(HANGING)))
    entry = row.evidence[0]
    return replace(row, verdict=verdict, evidence=tuple(replace(entry, name=name, value=v) for name, v in values))


def test_each_action_needs_its_claims() -> None:
    found = finding(
        ("claim_all_committed", "records of offset 4: 5 and more: not proven"),
        ("claim_no_commit", "no commit includes offset 4: refuted"),
        ("claim_not_owned", "no live transaction owns offset 4: proven"),
        ("outcome", "commit: proven"),
    )
    owned = Claim(words="no live transaction owns offset 4", status=PROVEN)
    assert claims_of(found, "abort") == [owned, Claim(words="no commit includes offset 4", status=REFUTED)]
    assert claims_of(found, "complete") == [owned, Claim(words="records of offset 4: 5 and more", status=NOT_PROVEN)]
    assert claims_of(finding(), "abort") == []
    assert claims_of(finding(("claim_no_commit", "x: not proven")), "complete") == []


@pytest.mark.parametrize(
    ("not_owned", "no_commit", "needed"),
    [
        (PROVEN, NOT_PROVEN, "b"),
        (NOT_PROVEN, PROVEN, "a"),
        (NOT_PROVEN, NOT_PROVEN, "a, and b"),
        (PROVEN, PROVEN, None),
        (NOT_PROVEN, REFUTED, None),
        (REFUTED, NOT_PROVEN, None),
        (REFUTED, REFUTED, None),
    ],
)
def test_what_an_operator_has_to_assert(not_owned: str, no_commit: str, needed: str | None) -> None:
    claims = ("claim_not_owned", f"a: {not_owned}"), ("claim_no_commit", f"b: {no_commit}")
    assert needed_override(finding(*claims), "abort") == needed
    for verdict in (Verdict.HANGING, Verdict.STUCK_ENDING, Verdict.ONGOING, Verdict.ENDING):
        assert needed_override(finding(*claims, verdict=verdict), "abort") is None


def test_without_claims_nothing_may_be_overridden() -> None:
    """Of a finding without a transaction, or of one whose logs were not read."""
    assert needed_override(finding(), "abort") is None
    assert needed_override(finding(("claim_no_commit", "b: not proven")), "complete") is None


def test_a_commit_and_a_record_that_joined_it_are_neither_aborted_nor_completed() -> None:
    """Version 1: the commit's marker is lost, and another broker's time shows a record younger than its decision."""
    committed = [init(), *ended_records("Commit", began=3, at_second=11), record(9, "Empty", second=40, epoch=1)]
    owner = observation(transaction(state="Empty", epoch=1, on=()), producers=[producer()])
    before, older = data(90, pid=1, records=10), (data(100, second=4), marker(101, COMMIT, pid=1, second=5))
    late, after = marker(102, COMMIT, pid=1, second=17), data(103, sequence=1, second=18)
    log = {HERE: excerpt(before, *older, late, after, stop=150)}
    row = only(diagnosed(twice(owner), log, *committed))
    statuses = [each.value for each in row.evidence if each.source == "claims"]
    assert statuses == [
        "no live transaction owns offsets 100 to 103 of orders-0: proven",
        "no commit includes offsets 100 to 103 of orders-0: refuted",
        "a commit includes offsets 100 to 103 of orders-0: refuted",
    ]
    assert (row.verdict, row.action, needed_override(row, "abort"), needed_override(row, "complete")) == (
        *("unknown", None),
        *(None, None),
    )
    within = {HERE: excerpt(before, *older, {**late, "second": 16}, after, stop=150)}
    row = only(diagnosed(twice(owner), within, *committed))
    assert (
        needed_override(row, "complete") == "records of offset 103 are older than the commit of 2026-11-21 11:50:11 UTC"
    )
    assert needed_override(row, "abort") is None
