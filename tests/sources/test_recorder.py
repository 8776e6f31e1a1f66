"""When a recorder takes its samples, what it does when it cannot, and what it measures, as Prometheus reads it."""

import builtins
import datetime as dt
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from tests.analysis.build import ago, observation, partition, producer, transaction
from tests.analysis.logged import sample_diagnosis
from tests.sources.recorded import NINE, sample, take_sample
from tests.stored import compare
from toolkit import Cluster, Recording
from toolkit.analysis.diagnosis.decision import UNDECIDED, Outcome
from toolkit.cli.record_commands import RecorderScreen, _until_stopped
from toolkit.errors import ConnectionFailed, NotFound, UsageError
from toolkit.lab import Kafka
from toolkit.lab.clients import BlockedConsumer
from toolkit.lab.incidents import INCIDENTS
from toolkit.schema.live import GroupLag
from toolkit.schema.recorded import LateTransaction
from toolkit.schema.table import EPOCH, TransactionKey
from toolkit.schema.verdict import Verdict
from toolkit.sources.diagnose import LogReading, _owner, _still_known
from toolkit.sources.recording import recorder as recorder_module
from toolkit.sources.recording.metrics import LATE, MAX_GROUP_LAGS, Metrics
from toolkit.sources.recording.recorder import Recorder, RecorderListener, Sampler, SampleWriter, last_known
from toolkit.sources.recording.recording import Sample

SECOND = dt.timedelta(seconds=1)


class Told:
    """The messages of a recorder."""

    def __init__(self, *, after: Callable[[], object] = lambda: None) -> None:
        self.samples: list[Sample] = []
        self.written: list[bool] = []
        self.left_out = 0
        self.warnings: list[str] = []
        self._after = after

    def on_resume(self, sample: Sample) -> None:
        pass

    def on_wait(self, due: dt.datetime) -> None:
        pass

    def on_sample(self, sample: Sample, *, written: bool) -> None:
        self.samples.append(sample)
        self.written.append(written)
        self._after()

    def on_skip(self, count: int) -> None:
        self.left_out += count

    def on_warning(self, text: str) -> None:
        self.warnings.append(text)


def nobody() -> NoReturn:
    raise ConnectionFailed("No broker is there.", do="")


def after_a_while() -> NoReturn:
    threading.Event().wait(1.2)
    nobody()


