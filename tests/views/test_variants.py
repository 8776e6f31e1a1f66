"""What every value of a row changes in findings, reports and explanations, as stored: a new text is a difference."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.actions.rows import RowCluster, abort_plan, complete_plan, found
from tests.distinct import distinct_rows
from tests.stored import compare
from tests.views.panel.test_panel_html import impact, result
from tests.views.test_report import action, finding
from tests.views.test_report_facts import BEGUN, ENDED, done, ended, entry, transaction
from tests.views.variants import AT, differences, variants
from toolkit.actions.audit import Audit
from toolkit.actions.plan import Done, LeftOut, ListResult, Plan, PlanList, Result
from toolkit.actions.transaction import OffsetCommitted
from toolkit.analysis.symptoms import NamedResources
from toolkit.schema import (
    ACTIONS,
    CLUSTER_EVENTS,
    EXPOSURE,
    FINDINGS,
    GROUP_LAG,
    LOG_TRANSACTIONS,
    LSO_TIMELINE,
    OFFSETS_LOG,
    PARTITIONS,
    TRANSACTION_HISTORY,
    TRANSACTION_LOG,
    TRANSACTIONS,
    Row,
)
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding, GroupLag, Transaction
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.schema.table import Table, TopicPartition
from toolkit.schema.verdict import Verdict
from toolkit.sources.resource_checks import ResourceChecks
from toolkit.views import next_steps
from toolkit.views.action_document import done_section, passed, preview, show_plan
from toolkit.views.explained_error import ExplainedError, explain
from toolkit.views.finding_document import finding_groups, finding_lines, group_sentences, short_lines, summary
from toolkit.views.panel.layout import answer_section, button_text, choice, why_not_section
from toolkit.views.renderers import text_lines
from toolkit.views.report import Redaction, report
from toolkit.views.report.report_sections import PROOF

HOUR = dt.timedelta(hours=1)
OPEN = finding(brokers_time=AT, outcome="undecided", action="abort", groups_held=["billing"], cluster_id="here")
LIVE = {"verdict": "ongoing", "outcome": None, "action": None, "cause": None, "remedy": "Wait.",
        "opened_at_clock": "coordinator", "expires_at": AT + HOUR, "groups_held": None}  # fmt: skip
NOBODY = dict.fromkeys(("producer_id", "producer_epoch", "transactional_id", "start_offset", "queue_position",
                        "held_from", "held_ms", "opened_at", "opened_at_clock", "outcome", "action", "cause",
                        "last_stable_offset", "offsets_held", "records_held", "bytes_held", "groups_held"))  # fmt: skip
UNREAD = {**OPEN, **NOBODY, "verdict": "unknown", "remedy": "Diagnose again.", "evidence": [],
          "missing": ["TOPIC_AUTHORIZATION_FAILED: no"], "error": "TOPIC_AUTHORIZATION_FAILED: no"}  # fmt: skip
ELSEWHERE = {**OPEN, "verdict": "unknown", "error": "UNKNOWN_TOPIC_OR_PARTITION: none", "start_offset": None,
             "queue_position": None, "missing": ["UNKNOWN_TOPIC_OR_PARTITION: none", "the log of orders-0"],
             "expires_at": AT - HOUR, "opened_at_clock": "coordinator", "last_stable_offset": None}  # fmt: skip
SEEN = [
    entry("recording", "verdict", "unknown: Seen once.", BEGUN + dt.timedelta(seconds=5)),
    entry("recording", "verdict", "hanging: Seen twice.", BEGUN + dt.timedelta(seconds=10)),
    entry("log", "held_since", "offset 100", BEGUN),
]


def many(row: Row, number: int = 26) -> list[Row]:
    """As many alike, on 13 topics."""
    places = ({"topic": f"t{n % 13:02}", "partition": n // 13} for n in range(number))
    return [{**row, **each, "producer_id": row["producer_id"] and n} for n, each in enumerate(places)]


FOUND: Mapping[str, tuple[Sequence[Row], Sequence[int]]] = {
    "open": ([OPEN], [0]),
    "of files": ([{**OPEN, **dict.fromkeys(("held_ms", "held_from", "records_held"))}], [0]),
    "live": ([{**OPEN, **LIVE}], [0]),
    "ended": ([{**ended(entry("log", "marker", "offset 9: ABORT", ENDED)), "outcome": "abort"}], [0]),
    "ended of a sample": ([ended(cluster_id="here", last_stable_offset=None)], [0]),
    "unread": ([UNREAD], [0]),
    "open elsewhere": ([ELSEWHERE], [0]),
    "behind": ([OPEN, {**OPEN, **LIVE, "queue_position": 2, "start_offset": 200, "producer_id": 8},
                {**OPEN, "queue_position": 3, "start_offset": 300, "producer_id": 9}], [1]),
    "of two clusters": ([OPEN, {**OPEN, "cluster_id": "there"}], [1]),
    "alike": (many(OPEN), range(26)),
    "alike in two clusters": ([*many(OPEN, 6), *({**each, "cluster_id": "there"} for each in many(OPEN, 6))], range(6)),
    "alike and live": (many({**OPEN, **LIVE, "owner": "Flink ledger (likely)"}), range(26)),
    "alike and unread": (many(UNREAD), range(26)),
    "alike and elsewhere": (many(ELSEWHERE), range(26)),
}  # fmt: skip


def shown(rows: Sequence[Row]) -> Iterator[str]:
    """What is said of findings everywhere."""
    found = records_of(rows, Finding)
    yield summary(rows, scope="what was read")
    yield from finding_lines(rows)
    yield from group_sentences(finding_groups(found))
    yield from short_lines(found[:2])
    yield repr(next_steps(rows[:8]))
    if len(found) < 3:
        yield choice(found[-1])
        yield button_text(found[-1])
        yield from text_lines([answer_section(found[-1]), why_not_section(found[-1])])


@pytest.mark.parametrize("name", FOUND)
def test_what_is_said_of_a_finding(name: str) -> None:
    rows, of = FOUND[name]
    keys = ("topic", "partition") if len(rows) > 3 else ()
    compare(
        f"variants/finding-{name.replace(' ', '-')}.txt",
        differences(shown, rows, variants(FINDINGS, rows, of=of, without=keys)),
    )


ALIVE = {**OPEN, **LIVE, "offsets_held": 0, "records_held": None}
COMMITTED = {**OPEN, "verdict": "stuck_ending", "outcome": "commit", "action": "complete"}
SEVERAL: Mapping[str, Sequence[Row]] = {
    "ended ones follow what is open": [ended(topic="a"), OPEN],
    "and what waits": [ended(topic="a"), {**UNREAD, "verdict": "unreplicated", "error": None, "missing": []}],
    "healthy ones have a line each, aligned, below the others": [
        {**ALIVE, "partition": 1}, {**ALIVE, "topic": "a-longer-name", "expires_at": AT + HOUR / 60}, OPEN],
    "COMMIT markers are missing": [
        COMMITTED, {**COMMITTED, "partition": 8}, {**COMMITTED, "outcome": None, "action": None, "partition": 9}],
    "a broker wrote a record within the clock's tick of 4 ms before its file": [
        {**OPEN, "held_from": None, "held_ms": None, "opened_at": AT + dt.timedelta(milliseconds=2)}],
    "partitions are counted, not transactions": [
        *({**OPEN, "partition": n, "queue_position": place} for n in (0, 1) for place in (1, 2)),
        {**OPEN, "partition": 5, "verdict": "unknown"}, *({**ALIVE, "partition": n} for n in range(10, 24))],
    "by cause and application": [
        {**row, "cause": ("a", "late (late-after-abort)", None)[n // 20], "transactional_id": f"{'abb'[n // 20]}-{n}"}
        for n, row in enumerate(many(OPEN, 60))],
}  # fmt: skip


def test_what_is_said_of_several_findings() -> None:
    texts = (text for name, rows in SEVERAL.items() for text in (f"# {name}", *shown(rows)))
    compare("variants/finding-several.txt", (line for text in texts for line in text.splitlines()))


def samples(*seconds: int) -> list[Row]:
    """The partition, as a recorder has sampled it."""
    times = [BEGUN + dt.timedelta(seconds=each) for each in seconds]
    row = {"topic": "orders", "partition": 0, "last_stable_offset": 100, "high_watermark": 2215}
    return [{**dict.fromkeys(PARTITIONS.names), **row, "sampled_at": at, "observed_at": at} for at in times]


def whole(table: Table, *rows: Row) -> list[Row]:
    """Rows with all columns."""
    return [{**dict.fromkeys(table.names), **row} for row in rows]


TABLES: Mapping[str, tuple[Table, list[Row]]] = {
    "log_transactions": (LOG_TRANSACTIONS, [
        transaction(marker_epoch=1), transaction(None, producer_id=8, first_offset=3000)]),
    "lso_timeline": (LSO_TIMELINE, whole(LSO_TIMELINE, *(
        {"topic": "orders", "partition": 0, "at": at, "offset": offset, "last_stable_offset": lso, "event": event,
         "holder_producer_id": holder and 171100, "holder_first_offset": holder}
        for at, offset, lso, event, holder in ((BEGUN, 103, 100, "open", 100), (ENDED, 2216, 2216, "abort", None))))),
    "transaction_history": (TRANSACTION_HISTORY, whole(TRANSACTION_HISTORY, {
        "transactional_id": "payments-7", "txn_state_partition": 3, "kind": "transaction", "producer_id": 171100,
        "producer_epoch": 1, "ended": "abort", "reason": "It was aborted.", "state": "CompleteAbort",
        "start_time": BEGUN, "decided_at": BEGUN + HOUR, "end_time": ENDED})),
    "partitions": (PARTITIONS, samples(0, 10, 20, 30, 40)),
    "recorded_findings": (FINDINGS, [
        {**finding(groups_held=groups, observed_at=at), "sampled_at": at}
        for at, groups in ((BEGUN + dt.timedelta(seconds=10), ["billing", "fraud"]),
                           (BEGUN + dt.timedelta(seconds=20), ["billing"]))]),
    "offsets_log": (OFFSETS_LOG, whole(OFFSETS_LOG, {
        "group_id": "billing", "topic": "orders", "partition": 0, "timestamp": BEGUN + dt.timedelta(seconds=45),
        "committed_offset": 2216, "kind": "offset_commit"})),
    "exposure": (EXPOSURE, whole(EXPOSURE, *(
        {"subject": subject, "name": name, "exposed": True, "value": "1", "means": "Old.", "observed_at": AT,
         "transactional_id": of} for subject, name, of in (
            ("transactional_id", "client_transaction_version", "payments-7"), ("known bug", "KAFKA-1", None),
            ("transactional_id", "client_transaction_version", "other"))))),
    "cluster_events": (CLUSTER_EVENTS, whole(CLUSTER_EVENTS, {
        "timestamp": ENDED, "event": "leader_changed", "topic": "orders", "partition": 0, "broker_id": 2,
        "text": "broker 3 leads it", "source": "metadata log"})),
    "actions": (ACTIONS, [
        action(step="intent", at=ENDED - dt.timedelta(seconds=40), response=None), done("undecided")]),
}  # fmt: skip
OVER = ended(*SEEN, brokers_time=AT, groups_held=["billing", "late"], cluster_id="here")
SECOND = finding(topic="refunds", producer_id=7, transactional_id="refunds-1", start_offset=3, brokers_time=AT)
REPORTS: Mapping[str, tuple[list[Row], int]] = {
    "over": ([OVER], 0),
    "open": ([OPEN], 0),
    "several": ([OVER, SECOND, {**UNREAD, "topic": "other"}, {**OPEN, **LIVE, "topic": "clicks"}], 1),
    "several of which one is over": ([OVER, SECOND], 0),
}


def written(tables: Mapping[str, Any]) -> Iterator[str]:
    """A report, and its title."""
    made = report(**tables, generated_at=AT + HOUR)
    yield made.title
    yield made.markdown


@pytest.mark.parametrize("name", REPORTS)
def test_what_a_report_says(name: str) -> None:
    found, number = REPORTS[name]
    tables: dict[str, Any] = {each: rows for each, (_, rows) in TABLES.items()}
    if name == "open":
        tables |= {"log_transactions": [transaction(None)], "actions": tables["actions"][:1], "lso_timeline": []}

    def changed() -> Iterator[tuple[str, Mapping[str, Any]]]:
        for label, rows in variants(FINDINGS, found, of=[number]):
            yield label, {**tables, "findings": rows}
        for known in [*PROOF, "verdict_before"]:
            extra = entry("__transaction_state", known, "unknown: PrepareAbort: CompleteCommit", BEGUN)
            both = [*found[number]["evidence"], extra, {**extra, "broker_id": 2}]
            own = {**found[number], "evidence": both}
            yield (
                f"evidence {known}",
                {**tables, "findings": [own if n == number else row for n, row in enumerate(found)]},
            )
        of_tables = {"over": [*TABLES], "open": ["actions"]}.get(name, [])
        for each, table in ((each, TABLES[each][0]) for each in of_tables):
            yield f"without {each}", {**tables, "findings": found, each: None}
            for at in range(min(2, len(tables[each]))):
                for label, others in variants(table, tables[each], of=[at], few=True):
                    yield f"{each}[{at}].{label}", {**tables, "findings": found, each: others}

    base = {**tables, "findings": found}
    compare(f"variants/report-{name.replace(' ', '-')}.txt", differences(written, base, changed()))


def sampled(second: int, **columns: Any) -> Row:
    """The finding in a sample."""
    at = BEGUN + dt.timedelta(seconds=second)
    return {**finding(observed_at=at, **columns), "sampled_at": at}


def exposed(*rows: tuple[str, str, str, bool | None, str | None], **columns: Any) -> list[Row]:
    names = ("subject", "name", "means", "exposed", "value")
    return whole(EXPOSURE, *({**dict(zip(names, row, strict=True)), "observed_at": AT, **columns} for row in rows))


OLD_FENCE = action(action="fence", topic=None, partition=None, start_offset=None, target="payments-7",
                   transactional_id="payments-7", at=BEGUN - dt.timedelta(days=30))  # fmt: skip
EMPTY: Mapping[str, Any] = dict.fromkeys(
    ("log_transactions", "lso_timeline", "transaction_history", "partitions", "exposure", "actions"), ())  # fmt: skip
CASES: Mapping[str, Mapping[str, Any]] = {
    "its coordinator has decided it, so no other one has committed it": {
        "findings": [ended(entry("__transaction_state", "records", "offsets 1..3: CompleteAbort, started", ENDED))],
        "actions": []},
    "a log has no verdict; the check before the marker in the audit trail has": {
        "findings": [{**ended(), "evidence": []}], "actions": [done("abort", verdict=Verdict.HANGING)]},
    "without the log": {"findings": [ended()], "log_transactions": None},
    "of its own records a lower bound is known": {
        "findings": [ended()], "log_transactions": [transaction(truncated=True)]},
    "a COMMIT marker published what no commit included": {
        "findings": [ended()], "log_transactions": [transaction("COMMIT")], "actions": [done("undecided")]},
    "a COMMIT marker of a commit": {
        "findings": [ended()], "log_transactions": [transaction("COMMIT")], "actions": [done("commit")]},
    "the coordinator of a group did not answer for a sample, which ends no stall": {
        "findings": [ended(groups_held=["billing"])], "partitions": samples(0, 10, 20, 30, 40),
        "recorded_findings": [
            sampled(10, groups_held=["billing"]), sampled(20, groups_held=None),
            sampled(30, verdict="unknown", producer_id=None, start_offset=None, groups_held=None)]},
    "that it ended is no verdict while it was open": {
        "findings": [{**ended(topic=topic), "evidence": []} for topic in ("orders", "refunds")]},
    "a fence of the same id long before is no action on this transaction": {
        "findings": [finding(held_from=BEGUN, opened_at=BEGUN)], "actions": [OLD_FENCE]},
    "nor if it is not known since when it holds": {
        "findings": [finding(held_from=None, opened_at=BEGUN)], "actions": [OLD_FENCE]},
    "exposed clients without a transaction here are no all-clear": {
        "findings": [finding()], "exposure": exposed(
            ("transactional_id", "client_transaction_version", "Old.", True, "1"), transactional_id="other")},
    "a bug of the release is no cause": {
        "findings": [finding()], "exposure": exposed(
            ("known bug", "KAFKA-1", "A bug.", True, "false"),
            ("known bug", "KAFKA-2", "It depends on the patch release.", None, "3.9"),
            ("known bug", "kafka version", "By its API versions.", None, "3.9"),
            ("broker", "transaction.partition.verification.enable", "Late messages hang.", True, "false"),
            ("cluster", "transaction.version", "Good.", False, "2"),
            ("broker", "transaction.max.timeout.ms", "It could not be read.", None, None), broker_id=1)},
    "nothing": {"findings": [], "log_transactions": None},
    "what could not be read is not nothing open": {"findings": [UNREAD], "log_transactions": None},
    "nor is what waits for replicas": {
        "findings": [{**UNREAD, "verdict": "unreplicated", "error": None, "missing": []}], "log_transactions": None},
    "audit entries of this partition and id, and not of another cluster": {
        "findings": [finding(cluster_id="here")], "actions": [
            action(cluster_id="here"), action(topic="refunds", target="refunds-0@5", who="bob@ops"),
            action(action="fence", topic=None, partition=None, target="payments-7", transactional_id="payments-7"),
            action(cluster_id="elsewhere", who="eve@ops")]},
    "which cluster it is, is not known": {
        "findings": [finding()], "actions": [action(cluster_id="elsewhere", who="eve@ops")]},
    "a page with every table": {**EMPTY, "findings": [finding()]},
    "without one": {**EMPTY, "findings": [finding()], "exposure": None},
    "with a log that could not be read": {
        **EMPTY, "findings": [finding()], "problems": ["the log of orders-0: NotFound"]},
}  # fmt: skip


def test_what_a_report_says_of_a_case() -> None:
    base = {"findings": [ended()], "log_transactions": [transaction()]}
    compare("variants/report-cases.txt", differences(
        written, base, ((name, {**base, **changed}) for name, changed in CASES.items())))  # fmt: skip


OWNER = {"transactional_id": "payments-7", "producer_id": 7, "producer_epoch": 1, "state": "Ongoing",
         "start_time": BEGUN, "source": "DescribeTransactions", "coordinator_id": 2, "broker_id": 2,
         "observed_at": AT, "timeout_ms": 60_000,
         "topic_partitions": [{"topic": "orders", "partition": 0}]}  # fmt: skip
LAG = {"group_id": "billing", "topic": "orders", "partition": 0, "committed_offset": 90, "last_stable_offset": 100,
       "high_watermark": 150, "lag": 60, "client_lag": 10, "behind": 8, "held": 45, "markers": 2, "aborted": 3,
       "removed": 4, "reason": "Most of it is held.", "observed_at": AT}  # fmt: skip
RECORD = {"transactional_id": "payments-7", "producer_id": 7, "producer_epoch": 1, "state": "Ongoing",
          "last_update_time": BEGUN, "topic_partitions": OWNER["topic_partitions"], "tombstone": False}  # fmt: skip
PAST = TABLES["transaction_history"][1][0]
LOOKED_UP: Mapping[str, tuple[Table, Row, Callable[[list[Row]], Mapping[str, Any]]]] = {
    "transactions": (TRANSACTIONS, OWNER, lambda rows: {"transactions": tuple(records_of(rows, Transaction))}),
    "history": (TRANSACTION_HISTORY, PAST, lambda rows: {
        "history": tuple(records_of([*rows, PAST], PastTransaction))}),
    "group_lag": (GROUP_LAG, LAG, lambda rows: {"group_lag": tuple(records_of(rows, GroupLag))}),
    "findings": (FINDINGS, OPEN, lambda rows: {"findings": tuple(records_of(rows, Finding))}),
    "pasted": (TRANSACTION_LOG, RECORD, lambda rows: {"pasted": tuple(records_of(rows, TransactionLogRecord))}),
}  # fmt: skip


def explained(facts: Mapping[str, Any]) -> Iterator[str]:
    """An explanation, as text and as its row."""
    found = dict(facts)
    pasted, named, scope = found.pop("pasted", ()), found.pop("named", NamedResources()), found.pop("scope", "1 topic")
    checks = ResourceChecks(**{"all_partitions": True, **found})
    made = ExplainedError(recognized=(), named=named, pasted=pasted, checks=checks, scope=scope)
    yield from made.lines()
    yield json.dumps({name: made.rows()[0][name] for name in ("observed", "not_checked", "findings")}, default=str)


def test_what_is_said_of_what_an_error_names() -> None:
    every: dict[str, Any] = {}
    for table, row, facts in LOOKED_UP.values():
        every |= facts([{**dict.fromkeys(table.names), **row}])
    names = NamedResources(transactional_ids=("a", "b"), groups=("c", "d"), topics=("e",), producer_ids=(1, 2),
                           partitions=tuple(TopicPartition("f", number) for number in range(25)))  # fmt: skip
    more = [replace(every["pasted"][0], transactional_id=f"p{n}", state=("Ongoing", "Empty")[n % 2]) for n in range(13)]
    two = (every["findings"][0], replace(every["findings"][0], partition=1))

    def changed() -> Iterator[tuple[str, Mapping[str, Any]]]:
        nothing: dict[str, Any] = dict.fromkeys(every, ())
        for label, facts in {
            "named": {**every, "named": names},
            "named, two findings": {**every, "named": names, "findings": two},
            "pasted": {**every, "pasted": tuple(more)},
            "pasted, one more": {**every, "pasted": tuple(more[:11])},
            "not checked": {**every, "not_checked": ("Group x: it is gone.",)},
            "nothing": nothing,
            "nothing, named": {**nothing, "named": names},
            "nothing, and no scope": {**nothing, "scope": None},
            "nothing, not checked": {**nothing, "not_checked": ("Group x: it is gone.",)},
            "nothing, not all partitions": {**nothing, "all_partitions": False},
        }.items():
            yield label, facts
        for name, (table, row, known) in LOOKED_UP.items():
            for label, rows in variants(table, [{**dict.fromkeys(table.names), **row}]) if name != "findings" else ():
                yield f"{name}.{label}", {**every, **known(rows)}

    more_named = explain("nothing", transactional_ids=["a"], groups=["b"], topics=["c"], partitions=[1]).lines()
    rows_of = [json.dumps(row) for text in ("nothing", "ProducerFencedException") for row in explain(text).rows()]
    compare("variants/explained.txt", [*more_named, *rows_of, *differences(explained, every, changed())])


COMMITS = [OffsetCommitted(group_id=f"g{n}", topic="orders", partition=n, offset=n or None) for n in range(22)]
IMPACTS: Sequence[dict[str, Any]] = [
    {}, {"records": None, "unread": "The log ends before it."}, {"records": 0}, {"size": None}, {"first_offset": None},
    {"records_released": None}, {"groups": None}, {"groups": ("a",)}, {"groups": ("a", "b")}, {"next_stable_offset": 5},
    {"next_stable_offset": 7, "next_start_offset": 7, "next_producer_id": 8},
    *({"offset_commits": COMMITS[:number]} for number in (1, 20, 21, 22)),
]  # fmt: skip
RESULTS: Sequence[dict[str, Any]] = [
    {"unread_groups": ["a", "b"]}, {"records_file": Path("a.parquet"), "records_saved": 3},
    *({"offset_commits": COMMITS[:number]} for number in (1, 20, 21)),
]  # fmt: skip
MOVED: Sequence[dict[str, Any]] = [
    {"last_stable_offset_after": 5}, {"last_stable_offset_after": 11}, {"last_stable_offset_after": 12},
    {"last_stable_offset_after": None}, {"next_start_offset": 7}, {"records_checked": 3, "records_delivered": 2},
]  # fmt: skip
DONE = result(10)


def acted(case: tuple[Plan, Result]) -> Iterator[str]:
    """A dry run, with and without an override, and what was done; in a terminal, a notebook and the panel."""
    made, its_result = case
    audit = Audit("audit.jsonl")
    for more in ({"audit": audit}, {"override": "it is so"}):
        yield from text_lines(preview(made, **more))
    yield repr(show_plan(made, audit=audit))
    yield from text_lines([passed(made, audit), done_section(made, its_result, "audit.jsonl")])


@pytest.mark.parametrize("verb", ["abort", "complete"])
def test_what_is_said_of_an_action(verb: str) -> None:
    cluster: Any = RowCluster()
    plan_of = {"abort": abort_plan, "complete": complete_plan}[verb]

    def planned(known: Mapping[str, Any] | None = None, **more: Any) -> Plan:
        return plan_of(cluster, impact=impact(**(known or {})), start_offset=5, **more)

    base, done_ = planned(), Result(partitions=[DONE])

    def changed() -> Iterator[tuple[str, tuple[Plan, Result]]]:
        for each in IMPACTS:
            yield f"impact {[*each]} {len(each.get('offset_commits', ()))}", (planned(each), done_)
        for each in RESULTS:
            yield f"result {[*each]} {len(each.get('offset_commits', ()))}", (base, replace(done_, **each))
        for each in MOVED:
            for planned_next in (None, 7):
                made = planned({"next_stable_offset": planned_next or 9, "next_start_offset": planned_next})
                yield f"moved {each}, next {planned_next}", (made, Result(partitions=[replace(DONE, **each)]))
        for needed in (None, "it is so", "it is not"):
            ruling = replace(base.ruling, refusal="It is not proven.", needed_override=needed)
            yield f"refused, needs {needed}", (replace(base, ruling=ruling), done_)
        for outcome, name in (("commit", "a"), ("abort", None), ("unknown", "b")):
            yield f"{outcome} of {name}", (planned(basis=found(outcome=outcome, transactional_id=name)), done_)
        every = [base, planned({"records": None, "size": None, "groups": None}), planned({"groups": ("a",)})]
        live = LeftOut(target="o-1@1", verdict="long", outcome=None, reason="It lives.", remedy="Wait.", command=("x",))
        left = [live, LeftOut(target="o-2@2", verdict=None, outcome=None, reason="It is gone.")]
        for plans in ([], every[:1], every, [base, every[2]]):
            for stopped, file in ((None, Path("a")), ("o-3@3", None)):
                one = Done(target="o-0@5", result=replace(done_, records_file=file, records_saved=1 if file else None))
                of_list: Any = PlanList(cluster=cluster, plans=plans, left_out=left[: len(plans)])
                listed: Any = ListResult(done=[one], stopped_at=stopped, not_tried=["o-4@4"] if stopped else [])
                yield f"list of {len(plans)}, stopped at {stopped}", (of_list, listed)

    compare(f"variants/{verb}.txt", differences(acted, (base, done_), changed()))


def test_what_a_redacted_table_has() -> None:
    """Each column is a name, a text, or kept."""
    tables = {name: distinct_rows(table)[:1] for name, (table, _) in TABLES.items()} | {
        "findings": distinct_rows(FINDINGS)[:1]
    }
    redacted = Redaction(tables).applied(tables)
    lines = [f"{name}.{column}: {value!r} -> {redacted[name][0][column]!r}" for name, (row,) in tables.items()
             for column, value in row.items() if redacted[name][0][column] != value]  # fmt: skip
    compare("variants/redacted.txt", lines)
