"""No marker loses a committed record, or publishes one that no commit includes: each test is the story of one loss.

By the findings of before, each was lost, or published, on a real broker. The stories are staged in `tests.proof_cases`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _pytest.mark import ParameterSet

from tests.broker_files import copy_logs
from tests.brokers import NEWEST
from tests.outcomes import Expected, columns_of
from tests.proof_cases import STATE_PARTITIONS, VERSIONS, Broker, Case, Fate, plan_of, stories
from toolkit import Cluster, LogDir
from toolkit.actions.audit import Audit
from toolkit.actions.plan import Plan
from toolkit.errors import ActionRefused
from toolkit.schema import Row
from toolkit.schema.verdict import Verdict
from toolkit.sources.source import Source

DOCS = Path(__file__).parents[1] / "docs"
COMPLETE = Expected(verdict=Verdict.STUCK_ENDING, outcome="commit", action="complete")
ABORT = Expected(verdict=Verdict.HANGING, outcome="abort", action="abort")
UNDECIDED = Expected(verdict=Verdict.HANGING, outcome="undecided", action="abort")
UNKNOWN = Expected(verdict=Verdict.UNKNOWN, outcome="unknown", action=None)


def of_versions(names: Collection[str]) -> list[ParameterSet]:
    """Each version of these stories; one worker has all stories of a version."""
    return [
        pytest.param(
            version,
            name,
            marks=[
                pytest.mark.lab,
                pytest.mark.xdist_group(f"proof {version}"),
                *([] if version == NEWEST else [pytest.mark.full]),
            ],
        )
        for version in VERSIONS
        for name in stories(version)
        if name in names
    ]


def on(*names: str) -> pytest.MarkDecorator:
    """These stories, on each version that has them."""
    return pytest.mark.parametrize(("staged", "case"), of_versions(names), indirect=True)


@dataclass(frozen=True, kw_only=True)
class Staged:
    """A broker with all stories of its version, and what the findings said before anybody followed them."""

    broker: Broker
    cluster: Cluster
    live: Mapping[str, Expected]
    in_files: Mapping[str, Expected]


class _Started(dict[str, Staged]):
    """Those that were started, by version."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path) -> None:
        super().__init__()
        self._stack, self._folder = stack, folder

    def __missing__(self, version: str) -> Staged:
        broker = self._stack.enter_context(Broker.start(version))
        cluster = self._stack.enter_context(Cluster(broker.kafka.bootstrap_servers))
        copy = copy_logs(broker.kafka, self._folder / version)
        with LogDir(copy, consistent_copy=True, txn_state_partitions=STATE_PARTITIONS) as files:
            in_files = verdicts_of(broker, files)
        live = verdicts_of(broker, cluster, recheck_after=0.1)
        self[version] = Staged(broker=broker, cluster=cluster, live=live, in_files=in_files)
        return self[version]


def verdicts_of(broker: Broker, source: Source, **arguments: Any) -> dict[str, Expected]:
    """What the findings of all stories say."""
    rows = source.finding_rows(topics=list(broker.cases), **arguments)
    return {str(row["topic"]): columns_of(row) for row in rows}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Staged]]:
    """Brokers with all stories of their version, started when they are first wanted."""
    with contextlib.ExitStack() as stack:
        yield _Started(stack, tmp_path_factory.mktemp("stories"))


@pytest.fixture
def staged(started: Mapping[str, Staged], request: pytest.FixtureRequest) -> Staged:
    """The stories of the version in the test's parameter."""
    return started[request.param]


@pytest.fixture
def case(staged: Staged, request: pytest.FixtureRequest) -> Case:
    """The story in the test's parameter."""
    return staged.broker.cases[request.param]


@pytest.fixture
def cluster(staged: Staged) -> Cluster:
    return staged.cluster


def check_followed(case: Case, cluster: Cluster, *allowed: Expected) -> Row:
    """What the finding says is allowed; if the operator follows it, no record is decided against its fate."""
    row = case.finding(cluster)
    assert columns_of(row) in allowed, (row["reason"], row["missing"])
    for action in ("abort", "complete"):
        assert (f"kafka-txn {action} " in row["remedy"]) <= (row["action"] == action or "likely" in row["remedy"])
    assert case.follow(cluster, row) == row["action"]
    assert case.losses() == {}
    if row["action"] == "complete":
        committed = {record for record, fate in case.fates.items() if fate is Fate.COMMITTED}
        assert case.received() >= committed
    return row