def record(
    directory: Path,
    evidence: RecorderListener,
    *,
    connect: Callable[[], Cluster] = nobody,
    stop: threading.Event | None = None,
    **more: Any,
) -> None:
    with SampleWriter(directory) as writer:
        sampler = Sampler(connect=connect, interval_ms=1_000)
        recorder = Recorder(sampler=sampler, writer=writer, listener=evidence)
        recorder.run(stop or threading.Event(), **more)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A recording with a sample of an hour ago, from when the cluster could be reached."""
    with SampleWriter(tmp_path) as writer:
        writer.write(sample((dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)).replace(microsecond=0)))
    return tmp_path


def test_samples_are_due_at_multiples_of_the_interval(begun: Path) -> None:
    evidence = Told()
    record(begun, evidence, samples=3)
    dues = [each.due for each in evidence.samples]
    assert all((due - EPOCH) % SECOND == dt.timedelta(0) for due in dues)
    assert len(set(dues)) == 3
    assert (dues[-1] - dues[0]) // SECOND == 2 + evidence.left_out
    assert list(Recording(begun).samples()["sampled_at"])[1:] == dues
    assert {each.error for each in evidence.samples} == {"NETWORK_EXCEPTION: No broker is there"}


def test_a_slow_sample_skips_those_due_meanwhile(begun: Path) -> None:
    evidence = Told()
    record(begun, evidence, connect=after_a_while, samples=2)
    first, second = (each.due for each in evidence.samples)
    assert evidence.left_out >= 2
    assert second - first >= 2 * SECOND


def test_it_stops_after_the_sample_in_flight(begun: Path) -> None:
    stop = threading.Event()
    evidence = Told(after=stop.set)
    record(begun, evidence, stop=stop)
    assert evidence.written == [True]
    record(begun, evidence, until=dt.datetime.now(dt.UTC) - 10 * SECOND)
    assert evidence.written == [True], "none is due by then"


def test_the_first_connection_must_succeed(tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailed, match="No broker is there"):
        record(tmp_path, Told())
    assert len(Recording(tmp_path).samples()) == 0


def test_a_service_also_starts_while_its_cluster_is_away() -> None:
    """A recorder with metrics only that was restarted during an outage ended, and so did its alerts."""
    metrics = Metrics()
    sampler = Sampler(connect=nobody, interval_ms=1_000)
    recorder = Recorder(sampler=sampler, listener=RecorderScreen(metrics, None), is_service=True)
    assert recorder.run(threading.Event(), samples=1) == 1
    assert metrics.health()[1].endswith("1 failed so far, it with NETWORK_EXCEPTION: No broker is there")
    assert numbers(metrics)["kafka_txn_last_sample_timestamp_seconds", ()] == 0, "KafkaTxnRecorderBlind fires"


@pytest.mark.parametrize("error", [NotFound("chk-5 cannot be read.", do=""), OSError("chk-5 cannot be read")])
def test_a_checkpoint_that_cannot_be_read_is_no_fault_of_the_network(error: Exception) -> None:
    """It was NETWORK_EXCEPTION; and a folder that is away, as on NFS, ended the recorder."""

    def without_checkpoint() -> NoReturn:
        raise error

    failed = Sampler(connect=without_checkpoint, interval_ms=1_000).take(NINE)
    assert failed.error == "NOT_READ: chk-5 cannot be read"


@pytest.mark.parametrize(
    ("operation", "error", "fails_once"),
    [
        ("write", OSError(28, "No space left on device"), False),
        ("write", OSError(28, "No space left on device"), True),
        ("has", OSError(116, "Stale file handle"), False),  # on NFS the recorder crashed, and its metrics with it
    ],
)
def test_a_folder_that_is_full_or_away_loses_samples_and_not_the_recorder(
    begun: Path, monkeypatch: pytest.MonkeyPatch, operation: str, error: OSError, fails_once: bool
) -> None:
    def fail(writer: SampleWriter, asked: object) -> NoReturn:
        if fails_once:
            monkeypatch.undo()
        raise error

    evidence = Told()
    monkeypatch.setattr(SampleWriter, operation, fail)
    record(begun, evidence, samples=2)
    assert evidence.written == [False, fails_once]
    first, *others = evidence.warnings
    assert first.endswith(f"on: they cannot be written: {error.strerror}.")
    recovered = [each.endswith("samples can be written again; one sample was lost.") for each in others]
    assert recovered == [True] * fails_once


@pytest.mark.parametrize("last", ["none", "unread", "unknown", "hidden"])
def test_a_restart_resolves_no_alert_of_what_the_last_sample_has_not_read(begun: Path, last: str) -> None:
    """What hung in the sample before it, and that the last one, if there is one, could not read, was in no metric."""
    one = sample(dt.datetime.now(dt.UTC).replace(microsecond=0) - 1800 * SECOND)
    assert one.observation is not None
    (finding,) = one.findings
    unknown = replace(finding, verdict=Verdict.UNKNOWN)
    unread = replace(unknown, producer_id=None, start_offset=None, queue_position=None, error="NETWORK_EXCEPTION: x")
    hidden = replace(one.observation, partitions=[], partitions_after=[])
    gap = replace(one.row, topic_gaps=("DESCRIBE on Topic '*'",))
    samples = {
        "unread": replace(one, findings=[unread]),
        "unknown": replace(one, findings=[unknown]),
        "hidden": replace(one, findings=[], row=gap, observation=hidden),
    }
    if last != "none":
        with SampleWriter(begun) as writer:
            writer.write(samples[last])
    metrics = Metrics()
    record(begun, RecorderScreen(metrics, None), samples=1)
    found = numbers(metrics)
    assert found["kafka_txn_partition_hanging_transactions", (("partition", "0"), ("topic", "orders"))] == 1
    assert time.time() - found["kafka_txn_last_sample_timestamp_seconds", ()] > 1700, "KafkaTxnRecorderBlind fires"


def test_each_partition_that_is_not_read_keeps_the_numbers_of_its_own_last_sample(tmp_path: Path) -> None:
    samples = []
    with SampleWriter(tmp_path) as writer:
        for number, unread in enumerate((set(), {1}, {0, 1})):
            one = sample(NINE + number * SECOND)
            rows = [replace(one.findings[0], partition=each) for each in (0, 1)]
            rows = [replace(each, verdict=Verdict.UNKNOWN) if each.partition in unread else each for each in rows]
            samples.append(replace(one, findings=rows))
            writer.write(samples[-1])
    assert [each.due for each in last_known(tmp_path, samples[-1])] == [NINE, NINE + SECOND]


def test_a_restarted_recorder_that_reached_no_broker_still_knows_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample that failed has no cluster id: the next one took brokers of another cluster for those before."""
    other: Any = SimpleNamespace(cluster_id="another", client=None, close=lambda: None)
    answers: list[Callable[[], Any]] = [nobody, lambda: other]
    monkeypatch.setattr(recorder_module, "longest_timeout_ms", lambda client: None)
    sampler = Sampler(connect=lambda: answers.pop(0)(), interval_ms=1_000)
    failed = sampler.take(NINE + SECOND, sample(NINE))
    assert failed.error == "NETWORK_EXCEPTION: No broker is there"
    assert (sampler.take(NINE + 2 * SECOND, failed).error or "").startswith("OTHER_CLUSTER: ")


