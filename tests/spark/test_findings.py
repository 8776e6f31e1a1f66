"""Findings of past holds: those of Spark match those of pandas, for any ranges, logs and replicas."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.analysis.random_logs import KINDS, Step, batches
from tests.analysis.test_findings_over_time import due, finding, sample
from tests.analysis.test_hold_findings import HERE, history
from tests.sources.log_files import HIGH_WATERMARK, after, data, marker, write_checkpoint, write_log, write_root
from tests.sources.recorded import NINE, rows_of
from tests.sources.recorded import sample as recorded_sample
from tests.sources.test_logdir_other_markers import SkippedMarker
from tests.spark.read_log import plan_read
from toolkit import Cluster, LogDir
from toolkit.actions.marker_actions import plan_abort
from toolkit.analysis import hold_findings as rules
from toolkit.analysis.findings_over_time import close_by_log, observation_times, over_time, without_short
from toolkit.analysis.hold_findings import by_producer, held_findings
from toolkit.analysis.log.log_transactions import LogArray, finish, log_transaction_table, partial_transactions
from toolkit.errors import ActionRefused, UsageError
from toolkit.formats.headers import Headers
from toolkit.lab.samples import load
from toolkit.schema import FINDINGS, LOG_TRANSACTIONS, RECORDED, SAMPLES, TRANSACTION_HISTORY, Row, Table, utc
from toolkit.schema.live import Finding
from toolkit.schema.log import LogTransaction, PastTransaction
from toolkit.schema.recorded import LsoHold
from toolkit.schema.table import LogId
from toolkit.schema.verdict import Verdict
from toolkit.sources.logdir.contents import FileAssertions
from toolkit.spark import register
from toolkit.spark.arrow_types import from_arrow, spark_table
from toolkit.spark.datasources.log_reader import LogIdentity, LogListing
from toolkit.spark.pipeline.pipeline_run import _PipelineRun, check_clusters, run
from toolkit.spark.pipeline.run_sources import ListedLogs, RecordedSamples, list_files
from toolkit.spark.pipeline.stored_findings import (
    LookTime,
    NewestLooks,
    TopicFindings,
    best_logs,
    findings_over_time,
    markers,
    near_transaction_history,
)
from toolkit.spark.pipeline.stored_tables import StoredRun, StoredState, read, with_extra

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from toolkit.sources.recording.recording import Sample

PARTITIONS = range(24)
SECOND = dt.timedelta(seconds=1)


def random_headers(seed: int) -> Headers:
    """Up to 60 batches of up to three producers."""
    rng = random.Random(seed)
    steps = [
        Step(
            rng.choice([*KINDS, "data", "data"]),
            rng.randint(0, 3),
            rng.randint(1, 3),
            rng.randint(0, 2),
            rng.choice([1, 2]),
            0,
            rng.choice([1, 5, 4_000, 9_000, -3_000]),
        )
        for _ in range(rng.randint(1, 60))
    ]
    headers = batches(steps)
    headers["producer_id"][headers["producer_id"] >= 0] += seed
    for name in ("base_timestamp", "max_timestamp"):
        headers[name] += 1_000_000_000
    return headers


def transactions_of_log(headers: Headers, *, partition: int = 0) -> LogArray:
    """The log transactions of one log."""
    file = "/data/orders-0/00000000000000000000.log"
    where = LogId(topic="orders", partition=partition, broker_id=1)
    return LogArray(finish(partial_transactions(headers)), where, (file,))


def hold_rows(log: LogArray, headers: Headers, *, min_held_ms: int = 0) -> list[LsoHold]:
    """The LSO holds of the log."""
    end = int(headers["last_offset"][-1]) + 1
    found = rules.lso_holds(log.rows, min_held_ms=min_held_ms)
    table = rules.hold_table(replace(log, rows=found), log_end_offset=None)
    return [LsoHold.of(row | {"log_end_offset": end}) for row in table.to_pylist()]


def data_frame(spark: SparkSession, tables: Sequence[pa.Table]) -> DataFrame:
    """Arrow tables as a DataFrame, in several partitions.

    In one chunk: Spark 4.3 silently drops rows that follow an empty one.
    """
    return spark.createDataFrame(spark_table(pa.concat_tables(tables)).combine_chunks()).repartition(3)


def rows(frame: DataFrame, table: Table = FINDINGS) -> list[Row]:
    """The rows of a Spark frame, with the types of a declared table."""
    selected = frame.select(*table.names).toArrow()
    return table.arrow(selected.cast(table.arrow_schema).to_pylist()).to_pylist()  # type: ignore[no-any-return]


def assert_same_rows(actual: Iterable[object], expected: Iterable[object]) -> None:
    assert sorted(map(repr, actual)) == sorted(map(repr, expected))


@pytest.fixture(scope="module")
def logs() -> list[Headers]:
    return [random_headers(seed) for seed in PARTITIONS]


HANGING = Finding.of({name: value for name, value in finding(0).items() if name != "sampled_at"})


@pytest.mark.parametrize(
    ("diagnosed", "sampled", "read", "is_current"),
    [
        (1, 2, {("orders", 0)}, True),  # in both, and only its log is older: it had ended, a run said
        (2, 1, set(), True),
        (1, None, set(), True),
        (None, 1, set(), True),
        ("without it", 1, set(), False),
        ("without its partition", 1, set(), True),  # its partition is not among the files
        (1, "without it", {("orders", 0)}, False),
        (1, "without it", set(), True),  # the recorder may not see the topic, or its leader did not answer
    ],
)
def test_what_one_look_does_not_show_is_as_the_other_has_it(
    diagnosed: Any, sampled: Any, read: set[tuple[str, int]], is_current: bool
) -> None:
    """Of what is not current, a run says that it has ended; and `lso_held_now` does not have it."""
    of_log = diagnosed if isinstance(diagnosed, int) else None
    looks = NewestLooks(
        diagnosed_at=LookTime(None if diagnosed is None else due(of_log or 9)),
        diagnosed=set() if of_log is None else {HANGING.key},
        logs={("orders", 1 if diagnosed == "without its partition" else 0)},
        sampled_at=LookTime(None if sampled is None else due(sampled if isinstance(sampled, int) else 9)),
        sampled={HANGING.key} if isinstance(sampled, int) else set(),
        read=read,
    )
    assert looks.show(replace(HANGING, observed_at=due(of_log or sampled))) == is_current


def test_the_clocks_of_recorder_and_pipeline_are_not_compared() -> None:
    """The recorder's was behind, or ahead: what hung by the newer look was `ended`, as the other one was "newer"."""
    behind = NewestLooks(
        diagnosed_at=LookTime(due(100), due(0)),
        diagnosed=set(),
        logs={("orders", 0)},
        sampled_at=LookTime(due(0), due(1)),
        sampled={HANGING.key},
    )
    assert behind.show(HANGING)
    ahead = replace(
        behind, diagnosed={HANGING.key}, sampled=(), sampled_at=LookTime(due(100), due(1)), read=behind.logs
    )
    assert ahead.show(replace(HANGING, observed_at=due(0), brokers_time=due(2)))
    assert not ahead.show(replace(HANGING, observed_at=due(200), brokers_time=due(0)))


