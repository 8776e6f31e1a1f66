"""A model of Kafka's transaction protocol, observed between any two of its steps: a healthy transaction never hangs.

The model keeps what matters here: producer state on two partitions, coordinator state, epochs that do or do not grow
with each transaction (TV1, TV2), fencing with the epoch raised before it is logged, and markers written one by one.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.build import COMPLETE, NOW, partition, producer, transaction
from tests.analysis.logged import diagnosed
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.schema.live import Partition, Producer, Transaction

PARTITIONS = (0, 1)


@dataclass
class Model:
    version: int
    state: str = "Empty"
    epoch: int = 0  # the coordinator's
    client_epoch: int = 0  # the live client's
    listed: set[int] = field(default_factory=set)
    ends: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    open_from: dict[int, int | None] = field(default_factory=lambda: dict.fromkeys(PARTITIONS))
    data_epoch: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    fencing: bool = False

    def write(self, number: int) -> None:
        """Add the partition, then write to it, as every correct client does."""
        if self.state in {"PrepareCommit", "PrepareAbort"} or self.fencing or self.client_epoch != self.epoch:
            return
        self.state = "Ongoing"
        self.listed.add(number)

    def append(self, number: int) -> None:
        if self.state == "Ongoing" and number in self.listed and self.client_epoch >= self.data_epoch[number]:
            if self.open_from[number] is None:
                self.open_from[number] = self.ends[number]
            self.ends[number] += 1
            self.data_epoch[number] = self.client_epoch

    def end(self, _: int) -> None:
        if self.state == "Ongoing" and not self.fencing and self.client_epoch == self.epoch:
            self.state = "PrepareCommit"
            self.epoch += self.version - 1

    def fence(self, _: int) -> None:
        """InitProducerId of a new instance over an open transaction: first the epoch, later PrepareAbort."""
        if self.state == "Ongoing" and not self.fencing:
            self.fencing = True
            self.epoch += 1

    def fenced(self, _: int) -> None:
        if self.fencing:
            self.fencing = False
            self.state = "PrepareAbort"

    def mark(self, number: int) -> None:
        if self.state.startswith("Prepare") and number in self.listed:
            self.open_from[number] = None
            self.ends[number] += 1
            self.data_epoch[number] = max(self.data_epoch[number], self.epoch)

    def acknowledge(self, number: int) -> None:
        if self.state.startswith("Prepare") and number in self.listed and self.open_from[number] is None:
            self.listed.discard(number)

    def complete(self, _: int) -> None:
        if self.state.startswith("Prepare") and not self.listed:
            self.state = self.state.replace("Prepare", "Complete")

    def resume(self, _: int) -> None:
        """The client learns its next epoch (EndTxn v5), or a new instance takes over."""
        if self.state.startswith("Complete"):
            self.client_epoch = self.epoch

    def advance(self, number: int) -> None:
        """The next step of a normal transaction."""
        if self.fencing:
            self.fenced(number)
        elif self.state.startswith("Prepare"):
            target = min(self.listed, default=number)
            self.complete(target) if not self.listed else self.mark(target)
            self.acknowledge(target)
        elif self.state == "Ongoing" and number in self.listed:
            self.end(number) if self.open_from[number] is not None else self.append(number)
        else:
            self.resume(number)
            self.write(number)

    def late(self, number: int) -> None:
        """A retried batch arrives after its transaction ended, and hangs."""
        if self.open_from[number] is None:
            self.open_from[number] = self.ends[number]
            self.ends[number] += 1

    def partitions(self) -> list[Partition]:
        return [
            partition(number=n, lso=self.ends[n] if self.open_from[n] is None else self.open_from[n], hw=self.ends[n])
            for n in PARTITIONS
        ]

    def producers(self) -> list[Producer]:
        return [producer(epoch=self.data_epoch[n], start=self.open_from[n], partition=n) for n in PARTITIONS]

    def transactions(self) -> list[Transaction]:
        listed = [("orders", n) for n in sorted(self.listed)]
        logged = None if self.fencing else NOW  # the raised epoch is logged later, with PrepareAbort
        return [transaction(state=self.state, epoch=self.epoch, on=listed, last_update_time=logged)]


STEPS: tuple[Callable[[Model, int], None], ...] = (
    Model.write, Model.append, Model.end, Model.fence, Model.fenced, Model.mark, Model.acknowledge, Model.complete,
    Model.resume,
)  # fmt: skip
arbitrary_step = st.tuples(st.sampled_from(STEPS), st.sampled_from(PARTITIONS))
normal_step = st.tuples(st.just(Model.advance), st.sampled_from(PARTITIONS))
some_steps = st.lists(normal_step | normal_step | arbitrary_step, max_size=12)


def observe(model: Model, steps: Callable[[], None], at: dt.datetime) -> Observation:
    """Observe the model, with other steps between any two requests."""
    partitions = model.partitions()
    steps()
    producers = model.producers()
    steps()
    transactions = model.transactions()
    steps()
    producers_after = model.producers()
    steps()
    return Observation(
        partitions=partitions,
        producers=producers,
        transactions=transactions,
        producers_after=producers_after,
        partitions_after=model.partitions(),
        coverage=COMPLETE,
        observed_at=at,
    )


@settings(max_examples=600)
@given(st.data(), st.sampled_from((1, 2)), st.sampled_from((1, 2)))
def test_no_interleaving_makes_a_healthy_transaction_hang(data: st.DataObject, version: int, observations: int) -> None:
    model = Model(version)

    def steps() -> None:
        for step, number in data.draw(some_steps):
            step(model, number)

    steps()
    observed = []
    for i in range(observations):
        observed.append(observe(model, steps, NOW + dt.timedelta(seconds=5 * i)))
        steps()
    assert [row for row in diagnosed(observed) if row.verdict in {"hanging", "unreplicated"} or row.action] == []