def test_a_clock_that_is_ahead_expires_nothing(tmp_path: Path) -> None:
    """It was set to 2036: the next sample deleted the whole recording."""
    ahead = replace(sample(NINE), due=NINE + dt.timedelta(days=3650))
    with SampleWriter(tmp_path) as writer:
        writer.write(sample(NINE))
        recorder = Recorder(
            sampler=Sampler(connect=nobody, interval_ms=1_000),
            listener=Told(),
            writer=writer,
            retention=dt.timedelta(days=30),
        )
        recorder._compact(ahead.due, ahead)
        assert len(Recording(tmp_path).samples()) == 1
        recorder._compact(ahead.due + dt.timedelta(hours=1), replace(ahead, observation=None))
        assert len(Recording(tmp_path).samples()) == 0


KNOWN: Mapping[str, Callable[[LogReading], LogReading]] = {
    "30 s later": lambda each: replace(each, read_at=NINE - 30 * SECOND)
}
NOT_KNOWN: Mapping[str, Callable[[LogReading], LogReading]] = {
    "90 s later": lambda each: replace(each, read_at=NINE - 90 * SECOND),
    # It kept what it knew for an hour.
    "a clock was set back by an hour": lambda each: replace(each, read_at=NINE + 3600 * SECOND),
    # What joins it may be of a commit whose marker is missing.
    "it has written since": lambda each: replace(each, owner=(each.owner[0], (9, NINE), *each.owner[2:])),
    # It was read without its groups and times.
    "another one held the LSO": lambda each: replace(each, finding=replace(each.finding, queue_position=2)),
    # It stayed `unknown` for a minute.
    "a coordinator was away": lambda each: replace(each, gaps=["broker 2 did not answer"]),
}


