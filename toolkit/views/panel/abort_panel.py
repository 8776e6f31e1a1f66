"""The panel: choose a finding, see why, dry run its action, confirm by typing, and watch the LSO move."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from toolkit.actions.audit import Audit, is_on
from toolkit.actions.coordinator_actions import plan_commit, plan_fence
from toolkit.actions.marker_actions import plan_abort, plan_abort_list, plan_complete
from toolkit.actions.plan import RECHECK_AFTER, ListResult, Plan, PlanList
from toolkit.analysis.findings_over_time import unread
from toolkit.errors import ActionRefused, ToolkitError, UsageError
from toolkit.schema.coerce import finding_row, records_of
from toolkit.schema.live import Finding, Partition
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.views.action_document import done_section
from toolkit.views.explained_error import explain
from toolkit.views.finding_document import summary
from toolkit.views.panel.layout import WORK, PanelLayout, choice, is_same, next_actionable, picture, postmortem
from toolkit.views.renderers import text_lines

if TYPE_CHECKING:
    from toolkit.schema.coerce import FindingLike
    from toolkit.sources.live.cluster import Cluster

SETTLE = 0.2  # seconds; the second click of a double click is handled right after the first step
MAX_SAMPLES = 500
log = logging.getLogger(__name__)


class AbortPanel(PanelLayout):
    """From a finding to a moved LSO, step by step; a widget, which a cell shows as its result.

    It takes the action that the finding has: abort, complete, commit or fence. Nothing is sent before the name of the
    transaction or id is typed after a dry run that passed, and the plan's `execute` checks all of it once more. Its
    state is in traits, which a cell may read, and its steps are methods. What goes wrong in a step is shown, and kept
    in `error`, not raised; what was found stays, and the step can be repeated.

    Parameters
    ----------
    cluster
        The cluster.
    topics, partitions
        As for `Cluster.findings`; all partitions if null.
    audit
        The audit trail; by default ``Audit()``.
    recheck_after
        Delay in seconds before the confirming second check.

    Attributes
    ----------
    findings : list of Finding
        As of `checked_at`.
    selected : Finding or None
        The selected finding.
    step : str
        ``choose``, ``chosen``, ``checked`` once a dry run has passed, ``done`` once the action is done.
    plan : Plan or PlanList or None
        What the dry run passed; null again once it is executed or does not hold any more.
    fence : Plan or None
        How the live owner of the one that is chosen would be fenced; the panel does not do it.
    typed : str
        The confirmation, as far as it is typed.
    ended : Plan or PlanList or None
        What was executed last.
    result : Result or ListResult or None
        What that changed.
    explained : ExplainedError or None
        What `explain` found.
    report : Report or None
        The last postmortem; ``panel.report.save("postmortem.html")``.
    error : BaseException or None
        What the last step was refused for, or failed with.
    problems : list of str
        What could not be read beside.
    picture : Picture or None
        The timeline of the one that is chosen; ``panel.picture.figures["light"]`` is a plotly figure.
    actions : list of dict
        Rows of ``schema.ACTIONS``: what was written down of this cluster.
    busy : str
        What is under way; empty if nothing is. Nothing else can be begun meanwhile.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        topics: Sequence[str] | None = None,
        partitions: Sequence[int] | Sequence[tuple[str, int]] | None = None,
        audit: Audit | None = None,
        recheck_after: float = RECHECK_AFTER,
    ) -> None:
        super().__init__(self._choose)
        self.cluster = cluster
        self.topics, self.partitions = topics, partitions
        self.audit = audit or Audit()
        self.recheck_after = recheck_after
        self._samples: dict[TopicPartition, deque[Partition]] = {}
        self._at_work = threading.Lock()  # JupyterLab runs callbacks on another thread than cells
        self._cancel = threading.Event()
        self._last: tuple[str, float] = ("", 0.0)
        self.observe(self._forget_last, "typed")
        self._acted: dict[TransactionKey, Finding] = {}
        self._turn: Finding | None = None  # whose action is under way, or was the last one
        self._uncertain: dict[TransactionKey, Finding] = {}  # those of which it is not known whether they were ended
        for name in ("refresh", "dry_run", "dry_run_all", "next", "explain", "postmortem"):
            self.buttons[name].on_click(partial(self._clicked, name))
        self.buttons["execute"].on_click(self._clicked_execute)
        self.buttons["cancel"].on_click(self.cancel)
        self.refresh()

    def __repr__(self) -> str:
        return f"<AbortPanel {self.cluster.bootstrap_servers}: {self.step}, {len(self.findings)} findings>"

    def refresh(self) -> None:
        """Diagnose the cluster again."""
        self._begin("refresh")

    def select(self, finding: FindingLike | Finding) -> None:
        """Choose a finding: one of `findings`, or any row of ``schema.FINDINGS``."""
        self._begin(
            "choose",
            partial(self._select, finding if isinstance(finding, Finding) else Finding.of(finding_row(finding))),
        )

    def dry_run(self) -> None:
        """Plan the action of the selected finding, with all checks; nothing is written."""
        self._begin("dry_run")

    def dry_run_all(self) -> None:
        """Plan the abort of all hanging transactions that are listed, each with its own checks; nothing is written."""
        self._begin("dry_run_all")

    def execute(self, confirm: str | None = None) -> None:
        """Take the action, if the confirmation and a fresh check allow it, and read the LSO back.

        Parameters
        ----------
        confirm
            The plan's target, ``orders-0@913095344``, a transactional id or ``12 transactions``; the text typed in the
            panel if null.
        """
        if confirm is not None:
            self.typed = confirm
        self._begin("execute")

    def cancel(self, _: object = None) -> None:
        """Cancel the action while it waits; the error that follows says whether it was done."""
        self._cancel.set()
        self.buttons["cancel"].disabled = True

    def next(self) -> None:
        """Choose the next finding with an action."""
        self._begin("next")

    def explain(self, text: str | None = None) -> None:
        """Explain a pasted error, and look up what it names.

        Parameters
        ----------
        text
            The error; the text pasted in the panel if null.
        """
        if text is not None:
            self.pasted.value = text
        self._begin("explain")

    def postmortem(self) -> None:
        """Make the postmortem of the selected finding and of those that were ended here."""
        self._begin("postmortem")

    def _begin(self, name: str, work: Callable[[], None] | None = None) -> None:
        """Run a step for a cell."""
        if not self._attempt(name, work or getattr(self, f"_{name}")):
            raise UsageError(f"The panel is at work: {self.busy}.", do="Wait for it.")

    def _clicked(self, name: str, _: object) -> None:
        """Run the step of a button, except for the second click of a double click."""
        button, ended = self._last
        if (button != name or time.monotonic() - ended > SETTLE) and self._attempt(name, getattr(self, f"_{name}")):
            self._last = name, time.monotonic()

    def _clicked_execute(self, _: object) -> None:
        """Run it on a thread of its own: a kernel handles no click on Cancel before this one returns."""
        threading.Thread(target=self._clicked, args=("execute", None), name="kafka-txn-panel").start()

    def _choose(self, finding: Finding) -> None:
        self._attempt("choose", partial(self._select, finding))

    def _forget_last(self, _: object) -> None:
        self._last = "", 0.0  # a new confirmation is needed

    def _attempt(self, name: str, work: Callable[[], None]) -> bool:
        """Run a step and show its result; false if another one is running."""
        if not self._at_work.acquire(blocking=False):
            return False
        self._cancel.clear()
        try:
            self.busy, self.error, self.problems = WORK[name], None, []
            self.draw_problem()
            self._kept(work)
            self._kept(self.draw)
            self.draw_problem()
        finally:
            self.busy = ""
            self._at_work.release()
        self._report_step(name)
        return True

    def _report_step(self, name: str) -> None:
        """Announce how a step ended, and move the focus where its control went, or where its result is."""
        if self.error is not None:
            self.announce("")  # its alert is announced
            if name in {"execute", "next"}:
                self.focus_on("problem")
            return
        if self.step == "done" and self.ended is not None and self.result is not None and name == "execute":
            done = done_section(self.ended, self.result, str(self.audit.path))
            self.announce(f"{done.badge.capitalize()}: {text_lines(done.parts)[0]}")
        elif name in {"dry_run", "dry_run_all"} and self.plan is not None:
            self.announce(f"The dry run passed. Nothing was written. To do it, type {self.plan.target}.")
        elif name == "refresh":
            self.announce(f"{summary(self.findings, scope=self.seen)}.")
        elif name in {"choose", "next"} and self.selected is not None:
            self.announce(f"Chosen: {choice(self.selected)}.")
        elif name == "explain" and self.explained is not None:
            self.announce(f"Recognized: {', '.join(self.explained.symptoms) or 'nothing'}.")
        elif name == "postmortem":
            self.announce("The postmortem is ready.")
        if area := {"execute": "done", "next": "answer", "explain": "explained", "postmortem": "postmortem"}.get(name):
            self.focus_on(area)

    def _kept(self, work: Callable[[], None]) -> None:
        """Run it, and keep its exception, which a callback cannot raise."""
        try:
            work()
        except ToolkitError as error:
            self.error = error
        except Exception as error:
            log.exception("The panel failed.")
            self.error = error
        except BaseException as error:  # an interrupt from the menu is also shown, and raised again
            self.error = error
            self.draw()
            self.draw_problem()
            raise

    def _refresh(self) -> None:
        self._read_trail()
        rows = self.cluster.finding_rows(
            topics=self.topics, partitions=self.partitions, recheck_after=self.recheck_after
        )  # if that fails, all that was known stays
        self.findings = records_of(rows, Finding)
        self.checked_at = dt.datetime.now(dt.UTC)
        self.seen = self.cluster.scope_text
        self.ended = self.result = self.picture = None
        self._settle()
        same = next((each for each in self.findings if is_same(each, self.selected)), None)
        self._reset(same)
        if same is not None:
            self._select(same)

    def _settle(self) -> None:
        """Say what became of the transactions of which it was uncertain whether their action was done.

        Each partition is read by its name: the panel may be about others, where nothing shows that it was read.
        """
        for key, finding in [*self._uncertain.items()]:
            assert finding.tp is not None
            try:
                here = records_of(self.cluster.finding_rows(partitions=[finding.tp], recheck_after=0), Finding)
                why = unread(here)
            except ToolkitError as error:
                here, why = [], error.what.rstrip(".")
            now = "is still open"
            if not any(is_same(each, finding) for each in here):
                now = "is not open any more" if why is None else f"may be open: its partition could not be read ({why})"
                if why is None:
                    del self._uncertain[key]
            name = f"{finding.topic}-{finding.partition} at offset {finding.start_offset}"
            self.problems = [*self.problems, f"{name}, whose action was uncertain, {now}."]

    def _select(self, finding: Finding) -> None:
        self._reset(finding)
        if finding.verdict.is_live and finding.transactional_id is not None:
            self._beside("How its owner could be fenced", partial(self._plan_fence, finding.transactional_id))
        self._draw_timeline(finding)

    def _dry_run(self) -> None:
        if self.selected is None:
            raise UsageError("No finding is chosen.", do="Choose one.")
        self.plan, self.step = None, "chosen"
        try:
            plan = checked_plan(self.cluster, self.selected, recheck_after=self.recheck_after)
        except ActionRefused:
            if self.selected.tp is not None:
                self._recheck([self.selected.tp])
            raise
        self.plan, self.step = plan, "checked"
        if plan.transactional_id is None and plan.basis.verdict != self.selected.verdict:
            self.selected = plan.basis
            self.findings = [plan.basis if is_same(each, plan.basis) else each for each in self.findings]

    def _dry_run_all(self) -> None:
        if not self.hanging():
            raise UsageError("No transaction that hangs is listed.", do="Refresh, or search for less.")
        self._reset(None)
        self.picture = None
        self.plan = checked_list(self.cluster, self.hanging(), recheck_after=self.recheck_after)
        self.step = "checked"

    def _execute(self) -> None:
        plan, typed, finding = self.plan, self.typed, self.selected
        if plan is None:
            raise UsageError("No dry run has passed.", means="Nothing was written.", do="Do the dry run first.")
        self.typed, self._turn = "", finding
        if typed == plan.target and finding is not None:
            self._acted[finding.key] = finding
        try:
            act = partial(
                plan.execute, confirm=typed, audit=self.audit, recheck_after=self.recheck_after, cancel=self._cancel
            )
            result = act(progress=self._begin_next_of_list) if isinstance(plan, PlanList) else act()
        except BaseException as error:
            self._keep_uncertain(error)
            if typed == plan.target:  # the result of the dry run is obsolete
                self._reset(finding)
                if isinstance(error, Exception):
                    self._recheck(plan.topic_partitions)
            raise
        finally:
            self._read_trail()
        self.plan, self.ended, self.result, self.step = None, plan, result, "done"
        self._recheck(plan.topic_partitions)
        if isinstance(result, ListResult) and result.error is not None:
            self.error = result.error  # shown beside what was aborted before it
            self._keep_uncertain(result.error)

    def _keep_uncertain(self, error: BaseException) -> None:
        """Remember whose action failed, unless nothing was done; what is no error of ours does not say that."""
        effect = getattr(error, "effect", "nothing" if isinstance(error, ToolkitError) else "uncertain")
        if effect != "nothing" and self._turn is not None:
            self._uncertain[self._turn.key] = self._turn

    def _begin_next_of_list(self, plan: Plan) -> None:
        self._turn = self._acted[plan.basis.key] = plan.basis
        self.busy = f"{WORK['execute']}: {plan.target}"

    def _explain(self) -> None:
        if not self.pasted.value.strip():
            raise UsageError("No text was pasted.", do="Paste the error of the client.")
        self.explained = explain(self.pasted.value, self.cluster, recheck_after=self.recheck_after)

    def _postmortem(self) -> None:
        shown = dict(self._acted)
        if self.selected is not None:
            shown.setdefault(self.selected.key, self.selected)
        if not shown:
            raise UsageError("No finding is chosen.", do="Choose the one that the postmortem is about.")
        problems: list[str] = []
        self._read_trail()
        self.report = postmortem(self.cluster, list(shown.values()), actions=self.actions, remark=problems.append)
        self.problems = [*self.problems, *problems]

    def _next(self) -> None:
        finding = next_actionable(self.findings)
        if finding is None:
            raise UsageError("No other finding has an action here.", do="Diagnose again.")
        self._select(finding)

    def _reset(self, finding: Finding | None) -> None:
        self.selected, self.step = finding, "choose" if finding is None else "chosen"
        self.plan = self.fence = None
        self.typed = ""

    def _plan_fence(self, transactional_id: str) -> None:
        try:
            self.fence = plan_fence(self.cluster, transactional_id)
        except ActionRefused:
            self.fence = None  # nobody may fence it: the remedy of its finding says why

    def _recheck(self, changed: Sequence[TopicPartition]) -> None:
        """Diagnose partitions again that have changed."""
        self._beside("The current state", partial(self._refresh_partitions, changed))
        if self.selected is not None:
            self._draw_timeline(self.selected)

    def _refresh_partitions(self, changed: Sequence[TopicPartition]) -> None:
        if not changed:
            return
        rows = self.cluster.finding_rows(partitions=changed, recheck_after=self.recheck_after)
        current = records_of(rows, Finding)
        self.findings = [*(finding for finding in self.findings if finding.tp not in changed), *current]
        old = self.selected
        fresh = next((finding for finding in current if is_same(finding, old)), None)
        if fresh is not None:
            self.selected = fresh
        elif self.step != "done" and old is not None:
            self._reset(next((finding for finding in current if finding.tp == old.tp), None))

    def _draw_timeline(self, finding: Finding) -> None:
        """Read the timeline of the partition; the panel continues without it."""
        self.picture = None
        if finding.tp is not None:
            self._beside("The timeline", partial(self._read_picture, finding, finding.tp))

    def _read_picture(self, finding: Finding, tp: TopicPartition) -> None:
        samples = self._samples.setdefault(tp, deque(maxlen=MAX_SAMPLES))
        samples += self.cluster.records(Partition, partitions=[tp])
        here = [each for each in self.findings if each.tp == tp] or [finding]
        open_keys = {each.key for each in here if each.verdict.is_open}
        ended = [each for key, each in self._acted.items() if each.tp == tp and key not in open_keys]
        self.picture = picture(self.cluster, finding, findings=here, ended=ended, samples=list(samples))
        self.problems = [*self.problems, *self.picture.problems]

    def _beside(self, what: str, work: Callable[[], None]) -> None:
        """Run an optional step; a failure is shown as a note."""
        try:
            work()
        except (ToolkitError, ImportError) as error:  # plotly may not be installed
            self.problems = [*self.problems, f"{what} is not known: {error}"]

    def _read_trail(self) -> None:
        """Read the audit trail of this cluster."""
        try:
            rows = self.audit.rows()
        except OSError as error:
            self.problems = [*self.problems, f"The audit file {self.audit.path} cannot be read: {error}"]
            return
        self.actions = [row for row in rows if is_on(self.cluster, row)]


def checked_plan(cluster: Cluster, finding: Finding, *, recheck_after: float) -> Plan:
    """Plan the action of a finding, and check it afresh; nothing is sent.

    Raises ActionRefused if the finding has no action, or it is not safe any more. Raises BrokerError if the evidence
    cannot be read.
    """
    transactional_id = finding.transactional_id or ""
    if finding.action == "commit":
        return plan_commit(cluster, transactional_id, recheck_after=recheck_after)  # which is its check
    if finding.action == "fence":
        plan = plan_fence(cluster, transactional_id)
    else:
        plan = plan_complete(cluster, finding) if finding.action == "complete" else plan_abort(cluster, finding)
    return plan.check(recheck_after=recheck_after)


def checked_list(cluster: Cluster, findings: Sequence[Finding], *, recheck_after: float) -> PlanList:
    """Plan the abort of many, and check each afresh; nothing is sent.

    Raises ActionRefused if none is proven to be hanging any more.
    """
    plan = plan_abort_list(cluster, findings, recheck_after=recheck_after)
    if not plan.plans:
        raise ActionRefused(
            "None of these transactions is proven to be hanging any more.", means="Nothing was written.", do="Refresh."
        )
    return plan