HUNG = recorded_sample(NINE)
OF_PARTITION: Any = {
    "producer_id": None,
    "producer_epoch": None,
    "transactional_id": None,
    "start_offset": None,
    "queue_position": None,
    "outcome": None,
    "action": None,
}
UNREAD = replace(HUNG.findings[0], verdict=Verdict.UNKNOWN, error="NOT_LEADER: no", **OF_PARTITION)


def later(seconds: int, *findings: Finding, error: str | None = None) -> Sample:
    """A sample so many seconds after the first one, with these findings."""
    taken = recorded_sample(NINE + seconds * SECOND)
    of_now = [replace(each, observed_at=taken.due) for each in findings]
    return replace(taken, findings=of_now, row=replace(taken.row, error=error))


def current_ones(
    spark: SparkSession | None,
    samples: Sequence[Sample],
    run: StoredRun,
    states: Sequence[StoredState] = (),
    **tables: pa.Table,
) -> list[str]:
    """The current findings by samples and by the last diagnosis, which has read partition 0 of orders.

    `tables`: others that are stored; all of them are empty without a session.
    """
    tables |= {f"recorded_{name}": rows_of(samples, name) for name in ("findings", "samples", "partitions")}

    def load(name: str, table: Table) -> DataFrame | None:
        rows = tables.get(name, with_extra(name, table).arrow([]))
        return None if spark is None else from_arrow(spark, spark_table(rows))

    store: Any = SimpleNamespace(spark=spark, load=load)
    listing = LogListing(log="/leader/id/orders-0", topic="orders", partition=0)
    of_topics = TopicFindings(
        store=store,
        states=SimpleNamespace(all={each.log: each for each in states}),  # type: ignore[arg-type]
        run=run,
        listings={} if states else {listing.log: listing},
        is_consistent=False,
        min_held_ms=0,
    )
    _, found_rows = of_topics.stored(with_samples=bool(samples))
    return sorted(f"{each['verdict']} of {each['topic']}" for each in found_rows if each["is_current"])