@pytest.mark.parametrize("case", [*KNOWN, *NOT_KNOWN])
def test_what_logs_showed_is_known_for_a_minute_of_the_same_transaction(case: str) -> None:
    one = sample(NINE)
    assert one.observation is not None
    diagnosis = sample_diagnosis(one.observation, replace(one.observation, observed_at=NINE - 10 * SECOND))
    (open_,), (finding,) = diagnosis.to_read(), one.findings
    undecided = Outcome(name=UNDECIDED, reason="it is so", are_markers_sought=True)
    reading = LogReading(outcome=undecided, finding=finding, explanation=(), owner=_owner(open_), gaps=[], read_at=NINE)
    source: Any = SimpleNamespace(recorded=())
    earlier = {open_.key: {**KNOWN, **NOT_KNOWN}[case](reading)}
    assert (_still_known(source, diagnosis, {open_.key: open_}, earlier) == earlier) == (case in KNOWN)


def test_it_merges_at_start_and_after_every_hour(tmp_path: Path) -> None:
    yesterday = (dt.datetime.now(dt.UTC) - dt.timedelta(days=1)).replace(minute=0, second=0, microsecond=0)
    with SampleWriter(tmp_path) as writer:
        for each in range(3):
            writer.write(sample(yesterday + each * SECOND))
    record(tmp_path, Told(), samples=1)
    assert len(list((tmp_path / "samples").glob(f"{yesterday:%Y%m%d}.1.parquet"))) == 1


pytest.importorskip("prometheus_client", reason="metrics are an extra")

Labels = tuple[tuple[str, str], ...]
KEY = TransactionKey("orders", 0, 8, 100)


def numbers(metrics: Metrics) -> dict[tuple[str, Labels], float]:
    from prometheus_client import generate_latest
    from prometheus_client.parser import text_string_to_metric_families

    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def late_on(number: int, leader: int) -> LateTransaction:
    return LateTransaction(sampled_at=NINE, topic="orders", partition=number, broker_id=leader, observed_at=NINE)


def series() -> Mapping[str, Sequence[Sample]]:
    """Samples that a recorder takes one after the other."""
    one = sample(NINE)
    assert one.observation is not None
    (finding,) = one.findings
    opened = replace(finding, opened_at=NINE - 50 * SECOND)
    unread = replace(finding, verdict=Verdict.UNKNOWN, producer_id=None, offsets_held=None, groups_held=None,
                     error="NETWORK_EXCEPTION: x")  # fmt: skip
    observed = observation(transaction(), partitions=[partition()], producers=[producer()])
    healthy = replace(one, observation=observed, findings=sample_diagnosis(observed, observed).findings())
    young = TransactionKey("orders", 0, 7, 100)
    stuck = replace(finding, verdict=Verdict.STUCK_ENDING, outcome="commit")
    ending = replace(finding, partition=1, verdict=Verdict.ENDING, outcome="commit")
    held = [replace(finding, partition=n, groups_held=groups) for n, groups in enumerate((("a", "b"), ("b",), None))]
    unknown = replace(finding, verdict=Verdict.UNKNOWN)
    hidden = replace(one.row, topic_gaps=("DESCRIBE on Topic '*'",))
    unlisted = replace(one.observation, partitions=[])
    waits = replace(one, findings=[replace(finding, groups_held=("billing",), held_from=NINE - 3600 * SECOND)])
    denied = replace(producer(start=None, observed_at=NINE), producer_id=None, error="CLUSTER_AUTHORIZATION_FAILED: no")
    unseen = replace(one.observation, producers=[denied], producers_after=[denied])
    lag = GroupLag(group_id="billing", topic="orders", partition=0, held=50, behind=0, reason=None, observed_at=NINE)
    live = replace(finding, verdict=Verdict.ONGOING, outcome="commit")
    return {
        "a partition has series while it is held": [one, replace(one, findings=[])],
        "how long it is held: since it was seen first, opened by a broker's time, or became the lowest": [
            replace(one, first_seen={KEY: NINE - 40 * SECOND}),
            replace(one, findings=[opened]),
            replace(one, findings=[replace(opened, brokers_time=None)], first_seen={KEY: NINE - 20 * SECOND}),
            replace(one, findings=[replace(opened, held_from=NINE - 30 * SECOND)]),
        ],
        "a healthy transaction appears after two samples": [
            replace(healthy, first_seen={young: observed.observed_at}),
            replace(healthy, first_seen={young: ago(seconds=10)}),
        ],
        "a commit without its marker, and one whose coordinator is writing it; then an abort": [
            replace(one, findings=[stuck, ending]),
            replace(one, findings=[replace(finding, outcome="abort")]),
        ],
        "late partitions": [replace(one, late_transactions=[late_on(0, leader=2)] * 2)],
        "what could not be read keeps its numbers": [
            one,
            replace(one, findings=[unread]),
            sample(NINE + dt.timedelta(seconds=10), error="NETWORK_EXCEPTION: gone"),
        ],
        "blocked groups": [
            replace(one, findings=held),
            replace(one, findings=[unread, *held[2:]]),
            replace(one, findings=[]),
        ],
        # It was 0 once a right or a broker was lost: KafkaTxnHanging resolved, though nobody had looked.
        "what is not known by now resolves no alert, and hidden topics are a gap": [
            replace(one, findings=[unknown]),
            one,
            replace(one, findings=[unknown]),
            replace(one, findings=[], row=hidden, observation=unlisted),
            replace(one, findings=[replace(unknown, verdict=Verdict.OVERDUE)]),
        ],
        # Its LSO was held for 0 s once a broker showed no producers, and no group was held once coordinators were away.
        "producers or groups that were not read resolve no alert": [
            waits,
            replace(one, findings=[replace(finding, groups_held=None)]),
            waits,
            replace(one, observation=unseen, findings=sample_diagnosis(unseen, one.observation).findings()),
        ],
        # The series of the partition kept its numbers; those by broker, group, verdict and outcome said: all is over.
        "late partitions and lags that were not read keep their numbers": [
            replace(one, late_transactions=[late_on(0, leader=4)], held_groups=[lag]),
            replace(one, findings=[unread], held_groups=[]),
            replace(one, findings=[], held_groups=[]),
        ],
        # It was no alert, and the transaction over it timed out: the committed records were gone.
        "a commit under a live transaction lacks its marker, too": [
            replace(one, findings=[live], first_seen={live.key: NINE - dt.timedelta(minutes=1)})
        ],
    }


