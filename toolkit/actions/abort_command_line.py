"""The command of Kafka's tool that would abort a transaction found open in files; writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.errors import NotFound

if TYPE_CHECKING:
    from toolkit.schema import Row
    from toolkit.sources.logdir import LogDir

__all__ = ["AbortAdvice", "abort_advice"]

FILES_AGE = (
    "The files may be older than the cluster is: check it first (kafka-txn diagnose), or use kafka-txn abort, which "
    "does so."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortAdvice:
    """One open transaction on one partition, and whether it should be aborted.

    Parameters
    ----------
    target
        ``orders-0@913095344``.
    command
        The line of ``kafka-transactions.sh``, by start offset: it reads the producer's state afresh.
    old_command
        For brokers before 2.8, which lack DescribeProducers: by producer id and both epochs.
    proven
        Whether the files prove that it hangs.
    speaks_for, speaks_against
        Sentences.
    """

    target: str
    command: str
    old_command: str
    proven: bool
    speaks_for: Sequence[str]
    speaks_against: Sequence[str]

    @property
    def line(self) -> str:
        """The command, as a comment unless it is proven that the transaction hangs."""
        return self.command if self.proven else f"# {self.command}"


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

    Parameters
    ----------
    files
        The files; best with ``__transaction_state`` among them.
    producer_id, producer_epoch
        The producer, by the partition's producer state.
    topics, partitions
        Partitions to search; all if null.
    bootstrap_server
        Bootstrap server in the command.

    Raises
    ------
    NotFound
        If that producer has nothing open there.
    """
    rows = [
        row
        for row in files.finding_rows(topics=topics, partitions=partitions)
        if row["producer_id"] == producer_id and row["start_offset"] is not None
    ]
    if not rows:
        raise NotFound(
            f"Producer {producer_id} has no transaction open in these files.",
            do="kafka-txn diagnose --log-dir PATH shows which ones are.",
        )
    mine = [row for row in files.producer_rows() if row["producer_id"] == producer_id]
    states = {(row["topic"], row["partition"]): row for row in mine}
    return [
        _advice(row, states.get((row["topic"], row["partition"]), {}), producer_epoch, bootstrap_server) for row in rows
    ]


def _advice(row: Row, state: Row, producer_epoch: int, server: str) -> AbortAdvice:
    other_epoch = row["producer_epoch"] != producer_epoch
    proven = row["verdict"] == "hanging" and not other_epoch
    against = [f"Its epoch there is {row['producer_epoch']}, not {producer_epoch}."] if other_epoch else []
    if row["verdict"] == "unknown":
        against += [f"Not known: {missing}." for missing in row["missing"]]
    elif row["verdict"] != "hanging":
        against.append(f"It is {row['verdict']}: {row['reason']}")
    where = f"--topic {row['topic']} --partition {row['partition']}"
    tool = f"kafka-transactions.sh --bootstrap-server {server} abort {where}"
    coordinator_epoch = state.get("coordinator_epoch")
    epochs = f"--producer-epoch {row['producer_epoch']} --coordinator-epoch {coordinator_epoch or 0}"
    speaks_for = [row["reason"]] if row["verdict"] in {"hanging", "unknown"} else []
    return AbortAdvice(
        target=f"{row['topic']}-{row['partition']}@{row['start_offset']}",
        command=f"{tool} --start-offset {row['start_offset']}",
        old_command=f"{tool} --producer-id {row['producer_id']} {epochs}",
        proven=proven,
        speaks_for=[*speaks_for, *([f"Cause: {row['cause']}."] if row["cause"] else [])],
        speaks_against=[*against, FILES_AGE],
    )
