"""``kafka-txn demo``: stage real incidents on an own Kafka, find and end them, in less than a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer

from toolkit.actions.audit import Audit
from toolkit.actions.marker_actions import plan_abort
from toolkit.lab.broker import Kafka
from toolkit.lab.clients import BlockedConsumer, create_topic
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.schema import Row
from toolkit.sources.live.cluster import Cluster
from toolkit.views.finding_document import finding_lines, summary
from toolkit.views.row_formats import wrap

WRONG = {  # topic and the incident staged on it
    "orders": "late_message",
    "refunds": "superseded_same_partition",
    "carts": "offsets_never_added",
}
HEALTHY_TOPICS = {"clicks": "open_young", "exports": "open_long", "backfill": "old_event_times"}
PAYMENTS, GROUP = "payments", "billing"  # one more incident, shown by the group that reads the topic
READ, WAITING = 5, 20  # ordinary records before and after the hanging transaction
RECHECK_AFTER = 2.0

ShowLines = Callable[[Iterable[str]], None]


def run(version: str, *, show: ShowLines, width: int | None = None) -> bool:
    """Run the demo and show every step; whether every result was as expected.

    `version`: Kafka version. `show`: shows the lines of a step. `width`: columns to wrap at; null for no wrapping.
    """
    began = time.monotonic()
    demo = Demo(show, width=width)
    demo.step(1, f"Starting a real Kafka {version} on this machine; the first time, its jars are fetched.")
    with Kafka(version, properties=EVERYDAY.properties) as kafka:
        demo.detail(f"It listens on {kafka.bootstrap_servers}.")
        staged = demo.stage(kafka)
        consumer, hanging = demo.block(kafka)
        with Cluster(kafka.bootstrap_servers) as cluster:
            rows = demo.diagnose(cluster, [*staged, hanging])
            demo.end([row for row in rows if row["verdict"] == "hanging"], cluster)
            demo.read_on(consumer)
            demo.finish(cluster, staged)
        consumer.close()
    took = f"{time.monotonic() - began:.0f} s. Kafka is stopped and its data deleted."
    show(
        ["", f"Not as it should be: {'; '.join(demo.failed)}." if demo.failed else f"All went as it should, in {took}"]
    )
    return not demo.failed


class Demo:
    """The steps of the demo, and deviations from the expected results.

    `show`, `width`: as for `run`.
    """

    def __init__(self, show: ShowLines, *, width: int | None) -> None:
        self._show = show
        self._width = width
        self.failed: list[str] = []

    def step(self, number: int, text: str) -> None:
        """Open a step."""
        if number > 1:
            self._show([""])
        self._show(wrap(text, before=f"{number}  ", width=self._width))

    def detail(self, text: str) -> None:
        """Show a paragraph of the step."""
        self._show(wrap(text, before="   ", width=self._width))

    def expect(self, right: bool, otherwise: str) -> None:
        """Note a deviation."""
        if not right:
            self.failed.append(otherwise)

    def stage(self, kafka: Kafka) -> list[StagedIncident]:
        """Stage hanging transactions, and healthy ones that look like them."""
        self.step(2, f"{len(WRONG)} transactions go wrong, as they do in the wild:")
        staged = [self._staged(kafka, topic, name) for topic, name in WRONG.items()]
        self.detail(f"{len(HEALTHY_TOPICS)} healthy ones are open, and must be left alone:")
        return staged + [self._staged(kafka, topic, name) for topic, name in HEALTHY_TOPICS.items()]

    def block(self, kafka: Kafka) -> tuple[BlockedConsumer, StagedIncident]:
        """Let a read_committed group read, then stage a hanging transaction before its next records."""
        create_topic(kafka, PAYMENTS)
        _write(kafka, PAYMENTS, READ)
        consumer = BlockedConsumer(kafka, PAYMENTS, GROUP)
        self.step(3, f"{READ} payments are written, and the read_committed group {GROUP} reads them. Then this:")
        self.expect(consumer.lag == 0, f"group {GROUP} was to read {READ} records first")
        hanging = self._staged(kafka, PAYMENTS, "never_added")
        _write(kafka, PAYMENTS, WAITING)
        records = consumer.read()
        self.detail(
            f"{WAITING} more payments arrive, and {GROUP} reads {len(records)} of them: its position is offset "
            f"{consumer.position}, the last stable offset (LSO), with a lag of {consumer.lag} and no error in any log."
        )
        self.expect(not records and consumer.lag > WAITING, f"group {GROUP} was to be blocked")
        return consumer, hanging

    def diagnose(self, cluster: Cluster, staged: Sequence[StagedIncident]) -> Sequence[Row]:
        """Diagnose the whole cluster, and compare with the staged incidents."""
        self.step(
            4, f"kafka-txn diagnose queries every broker, and rechecks doubtful partitions {RECHECK_AFTER:g} s later:"
        )
        rows = cluster.finding_rows(recheck_after=RECHECK_AFTER)
        self._show(["", *finding_lines(rows, width=self._width), "", summary(rows)])
        verdicts = {(row["topic"], row["partition"], row["start_offset"]): row["verdict"] for row in rows}
        for each in staged:
            found = verdicts.get((each.topic, each.partition, each.start_offset))
            self.expect(found == each.expected, f"{each.topic} was to be {each.expected}, not {found}")
        return rows

    def end(self, hanging: Sequence[Row], cluster: Cluster) -> None:
        """Abort the hanging transactions, each after a fresh check."""
        self.step(5, "Each hanging transaction is checked once more, and ended by an abort marker:")
        with TemporaryDirectory(prefix="kafka-txn-demo-") as folder:
            audit = Audit(Path(folder) / "audit.jsonl")  # this Kafka is deleted in a minute
            for row in hanging:
                plan = plan_abort(cluster, row)
                done = plan.execute(confirm=plan.target, audit=audit, recheck_after=RECHECK_AFTER)
                before, after = done.last_stable_offset_before, done.last_stable_offset_after
                self.detail(f"{plan.transaction.tp}: its LSO rose from {before} to {after}.")
                is_freed = before is not None and after is not None and after > before
                self.expect(is_freed, f"{plan.target} was to be freed")
        self.expect(len(hanging) == len(WRONG) + 1, f"{len(WRONG) + 1} were to hang, not {len(hanging)}")

    def read_on(self, consumer: BlockedConsumer) -> None:
        """Let the group continue."""
        records = consumer.read()
        self.step(6, f"Group {GROUP} continues by itself: {len(records)} payments.")
        self.expect(len(records) == WAITING, f"group {GROUP} was to read {WAITING} records, not {len(records)}")

    def finish(self, cluster: Cluster, staged: Sequence[StagedIncident]) -> None:
        """Commit the healthy transactions, which works only if they were not aborted."""
        for each in staged:
            each.close()
        rows = cluster.finding_rows(recheck_after=0)
        self.detail(f"The healthy transactions commit. The whole cluster now: {summary(rows)}.")
        self.expect(not rows, "nothing was to be open at the end")

    def _staged(self, kafka: Kafka, topic: str, name: str) -> StagedIncident:
        staged = INCIDENTS[name](kafka, topic=topic)
        self._show(wrap(staged.what, before=f"     {staged.topic}-{staged.partition}: ", width=self._width))
        return staged


def _write(kafka: Kafka, topic: str, count: int) -> None:
    producer = Producer(kafka.client_config())
    for number in range(count):
        producer.produce(topic, value=f"payment {number}", partition=0)
    producer.flush(30)