def check_unknown(case: Case, cluster: Cluster) -> Row:
    """It is unknown; no marker is written, also not by a plan that was made when a finding was wrong."""
    row = check_followed(case, cluster, UNKNOWN)
    for wrong in (UNDECIDED, COMPLETE):
        planned = {**row, "verdict": wrong.verdict, "outcome": wrong.outcome, "action": wrong.action, "missing": []}
        check_refused(partial(plan_of, cluster, planned, str(wrong.action)))
    assert case.losses() == {}
    return row


def check_refused(make: Callable[[], Plan], **arguments: Any) -> None:
    """No plan, or one that is refused."""

    def execute() -> None:
        plan = make()
        plan.execute(confirm=plan.target, recheck_after=0.1, **arguments)

    with pytest.raises(ActionRefused):
        execute()


def claims(row: Row) -> dict[str, str]:
    """The claims of a finding, in words."""
    return {entry["name"]: entry["value"] for entry in row["evidence"] if entry["source"] == "claims"}


class Told(NamedTuple):
    """What the finding on a story says: one of these, and these words in its remedy or in what is missing."""

    allowed: Sequence[Expected]
    words: Sequence[str] = ()


NOT_KNOWN = Told([UNKNOWN])
TOLD: Mapping[str, Told] = {
    # K1, a fact of the producer id is no fact of its epoch. A version 1 commit lost its marker; InitProducerId of a
    # version 2 client aborted the next transaction. The commits of the new client made the ABORT marker of the fence,
    # which has the next epoch, pass for the commit's end once the coordinators' log was compacted: `abort` lost it.
    "newer-client": NOT_KNOWN,
    # An instance went from version 1 to 2 within an epoch, as the cluster was upgraded under it. Its version 1 abort
    # lost its marker here; its version 2 commit elsewhere has a marker with the next epoch, which passed for the end of
    # the aborted records: `complete` published them.
    "upgrade-within-epoch": NOT_KNOWN,
    # The version 2 transaction wrote here, too, and its commit returned success. The leader thought that a transaction
    # was open, so it did not add the partition, and the coordinators' log has no commit of it: `abort` lost it.
    "upgrade-in-one-range": NOT_KNOWN,
    # K2, the open batches have to be older than the decision. A leader that thinks a transaction is open verifies
    # nothing, so a record of no transaction joined a commit without its marker: `complete` published it.
    "never-added-joins": Told([UNKNOWN], ["a commit is likely"]),
    # As before, and LogAppendTime proves which record the commit includes: no marker is right for both.
    "never-added-joins-by-append-time": Told(
        [UNKNOWN], ["offset 0 (epoch 0): the transaction of", "offset 1 (epoch 0): no decision includes"]
    ),
    # The partition's log lost all of a commit with its marker; later a zombie of the same epoch wrote. A marker of
    # another producer lies between, so the zombie's record is younger than the commit: `complete` published it.
    "zombie-on-a-shorter-log": Told([UNDECIDED]),
    # A topic was created again after a commit; a late record of no transaction has an event time from before the
    # commit: `complete` published it.
    "late-batch-on-a-topic-created-again": NOT_KNOWN,
    # K3, the coordinators' log can lose its tail, or be an older copy. It lost only the record that added the
    # partition; its client went on, and could commit. A coordinator that does not know the partition was taken as
    # proof that no commit includes it: `abort` lost it.
    "lost-addition-2": NOT_KNOWN,
    "lost-addition-2-alive": NOT_KNOWN,
    # A transaction's end and the next commit were lost with version 1; the log looked whole: `abort` lost that commit.
    "lost-completion": Told([UNKNOWN], ["was ended twice"]),
    # The log lost a whole version 1 transaction, and its marker is lost here; elsewhere it is there. No decision
    # without a marker was left, so the records were hanging: `abort` lost the commit. Also if the commit before it has
    # a marker there, too, milliseconds earlier: one commit has one marker on a partition.
    "lost-transaction-1": NOT_KNOWN,
    "lost-transaction-1-soon": NOT_KNOWN,
    # And the record has a time 50 minutes ahead: markers were only looked for from then on.
    "lost-transaction-ahead": NOT_KNOWN,
    # With version 2, epochs prove that the marker is of the same transaction, if both ends are there.
    "lost-transaction-2": Told([COMPLETE, UNKNOWN]),
    "lost-transaction-2-soon": Told([COMPLETE, UNKNOWN]),
    # The log lost a version 1 abort, and its marker is lost here; elsewhere it is there. Its instance went on with the
    # same epoch, and its next commit lost its marker, too. By brokers' times all records are older than that commit, so
    # `complete` published the aborted ones.
    "lost-abort": NOT_KNOWN,
    # The log is restored from before the id existed, so nobody has its producer id.
    "restored": NOT_KNOWN,
    # And another id got the producer id; its log begins with it, so it looked complete. The data is older than that, by
    # its client's time, or by a marker after it: `abort` lost the commit.
    "producer-id-twice": NOT_KNOWN,
    "producer-id-twice-timed": NOT_KNOWN,
    # What is proven stays decided. Retention deleted a commit's marker, so it was unknown whether the commit includes a
    # record that was never added: another producer's marker, 8 s younger than the commit, lies before the record.
    "never-added-after-deleted-marker": Told([UNDECIDED]),
    # Two version 2 commits lack their markers: `complete` was offered, and refused because of the second epoch.
    "two-commits": Told([COMPLETE]),
    # A commit and an abort lack their markers, and no marker is right for both: the finding says what each part is.
    "commit-and-abort": Told(
        [UNKNOWN],
        ["offset 0 (epoch 0)", "with epoch 0 was committed at", "offset 1 (epoch 1)", "with epoch 1 was aborted at"],
    ),
    # With version 1, LogAppendTime shows that the first record is of the abort: nothing is completed.
    "abort-then-commit": NOT_KNOWN,
    # A version 1 commit lost its marker; LogAppendTime, or a marker, shows that its records were there before. Also if
    # the coordinator aborts the next transaction, for a new instance: that record has its own version, 2.
    "commit-after-a-marker": Told([COMPLETE]),
    "commit-after-append-time": Told([COMPLETE]),
    "commit-then-fence": Told([COMPLETE]),
    # No commit of the producer lacks its marker, whether or not the records are of the abort.
    "abort-without-marker": Told([UNDECIDED, ABORT]),
    "abort-after-append-time": Told([ABORT]),
    # A record that came after the marker of its commit.
    "late-batch": Told([UNDECIDED]),
}
"""The stories, each of a loss or of what must stay decided; those with a live client, or an override, follow."""


