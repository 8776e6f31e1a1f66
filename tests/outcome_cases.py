"""Open transactions by what was decided about them, and by what their producer did afterwards on other partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from toolkit.schema.verdict import Verdict

SKIPPING = ("4.3.1", "4.4.0")
"""Versions whose coordinator skips the marker of an offline partition (KAFKA-20734); others write it later."""


class Origin(StrEnum):
    """How a transaction came to be open without an owner that ends it."""

    SKIPPED = "skipped marker"
    LOST = "unclean election"
    COMPACTED = "compacted marker"
    REFUSED = "refused marker"
    LATE_BATCH = "late batch"
    NEVER_ADDED = "never added"
    SUPERSEDED = "superseded epoch"

    @property
    def is_marker_missing(self) -> bool:
        """Whether its marker was decided, and nobody writes it."""
        return self in {Origin.SKIPPED, Origin.LOST, Origin.COMPACTED}


class Sequel(StrEnum):
    """What the producer does afterwards, on another partition."""

    NOTHING = "nothing"
    THREE_COMMITS = "three commits"
    OPEN = "one open"
    ABORT = "one abort"
    NEW_INSTANCE = "new instance"
    NEW_INSTANCE_OPEN = "new instance with one open"

    @property
    def is_open(self) -> bool:
        """Whether a transaction stays open, so that its id cannot expire."""
        return self in {Sequel.OPEN, Sequel.NEW_INSTANCE_OPEN}


class Client(StrEnum):
    """Who produces."""

    LAB = "lab"
    LIBRDKAFKA = "librdkafka"
    JAVA = "Java"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The columns of a finding that tell a user what to do."""

    verdict: str
    outcome: str | None
    action: str | None

    def __str__(self) -> str:
        return f"{self.verdict}/{self.outcome}/{self.action}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An open transaction."""

    origin: Origin  # how it came to be open
    sequel: Sequel = Sequel.NOTHING  # what its producer did afterwards
    commit: bool | None = None  # how the transaction, or the one before a late batch, was ended; null if none was
    transaction_version: int = 1  # of its producer
    earlier: int = 0  # transactions on the same partitions that its producer committed before, with their markers
    client: Client = Client.LAB  # its producer
    has_offsets: bool = False  # whether it is open on ``__consumer_offsets``, with a group's offset

    def __str__(self) -> str:
        return f"{self.incident}, {self.sequel}, version {self.transaction_version}, {self.earlier} earlier"

    @property
    def incident(self) -> str:
        """Its row of the table."""
        ended = {None: "", True: ", commit", False: ", abort"}[self.commit]
        offsets = " of offsets" if self.has_offsets else ""
        client = "" if self.client is Client.LAB else f", {self.client} client"
        return f"{self.origin}{offsets}{ended}{client}"

    @property
    def may_be_unknown(self) -> bool:
        """Whether only the clocks of two brokers tell which of several transactions of one epoch a marker is of."""
        return self.transaction_version == 1 and self.earlier > 0

    @property
    def is_received(self) -> bool:
        """Whether its records were committed."""
        return bool(self.commit) and self.origin is not Origin.LATE_BATCH

    @property
    def expected(self) -> Expected:
        """What is proven to have been decided about its records, and what is safe."""
        if self.origin is Origin.REFUSED:
            return Expected(verdict=Verdict.ENDING, outcome="commit", action=None)
        if self.origin is Origin.LATE_BATCH and self.transaction_version == 2:  # brokers add what is written
            return Expected(verdict=Verdict.UNKNOWN, outcome="unknown", action=None)
        if not self.origin.is_marker_missing:
            return Expected(verdict=Verdict.HANGING, outcome="undecided", action="abort")
        if self.commit and self.transaction_version == 1:  # no broker's time is between the records and the commit
            return Expected(verdict=Verdict.UNKNOWN, outcome="unknown", action=None)
        if self.commit:
            return Expected(verdict=Verdict.STUCK_ENDING, outcome="commit", action="complete")
        return Expected(verdict=Verdict.HANGING, outcome="abort", action="abort")