def test_what_could_not_be_read_hides_nothing(spark: SparkSession) -> None:
    """The recorder reached no broker any more, and a run found nothing: exit code 0, and no row in `lso_held_now`.

    What hung by a sample was gone, too, once a diagnosis could not read its partition; and what hung by a diagnosis,
    once a sample could not read the producers of its partition.
    """
    unreplicated = replace(UNREAD, verdict=Verdict.UNREPLICATED, error=None)
    samples = [later(0, *HUNG.findings, unreplicated), later(10, error="NETWORK_EXCEPTION: no broker")]
    for seconds, unreachable in ((5, ["unknown of None"]), (16, [])):
        at = NINE + seconds * SECOND
        run = StoredRun(signature="of a cluster", diagnosed_at=at, findings=(replace(UNREAD, observed_at=at),))
        assert current_ones(spark, samples, run) == ["hanging of orders", *unreachable, "unknown of orders"]
    run = StoredRun(signature="of a cluster", diagnosed_at=NINE, findings=(HUNG.findings[0],))
    assert current_ones(spark, [later(5, UNREAD)], run) == ["hanging of orders", "unknown of orders"]
    assert current_ones(spark, [later(6)], run) == [], "read since, and nothing is open there"


def test_a_marker_that_the_leader_has_lost_ends_nothing(spark: SparkSession) -> None:
    """It is in the log of the former leader only: `ended`, said the run, of what hangs."""
    hung = HUNG.findings[0]
    state = StoredState(log="of-a-test/1/id/orders-0", topic="orders", partition=0, leader_epoch=4, log_end_offset=150)
    states = [state, replace(state, log="of-a-test/2/id/orders-0", leader_epoch=5)]
    for broker, verdicts in ((1, ["hanging of orders"]), (2, [])):
        marked = LogTransaction.of_record(
            hung, first_offset=hung.start_offset, marker_offset=149, marker="ABORT", end=hung.observed_at
        )
        row = {**marked.row(), "log": states[broker - 1].log, "is_final": True}
        stored = with_extra("log_transactions", LOG_TRANSACTIONS).arrow([row])
        run = StoredRun(signature="of files")
        assert current_ones(spark, [HUNG], run, states, log_transactions=stored) == verdicts


class OfNothing(ListedLogs):
    """Logs in which nothing is found; with paths, a cluster that may hide topics."""

    def current_findings(self, settled: Mapping[str, int]) -> pa.Table:
        return FINDINGS.arrow([replace(UNREAD, topic=None, partition=None).row()] if self.paths else [])

    def proof(self) -> None:
        return None