@on(*TOLD)
def test_no_record_is_decided_against_its_fate(case: Case, cluster: Cluster) -> None:
    """If the operator follows the finding; if it is unknown, no plan is executed either."""
    told = TOLD[case.topic]
    is_unknown = told.allowed == [UNKNOWN]
    row = check_unknown(case, cluster) if is_unknown else check_followed(case, cluster, *told.allowed)
    assert [words for words in told.words if words not in f"{row['remedy']} {row['missing']}"] == []


@on("never-added-joins-by-append-time", "commit-and-abort")
def test_a_mixture_is_never_overridden(case: Case, cluster: Cluster) -> None:
    """Both claims are refuted, and no override is taken."""
    row = case.finding(cluster)
    said = claims(row)
    assert said["claim_no_commit"].endswith(": refuted")
    assert said["claim_all_committed"].endswith(": refuted")
    for action in ("abort", "complete"):
        for name in ("claim_no_commit", "claim_all_committed"):
            words = said[name].rpartition(": ")[0]
            check_refused(partial(plan_of, cluster, row, action), override=words)
    assert case.losses() == {}


@on("downgrade-and-upgrade")
def test_a_version_that_was_lowered_and_raised_within_an_epoch_is_a_known_limit(case: Case, cluster: Cluster) -> None:
    """As an upgrade within an epoch, after transaction.version was lowered and raised again under one instance.

    Markers with the next epoch on both ends pass for a proof, as compaction leaves no trace of what was between.
    """
    row = case.finding(cluster)
    assert columns_of(row) == COMPLETE
    assert case.follow(cluster, row) == "complete"
    assert case.losses() == {(case.topic, 0): "published, although aborted"}
    limits = (DOCS / "outcomes.md").read_text().partition("## What cannot be known")[2]
    assert "`transaction.version`" in limits


