"""No marker loses a committed record, or publishes one that no commit includes: each test is the story of one loss.

By the findings of before, each was lost, or published, on a real broker. The stories are staged in `tests.proof_cases`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.outcome_cases import Expected
from tests.outcomes import columns_of
from tests.proof_cases import STATE_PARTITIONS, Broker, Case, Fate, plan_of
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


def on(*versions: str) -> pytest.MarkDecorator:
    """The versions of a story; one worker has all stories of a version."""
    return pytest.mark.parametrize(
        "staged",
        [
            pytest.param(
                version,
                marks=[
                    pytest.mark.lab,
                    pytest.mark.xdist_group(f"proof {version}"),
                    *([pytest.mark.full] if version == "4.4.0" else []),
                ],
            )
            for version in versions
        ],
        indirect=True,
    )


on_all = on("3.5.2", "4.3.1", "4.4.0")
on_older = on("3.5.2")
on_newer = on("4.3.1", "4.4.0")


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
        copy = broker.copy_logs(self._folder / version)
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
def broker(staged: Staged) -> Broker:
    return staged.broker


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


# K1: a fact of the producer id is no fact of its epoch


@on_newer
def test_markers_of_a_later_client_prove_nothing_of_an_earlier_epoch(broker: Broker, cluster: Cluster) -> None:
    """A version 1 commit lost its marker here; InitProducerId of a version 2 client aborted the next transaction.

    The commits of the new client made the ABORT marker of the fence, which has the next epoch, pass for the commit's
    end once the coordinators' log was compacted: `abort` lost the commit.
    """
    check_unknown(broker.cases["newer-client"], cluster)


@on_newer
def test_an_epoch_can_have_transactions_of_both_versions(broker: Broker, cluster: Cluster) -> None:
    """An instance went from version 1 to 2 within an epoch, as the cluster was upgraded under it.

    Its version 1 abort lost its marker here; its version 2 commit elsewhere has a marker with the next epoch, which
    passed for the end of the aborted records: `complete` published them.
    """
    check_unknown(broker.cases["upgrade-within-epoch"], cluster)


@on_newer
def test_a_leader_with_an_open_transaction_does_not_add_what_version_2_writes(broker: Broker, cluster: Cluster) -> None:
    """As before, but the version 2 transaction wrote here, too, and its commit returned success.

    The leader thought that a transaction was open, so it did not add the partition, and the coordinators' log has no
    commit of it: `abort` lost what the client had committed.
    """
    check_unknown(broker.cases["upgrade-in-one-range"], cluster)


@on_newer
def test_a_version_that_was_lowered_and_raised_within_an_epoch_is_a_known_limit(
    broker: Broker, cluster: Cluster
) -> None:
    """As the first of these, after transaction.version was lowered and raised again under one instance.

    Markers with the next epoch on both ends pass for a proof, as compaction leaves no trace of what was between.
    """
    case = broker.cases["downgrade-and-upgrade"]
    row = case.finding(cluster)
    assert columns_of(row) == COMPLETE
    assert case.follow(cluster, row) == "complete"
    assert case.losses() == {(case.topic, 0): "published, although aborted"}
    limits = (DOCS / "outcomes.md").read_text().partition("## What cannot be known")[2]
    assert "`transaction.version`" in limits


# K2: the open batches have to be older than the decision


@on_all
def test_a_record_that_was_never_added_joins_a_commit_without_its_marker(broker: Broker, cluster: Cluster) -> None:
    """A leader that thinks a transaction is open verifies nothing, so a record of no transaction joined it.

    `complete` of the commit published it.
    """
    row = check_unknown(broker.cases["never-added-joins"], cluster)
    assert "a commit is likely" in row["remedy"]


@on_all
def test_a_mixture_is_never_overridden(broker: Broker, cluster: Cluster) -> None:
    """As before, and LogAppendTime proves which record the commit includes: no marker is right for both."""
    case = broker.cases["never-added-joins-by-append-time"]
    row = check_unknown(case, cluster)
    check_mixture(case, cluster, row)
    assert "offset 0 (epoch 0): the transaction of" in row["missing"][0]
    assert "offset 1 (epoch 0): no decision includes" in row["missing"][0]


def check_mixture(case: Case, cluster: Cluster, row: Row) -> None:
    """Both claims are refuted, and no override is taken."""
    said = claims(row)
    assert said["claim_no_commit"].endswith(": refuted")
    assert said["claim_all_committed"].endswith(": refuted")
    for action in ("abort", "complete"):
        for name in ("claim_no_commit", "claim_all_committed"):
            words = said[name].rpartition(": ")[0]
            check_refused(partial(plan_of, cluster, row, action), override=words)
    assert case.losses() == {}


@on_older
def test_a_log_that_lost_a_commit_shows_nothing_of_what_a_zombie_writes_later(broker: Broker, cluster: Cluster) -> None:
    """The partition's log lost all of a commit with its marker; later a zombie of the same epoch wrote.

    Another producer's marker lies between, so the zombie's record is younger than the commit: `complete` published it.
    """
    check_followed(broker.cases["zombie-on-a-shorter-log"], cluster, UNDECIDED)


@on_all
def test_event_times_do_not_make_a_live_transaction_one_that_was_committed(broker: Broker, cluster: Cluster) -> None:
    """A topic was created again after a commit; the producer's next transaction, which is alive, has event times.

    They are from before the commit, so its outcome was `commit`, and the operator was told not to end it.
    """
    case = broker.cases["created-again"]
    row = check_followed(
        case,
        cluster,
        Expected(verdict=Verdict.ONGOING, outcome="undecided", action=None),
        Expected(verdict=Verdict.ONGOING, outcome="unknown", action=None),
    )
    assert "of an earlier transaction" not in row["reason"]
    assert (case.topic, 0) in case.received(), "its client committed it"


@on_older
def test_event_times_do_not_make_a_late_record_one_that_was_committed(broker: Broker, cluster: Cluster) -> None:
    """As before, but the record is late and of no transaction: `complete` published it."""
    check_unknown(broker.cases["late-batch-on-a-topic-created-again"], cluster)


# K3: the coordinators' log can lose its tail, or be an older copy


@on_newer
@pytest.mark.parametrize("suffix", ["", "-alive"])
def test_version_2_data_shows_that_the_record_that_added_it_is_lost(
    broker: Broker, cluster: Cluster, suffix: str
) -> None:
    """The coordinators' log lost only the record that added the partition; its client went on, and could commit.

    A coordinator that does not know the partition was taken as proof that no commit includes it: `abort` lost it.
    """
    check_unknown(broker.cases[f"lost-addition-2{suffix}"], cluster)


@on_all
@pytest.mark.parametrize("suffix", ["", "-alive"])
def test_with_version_1_the_plan_warns_that_a_lost_record_leaves_no_trace(
    broker: Broker, cluster: Cluster, suffix: str, tmp_path: Path
) -> None:
    """As before, with version 1, whose data looks like a late batch: a known limit, and the abort saves the record."""
    case = broker.cases[f"lost-addition-1{suffix}"]
    row = case.finding(cluster)
    assert columns_of(row) == UNDECIDED
    plan = plan_of(cluster, row, "abort")
    assert plan.action.name == "abort"
    assert any("lost its newest records" in each for each in plan.warnings)
    done = plan.execute(confirm=plan.target, recheck_after=0.1, audit=Audit(tmp_path / "audit.jsonl"))
    assert done.records_saved == 1
    case.client_goes_on()
    assert case.losses() == {(case.topic, 0): "lost, although committed"}


@on_all
def test_a_transaction_that_another_coordinator_completed_again_may_hide_a_later_one(
    broker: Broker, cluster: Cluster
) -> None:
    """Its end and the next commit were lost with version 1; the log looked whole, and `abort` lost that commit."""
    case = broker.cases["lost-completion"]
    check_unknown(case, cluster)
    assert "was ended twice" in case.finding(cluster)["missing"][0]


@on_all
@pytest.mark.parametrize("suffix", ["", "-soon"])
def test_a_commit_marker_elsewhere_contradicts_the_coordinators_log(
    broker: Broker, cluster: Cluster, suffix: str
) -> None:
    """The coordinators' log lost a whole version 1 transaction, and its marker is lost here; elsewhere it is there.

    No decision without a marker was left, so the records were hanging: `abort` lost the commit. Also if the commit
    before it has a marker there, too, milliseconds earlier: one commit has one marker on a partition.
    """
    check_unknown(broker.cases[f"lost-transaction-1{suffix}"], cluster)


@on_all
def test_a_clients_time_does_not_end_the_search_for_markers(broker: Broker, cluster: Cluster) -> None:
    """As before, and the record has a time 50 minutes ahead: markers were only looked for from then on."""
    check_unknown(broker.cases["lost-transaction-ahead"], cluster)


@on_newer
@pytest.mark.parametrize("suffix", ["", "-soon"])
def test_a_commit_marker_elsewhere_proves_a_commit_of_version_2(broker: Broker, cluster: Cluster, suffix: str) -> None:
    """As before, with version 2: epochs prove that the marker is of the same transaction, if both ends are there."""
    check_followed(broker.cases[f"lost-transaction-2{suffix}"], cluster, COMPLETE, UNKNOWN)


@on_all
def test_a_marker_elsewhere_contradicts_a_commit_too(broker: Broker, cluster: Cluster) -> None:
    """The coordinators' log lost a version 1 abort, and its marker is lost here; elsewhere it is there.

    Its instance went on with the same epoch, and its next commit lost its marker, too. By brokers' times all records
    are older than that commit, so `complete` published the aborted ones.
    """
    check_unknown(broker.cases["lost-abort"], cluster)


@on_all
def test_an_older_copy_of_the_coordinators_log_proves_nothing(broker: Broker, cluster: Cluster) -> None:
    """The coordinators' log is restored from before the id existed, so nobody has its producer id."""
    check_unknown(broker.cases["restored"], cluster)


