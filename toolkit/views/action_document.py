"""What an action would do, and what it did, as parts of a document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.actions.audit import Audit
from toolkit.actions.marker_actions import ABORT
from toolkit.actions.plan import ListResult, PlanList, Result, not_needed
from toolkit.command_line import command_line
from toolkit.errors import NotFound
from toolkit.schema.live import Finding, Producer
from toolkit.schema.verdict import Verdict
from toolkit.views.document import (
    Bullets,
    Code,
    Command,
    Connection,
    Field,
    Fields,
    Options,
    Paragraph,
    Part,
    Section,
    Sentence,
)
from toolkit.views.finding_document import first_names, is_unread, partition_name
from toolkit.views.renderers import DocumentView
from toolkit.views.row_formats import count, size_text

if TYPE_CHECKING:
    from toolkit.actions.plan import Plan
    from toolkit.actions.transaction import MarkerImpact, PartitionResult, PlannedTransaction
    from toolkit.sources.logdir import LogDir


MAX_LINES = 20  # of committed offsets
NOT_DELIVERED = "Another transaction holds the LSO before its records: they are delivered once that has ended."
ENDED = {"abort": "ended", "complete": "ended", "commit": "committed", "fence": "fenced"}
DRY_RUN = "Dry run: nothing was changed."


def preview(plan: Plan | PlanList, *, audit: Audit | None = None, override: str | None = None) -> list[Part]:
    """The dry run of a command: what it would do, and how to do it, or why it would be refused.

    `audit`: of an abort, beside which its records are saved; null if they are not. `override`: what the caller asserts.
    """
    parts = _planned(plan, DRY_RUN, audit)
    if isinstance(plan, PlanList):
        return [*parts, to_confirm(plan.target)] if plan.plans else parts
    if plan.refusal is None and override is not None:
        return [*parts, Paragraph(f"It would be refused: {not_needed(override)}")]
    if plan.refusal is not None and override != plan.needed_override:
        parts.append(Paragraph(f"It would be refused: {plan.refusal}"))
        if plan.needed_override is not None:
            parts.append(Paragraph(f"An override has to repeat, word for word: {plan.needed_override}"))
        return parts
    if plan.refusal is not None:
        parts.append(Paragraph(f"Overridden: {plan.refusal}"))
    return [*parts, to_confirm(plan.target)]


def _planned(plan: Plan | PlanList, intro: str, audit: Audit | None) -> list[Part]:
    if isinstance(plan, PlanList):
        return list(_list_parts(plan, intro, saves=audit is not None))
    return [Paragraph(f"{intro} {lead(plan)}"), Bullets(tuple(changes(plan, audit=audit)))]


def to_confirm(target: str) -> Paragraph:
    """What to add to a dry run, to do it."""
    return Paragraph(("To do it, add: ", Options(("--confirm", target))))


def passed(plan: Plan | PlanList, audit: Audit) -> Section:
    """A dry run of the panel that passed, and what to type there. `audit`: beside which records are saved."""
    parts = _planned(plan, "It was checked again just now.", audit)
    parts.append(Paragraph(("To do it, type ", Code(plan.target), " and press the button.")))
    if command := own_command(plan):
        parts += [Paragraph("The same in a terminal, which asks for it:"), command]
    return Section(title="The dry run passed. Nothing was written.", parts=tuple(parts))


def show_plan(plan: Plan | PlanList, *, audit: Audit | None = None) -> DocumentView:
    """Show a plan in a notebook: what it would do, or why it would be refused, and the same as a command.

    Parameters
    ----------
    plan
        From a function of `toolkit.actions`.
    audit
        The audit trail with which it is to be executed, by default ``Audit()``: records are saved beside it.
    """
    audit = audit or Audit()
    if isinstance(plan, PlanList):
        return DocumentView(tuple(_planned(plan, DRY_RUN, audit)))
    parts: list[Part] = [Bullets(tuple(changes(plan, audit=audit)))]
    if plan.refusal is not None:
        parts.append(Paragraph(f"It would be refused: {plan.refusal}"))
    elif command := own_command(plan):
        parts += [Paragraph("The same in a terminal, which asks for the name:"), command]
    title = f"{plan.action.name} {plan.target}"
    return DocumentView((Section(title=title, lead=lead(plan), parts=tuple(parts)),), Connection.of(plan.cluster))


def own_command(plan: Plan | PlanList) -> Command | None:
    """The command of this package that does it; null of a list, and where it needs the checkpoint of a job."""
    if isinstance(plan, PlanList) or plan.checkpoint is not None:
        return None
    if plan.transactional_id is not None:
        return Command(("kafka-txn", plan.action.name, "--transactional-id", plan.transactional_id))
    txn = plan.transaction
    place = ("--topic", txn.tp.topic, "--partition", str(txn.tp.partition), "--start-offset", str(txn.start_offset))
    return Command(("kafka-txn", plan.action.name, *place))


def done_section(plan: Plan | PlanList, done: Result | ListResult, audit: str) -> Section:
    """What was done, and what it changed, for the panel."""
    head, *rest = result(plan, done, audit)
    badge = "ended" if isinstance(plan, PlanList) else ENDED[plan.action.name]
    return Section(title=plan.target, badge=badge, tone="done", parts=(Paragraph(head.text, "moved"), *rest))


def result(plan: Plan | PlanList, done: Result | ListResult, audit: str) -> list[Paragraph]:
    """What was done, the headline first, and the file of the audit trail."""
    if isinstance(plan, PlanList):
        assert isinstance(done, ListResult)
        sentences = list_result(plan, done)
    else:
        assert isinstance(done, Result)
        sentences = _result(plan, done)
    return [*map(Paragraph, sentences), Paragraph(f"Audit trail: {audit}.", "soft")]


def fence_section(plan: Plan) -> Section:
    """The command that fences a live owner, or why it would be refused; and its effect. Nothing is sent."""
    how: list[Part] = [
        Paragraph("In a terminal, a dry run until it is confirmed there:"),
        Command(("kafka-txn", "fence", "--transactional-id", plan.target)),
    ]
    refused: list[Part] = [Paragraph(f"It would be refused now: {plan.refusal}")]
    parts = (*(how if plan.refusal is None else refused), Bullets(tuple(plan.warnings)))
    return Section(title=f"To end it: fence its id “{plan.target}”", parts=parts)


def lead(plan: Plan) -> str:
    """What an action is, in a sentence."""
    if plan.action.name == "fence":
        return f'A fence of "{plan.target}" would do this:'
    if plan.committable is not None and plan.checkpoint is not None:
        found = plan.committable
        return (
            f'{plan.checkpoint.name} is to commit "{found.transactional_id}": producer {found.producer_id} epoch '
            f"{found.producer_epoch}, which its coordinator has open. A commit would do this:"
        )
    txn = plan.transaction
    ends = f"would end producer {txn.producer_id} epoch {txn.producer_epoch} on {txn.tp} at offset {txn.start_offset}"
    if plan.action.name == "abort":
        return f"An abort marker {ends}; read_committed consumers will never read its records there."
    it = "It" if plan.refusal is None else "It is likely, and not proven, that it"
    marker = "A COMMIT" if plan.outcome == "commit" else "An ABORT"
    return f"{it} was decided to {plan.outcome} the transaction. {marker} marker {ends}."


def changes(plan: Plan, *, audit: Audit | None) -> Iterator[str]:
    """What an action changes, and what no check can rule out, a sentence each; `audit`: as for `preview`."""
    if plan.transactional_id is None:
        yield from _of_marker(plan, audit)
    elif plan.checkpoint is not None and plan.action.name == "commit":
        for each in plan.transactions:
            impact = _impact(each)
            records = "an unknown number" if impact.records is None else impact.records
            yield f"{each.tp}: records that become visible to read_committed consumers: {records}; {_lso(impact)}"
        yield (
            "before: stop the job, and make sure that it will be restored from this checkpoint. Flink's high "
            'availability restores the last checkpoint that it has registered (the JobManager logs "Completed '
            f'checkpoint {plan.checkpoint.checkpoint_id}"), which can be an earlier one than the newest folder'
        )
        yield (
            "after: restore the job from this checkpoint or a later one. If it starts without state, or from an "
            "earlier checkpoint or savepoint, it writes these records again"
        )
    yield from plan.warnings


def _of_marker(plan: Plan, audit: Audit | None) -> Iterator[str]:
    txn, impact = plan.transaction, plan.impact
    becomes = "become visible to read_committed consumers" if plan.outcome == "commit" else "are never read"
    size = "of unknown size" if impact.size is None else size_text(impact.size)
    first, last = impact.first_offset, impact.last_offset
    where = "" if first is None else f", offset {first}" if first == last else f", offsets {first} to {last}"
    if impact.unread:
        yield f"The number of records is unknown. {impact.unread}"
    else:
        yield f"its records, which {becomes}: {impact.records} ({size} in the log{where})"
        yield f"records behind it that can then be read: {impact.records_released}"
    if plan.action.discards and audit is not None:
        yield f"its records ({size} in the log) are saved first: {audit.records_path(plan.target, txn.producer_id)}"
    elif plan.action.discards:
        yield "its records are not saved"
    verb = "becomes" if plan.outcome == "commit" else "does not become"
    for commit in impact.offset_commits[:MAX_LINES]:
        offset = "its removal" if commit.offset is None else f"offset {commit.offset}"
        yield (
            f'{offset} of {commit.topic}-{commit.partition} {verb} that of group "{commit.group_id}", unless the group '
            "has committed a newer one since"
        )
    if len(impact.offset_commits) > MAX_LINES:
        yield f"and {len(impact.offset_commits) - MAX_LINES} more offsets of groups"
    yield _lso(impact)
    if impact.next_start_offset is not None:
        yield f"then held by producer {impact.next_producer_id}, from offset {impact.next_start_offset} on"
    yield continuing_groups(impact.groups)
    if txn.basis.transactional_id is not None:  # the protocol has no conditional marker
        yield (
            f'if a client with transaction version 1 begins again as "{txn.basis.transactional_id}" on this partition '
            "in the milliseconds between the last check and the marker, the marker ends that transaction here, too"
        )


def _lso(impact: MarkerImpact) -> str:
    """Where the LSO goes; with nothing else open, behind the marker, which takes an offset of its own."""
    now, then = impact.last_stable_offset, impact.next_stable_offset
    if impact.next_start_offset is None:
        return f"the LSO goes from {now} to {impact.planned_lso}: the marker takes offset {then}"
    return f"the LSO stays at {now}" if then == now else f"the LSO goes from {now} to {then}"


def continuing_groups(groups: Sequence[str] | None) -> str:
    """Which groups continue."""
    return f"groups that continue: {'not known' if groups is None else _quoted(groups) or 'none'}"


def _quoted(groups: Iterable[str]) -> str:
    return ", ".join(f'"{each}"' for each in groups)


def _result(plan: Plan, done: Result) -> Iterator[str]:
    was, now = plan.owner, done.owner
    if was is None or now is None:
        yield from _marker_result(plan, done)
    elif plan.action.name == "fence":
        yield (
            f'"{plan.target}" is {now.state}: producer {was.producer_id} epoch {was.producer_epoch} is fenced, and '
            f"producer {now.producer_id} epoch {now.producer_epoch} owns the id."
        )
        if done.still_open:
            yield f"Markers are not yet written to {', '.join(map(str, done.still_open))}."
    else:
        yield f'"{plan.target}" is {now.state}.'
        for each in done.partitions:
            yield f"{each.topic}-{each.partition}: {_lso_after(each)}."
            yield _received(each)


def _marker_result(plan: Plan, done: Result) -> Iterator[str]:
    (moved,) = done.partitions
    text = f"{plan.transaction.tp}: {_lso_after(moved)}"
    if moved.next_start_offset is None:
        yield f"{text}, and nothing else is open on it. The high watermark is {moved.high_watermark}."
    else:
        yield f"{text}."
        yield f"The next transaction open on it starts at offset {moved.next_start_offset}."
    if difference := lso_difference(plan.impact, moved):
        yield difference
    if plan.action.name == "complete":
        yield _received(moved)
    for commit in done.offset_commits[:MAX_LINES]:
        yield f'Group "{commit.group_id}" is at offset {commit.offset} of {commit.topic}-{commit.partition}.'
    if done.unread_groups:
        yield f"The offsets of these groups could not be read: {_quoted(done.unread_groups)}."
    if done.records_file is not None:
        yield f"Records saved: {done.records_saved}, in {done.records_file}."


def lso_difference(impact: MarkerImpact, done: PartitionResult) -> str:
    """Why the LSO is not where the plan has it; empty if it is."""
    planned, after = impact.planned_lso, done.last_stable_offset_after
    if after is None or after == planned:
        return ""
    if impact.next_start_offset is None and done.next_start_offset is None and after > planned:
        return (
            f"The plan had {planned}: {count(after - planned, 'more offset was', 'more offsets were')} written since."
        )
    if done.next_start_offset is not None and impact.next_start_offset is None:
        return f"The plan had {planned}: a transaction that was opened since holds it now."
    return f"The plan had {planned}: what is open behind it has changed since."


def fence_owner(plan: Plan) -> Iterator[Part]:
    """Whose id it is, and on which partitions its transaction is open."""
    owner = plan.owner
    assert owner is not None
    who = f"producer {owner.producer_id} epoch {owner.producer_epoch}"
    since = (" since ", owner.start_time) if owner.start_time else ()
    yield Paragraph((f'"{plan.target}"  {plan.verdict}  {who}, {owner.state}', *since))
    if plan.topic_partitions:
        yield Paragraph("on " + ", ".join(map(str, plan.topic_partitions)))


def _impact(txn: PlannedTransaction) -> MarkerImpact:
    assert txn.impact is not None
    return txn.impact


def _received(done: PartitionResult) -> str:
    if done.records_checked is None:
        return NOT_DELIVERED
    return f"A read_committed consumer received {done.records_delivered} of {done.records_checked} records of it."


def _lso_after(done: PartitionResult) -> str:
    before, after = done.last_stable_offset_before, done.last_stable_offset_after
    return f"the LSO stays at {after}" if before == after else f"the LSO moved from {before} to {after}"


def _list_parts(plan: PlanList, intro: str, *, saves: bool) -> Iterator[Part]:
    """What the markers of a list change in sum, each by name, and what is left out, why, and its own remedy."""
    left_out = tuple(
        Field(
            left.target,
            (
                f"{f'{left.verdict}: ' if left.verdict else ''}{left.reason}",
                *([f"Remedy: {left.remedy}".rstrip()] if left.remedy or left.command else []),
                *([Command(tuple(left.command))] if left.command else []),
            ),
        )
        for left in plan.left_out
    )
    if plan.plans:
        impacts = [each.impact for each in plan.plans]
        least = "at least " if any(each.records is None for each in impacts) else ""
        records = count(sum(each.records or 0 for each in impacts), "record")
        known = [each.groups for each in impacts if each.groups is not None]
        groups = sorted({group for of_one in known for group in of_one}) if len(known) == len(impacts) else None
        yield Paragraph(f"{intro} Abort markers would end {plan.target}:")
        yield Bullets((f"{least}{records} in them are never read", continuing_groups(groups)))
        yield Section(title=f"All {plan.target}", parts=(Bullets(tuple(_each_of(plan))),), is_folded=True)
    if left_out:
        yield Section(title=f"{len(left_out)} left out", parts=(Fields(left_out),), is_folded=True)
    if plan.plans:
        sizes = [each.impact.size for each in plan.plans]
        size = f"{'at least ' if None in sizes else ''}{size_text(sum(size or 0 for size in sizes))}"
        yield Paragraph(
            f"Their records ({size} in the log) are saved first." if saves else "Their records are not saved."
        )
        yield Paragraph(
            "All are checked again before the first marker, and each right before its own. The first that is not as "
            "planned stops the list."
        )


def _each_of(plan: PlanList) -> Iterator[Sentence]:
    for each in plan.plans:
        txn, impact = each.transaction, each.impact
        records = "an unknown number of records" if impact.records is None else count(impact.records, "record")
        released = "an unknown number" if impact.records_released is None else f"{impact.records_released:,}"
        yield (
            f"{each.target}  producer {txn.producer_id} epoch {txn.producer_epoch}: {records} never read, {released} "
            "behind it can then be read"
        )
        yield from (f"{each.target}: {text}" for text in each.warnings)
        if impact.groups:
            yield f"{each.target}: {continuing_groups(impact.groups)}"


def list_result(plan: PlanList, done: ListResult) -> Iterator[str]:
    """How the LSO of each partition moved, and where the list stopped, the sum first."""
    stop = "" if done.stopped_at is None else f"; stopped at {done.stopped_at}"
    yield f"{len(done.done)} of {plan.target} aborted{stop}."
    for each in done.done:
        saved = f", {count(each.result.records_saved or 0, 'record')} saved" if each.result.records_file else ""
        yield f"{each.target}: {_lso_after(each.result.partitions[0])}{saved}."
    if done.not_tried:
        yield f"Not tried: {', '.join(done.not_tried)}."
    if plan.left_out:
        yield f"Left out: {', '.join(each.target for each in plan.left_out)}."


FILES_AGE = (
    "The files may be older than the cluster is: check it first (kafka-txn diagnose), or use kafka-txn abort, which "
    "does so."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortAdvice:
    """One open transaction on one partition, and whether it should be aborted."""

    target: str  # ``orders-0@913095344``
    command: tuple[str, ...]  # of kafka-transactions.sh, by start offset: it reads the producer's state afresh
    old_command: tuple[str, ...]  # for brokers before 2.8, which lack DescribeProducers: by producer id and epochs
    proven: bool  # whether the files prove that it hangs
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
    findings = list(map(Finding.of, files.finding_rows(topics=topics, partitions=partitions)))
    found = [each for each in findings if each.producer_id == producer_id and each.start_offset is not None]
    if not found:
        unread = dict.fromkeys(partition_name(each) for each in findings if is_unread(each))
        raise NotFound(
            f"Producer {producer_id} has no transaction open in these files.",
            means=f"It may have one on {first_names(list(unread))}, which could not be read." if unread else "",
            do="A diagnosis shows which ones are:",
            command=("kafka-txn", "diagnose", *(word for path in files.paths for word in ("--log-dir", str(path)))),
        )
    producers = [each for each in map(Producer.of, files.producer_rows()) if each.producer_id == producer_id]
    return [_advice(each, producers, producer_epoch, bootstrap_server) for each in found]


def _advice(finding: Finding, producers: Iterable[Producer], producer_epoch: int, server: str) -> AbortAdvice:
    name = f"{finding.topic}-{finding.partition}"
    other_epoch = finding.producer_epoch != producer_epoch
    refusal = ABORT.ruling(finding).refusal
    against = [f"Its epoch there is {finding.producer_epoch}, not {producer_epoch}."] if other_epoch else []
    if finding.outcome == "commit":
        against += [f"Never abort it: {finding.reason}", f"Remedy: {finding.advice}"]
        against += [command_line(finding.command)] if finding.command else []
    elif finding.verdict is Verdict.UNKNOWN:
        against += [f"Not known: {missing}." for missing in finding.missing]
    elif refusal is not None:
        against.append(f"It is {finding.verdict}: {finding.reason}")
    where = ("--topic", finding.topic or "", "--partition", str(finding.partition or 0))
    tool = ("kafka-transactions.sh", "--bootstrap-server", server, "abort", *where)
    replica = (finding.tp, finding.broker_id, finding.start_offset)  # another one may lag
    own = (each for each in producers if (each.tp, each.broker_id, each.current_txn_start_offset) == replica)
    known = {str(each.coordinator_epoch or 0) for each in own}  # copies without a broker's id may differ
    coordinator_epoch = known.pop() if len(known) == 1 else "unknown"
    epochs = ("--producer-epoch", str(finding.producer_epoch), "--coordinator-epoch", coordinator_epoch)
    speaks_for = [finding.reason] if finding.verdict in {"hanging", "unknown"} else []
    return AbortAdvice(
        target=f"{name}@{finding.start_offset}",
        command=(*tool, "--start-offset", str(finding.start_offset)),
        old_command=(*tool, "--producer-id", str(finding.producer_id), *epochs),
        proven=refusal is None and not other_epoch,
        speaks_for=[*speaks_for, *([f"Cause: {finding.cause}."] if finding.cause else [])],
        speaks_against=[*against, FILES_AGE],
    )