def few_cases(version: str) -> list[Case]:
    """Those of the first tier, and those whose remedy is followed: an action takes half a second."""
    commits = (Sequel.NOTHING, Sequel.THREE_COMMITS, Sequel.OPEN, Sequel.NEW_INSTANCE, Sequel.ABORT)
    found = [Case(origin=Origin.LOST, commit=True, sequel=sequel) for sequel in commits]
    found += [
        Case(origin=Origin.LOST, commit=True, sequel=Sequel.THREE_COMMITS, earlier=1),
        Case(origin=Origin.LOST, commit=False, sequel=Sequel.THREE_COMMITS),
        Case(origin=Origin.LOST, commit=True, has_offsets=True),
        Case(origin=Origin.LOST, commit=True, has_offsets=True, sequel=Sequel.OPEN),
        Case(origin=Origin.LOST, commit=False, has_offsets=True),
        Case(origin=Origin.COMPACTED, commit=True, sequel=Sequel.THREE_COMMITS),
        Case(origin=Origin.COMPACTED, commit=True, sequel=Sequel.OPEN),
        Case(origin=Origin.REFUSED, commit=True),
        Case(origin=Origin.LATE_BATCH, commit=True, sequel=Sequel.THREE_COMMITS),
        Case(origin=Origin.LATE_BATCH, commit=False),
        Case(origin=Origin.NEVER_ADDED, sequel=Sequel.OPEN),
        Case(origin=Origin.SUPERSEDED, sequel=Sequel.NEW_INSTANCE),
    ]
    if version in SKIPPING:
        found += [Case(origin=Origin.SKIPPED, commit=True, sequel=sequel) for sequel in commits[:3]]
    if version >= "4":
        found += [
            Case(origin=origin, commit=True, sequel=sequel, transaction_version=2)
            for origin in ([Origin.LOST, Origin.SKIPPED] if version in SKIPPING else [Origin.LOST])
            for sequel in (Sequel.NOTHING, Sequel.THREE_COMMITS, Sequel.NEW_INSTANCE_OPEN)
        ]
        found.append(Case(origin=Origin.LATE_BATCH, commit=True, transaction_version=2))
        after_a_commit = Case(
            origin=Origin.LOST, commit=True, sequel=Sequel.THREE_COMMITS, transaction_version=2, earlier=1
        )
        found.append(after_a_commit)  # which began its epoch
    return found


def real_cases(version: str, clients: Sequence[Client]) -> list[Case]:
    """Those of applications' producers, whose remedies are followed, too; 2.8 does not tell when it has completed."""
    return [
        Case(
            origin=origin,
            commit=True,
            sequel=sequel,
            client=client,
            has_offsets=has_offsets,
            transaction_version=2 if client is Client.JAVA and version >= "4" else 1,
        )
        for origin in ([Origin.LOST, Origin.SKIPPED] if version in SKIPPING else [Origin.LOST])
        for client in clients
        for sequel, has_offsets in (
            (Sequel.NOTHING, False),
            (Sequel.THREE_COMMITS, False),
            (Sequel.OPEN, False),
            *([(Sequel.THREE_COMMITS, True)] if origin is Origin.LOST else []),
        )
        if version >= "3"
    ]


def cases(version: str) -> list[Case]:
    """All cases; of transaction version 2 also a late batch, which a real client would not leave open."""
    found: list[Case] = []
    for origin in [Origin.LOST, Origin.SKIPPED] if version in SKIPPING else [Origin.LOST]:
        for commit in (True, False):
            found += [
                Case(origin=origin, sequel=sequel, commit=commit, transaction_version=transaction_version)
                for transaction_version in ((1, 2) if version >= "4" else (1,))
                for sequel in Sequel
            ]
            found += [
                Case(origin=origin, sequel=sequel, commit=commit, earlier=earlier)
                for earlier in (1, 2)
                for sequel in (Sequel.NOTHING, Sequel.THREE_COMMITS, Sequel.OPEN)
            ]
    found += [
        Case(origin=origin, sequel=sequel, commit=commit)
        for origin, commit in (
            (Origin.LATE_BATCH, True),
            (Origin.LATE_BATCH, False),
            (Origin.NEVER_ADDED, None),
            (Origin.SUPERSEDED, None),
        )
        for sequel in Sequel
    ]
    return list(dict.fromkeys([*found, *few_cases(version), *real_cases(version, (Client.LIBRDKAFKA, Client.JAVA))]))


def retried_cases() -> list[Case]:
    """Markers of an offline partition, on versions that write them once it has a leader again."""
    return [
        Case(origin=Origin.SKIPPED, commit=commit, sequel=sequel)
        for commit in (True, False)
        for sequel in (Sequel.NOTHING, Sequel.OPEN)
    ]
