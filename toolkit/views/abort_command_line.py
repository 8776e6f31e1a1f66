"""The command of Kafka's tool that would abort a transaction found open in files; writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.actions.abort import ABORT
from toolkit.errors import NotFound
from toolkit.schema.live import Finding, Producer
from toolkit.schema.verdict import Verdict
from toolkit.views.renderers import command_line

if TYPE_CHECKING:
    from toolkit.sources.logdir import LogDir

FILES_AGE = (
    "The files may be older than the cluster is: check it first (kafka-txn diagnose), or use kafka-txn abort, which "
    "does so."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortAdvice:
    """One open transaction on one partition, and whether it should be aborted.

    `target`: ``orders-0@913095344``.
    `command`: ``kafka-transactions.sh`` with its arguments, by start offset: it reads the producer's state afresh.
    `old_command`: for brokers before 2.8, which lack DescribeProducers: by producer id and both epochs.
    `proven`: whether the files prove that it hangs.
    `speaks_for`, `speaks_against`: sentences.
    """

    target: str
    command: tuple[str, ...]
    old_command: tuple[str, ...]
    proven: bool
    speaks_for: Sequence[str]
    speaks_against: Sequence[str]

    @property
    def line(self) -> str:
        """The command, as a comment unless it is proven that the transaction hangs."""
        line = command_line(self.command)
        return line if self.proven else f"# {line}"


def abort_advice(
    files: LogDir,
    *,
    producer_id: int,
    producer_epoch: int,
    topics: Sequence[str] | None = None,
    partitions: Sequence[int] | None = None,
    bootstrap_server: str = "HOST:PORT",
) -> list[AbortAdvice]:
    """Advice for every partition where a producer has a transaction open.

    `files`: the files; best with ``__transaction_state`` among them.
    `producer_id`, `producer_epoch`: the producer, by the partition's producer state.
    `topics`, `partitions`: partitions to search; all if null.
    Raises NotFound if that producer has nothing open there.
    """
    found = [
        each
        for each in map(Finding.of, files.finding_rows(topics=topics, partitions=partitions))
        if each.producer_id == producer_id and each.start_offset is not None
    ]
    if not found:
        raise NotFound(
            f"Producer {producer_id} has no transaction open in these files.",
            do="kafka-txn diagnose --log-dir PATH shows which ones are.",
        )
    producers = [each for each in map(Producer.of, files.producer_rows()) if each.producer_id == producer_id]
    states = {(each.topic, each.partition): each for each in producers}
    return [
        _advice(each, states.get((each.topic or "", each.partition or 0)), producer_epoch, bootstrap_server)
        for each in found
    ]


def _advice(finding: Finding, state: Producer | None, producer_epoch: int, server: str) -> AbortAdvice:
    name = f"{finding.topic}-{finding.partition}"
    other_epoch = finding.producer_epoch != producer_epoch
    refusal = ABORT.ruling(finding).refusal
    against = [f"Its epoch there is {finding.producer_epoch}, not {producer_epoch}."] if other_epoch else []
    if finding.outcome == "commit":
        against += [f"Never abort it: {finding.reason}", f"Remedy: {finding.remedy}"]
    elif finding.verdict is Verdict.UNKNOWN:
        against += [f"Not known: {missing}." for missing in finding.missing]
    elif refusal is not None:
        against.append(f"It is {finding.verdict}: {finding.reason}")
    where = ("--topic", finding.topic or "", "--partition", str(finding.partition or 0))
    tool = ("kafka-transactions.sh", "--bootstrap-server", server, "abort", *where)
    coordinator_epoch = 0 if state is None else state.coordinator_epoch or 0
    epochs = ("--producer-epoch", str(finding.producer_epoch), "--coordinator-epoch", str(coordinator_epoch))
    speaks_for = [finding.reason] if finding.verdict in {"hanging", "unknown"} else []
    return AbortAdvice(
        target=f"{name}@{finding.start_offset}",
        command=(*tool, "--start-offset", str(finding.start_offset)),
        old_command=(*tool, "--producer-id", str(finding.producer_id), *epochs),
        proven=refusal is None and not other_epoch,
        speaks_for=[*speaks_for, *([f"Cause: {finding.cause}."] if finding.cause else [])],
        speaks_against=[*against, FILES_AGE],
    )