@pytest.mark.parametrize(("cluster", "topics", "listed", "is_elsewhere"), [
    ("a", ["payments"], [], True), ("a", None, [], False), ("b", None, ["orders-0"], True),
    (None, None, ["orders-0"], False), (None, None, ["orders-1"], True), ("a may hide", None, [], True),
])  # fmt: skip
def test_a_run_ends_nothing_where_it_does_not_look(
    cluster: str | None, topics: list[str] | None, listed: list[str], is_elsewhere: bool
) -> None:
    """A run with --topic, on another cluster, or on the files of another broker: what hangs was no row any more."""
    hung = replace(HUNG.findings[0], cluster_id="a")
    this: Any = SimpleNamespace(
        result=StoredRun(findings=(hung,)),
        _signature=lambda logs: "of payments",
        states=SimpleNamespace(before={}, all={}),
    )
    name, _, hides = (cluster or "a").partition(" ")
    logs = [
        LogListing(log=str(LogIdentity(name, "1", None, each)), topic=each[:-2], partition=int(each[-1]))
        for each in listed or ["other-0"]
    ]
    of_cluster: Any = None if cluster is None else "a cluster"
    paths, spark = [hides] if hides else [], cast(Any, None)
    _PipelineRun._diagnose(this, OfNothing(spark=spark, logs=logs, topics=topics, cluster=of_cluster, paths=paths))
    found = current_ones(None, [], this.result)
    assert found == ["hanging of orders"] * is_elsewhere + ["unknown of None"] * bool(hides)


def test_what_could_not_be_read_is_a_hold_as_of_files(spark: SparkSession, tmp_path: Path) -> None:
    """The table lacked it: a partition whose log is damaged looked as if nothing else had held its LSO."""
    root = write_root(tmp_path / "data")
    damaged = data(2, 9, after(minutes=2))[:-1] + b"?"
    write_log(root, "orders-0", [data(0, 7, after()), marker(1, 7, after(minutes=1)), damaged])
    write_checkpoint(root, HIGH_WATERMARK, {("orders", 0): 3})
    run(spark, root, str(tmp_path / "out"), min_held_ms=0)
    of_files = [row for row in LogDir(root).lso_hold_rows(topics=["orders"]) if row["error"]]
    stored = read(spark, str(tmp_path / "out"), "lso_holds").where("error is not null").toArrow().to_pylist()
    assert [(row["topic"], row["partition"], row["broker_id"]) for row in stored] == [("orders", 0, 1)]
    assert [row["error"].partition(":")[0] for row in (*stored, *of_files)] == ["CORRUPT_BATCH"] * 2


def test_a_partition_of_one_name_is_of_each_cluster() -> None:
    """Of two clusters, those of one were taken for transactions of an earlier topic, where nothing is open any more."""
    findings = [replace(HUNG.findings[0], cluster_id=each) for each in ("a", "b")]
    states = [StoredState(log=f"{each}/1/id/orders-0", topic="orders", partition=0) for each in ("b", "a")]
    store: Any = SimpleNamespace(load=lambda *names: None)
    of_topics = TopicFindings(
        store=store,
        states=SimpleNamespace(all={each.log: each for each in states}),  # type: ignore[arg-type]
        run=StoredRun(signature="of a cluster", findings=tuple(findings)),
        listings={},
        is_consistent=False,
        min_held_ms=0,
    )
    _, found = of_topics.stored(with_samples=False)
    assert {(each["cluster_id"], each["topic_id"], each["is_current"]) for each in found} == {
        ("a", "id", True), ("b", "id", True)
    }  # fmt: skip


def test_what_files_of_two_clusters_do_not_show_is_unknown_in_each() -> None:
    """The error of a partition, whose files are of two clusters, was of one of them; the other had no finding."""
    names = [f"{each}/1/id/orders-0" for each in ("a", "b")]
    of_topics = TopicFindings(
        store=cast(Any, SimpleNamespace(load=lambda *names: None)),
        states=cast(Any, SimpleNamespace(all={})),
        run=StoredRun(signature="of files", findings=(replace(UNREAD, cluster_id=None),)),
        listings={each: LogListing(log=each, topic="orders", partition=0) for each in names},
        is_consistent=False,
        min_held_ms=0,
    )
    _, found = of_topics.stored(with_samples=False)
    assert {(each["cluster_id"], each["verdict"], each["is_current"]) for each in found} == {
        ("a", "unknown", True), ("b", "unknown", True)
    }  # fmt: skip