@on_all
@pytest.mark.parametrize("suffix", ["", "-timed"])
def test_a_producer_id_that_has_two_owners_is_not_whose_it_was(broker: Broker, cluster: Cluster, suffix: str) -> None:
    """As before, and another id got the producer id; its log begins with it, so it looked complete.

    The data is older than that, by its client's time, or by a marker after it: `abort` lost the commit.
    """
    check_unknown(broker.cases[f"producer-id-twice{suffix}"], cluster)


# What is proven stays decided


@on_older
def test_a_marker_younger_than_the_commit_proves_what_comes_after_it(broker: Broker, cluster: Cluster) -> None:
    """Retention deleted a commit's marker, so it was unknown whether the commit includes a record that was never added.

    Another producer's marker, 8 s younger than the commit, lies before the record: the commit does not include it.
    """
    check_followed(broker.cases["never-added-after-deleted-marker"], cluster, UNDECIDED)


@on_newer
def test_two_commits_of_version_2_are_completed(broker: Broker, cluster: Cluster) -> None:
    """Both lack their markers: `complete` was offered, and refused because of the second epoch."""
    case = broker.cases["two-commits"]
    check_followed(case, cluster, COMPLETE)
    assert {(case.topic, 0), (case.topic, 1)} <= case.received()


@on_newer
def test_a_live_transaction_over_committed_records_is_left_to_its_client(broker: Broker, cluster: Cluster) -> None:
    """A version 2 commit lost its marker, and the next transaction is open here: its marker will decide both."""
    case = broker.cases["live-after-commit"]
    row = check_followed(case, cluster, Expected(verdict=Verdict.ONGOING, outcome="unknown", action=None))
    assert "Have its client commit" in row["remedy"]
    assert {(case.topic, 0), (case.topic, 1)} <= case.received()


