"""The specification of what may be done: action x verdict, outcome, claims x override -> offered, asked for, refused.

A row of a table applies where none above it does; ``*`` is anything, ``!`` all but these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.actions.rows import CLAIM_WORDS, FenceCluster, RowCluster, changed, claims, found, named, outcome_claims
from tests.analysis.build import ago
from toolkit.actions import coordinator_actions, marker_actions
from toolkit.actions.coordinator_actions import COMMIT, FENCE
from toolkit.actions.marker_actions import ABORT, COMPLETE
from toolkit.actions.plan import Ruling
from toolkit.analysis.diagnosis.decision import CHECKPOINT_ENTRY, MEANINGS, TO_COMMIT
from toolkit.analysis.exposure import BrokerIdentity, software_gaps
from toolkit.cli.output import exit_on_failure
from toolkit.errors import ActionRefused, NotFound
from toolkit.schema.checkpoint import Committable, FlinkCheckpoint
from toolkit.schema.live import EvidenceEntry
from toolkit.schema.verdict import Verdict

STATUSES = ("proven", "refuted", "not-proven", "missing")
MARKER = {
    "verdict": ["hanging", "unknown", "stuck_ending", "overdue", "ongoing", "clear"],
    "outcome": ["undecided", "abort", "commit", "unknown", "none"],
    "action": ["abort", "complete", "fence", "none"],
    "owned": STATUSES,  # no live transaction owns any open batch
    "commit": STATUSES,  # no commit includes any open batch
    "all": STATUSES,  # a commit includes every open batch
}
TABLES = {
    "abort": """
    verdict   outcome           action          owned       commit      all | answer
    *         commit            *               *           *           *   | never: its records were committed
    hanging   undecided,abort   abort           proven      proven      *   | offered
    !unknown  *                 *               *           *           *   | never: the reason
    unknown   *                 *               refuted     *           *   | never: it is refuted that
    unknown   *                 *               *           refuted     *   | never: it is refuted that
    unknown   *                 *               missing     *           *   | never: what is missing
    unknown   *                 *               *           missing     *   | never: what is missing
    unknown   *                 *               not-proven  not-proven  *   | asks: owned, commit
    unknown   *                 *               not-proven  *           *   | asks: owned
    unknown   *                 *               *           not-proven  *   | asks: commit
    unknown   *                 *               *           *           *   | never: what is missing
    """,
    "complete": """
    verdict       outcome  action          owned       commit      all         | answer
    stuck_ending  commit   complete        proven      *           proven      | offered
    hanging       abort    abort,complete  proven      proven      *           | offered
    !unknown      *        *               *           *           *           | never: the reason
    unknown       *        *               refuted     *           *           | never: it is refuted that
    unknown       abort    *               *           refuted     *           | never: it is refuted that
    unknown       abort    *               missing     *           *           | never: what is missing
    unknown       abort    *               *           missing     *           | never: what is missing
    unknown       abort    *               not-proven  not-proven  *           | asks: owned, commit
    unknown       abort    *               not-proven  *           *           | asks: owned
    unknown       abort    *               *           not-proven  *           | asks: commit
    unknown       abort    *               *           *           *           | never: what is missing
    unknown       *        *               *           *           refuted     | never: it is refuted that
    unknown       *        *               missing     *           *           | never: what is missing
    unknown       *        *               *           *           missing     | never: what is missing
    unknown       *        *               not-proven  *           not-proven  | asks: owned, all
    unknown       *        *               not-proven  *           *           | asks: owned
    unknown       *        *               *           *           not-proven  | asks: all
    unknown       *        *               *           *           *           | never: what is missing
    """,
    "fence": """
    state     checkpoint  commit      finding   | answer
    *         *           refuted     *         | never: committed
    prepare   *           *           *         | never: decided
    complete  *           *           *         | asks: idle
    empty     *           *           *         | asks: idle
    ongoing   yes         *           *         | never: checkpointed
    ongoing   no          not-proven  ongoing   | asks: ongoing, commit
    ongoing   no          not-proven  long      | asks: long, commit
    ongoing   no          not-proven  prepared  | asks: prepared, commit
    ongoing   no          not-proven  overdue   | asks: commit
    ongoing   no          unread      ongoing   | asks: ongoing, unread
    ongoing   no          unread      long      | asks: long, unread
    ongoing   no          unread      prepared  | asks: prepared, unread
    ongoing   no          unread      overdue   | asks: unread
    ongoing   no          *           overdue   | offered
    ongoing   no          *           ongoing   | asks: ongoing
    ongoing   no          *           long      | asks: long
    ongoing   no          *           prepared  | asks: prepared
    """,
    "commit": """
    checkpoint  owner    topics  finding  batches    | answer
    absent      *        *       *        *          | never: has no transaction of 'tx-0-5' to commit
    savepoint   *        *       *        *          | never: only in a job that is restored from it
    older       *        *       *        *          | never: is complete and newer than
    other-job   *        *       *        *          | never: Another job of the prefix has
    later       *        *       *        *          | never: leaves 'tx-0-5' to checkpoint 6
    last        another  *       *        *          | never: and the checkpoint has producer 7
    last        ended    *       *        *          | never: is CompleteAbort
    last        own      hidden  *        *          | never: may have a topic in its transaction
    last        own      seen    other    *          | never: orders-0 is ongoing
    last        own      seen    unread   *          | never: orders-0 is unknown
    last        own      seen    own      mixed      | never: are not all of epoch 0
    last        own      seen    own      none-left  | never: are not all of epoch 0
    last        own      seen    own      own        | offered
    """,
}
FENCED = {
    "state": ["ongoing", "prepare", "complete", "empty"],
    "checkpoint": ["yes", "no"],
    "commit": ["proven", "refuted", "not-proven", "unread"],
    "finding": ["ongoing", "long", "prepared", "overdue"],
}
COMMITTED: Mapping[str, Sequence[str]] = {
    "checkpoint": ["last", "savepoint", "older", "other-job", "later", "absent"],
    "owner": ["own", "another", "ended"],
    "topics": ["seen", "hidden"],
    "finding": ["own", "other", "unread"],
    "batches": ["own", "mixed", "none-left"],
}
WORDS = {**CLAIM_WORDS, "unread": "no commit includes what is open under tx-0-5 on orders-1"}


@dataclass(frozen=True)
class Rule:
    """A row of a table."""

    when: Mapping[str, str]
    answer: str

    def applies(self, case: Mapping[str, str]) -> bool:
        return all(fits(pattern, case[name]) for name, pattern in self.when.items())


def fits(pattern: str, value: str) -> bool:
    return pattern == "*" or (value not in pattern[1:].split(",") if pattern[0] == "!" else value in pattern.split(","))


def rules(action: str) -> list[Rule]:
    head, *rows = [line.split("|") for line in TABLES[action].strip().splitlines()]
    names = head[0].split()
    return [Rule(dict(zip(names, when.split(), strict=True)), answer.strip()) for when, answer in rows]


def cases(columns: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    for values in product(*columns.values()):
        yield dict(zip(columns, values, strict=True))


def check(ruling: Ruling, answer: str, *, asks: str | None) -> None:
    """What is offered needs no word, what is asked for exactly its words, and what never is allowed takes none."""
    others = {"unknown", WORDS["commit"], f"{WORDS['owned']}, and {WORDS['commit']}"} - {asks}
    for word in (None, asks, *others):
        if word == asks and not answer.startswith("never"):
            ruling.check(word, target="it", means="Nothing was written.")
            continue
        with pytest.raises(ActionRefused) as refused:
            ruling.check(word, target="it", means="Nothing was written.")
        said = str(refused.value)
        assert "Nothing was written." in said
        if answer == "offered":
            assert "is not needed, as everything is proven: leave it out" in said
        elif word is not None and asks is not None:
            assert f"{word!r} does not repeat what is not proven now: {asks}" in said
        elif word is not None:
            assert "cannot be overridden" in said
    assert (ruling.refusal is None) is (answer == "offered")
    assert ruling.needed_override == asks


@pytest.mark.parametrize("name", ["abort", "complete"])
def test_a_marker_is_offered_by_this_table(name: str) -> None:
    action, table, used = {"abort": ABORT, "complete": COMPLETE}[name], rules(name), set()
    for case in cases(MARKER):
        number, rule = next((i, each) for i, each in enumerate(table) if each.applies(case))
        used.add(number)
        status = {key: case[key].replace("-", " ") for key in ("owned", "commit", "all")}
        finding = found(
            verdict=Verdict(case["verdict"]),
            outcome=None if case["outcome"] == "none" else case["outcome"],
            action=None if case["action"] == "none" else case["action"],
            missing=("the coordinators' log",) if case["verdict"] == "unknown" else (),
            evidence=claims(status["owned"], status["commit"], status["all"]),
        )
        kind, _, what = rule.answer.partition(": ")
        asks = ", and ".join(WORDS[each] for each in what.split(", ")) if kind == "asks" else None
        check(action.ruling(finding), rule.answer, asks=asks)
        if kind == "never":
            text = {"the reason": finding.reason, "what is missing": "the coordinators' log"}.get(what, what)
            ruling = action.ruling(finding)
            assert text in f"{ruling.refusal} {ruling.cannot}"
    assert used == set(range(len(table))), "a row that never applies says nothing"


def test_a_fence_is_offered_by_this_table() -> None:
    table, used = rules("fence"), set()
    states = {"ongoing": "Ongoing", "prepare": "PrepareCommit", "complete": "CompleteAbort", "empty": "Empty"}
    for case in cases(FENCED):
        if case["state"] != "ongoing" and (case["commit"], case["finding"]) != ("proven", "ongoing"):
            continue  # nothing is open then
        number, rule = next((i, each) for i, each in enumerate(table) if each.applies(case))
        used.add(number)
        own = found(
            verdict=Verdict(case["finding"]),
            action=None,
            transactional_id="tx-0-5",
            evidence=outcome_claims(case["commit"].replace("-", " ").replace("unread", "proven")),
        )
        unread = found(partition=1, start_offset=None, verdict=Verdict.UNKNOWN, error="NOT_LEADER: x", evidence=())
        cluster = FenceCluster(
            transactions=[named("tx-0-5", state=states[case["state"]], on=[("orders", 0), ("orders", 1)])],
            own_findings=[own, *([unread] if case["commit"] == "unread" else [])],
            flink_checkpoints=[checkpoint()] if case["checkpoint"] == "yes" else [],
        )
        connected: Any = cluster
        ruling = FENCE.plan_now(connected, "tx-0-5", long_after_ms=900_000).ruling
        kind, _, what = rule.answer.partition(": ")
        asks = ", and ".join(WORDS.get(each, each) for each in what.split(", ")) if kind == "asks" else None
        check(ruling, rule.answer, asks=asks)
        if kind == "never":
            assert ruling.verdict == what
            assert MEANINGS[what] in str(ruling.refusal)
    assert used == set(range(len(table)))


def test_a_commit_is_offered_by_this_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it can be overridden: the checkpoint decides."""
    table, used = rules("commit"), set()
    later = replace(checkpoint(), path=Path("/other/chk-6/_metadata"), checkpoint_id=6)
    monkeypatch.setattr(marker_actions, "marker_impact", lambda *_, **__: None)
    for case in cases(COMMITTED):
        number, rule = next((i, each) for i, each in enumerate(table) if each.applies(case))
        used.add(number)
        own = found(verdict=Verdict.PREPARED, action="commit", transactional_id="tx-0-5")
        findings = {
            "own": [own],
            "other": [own, found(verdict=Verdict.ONGOING, action=None)],
            "unread": [found(verdict=Verdict.UNKNOWN, action=None, producer_id=None, error="NOT_LEADER: x")],
        }[case["finding"]]
        owners = {
            "own": named("tx-0-5"),
            "another": named("tx-0-5", epoch=1),
            "ended": named("tx-0-5", state="CompleteAbort"),
        }
        known = replace(checkpoint(), is_savepoint=case["checkpoint"] == "savepoint")
        if case["checkpoint"] == "later":
            known = replace(known, committables=(Committable("tx-0-5", 7, 0, 6),))
        newer = later.path.parent if case["checkpoint"] == "older" else None
        monkeypatch.setattr(coordinator_actions, "newer", lambda _, newer=newer: newer)
        other = later if case["checkpoint"] == "other-job" else None
        monkeypatch.setattr(coordinator_actions, "newer_of_other_job", lambda _, other=other: other)
        monkeypatch.setattr(coordinator_actions, "read_checkpoint", lambda _, known=known: known)
        epoch = {"own": 0, "mixed": 1, "none-left": None}[case["batches"]]
        monkeypatch.setattr(coordinator_actions, "first_epoch", lambda *_, epoch=epoch: epoch)
        connected: Any = RowCluster(
            transactions=[owners[case["owner"]]],
            findings=[each.row() for each in findings],
            flink_checkpoints=[] if case["checkpoint"] == "absent" else [known],
            gaps=["DESCRIBE on all topics"] if case["topics"] == "hidden" else [],
        )
        if rule.answer == "offered":
            assert COMMIT.plan(connected, "tx-0-5", 0.0).refusal is None
            continue
        with pytest.raises((ActionRefused, NotFound), match=re.escape(rule.answer.removeprefix("never: "))):
            COMMIT.plan(connected, "tx-0-5", 0.0)
    assert used == set(range(len(table)))


