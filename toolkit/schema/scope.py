"""What an answer is about: partitions, brokers and transactional ids, how many were seen and how many were not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.schema.table import Row, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How many were read, and how many could not be."""

    seen: int
    not_seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBrokers:
    """Ids of the brokers that answered, or whose files were read, and of those that did not."""

    seen: Sequence[int] = ()
    not_seen: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What an answer is about; a kind of thing that it is not about is null."""

    partitions: Seen | None = None
    brokers: SeenBrokers | None = None
    transactional_ids: Seen | None = None
    # of what was read for findings, else null: ids that are open, but on none of these partitions; and whether the ids
    # are open ones only, as coordinators were not asked for others
    open_elsewhere: int | None = None
    open_only: bool | None = None
    missing: Sequence[str] = ()  # what may be hidden, and why, a sentence each

    def text(self, principal: str | None = None) -> str | None:
        """As an all-clear names it: ``57 partitions of brokers 1, 2; 12 transactional ids, 1 of them open elsewhere``.

        Null of what was not read for findings. `principal`: who read it; null if that is not known.
        """
        if self.partitions is None or self.brokers is None or self.transactional_ids is None or self.open_only is None:
            return None
        number, ids = self.partitions.seen, self.transactional_ids.seen
        brokers = ", ".join(map(str, self.brokers.seen))
        of = f"broker{'s' if len(self.brokers.seen) > 1 else ''} {brokers}" if brokers else "an unknown broker"
        texts = [
            f"{number:,} partition{'' if number == 1 else 's'} of {of}",
            f"{ids:,} {'open ' if self.open_only else ''}transactional id{'' if ids == 1 else 's'}"
            + (f", {self.open_elsewhere:,} of them open elsewhere" if self.open_elsewhere else ""),
        ]
        return "; ".join([*texts, *([f"as {principal}"] if principal else [])])

    @classmethod
    def of_rows(cls, table: Table, rows: Iterable[Row], *, missing: Sequence[str] = ()) -> Scope:
        """What rows are about: seen if a row without an error names it, and not seen if only rows with one do.

        `missing`: what may be hidden; the error of a row that names nothing is added.
        """
        kinds = [("topic", "partition"), ("broker_id",), ("transactional_id",)]
        kinds = [kind for kind in kinds if {*kind} <= {*table.names}]
        seen: dict[tuple[str, ...], set[Any]] = {kind: set() for kind in kinds}
        failed: dict[tuple[str, ...], set[Any]] = {kind: set() for kind in kinds}
        of_nothing: dict[str, None] = {}
        for row in rows:
            error = row.get("error")
            names = {kind: tuple(row.get(column) for column in kind) for kind in kinds}
            names = {kind: name for kind, name in names.items() if None not in name}
            for kind, name in names.items():
                (failed if error else seen)[kind].add(name)
            if error and not names:
                of_nothing[error] = None
        numbers = {kind: Seen(seen=len(seen[kind]), not_seen=len(failed[kind] - seen[kind])) for kind in kinds}
        brokers = None
        if (of_broker := ("broker_id",)) in seen:
            answered, silent = seen[of_broker], failed[of_broker] - seen[of_broker]
            brokers = SeenBrokers(seen=[n for (n,) in sorted(answered)], not_seen=[n for (n,) in sorted(silent)])
        return cls(
            partitions=numbers.get(("topic", "partition")),
            brokers=brokers,
            transactional_ids=numbers.get(("transactional_id",)),
            missing=[*missing, *of_nothing],
        )