def test_what_a_recorder_measures() -> None:
    """Late partitions do not have the name of Kafka's metric, which counts by the brokers' maximum timeout."""
    lines = list[str]()
    for name, samples in series().items():
        metrics = Metrics()
        before = numbers(metrics)
        for number, each in enumerate(samples):
            metrics.on_sample(each, written=number < 2)
            metrics.on_skip(number)
            found = numbers(metrics)
            lines.append(f"{name}, {number}")
            lines += [f"  {key} {dict(labels)}: {value}" for (key, labels), value in sorted(found.items())
                      if before.get((key, labels)) != value and "_created" not in key
                      and "build_info" not in key]  # fmt: skip
            lines += [f"  gone: {key} {dict(labels)}" for key, labels in sorted(before.keys() - found.keys())]
            before = found
    compare("metrics.txt", lines)


def test_ten_thousand_partitions_give_a_bounded_number_of_series() -> None:
    metrics = Metrics()
    one = sample(NINE)
    (finding,) = one.findings
    numbered = [replace(finding, partition=number, groups_held=(f"group-{number}",)) for number in range(10_000)]
    held = [replace(each, opened_at=NINE - dt.timedelta(seconds=each.partition or 0)) for each in numbered]
    alive = [*held[:100], *(replace(each, verdict=Verdict.LONG) for each in held[100:])]
    late = [late_on(number, leader=1 + number % 3) for number in range(10_000)]
    metrics.on_sample(replace(one, findings=alive, late_transactions=late), written=True)
    found = numbers(metrics)
    assert len(found) < 7100, "6 for each of 1,000 partitions, 1 for each of 1,000 groups, and some"
    parts = {int(dict(labels)["partition"]) for name, labels in found if name == "kafka_txn_partition_lso_held_seconds"}
    assert parts == {*range(100), *range(9100, 10_000)}, "what hangs, and what has been held for longest"
    assert found["kafka_txn_last_sample_omitted_partitions", ()] == 9000
    assert found["kafka_txn_transactions", (("verdict", "hanging"),)] == 100
    assert found["kafka_txn_transactions", (("verdict", "long"),)] == 9900
    assert sum(value for (name, _), value in found.items() if name == LATE) == 10_000
    healthy = [replace(each, verdict=Verdict.CLEAR, producer_id=None) for each in numbered]
    assert len(alive) == len(healthy)
    metrics.on_sample(replace(one, findings=healthy), written=True)
    assert len(numbers(metrics)) < 50, "a healthy cluster has no series by partition, however large it is"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_metric_names_follow_prometheus_rules() -> None:
    from prometheus_client import generate_latest

    metrics, one = Metrics(), sample(NINE)
    metrics.on_sample(replace(one, findings=[replace(one.findings[0], groups_held=("billing",))]), written=True)
    text = generate_latest(metrics.registry)
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_a_group_has_series_while_it_is_blocked(kafka: Kafka) -> None:
    """Markers are not distinguished from records: the recorder reads no log for it."""
    metrics, due = Metrics(), dt.datetime.now(dt.UTC)
    with Cluster(kafka.bootstrap_servers) as cluster:
        staged = INCIDENTS["never_added"](kafka, records=5)
        with BlockedConsumer(kafka, staged.topic, f"billing-{staged.topic}"):
            pass
        first = take_sample(cluster, with_held_groups=True, due=due)
        second = take_sample(cluster, with_held_groups=True, due=due, before=first)
        (lag,) = cluster.group_lag_rows(f"billing-{staged.topic}")
        metrics.on_sample(second, written=True)
        labels = (("group", f"billing-{staged.topic}"), ("partition", "0"), ("topic", staged.topic))
        output = numbers(metrics)
        assert output["kafka_txn_group_held_offsets", labels] == lag["lag"] - lag["client_lag"] >= lag["held"] == 5
        assert output["kafka_txn_group_behind_offsets", labels] == lag["client_lag"]
        assert output["kafka_txn_group_series_omitted", ()] == 0
        metrics.on_sample(replace(second, held_groups=None), written=True)
        assert numbers(metrics)["kafka_txn_group_held_offsets", labels], "unreachable groups keep theirs"
        metrics.on_sample(replace(second, held_groups=[]), written=True)
        assert ("kafka_txn_group_held_offsets", labels) not in numbers(metrics)