def test_what_is_refused_exits_with_5() -> None:
    with pytest.raises(typer.Exit) as exited, exit_on_failure():
        ABORT.ruling(found(outcome="commit")).check(None, target="it", means="")
    assert exited.value.exit_code == 5


def checkpoint() -> FlinkCheckpoint:
    return FlinkCheckpoint(
        path=Path("/checkpoints/chk-5/_metadata"),
        checkpoint_id=5,
        committables=(Committable("tx-0-5", 7, 0, 5),),
        prefixes=frozenset({"tx"}),
        is_savepoint=False,
    )


REDPANDA = BrokerIdentity(broker_id=1, host="one", cluster_id="redpanda.2d339cd9", apis={})


def entry(name: str, value: str) -> tuple[EvidenceEntry, ...]:
    return (EvidenceEntry(source="DescribeTransactions", observed_at=ago(), name=name, value=value),)


NEVER: Sequence[tuple[dict[str, Any], str]] = (
    ({"topic": "__transaction_state"}, "no marker belongs on the coordinators' own topic"),
    ({"evidence": entry("state", "PrepareCommit")}, "its coordinator has decided a transaction"),
    ({"evidence": entry("timeout_ms", str(2**31 - 1))}, "it belongs to a two-phase commit"),
    ({"evidence": entry(CHECKPOINT_ENTRY, f"chk-7 {TO_COMMIT}")}, "chk-7 is to commit it: its Flink job"),
    ({"missing": tuple(software_gaps([REDPANDA]))}, "its brokers end transactions by other rules, with a remedy"),
)


@pytest.mark.parametrize("action", [ABORT, COMPLETE], ids=["abort", "complete"])
@pytest.mark.parametrize(("fields", "why"), NEVER)
def test_an_unknown_verdict_that_nobody_may_override(fields: dict[str, Any], why: str, action: Any) -> None:
    likely = claims("proven", "not proven", "not proven")
    unknown = found(verdict=Verdict.UNKNOWN, outcome="unknown", action=None, evidence=likely)
    word = action.ruling(unknown).needed_override
    assert word is not None
    never = action.ruling(changed(unknown, **{**fields, "evidence": (*fields.get("evidence", ()), *likely)}))
    assert never.needed_override is None
    with pytest.raises(ActionRefused, match=f"which cannot be overridden: {re.escape(why)}"):
        never.check(word, target="it", means="")
    other = entry("state", "Ongoing") + entry("cause", f"PrepareCommit {TO_COMMIT}")
    other += entry(CHECKPOINT_ENTRY, "chk-7 does not commit it")
    action.ruling(changed(unknown, evidence=(*other, *likely))).check(word, target="it", means="")