@pytest.mark.parametrize(("of_samples", "of_log", "is_one"), [
    (["a"], "a", True), ([], "a", True), (["a"], None, True), (["a", "b"], None, False), (["a"], "b", False),
])  # fmt: skip
def test_recordings_and_logs_of_a_run_are_of_one_cluster(
    of_samples: list[str], of_log: str | None, is_one: bool
) -> None:
    """What hung in the first cluster had ended by the next sample of the second one."""
    times = {"listed": 1, "oldest": due(0), "newest": due(0), "after": None}
    recordings = [RecordedSamples(spark=None, path=each, cluster_ids=[each], **times) for each in of_samples]  # type: ignore[arg-type]
    listed = [str(LogIdentity(of_log, "1", None, "orders-0"))]  # in this run, or in an earlier one
    store: Any = SimpleNamespace(find=lambda name: None)
    stored = pa.table({"cluster_id": [*of_samples, None]})
    kept: Any = SimpleNamespace(select=lambda name: kept, distinct=lambda: kept, toArrow=lambda: stored)
    earlier: Any = SimpleNamespace(find=lambda name: kept)
    with nullcontext() if is_one else pytest.raises(UsageError, match="The recordings are of a"):
        check_clusters(earlier, listed, [])
    with nullcontext() if is_one else pytest.raises(UsageError, match="The recordings are of a"):
        check_clusters(store, listed, recordings)


def test_history_near_a_hold_is_all_that_its_finding_needs(spark: SparkSession, logs: list[Headers]) -> None:
    read = [
        transactions_of_log(headers, partition=partition) for partition, headers in zip(PARTITIONS, logs, strict=True)
    ]
    histories = [row for partition in PARTITIONS for row in random_transaction_history(partition, read[partition])]
    holds = [
        hold for log, headers in zip(read, logs, strict=True) for hold in hold_rows(log, headers, min_held_ms=2_000)
    ]
    near = near_transaction_history(holds, history_frame(spark, histories))
    assert len(near) < len(histories)
    found, expected = (
        held_findings(holds, transaction_history=by_producer(each), current_findings=(), min_held_ms=2_000)
        for each in (near, histories)
    )
    assert_same_rows(found, expected)
    kinds = {(each.verdict, each.transactional_id is None, each.cause is None) for each in expected}
    assert {("ended", False, False), ("ended", True, True), ("unknown", False, True)} <= kinds


def history_frame(spark: SparkSession, histories: Iterable[PastTransaction]) -> DataFrame:
    return data_frame(spark, [TRANSACTION_HISTORY.arrow(each.row() for each in histories)])


def random_transaction_history(partition: int, log: LogArray) -> list[PastTransaction]:
    """Transaction history of some of its transactions; that of others is shifted by hours."""
    rng = random.Random(partition)
    history_rows = []
    with_data = [row for row in log_transaction_table(log).to_pylist() if row["first_offset"] is not None]
    for number, row in enumerate(with_data if partition % 3 else ()):
        outcomes = {"COMMIT": ["commit"], "ABORT": ["abort", "timeout", "fence"], None: ["open"]}[row["marker"]]
        start, end = row["start"], row["end"]
        if end is not None:
            start = min(start, end)
        if rng.random() < 0.4:
            shift = dt.timedelta(hours=rng.choice([2, 200]))
            start, end = start + shift, end and end + shift
        history_rows.append(
            history(
                rng.choice(outcomes),
                transactional_id=f"id-{partition}-{row['producer_id']}",
                topic_partitions=[{"topic": "orders", "partition": partition}],
                producer_id=row["producer_id"],
                producer_epoch=row["producer_epoch"],
                start_time=start,
                decided_at=end,
                end_time=end,
                first_offset=partition * 100 + number * 3,
                last_offset=partition * 100 + number * 3 + 2,
            )
        )
    return history_rows