@on("created-again")
def test_event_times_do_not_make_a_live_transaction_one_that_was_committed(case: Case, cluster: Cluster) -> None:
    """A topic was created again after a commit; the producer's next transaction, which is alive, has event times.

    They are from before the commit, so its outcome was `commit`, and the operator was told not to end it.
    """
    row = check_followed(
        case,
        cluster,
        Expected(verdict=Verdict.ONGOING, outcome="undecided", action=None),
        Expected(verdict=Verdict.ONGOING, outcome="unknown", action=None),
    )
    assert "of an earlier transaction" not in row["reason"]
    assert (case.topic, 0) in case.received(), "its client committed it"


@on("lost-addition-1", "lost-addition-1-alive")
def test_with_version_1_the_plan_warns_that_a_lost_record_leaves_no_trace(
    case: Case, cluster: Cluster, tmp_path: Path
) -> None:
    """As with version 2, but the data looks like a late batch: a known limit, and the abort saves the record."""
    row = case.finding(cluster)
    assert columns_of(row) == UNDECIDED
    plan = plan_of(cluster, row, "abort")
    assert plan.action.name == "abort"
    assert any("lost its newest records" in each for each in plan.warnings)
    done = plan.execute(confirm=plan.target, recheck_after=0.1, audit=Audit(tmp_path / "audit.jsonl"))
    assert done.records_saved == 1
    case.client_goes_on()
    assert case.losses() == {(case.topic, 0): "lost, although committed"}


@on("live-after-commit")
def test_a_live_transaction_over_committed_records_is_left_to_its_client(case: Case, cluster: Cluster) -> None:
    """A version 2 commit lost its marker, and the next transaction is open here: its marker will decide both."""
    row = check_followed(case, cluster, Expected(verdict=Verdict.ONGOING, outcome="unknown", action=None))
    assert "Have its client commit" in row["remedy"]
    assert {(case.topic, 0), (case.topic, 1)} <= case.received()


@on("commit-at-once")
def test_a_likely_commit_is_completed_by_who_asserts_the_claim(case: Case, cluster: Cluster) -> None:
    """A version 1 commit lost its marker, and no broker's time is between: only its client knows what it committed."""
    row = check_unknown(case, cluster)
    assert "a commit is likely" in row["remedy"]
    plan = plan_of(cluster, row, "complete")
    assert plan.action.name == "complete"
    claim = plan.needed_override
    assert claim is not None
    assert "offset 0" in claim
    assert claim in row["remedy"]
    check_refused(lambda: plan, override="unknown")
    check_refused(lambda: plan, override=claim.replace("offset 0", "offset 1"))
    plan.execute(confirm=plan.target, recheck_after=0.1, override=claim)
    assert (case.topic, 0) in case.received()
    assert case.losses() == {}


@on("restored")
def test_files_have_the_same_findings(staged: Staged, case: Case) -> None:
    """A copy of the logs has the same evidence as the cluster, for all stories.

    But for the change of leaders, which Kafka 3.5 does not note in the files of a partition before the next batch: the
    clock of one leader alone proves no order.
    """
    assert case.topic in staged.live
    by_times = ("commit-after-a-marker", "commit-then-fence", "commit-after-append-time")
    unseen = by_times if staged.broker.kafka.version == "3.5.2" else ()
    assert staged.in_files == {**staged.live, **dict.fromkeys(unseen, UNKNOWN)}


def test_every_story_has_a_test() -> None:
    text = Path(__file__).read_text()
    assert [name for version in VERSIONS for name in stories(version) if f'"{name}"' not in text] == []