def test_the_number_of_groups_is_bounded_and_others_are_counted() -> None:
    lag = GroupLag(group_id="one", topic="orders", behind=0)
    lags = [replace(lag, partition=number, held=number) for number in range(MAX_GROUP_LAGS + 10)]
    metrics = Metrics()
    metrics.on_sample(replace(sample(NINE), held_groups=lags), written=True)
    found = numbers(metrics)
    held = [value for (name, _), value in found.items() if name == "kafka_txn_group_held_offsets"]
    assert (len(held), min(held)) == (MAX_GROUP_LAGS, 10)
    assert found["kafka_txn_group_series_omitted", ()] == 9, "one of them holds nothing"


def test_metrics_are_served_only_on_their_address() -> None:
    metrics, other = Metrics(), Metrics()
    port = metrics.serve("127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"kafka_txn_samples_taken_total 0.0" in answer.read()
        with pytest.raises(UsageError, match=rf"^Cannot listen on 127\.0\.0\.1:{port}: Address already in use\."):
            other.serve("127.0.0.1", port)
    finally:
        metrics.close()
        other.close()


def test_without_prometheus_client_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    really = builtins.__import__

    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return really(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UsageError, match=r"--metrics-port needs prometheus-client\. pip install prometheus-client"):
        Metrics()


def test_a_recorder_that_was_stopped_gives_its_signals_back() -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with _until_stopped() as stop:
        assert signal.getsignal(signal.SIGTERM) not in before
        assert not stop.is_set()
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