def test_the_longest_of_several_replicas_is_diagnosed() -> None:
    def state(broker_id: int, **other: Any) -> StoredState:
        columns = {"log": f"{broker_id}:/orders-0/", "topic": "orders", "partition": 0, "broker_id": broker_id}
        known = {"log_end_offset": 9, "leader_epoch": 4, "is_damaged": False, "is_held": True}
        return StoredState(**{**columns, **known, **other})

    logs = [
        state(0, is_damaged=True),
        state(1, log_end_offset=5),
        state(2),
        state(3, leader_epoch=3, log_end_offset=50),
        state(4),
        state(5, log_end_offset=99, log="5:/__transaction_state-0/#ids"),
        state(6, partition=1, is_held=False),
    ]
    assert [each.log for each in best_logs(logs) if each.is_held] == ["2:/orders-0/"]
    # The new leader has no batch of its epoch yet, and the deposed one has a marker that it will truncate.
    new, deposed = state(7, log_end_offset=4), state(8, log_end_offset=9)
    listed = {new.log: LogListing(log=new.log, leader_epochs='{"4": 0, "5": 4}')}
    assert best_logs([deposed, new], listed) == [new]


def test_many_transactions_of_a_producer_id_are_matched_by_time(spark: SparkSession) -> None:
    headers = batches([Step("data", 1), Step("commit", 1, wait=90_000)])
    others = [
        history(
            producer_id=1000,
            producer_epoch=0,
            first_offset=number,
            start_time=utc(1_000_000_000 + number * 1_000),
            decided_at=utc(1_000_000_000 + number * 1_000),
            end_time=utc(1_000_000_500 + number * 1_000),
            topic_partitions=HERE,
        )
        for number in range(2_000)
    ]
    matching: Row = {
        "start_time": utc(1_000),
        "decided_at": utc(91_001),
        "end_time": utc(91_002),
        "first_offset": 9_999,
    }
    histories = [*others, history(producer_id=1000, producer_epoch=0, reason="This one.", **matching)]
    holds = hold_rows(transactions_of_log(headers), headers)
    near = near_transaction_history(holds, history_frame(spark, histories))
    assert len(near) < 5
    (row,) = held_findings(holds, transaction_history=by_producer(near), current_findings=(), min_held_ms=60_000)
    assert row.reason.endswith("This one.")
    assert row.opened_at == dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    for name in ("base_timestamp", "max_timestamp"):
        headers[name] += 100_000_000
    earlier: Row = {"start_time": utc(1_000), "decided_at": utc(2_000), "end_time": utc(2_000)}
    around = [*others, history(producer_id=1000, first_offset=1, topic_partitions=HERE, **earlier)]
    holds = hold_rows(transactions_of_log(headers), headers)
    near = near_transaction_history(holds, history_frame(spark, around))
    assert len(near) == 2
    (row,) = held_findings(holds, transaction_history=by_producer(near), current_findings=(), min_held_ms=60_000)
    assert "Its coordinator did not know of it" in row.reason, "shown by the records before and after"


def test_findings_over_time_of_a_recording_match_pandas(spark: SparkSession) -> None:
    recorded = [
        *(finding(number, partition=0) for number in (1, 2, 5)),
        *(finding(number, "ongoing", partition=1, producer_id=8) for number in (5, 9)),
        finding(3, "unknown", topic=None, partition=None, producer_id=None, start_offset=None, queue_position=None),
    ]
    samples = [sample(number, "DOWN: all." if number == 3 else None) for number in (*range(6), 8, 9)]
    table = RECORDED["findings"]
    expected = over_time(table.arrow(recorded), observation_times(samples))
    sample_table = SAMPLES.arrow(each.row() for each in samples)
    spark_findings = findings_over_time(data_frame(spark, [table.arrow(recorded)]), data_frame(spark, [sample_table]))
    assert_same_rows(rows(spark_findings), FINDINGS.arrow(each.row() for each in expected).to_pylist())


