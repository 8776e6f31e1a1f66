"""The machine of every action: plan, fresh check, claims, typed confirmation, copy, audit, lock, request, read-back.

An action (`Action`) declares what differs: what it needs, what it sends, how it is read back, and its words. Several
plans are executed by the same machine: all are checked afresh at once, then it is the turn of each, up to the first
surprise.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from toolkit.actions.audit import Audit
from toolkit.actions.transaction import (
    MarkerImpact,
    OffsetCommitted,
    PartitionResult,
    PlannedTransaction,
    SavedRecords,
    save_records,
)
from toolkit.analysis.diagnosis.decision import NOT_PROVEN, PROVEN
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.command_line import command_line
from toolkit.errors import ActionFailed, ActionRefused, AuditFailed, BrokerError, Effect, ToolkitError
from toolkit.schema.checkpoint import Committable, FlinkCheckpoint
from toolkit.schema.live import EvidenceEntry, Finding, Transaction
from toolkit.schema.recorded import ActionClaim, ActionStep
from toolkit.schema.table import Error, TopicPartition

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.observation import Observation
    from toolkit.schema import Row
    from toolkit.sources.live.cluster import Cluster
    from toolkit.sources.live.coordinators import CoordinatorTopic

T = TypeVar("T")
RECHECK_AFTER = 2.0  # seconds between the two observations of the fresh check
MAX_CHECK_AGE_S = 60.0  # of several plans: the rest is checked afresh again after that time
POLL_S = 0.05  # how soon a cancelled wait ends
ASSERTED = "the operator, by an override"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """Whether an action is offered: the verdict on its target, what it needs, and what of that is not proven."""

    verdict: str
    outcome: str | None = None
    reason: str = ""  # of the verdict, as a sentence
    claims: Sequence[ActionClaim] = ()
    refusal: str | None = None  # why it is refused without an override; null if it is offered
    refused: str = ""  # what the target is then: ``is unknown now, not proven to be hanging``
    # what an override has to repeat, word for word; null where nothing has to be, or nothing can be, and `cannot` says
    # why
    needed_override: str | None = None
    cannot: str = ""
    remedy: str = ""  # sentences
    command: Sequence[str] = ()  # that the remedy has

    def check(self, override: str | None, *, target: str, means: str) -> None:
        """Raise ActionRefused unless the action is offered, or the override repeats exactly what is not proven.

        `target`: its name. `means`: what the refusal means.
        """
        if self.refusal is None and override is None:
            return
        if self.refusal is None:
            what = f"{target}: {not_needed(override)}"
        elif override is None:
            what = f"{target} {self.refused}: {self.refusal}"
        elif self.needed_override is None:
            what = f"{target} {self.refused}, which cannot be overridden: {self.cannot or self.refusal}"
        elif override != self.needed_override:
            what = f"{target}: the override {override!r} does not repeat what is not proven now: {self.needed_override}"
        else:
            return
        do = f"Remedy: {self.remedy}".rstrip() if self.remedy or self.command else ""
        raise ActionRefused(f"{what.rstrip('.')}.", means=means, do=do, command=self.command)

    def by(self, override: str | None) -> tuple[ActionClaim, ...]:
        """The claims, with who asserted those that are not proven."""
        return tuple(
            replace(each, discharged_by=ASSERTED) if override is not None and each.status == NOT_PROVEN else each
            for each in self.claims
        )


def not_needed(override: str | None) -> str:
    """Why an override is refused where the action is offered."""
    return f"the override {override!r} is not needed, as everything is proven: leave it out."


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an action changed: the LSO of each partition, what consumers received, or the coordinator's state."""

    partitions: Sequence[PartitionResult] = ()
    owner: Transaction | None = None  # the coordinator's state of the id after a commit or fence
    still_open: Sequence[TopicPartition] = ()  # where markers of a fence are on their way
    # offset_commits, unread_groups: on ``__consumer_offsets``, the offsets that the groups have now, and the groups
    # that no broker lists to this principal, so that theirs were not read
    offset_commits: Sequence[OffsetCommitted] = ()
    unread_groups: Sequence[str] = ()
    # records_file, records_saved: the copy of what an abort discarded; null if it was not saved
    records_file: Path | None = None
    records_saved: int | None = None

    @property
    def last_stable_offset_before(self) -> int | None:
        """The LSO before a marker."""
        return self.partitions[0].last_stable_offset_before

    @property
    def last_stable_offset_after(self) -> int | None:
        """The LSO after a marker."""
        return self.partitions[0].last_stable_offset_after

    @property
    def next_start_offset(self) -> int | None:
        """First offset of the transaction that holds the LSO next; null if none does."""
        return self.partitions[0].next_start_offset

    @property
    def records_checked(self) -> int | None:
        """Records that a read_committed consumer looked for; null if it does not get that far."""
        return self.partitions[0].records_checked

    @property
    def records_delivered(self) -> int | None:
        """Those that it received."""
        return self.partitions[0].records_delivered


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An action on one target, ready to be executed once it is confirmed and checked again.

    Parameters
    ----------
    cluster
        Where it is done.
    action
        What it is: `ABORT`, `COMPLETE`, `COMMIT` or `FENCE`.
    ruling
        Whether it is offered, and what is proven.
    transactions
        The open transaction on each partition whose records are decided by the action.
    transactional_id, owner
        Of a commit or fence: the id, and its coordinator's state of it.
    checkpoint, committable
        Of Flink: the checkpoint that is to commit the transaction, and what it says.
    warnings
        What the action loses, and what no check can exclude, a sentence each.
    observation
        Of a fence: what was observed, which the fresh check observes again.
    max_transaction_timeout_ms
        Of a fence: what is live and open for longer is ``long`` and not ``ongoing``; it changes the word only.
    coordinators
        Of a marker that is checked again: who led ``__transaction_state`` before the check.
    planned_at
        When its evidence had been read, by this process's monotonic clock.
    """

    cluster: Cluster = field(repr=False, compare=False)
    action: Action = field(repr=False)
    ruling: Ruling = field(repr=False, compare=False)
    transactions: Sequence[PlannedTransaction] = ()
    transactional_id: str | None = None
    owner: Transaction | None = field(default=None, repr=False)
    checkpoint: FlinkCheckpoint | None = field(default=None, repr=False)
    committable: Committable | None = None
    warnings: Sequence[str] = field(default=(), repr=False)
    observation: Observation | None = field(default=None, repr=False, compare=False)
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS
    coordinators: CoordinatorTopic | None = field(default=None, repr=False, compare=False)
    planned_at: float = field(default_factory=time.monotonic, repr=False, compare=False)

    @property
    def target(self) -> str:
        """What a person types to confirm: ``orders-0@913095344``, or a transactional id."""
        return self.transactions[0].target if self.transactional_id is None else self.transactional_id

    @property
    def name(self) -> str:
        """The target as errors have it: an id is quoted."""
        return self.target if self.transactional_id is None else repr(self.transactional_id)

    @property
    def transaction(self) -> PlannedTransaction:
        """The transaction that a marker ends."""
        return self.transactions[0]

    @property
    def basis(self) -> Finding:
        """The finding that justifies a marker, with its evidence."""
        return self.transaction.basis

    @property
    def finding(self) -> Row:
        """`basis` as a row of ``schema.FINDINGS``."""
        return self.basis.row()

    @property
    def impact(self) -> MarkerImpact:
        """What a marker would change."""
        assert self.transaction.impact is not None
        return self.transaction.impact

    @property
    def outcome(self) -> str:
        """What the marker says: ``commit`` or ``abort``."""
        return "commit" if self.action.is_commit(self) else "abort"

    @property
    def topic_partitions(self) -> Sequence[TopicPartition]:
        """The partitions that it changes."""
        if self.owner is not None and not self.transactions:
            return [TopicPartition(*each) for each in self.owner.topic_partitions or ()]
        return [each.tp for each in self.transactions]

    @property
    def verdict(self) -> str:
        """The verdict on the target."""
        return self.ruling.verdict

    @property
    def refusal(self) -> str | None:
        """Why `execute` would have refused this when it was planned; null if it would not."""
        return self.ruling.refusal

    @property
    def needed_override(self) -> str | None:
        """What `override` has to repeat, word for word; null where nothing has to be, or nothing can be overridden."""
        return self.ruling.needed_override

    @property
    def command(self) -> tuple[str, ...] | None:
        """The equal command of Kafka's own tool, its arguments unquoted; null if it has none."""
        if self.action.kafka_tool is None:
            return None
        if self.transactional_id is not None:
            what: tuple[str, ...] = (self.transactional_id,)
        else:
            what = (*self.transaction.tp.options, "--start-offset", str(self.transaction.start_offset))
        tool = ("kafka-transactions.sh", "--bootstrap-server", self.cluster.bootstrap_servers)
        return (*tool, *self.action.kafka_tool, *what)

    def offered(self) -> Plan:
        """Itself. Raises ActionRefused if it is refused, and nobody may override that."""
        if self.refusal is not None and self.needed_override is None:
            self.ruling.check(None, target=self.name, means=self.action.nothing)
        return self

    def check(self, *, recheck_after: float = RECHECK_AFTER, override: str | None = None) -> Plan:
        """Check again everything that justifies the action; nothing is sent.

        Parameters
        ----------
        recheck_after
            Delay in seconds before the recheck.
        override
            As for `execute`.

        Returns
        -------
        Plan
            The plan with the fresh evidence.

        Raises
        ------
        ActionRefused
            If the target is not as it was, or the action is not proven to be safe any more.
        BrokerError
            If the evidence cannot be read.
        """
        (fresh,) = self.action.fresh_plans([self], recheck_after)
        if isinstance(fresh, ToolkitError):
            raise fresh
        fresh.ruling.check(override, target=self.name, means=self.action.nothing)
        return fresh

    def execute(
        self,
        *,
        confirm: str,
        audit: Audit | None = None,
        override: str | None = None,
        recheck_after: float = RECHECK_AFTER,
        save: bool = True,
        max_save_bytes: int | None = None,
        cancel: threading.Event | None = None,
    ) -> Result:
        """Save what it discards, check afresh, send the request, and read back what it changed.

        Parameters
        ----------
        confirm
            `target`, typed by a person.
        audit
            Where it is written down; by default ``Audit()``. Records are saved beside it.
        override
            Act although a claim is not proven, at the operator's own risk: `needed_override`, as the fresh check finds
            it. What is refuted cannot be overridden.
        recheck_after
            Delay in seconds before the recheck of the fresh check.
        save
            Save the records that an abort discards; they need not be saved where their outcome is proven.
        max_save_bytes
            Limit of their size in the log; `transaction.MAX_SAVE_BYTES` if null.
        cancel
            Set by another thread to cancel it while it waits; the error says whether it was done.

        Raises
        ------
        ActionRefused
            If the confirmation is another one, the fresh check does not prove what is needed, the records cannot be
            saved, or the audit file cannot be written.
        ActionFailed
            If the broker refuses, or does not answer: it says whether the action was done.
        AuditFailed
            If the request was sent, and the audit file could not be written any more.
        """
        run = Run(
            audit=audit or Audit(),
            override=override,
            recheck_after=recheck_after,
            save=save,
            max_save_bytes=max_save_bytes,
            cancel=cancel,
        )
        done = run.execute([self], confirm=confirm, word=self.target)
        if done.error is not None:
            raise done.error
        return done.done[0].result

    def verify(self, *, check: Callable[[], None] = lambda: None) -> Result:
        """Read back what the action changed, beside the evidence of this plan.

        Parameters
        ----------
        check
            Called while it waits; what it raises ends the wait.

        Raises
        ------
        BrokerError
            If the action has not had its effect.
        """
        return self.action.verify(self, check)

    def step(self, **columns: Any) -> ActionStep:
        """A line of the audit trail: what every line has of this plan, and further columns."""
        producer: PlannedTransaction | Committable | Transaction | None = self.committable or self.owner
        if self.transactional_id is None:
            txn = producer = self.transaction
            columns |= {"topic": txn.topic, "partition": txn.partition, "start_offset": txn.start_offset}
        else:
            columns["transactional_id"] = self.transactional_id
        if producer is not None:
            columns |= {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        return step_on(self.cluster, self.action.name, self.target, **columns)

    def intent(self, **columns: Any) -> ActionStep:
        """The line before the request, whose fresh check this plan is."""
        ruling = self.ruling
        if self.transactional_id is None:
            columns["transactional_id"] = self.basis.transactional_id
            columns["last_stable_offset_before"] = self.basis.last_stable_offset
        return self.step(
            verdict=ruling.verdict,
            outcome=ruling.outcome,
            reason=ruling.reason,
            claims=ruling.by(columns["override"]),
            evidence=self.action.evidence(self),
            request=self.action.request(self),
            **columns,
        )


class Action(ABC):
    """What an action declares; it has no state."""

    name: str
    right: str  # what its principal needs
    kafka_tool: tuple[str, ...] | None = None  # of kafka-transactions.sh, which does the same; null if it has none
    nothing = "Nothing was written."
    after_plan_s = 0.0  # the fresh check ends no sooner than this after the plan
    discards = False  # whether records are lost by it, which are saved first

    @abstractmethod
    def fresh_plans(self, plans: Sequence[Plan], recheck_after: float) -> Sequence[Plan | ToolkitError]:
        """Each plan as it would be made now, or why it is not as it was planned."""

    @abstractmethod
    def guard(self, fresh: Plan) -> None:
        """Read again, right before the request, what may have changed since the fresh check, and refuse what has."""

    @abstractmethod
    def request(self, fresh: Plan) -> str:
        """The request, as the audit trail has it."""

    @abstractmethod
    def send(self, fresh: Plan, progress: Progress) -> str:
        """Send the request, set its effect, and return the answer: ``NONE`` or the error."""

    @abstractmethod
    def refused(self, fresh: Plan) -> str:
        """That the broker answers with an error."""

    @abstractmethod
    def verify(self, fresh: Plan, check: Callable[[], None]) -> Result:
        """Read back what it changed."""

    @abstractmethod
    def progress(self, plan: Plan, cancel: threading.Event | None) -> Progress:
        """Its steps, and what to say if one fails."""

    @abstractmethod
    def evidence(self, fresh: Plan) -> tuple[EvidenceEntry, ...]:
        """What the fresh check observed."""

    def is_commit(self, plan: Plan) -> bool:
        """Whether it makes the records visible."""
        return False


def caught(make: Callable[[], Plan]) -> Plan | ToolkitError:
    """The plan, or why there is none."""
    try:
        return make()
    except ToolkitError as error:
        return error


def changed(name: str, how: str, *, nothing: str = Action.nothing) -> ActionRefused:
    """The refusal of what is not as it was planned."""
    return ActionRefused(
        f"{name} changed since it was planned: {how}.",
        means=f"It is in use. {nothing}",
        do="Diagnose again, and plan again:",
        command=("kafka-txn", "diagnose"),
    )


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far an action has come, so that every failure says which of three it is: nothing, written, or uncertain."""

    # nothing, written, uncertain: a sentence for each effect
    nothing: str
    written: str
    uncertain: str
    find_out: str  # how to find out, and the command that shows it
    command: Sequence[str]
    cancel: threading.Event | None = None  # set by another thread to cancel the action; null if nobody can
    effect: Effect = "nothing"  # the effect so far

    def sending(self) -> None:
        """The request leaves next: from here to its response, its effect is uncertain."""
        self.check_cancelled()
        self.effect = "uncertain"

    def check_cancelled(self) -> None:
        """Raise if the action was cancelled.

        Raises ActionRefused if nothing was written so far, else ActionFailed: it was not undone.
        """
        if self.cancel is None or not self.cancel.is_set():
            return
        if self.effect == "nothing":
            raise ActionRefused("The action was cancelled.", means=self.nothing, do="Plan it again to take it.")
        raise ActionFailed(
            "The action was cancelled.", effect=self.effect, means=self._means, do=self.find_out, command=self.command
        )

    def wait(self, work: Callable[[], T]) -> T:
        """The result of work that only reads, or sends one request; a cancelled wait does not wait for its end."""
        if self.cancel is None:
            return work()
        pool = ThreadPoolExecutor(1, thread_name_prefix="kafka-txn-action")
        try:
            running = pool.submit(work)
            while not wait([running], timeout=POLL_S).done:
                self.check_cancelled()
            return running.result()
        finally:
            pool.shutdown(wait=False)

    @contextmanager
    def stated(self) -> Iterator[None]:
        """Every error of the block leaves it with the effect.

        Raises ActionFailed instead of another error of this package that is not itself about the effect.
        """
        try:
            yield
        except (ActionRefused, ActionFailed, AuditFailed):
            raise
        except ToolkitError as error:
            raise ActionFailed(
                error.what,
                effect=self.effect,
                code=getattr(error, "code", None),
                means=self._means,
                do=error.do if self.effect == "nothing" else self.find_out,
                command=error.command if self.effect == "nothing" else self.command,
            ) from error
        except BaseException as error:
            if self.effect == "nothing":
                error.add_note(self.nothing)
            else:
                error.add_note(f"{self._means} {self.find_out}")
                error.add_note(command_line(self.command))
            raise

    @property
    def _means(self) -> str:
        return {"nothing": self.nothing, "written": self.written, "uncertain": self.uncertain}[self.effect]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A target of a list on which the action is done, and what that changed."""

    target: str
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class ListResult:
    """How far a list came."""

    done: Sequence[Done]  # what is done, in order
    # stopped_at, error: the target that stopped the list, and why; null if none did. The error says whether it is done.
    stopped_at: str | None = None
    error: ToolkitError | None = None
    not_tried: Sequence[str] = ()  # the names of those after it


@dataclass(slots=True, kw_only=True)
class _Turn:
    """A plan, how far it has come, the copy of what it discards, and its fresh check."""

    plan: Plan
    progress: Progress
    step: ActionStep  # for the line of a refusal
    copy: SavedRecords | None = None
    fresh: Plan | ToolkitError | None = None  # or why it is not as planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The execution of one plan, or of several with one confirmation; the parameters are those of `Plan.execute`."""

    audit: Audit
    override: str | None
    recheck_after: float
    save: bool
    max_save_bytes: int | None
    cancel: threading.Event | None
    on_turn: Callable[[Plan], object] = lambda plan: None  # called with each plan before its request

    def execute(self, plans: Sequence[Plan], *, confirm: str, word: str) -> ListResult:
        """Execute plans of one action, up to the first that is not as planned.

        `confirm`: what a person typed. `word`: what it has to be.
        """
        turns = [
            _Turn(plan=each, progress=each.action.progress(each, self.cancel), step=each.step(override=self.override))
            for each in plans
        ]
        with self._before_request(turns[0] if word == plans[0].target else _of_list(turns[0], word)):
            check_confirmation(confirm, word, means=plans[0].action.nothing)
        done: list[Done] = []
        turn = turns[0]
        try:
            for turn in turns:
                with self._before_request(turn):
                    self._prepare(turn)
            turn = turns[0]
            checked_at = self._look(turns)
            for turn in turns:
                with self._before_request(turn):
                    self._check(turn)
            for number, turn in enumerate(turns):
                self.on_turn(turn.plan)
                if time.monotonic() - checked_at > MAX_CHECK_AGE_S:
                    checked_at = self._look(turns[number:])
                with self._before_request(turn):  # another one's turn may have been when it was checked again
                    self._check(turn)
                done.append(Done(target=turn.plan.target, result=self._act(turn)))
                for later in turns[number + 1 :]:
                    later.fresh = _behind(later.fresh, done[-1].result)
        except ToolkitError as error:
            tried = {turn.plan.target, *(each.target for each in done)}
            rest = [each.plan.target for each in turns if each.plan.target not in tried]
            return ListResult(done=done, stopped_at=turn.plan.target, error=error, not_tried=rest)
        except BaseException as error:
            if word != turn.plan.target:
                error.add_note(f"{len(done)} of {word} were done; it was the turn of {turn.plan.target}.")
            raise
        finally:
            for each in turns:
                if each.copy is not None and each.progress.effect == "nothing":
                    each.copy.discard()
        return ListResult(done=done)

    @contextmanager
    def _before_request(self, turn: _Turn) -> Iterator[None]:
        """A block before anything is sent: what it raises says so, and is a line of the audit trail."""
        try:
            with turn.progress.stated():
                yield
        except (ActionRefused, ActionFailed) as error:
            self.audit.refused(error, turn.step)
            raise

    def _prepare(self, turn: _Turn) -> None:
        """Refuse what was not safe when it was planned, and save what is discarded."""
        plan, progress = turn.plan, turn.progress
        plan.ruling.check(self.override, target=plan.name, means=plan.action.nothing)
        if not plan.action.discards:
            return
        if self.save:
            turn.copy = save_records(
                plan.cluster,
                plan.transaction,
                self.audit.records_path(plan.target, plan.transaction.producer_id),
                max_bytes=self.max_save_bytes,
                check=progress.check_cancelled,
            )
        elif self.override is not None or any(each.status != PROVEN for each in plan.ruling.claims):
            raise ActionRefused(
                "The records have to be saved, as what was decided about them is not proven.",
                means=plan.action.nothing,
                do="Leave out --no-save-records.",
            )

    def _look(self, turns: Sequence[_Turn]) -> float:
        """Check all plans afresh; return when, by the monotonic clock."""
        plans, action = [each.plan for each in turns], turns[0].plan.action
        remaining = action.after_plan_s - (time.monotonic() - max(each.planned_at for each in plans))
        with self._before_request(turns[0]):
            found = turns[0].progress.wait(partial(action.fresh_plans, plans, max(self.recheck_after, remaining)))
        for turn, fresh in zip(turns, found, strict=True):
            turn.fresh = fresh
        return time.monotonic()

    def _check(self, turn: _Turn) -> None:
        """Refuse what the fresh check does not prove."""
        if isinstance(turn.fresh, ToolkitError):
            raise turn.fresh
        assert turn.fresh is not None
        turn.fresh.ruling.check(self.override, target=turn.plan.name, means=turn.plan.action.nothing)
        turn.progress.check_cancelled()

    def _act(self, turn: _Turn) -> Result:
        """Write the intent down, read again what may have changed, send the request, and read back."""
        fresh, progress = turn.fresh, turn.progress
        assert isinstance(fresh, Plan)
        action, copy = fresh.action, turn.copy
        file = None if copy is None else str(copy.path)
        intent = fresh.intent(override=self.override, records_file=file)
        with self.audit.recording(intent) as outcome, progress.stated():
            with self.audit.exclusive(progress.check_cancelled):
                action.guard(fresh)
                outcome.response = answer = action.send(fresh, progress)
                if (code := Error.of(answer).code) != "NONE":
                    right = action.right if code.endswith("AUTHORIZATION_FAILED") else ""
                    raise BrokerError(f"{action.refused(fresh)}: {answer.rstrip('.')}.", code=code, do=right)
                progress.effect = "written"
            done = action.verify(fresh, progress.check_cancelled)
            if fresh.transactional_id is None:
                outcome.last_stable_offset_after = done.last_stable_offset_after
                _check_moved(fresh, done)
        return done if copy is None else replace(done, records_file=copy.path, records_saved=copy.records)


def _behind(fresh: Plan | ToolkitError | None, done: Result) -> Plan | ToolkitError | None:
    """A fresh check once a transaction before it has ended: on the same partition the LSO has moved since."""
    if not isinstance(fresh, Plan) or fresh.transaction.tp != (done.partitions[0].topic, done.partitions[0].partition):
        return fresh
    txn, lso = fresh.transaction, done.last_stable_offset_after
    position = 1 if done.next_start_offset == txn.start_offset else txn.basis.queue_position
    basis = replace(txn.basis, last_stable_offset=lso, queue_position=position)
    return replace(fresh, transactions=[replace(txn, basis=basis)])


def _of_list(turn: _Turn, word: str) -> _Turn:
    """The turn of a whole list, for the line of its refusal."""
    return replace(turn, step=step_on(turn.plan.cluster, turn.plan.action.name, word))


def step_on(cluster: Cluster, action: str, target: str, **columns: Any) -> ActionStep:
    """A line of the audit trail: the action, on which cluster it is, and as whom; and further columns."""
    return ActionStep(
        action=action,
        bootstrap_servers=cluster.bootstrap_servers,
        cluster_id=cluster.cluster_id,
        principal=cluster.principal,
        target=target,
        **columns,
    )


def check_confirmation(confirm: str, target: str, *, means: str) -> None:
    """Raise ActionRefused unless the confirmation is exactly the target; `means`: what that means, as a sentence."""
    if confirm != target:
        raise ActionRefused(
            f"The confirmation {confirm!r} does not name {target!r}.",
            means=means,
            do=f"To continue, confirm with exactly {target}.",
        )


def _check_moved(plan: Plan, result: Result) -> None:
    """Raise if the LSO stands where it was although the transaction held it."""
    before, after = result.last_stable_offset_before, result.last_stable_offset_after
    if plan.basis.queue_position != 1 or before is None or (after is not None and after > before):
        return
    raise ActionFailed(
        f"The LSO of {plan.transaction.tp} is {after}, and was {before} before the {plan.outcome.upper()} marker.",
        effect="written",
        means="The transaction is closed on the leader.",
        do="Diagnose this partition before any other marker.",
        command=("kafka-txn", "diagnose", *plan.transaction.tp.options),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A transaction of a list on which nothing is done: its name, and why not."""

    target: str  # ``orders-0@913095344``
    # verdict, outcome: of the fresh check; null if it is not open any more
    verdict: str | None
    outcome: str | None
    reason: str  # as a sentence
    # remedy, command: sentences, and the arguments of the command that they name; empty if there is none
    remedy: str = ""
    command: Sequence[str] = ()


def no_targets() -> ActionRefused:
    """The refusal of a list of which nothing is proven."""
    return ActionRefused(
        "No transaction of the list is proven to be hanging.",
        means="Nothing was written.",
        do="kafka-txn diagnose shows what each of them is.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanList:
    """Plans of one action on several targets, to be executed one after another once their number is confirmed.

    Parameters
    ----------
    cluster
        Where they are done.
    plans
        Those that are proven, each with its own plan; what frees most comes first.
    left_out
        Those that are not done.
    """

    cluster: Cluster = field(repr=False, compare=False)
    plans: Sequence[Plan]
    left_out: Sequence[LeftOut]

    @property
    def target(self) -> str:
        """What a person types to confirm: ``12 transactions``."""
        return f"{len(self.plans)} transaction{'' if len(self.plans) == 1 else 's'}"

    @property
    def topic_partitions(self) -> Sequence[TopicPartition]:
        """The partitions that it changes."""
        return [tp for each in self.plans for tp in each.topic_partitions]

    def execute(
        self,
        *,
        confirm: str,
        audit: Audit | None = None,
        recheck_after: float = RECHECK_AFTER,
        save: bool = True,
        max_save_bytes: int | None = None,
        cancel: threading.Event | None = None,
        progress: Callable[[Plan], object] = lambda plan: None,
    ) -> ListResult:
        """Save what they discard, check all afresh at once, and execute them up to the first that is not as planned.

        Parameters
        ----------
        confirm
            `target`, typed by a person.
        audit
            The audit trail of all of them; by default ``Audit()``.
        recheck_after, save, max_save_bytes, cancel
            As for `Plan.execute`; the size is that of each. Nothing can be overridden.
        progress
            Called with each plan before its request.

        Returns
        -------
        ListResult
            Also if the list was stopped: read its `error`.

        Raises
        ------
        ActionRefused
            If the confirmation is another one, or nothing of the list is proven.
        """
        trail = Audit(None if audit is None else audit.path, confirmation=self.target)
        if not self.plans:
            none = no_targets()
            trail.refused(none, step_on(self.cluster, "abort", self.target))
            raise none
        return Run(
            audit=trail,
            override=None,
            recheck_after=recheck_after,
            save=save,
            max_save_bytes=max_save_bytes,
            cancel=cancel,
            on_turn=progress,
        ).execute(self.plans, confirm=confirm, word=self.target)