@on_newer
def test_a_commit_and_an_abort_of_version_2_are_distinguished(broker: Broker, cluster: Cluster) -> None:
    """Both lack their markers, and no marker is right for both: the finding says what each part is."""
    case = broker.cases["commit-and-abort"]
    row = check_unknown(case, cluster)
    check_mixture(case, cluster, row)
    (missing,) = row["missing"]
    first, second = missing.split("; ")
    assert "offset 0 (epoch 0)" in first
    assert "with epoch 0 was committed at" in first
    assert "offset 1 (epoch 1)" in second
    assert "with epoch 1 was aborted at" in second


@on_all
def test_an_abort_before_a_commit_of_version_1_is_a_mixture(broker: Broker, cluster: Cluster) -> None:
    """Both lack their markers, and LogAppendTime shows that the first record is of the abort: nothing is completed."""
    case = broker.cases["abort-then-commit"]
    row = check_unknown(case, cluster)
    assert claims(row)["claim_all_committed"].endswith(": refuted")


@on_all
@pytest.mark.parametrize("name", ["commit-after-a-marker", "commit-after-append-time", "commit-then-fence"])
def test_a_brokers_time_between_records_and_their_commit_proves_it(broker: Broker, cluster: Cluster, name: str) -> None:
    """A version 1 commit lost its marker; LogAppendTime, or a marker, shows that its records were there before.

    Also if the coordinator aborts the next transaction, for a new instance: that record has its own version, 2.
    """
    check_followed(broker.cases[name], cluster, COMPLETE)


@on_all
def test_a_likely_commit_is_completed_by_who_asserts_the_claim(broker: Broker, cluster: Cluster) -> None:
    """A version 1 commit lost its marker, and no broker's time is between: only its client knows what it committed."""
    case = broker.cases["commit-at-once"]
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


@on_all
def test_an_abort_without_its_marker_is_aborted(broker: Broker, cluster: Cluster) -> None:
    """No commit of the producer lacks its marker, whether or not the records are of the abort."""
    check_followed(broker.cases["abort-without-marker"], cluster, UNDECIDED, ABORT)
    check_followed(broker.cases["abort-after-append-time"], cluster, ABORT)


@on_older
def test_a_late_record_hangs(broker: Broker, cluster: Cluster) -> None:
    """It came after the marker of its commit."""
    check_followed(broker.cases["late-batch"], cluster, UNDECIDED)


@on_all
def test_files_have_the_same_findings(staged: Staged) -> None:
    """A copy of the logs has the same evidence as the cluster."""
    assert staged.in_files == staged.live


def test_every_story_has_a_test() -> None:
    """Each of them has its test."""
    text = Path(__file__).read_text()
    assert [name for name in names_of_stories() if name not in text and base_of(name) not in text] == []


def names_of_stories() -> Sequence[str]:
    from tests.proof_cases import VERSIONS, stories

    return sorted({name for version in VERSIONS for name in stories(version)})


def base_of(name: str) -> str:
    """Its name without the suffix of a variant."""
    return name.removesuffix("-alive").removesuffix("-soon").removesuffix("-timed")