def test_a_marker_in_a_log_closes_a_finding_of_a_recording(spark: SparkSession) -> None:
    recorded = [finding(number, partition=partition) for number in (8, 9) for partition in (0, 1, 2)]
    short_hold = finding(2, "ongoing", partition=3)
    recorded_frame = data_frame(spark, [RECORDED["findings"].arrow([*recorded, short_hold])])
    samples = data_frame(spark, [SAMPLES.arrow([sample(number).row() for number in (2, 8, 9)])])
    frame = findings_over_time(recorded_frame, samples)
    spark_findings = list(map(Finding.of, rows(frame)))
    changes: list[Row] = [
        {"partition": 0, "first_offset": 90},
        {"partition": 1, "marker_offset": None},
        {"partition": 0},
    ]
    transaction = {"topic": "orders", "producer_id": 7, "first_offset": 100, "marker_offset": 110, "marker": "ABORT"}
    log_transactions: list[Row] = [
        {**dict.fromkeys(LOG_TRANSACTIONS.names), "end": due(10), **transaction, **fields}
        for fields in (*changes, changes[-1])  # two replicas have it
    ]
    marker_rows = markers(spark_findings, data_frame(spark, [LOG_TRANSACTIONS.arrow(log_transactions)]))
    assert [each.marker_offset for each in marker_rows] == [110, 110]
    closed = without_short(close_by_log(spark_findings, marker_rows), min_held_ms=60_001)
    verdicts = {each.partition: each.verdict for each in closed}
    assert verdicts == {0: "ended", 1: "hanging", 2: "hanging"}


# What a log or a report says of a transaction that hung and ended is in the corpus.


@pytest.mark.parametrize("runs", [["recording"], pytest.param(["log-dir", "recording"], marks=pytest.mark.full)])
def test_a_hanging_transaction_that_ended_is_ended(spark: SparkSession, tmp_path: Path, runs: list[str]) -> None:
    """The second run closes it by the recorder's samples, whatever the log alone has said."""
    sample, out = load("flight-recording"), tmp_path / "out"
    for name in runs:
        held = 10_000 if "log-dir" in runs else 0
        summary = run(spark, sample.path / name, str(out), consistent_copy=name == "log-dir", min_held_ms=held)
    assert summary.findings == [], "nothing is open now"
    table = DeltaTable(out / "findings").to_pyarrow_table(columns=FINDINGS.names)
    rows = table.cast(FINDINGS.arrow_schema).to_pylist()
    assert {row["verdict"] for row in rows} == {"ended"}
    (row,) = (row for row in rows if (row["topic"], row["producer_id"], row["start_offset"]) == ("orders", 1, 15))
    assert [row[name] for name in ("queue_position", "expires_at", "missing", "remedy")] == [
        *(None, None, []),
        "None: it has ended.",
    ]
    assert row["held_from"] < row["held_to"]
    assert f"Last seen open at {sample.at:%Y-%m-%d %H:%M}" in row["reason"]
    assert [entry["value"] for entry in row["evidence"] if entry["name"] == "verdict_before"] == ["hanging"]
    with pytest.raises(ActionRefused, match="orders-0@15 is ended"):
        plan_abort(cast(Cluster, SimpleNamespace(cluster_id=None)), row)


# Markers on other partitions, each of which is another task's.

ASSERTED = FileAssertions(consistent_copy=True)
COLUMNS = ["verdict", "outcome", "action", "reason"]


def test_tasks_read_markers_of_other_tasks_partitions(spark: SparkSession, tmp_path: Path) -> None:
    files = SkippedMarker(tmp_path)
    expected = [files.finding()[name] for name in COLUMNS]
    assert expected[1] == "commit"
    options = {"table": "findings", "consistentCopy": "true", "maxPartitionBytes": "1k", "subscribe": "left, right"}
    _, tasks = plan_read(files.root, **options)
    assert len(tasks) == 2
    register(spark)
    found = spark.read.format("kafka_log_dir").options(**options).load(str(files.root))
    assert [list(row) for row in found.where("topic = 'left' and producer_id = 7").select(*COLUMNS).collect()] == [
        expected
    ]
    of_pipeline = list_files(spark, [str(files.root)], topics=["left"], assertions=ASSERTED).current_findings({})
    assert [[row[name] for name in COLUMNS] for row in of_pipeline.to_pylist() if row["producer_id"] == 7] == [expected]
