"""What is asked of each recorded cluster, in the order in which it was asked there."""

from __future__ import annotations

import base64
import csv
import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tests.corpus.calls import FORMATS, Call, CommandLine, card, table, tool
from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_actions import plan_fence
from toolkit.errors import ActionRefused
from toolkit.schema.live import Finding
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.source import CLUSTER, tables_of
from toolkit.views.action_document import done_section, fence_section, passed
from toolkit.views.document import Connection, Part
from toolkit.views.panel.abort_panel import checked_plan
from toolkit.views.panel.layout import (
    answer_section,
    button_text,
    choice,
    evidence_section,
    problem_section,
    why_not_section,
)
from toolkit.views.renderers import html_text

PROPERTIES = "client.properties"
SOON = ("--recheck-after", "1s")


def cluster_calls(facts: Mapping[str, Any]) -> Iterator[Call]:
    """Every call of a cluster: what was staged on it and how much is asked is in its facts."""
    timeout = float(facts["timeout_s"])
    server, config = facts["bootstrap_servers"], facts["config"]
    line = CommandLine(source=["--bootstrap-server", server, "--timeout", f"{timeout:g}s"])
    if len(config) > 1:
        text = "".join(f"{key}={value}\n" for key, value in config.items() if key != "bootstrap.servers")
        line = CommandLine(source=[*line.source, "--command-config", PROPERTIES], files={PROPERTIES: text})
    connect = partial(Cluster, config, timeout=timeout)
    staged, is_rich = facts["staged"], facts["is_rich"]
    yield line("diagnose", "--recheck-after", "5s", name="diagnose")
    if is_rich:
        yield from _everything(line, connect, facts)
    else:
        yield from _little(line, facts)
    yield from _dry_runs(line, staged)
    if not facts.get("has_many_ids"):
        yield from _cards(connect, staged, are_done=is_rich)
    if facts["later"]:
        yield line("diagnose", *facts["later"], name="diagnose-later")
        yield from (_fence(line, each, "-later") for each in staged if each["later"] == "overdue")
    if checkpoint := facts.get("checkpoint"):
        yield from _flink(line, staged, base64.b64decode(checkpoint))
    if is_rich:
        yield _fence(line, staged[-1], "-json", "--format", "json")
        yield from _refusals(line, staged)
    yield from _actions(line, staged)
    yield line("diagnose", *SOON, name="diagnose-after")
    if is_rich:
        yield from _typed(line, staged)


def _little(line: CommandLine, facts: Mapping[str, Any]) -> Iterator[Call]:
    """What shows in its own way that something is missing."""
    staged = facts["staged"]
    first = staged[0]
    ids = [name for each in staged for name in ("--transactional-id", each["transactional_id"])]
    yield line("describe", *ids, name="describe")
    if facts.get("has_many_ids"):
        return
    yield line("list")
    yield line("exposure", name="exposure")
    yield line("describe-producers", name="describe-producers")
    yield line("partitions", name="partitions")
    yield line("lag", name="lag")
    yield line("history", *ids, name="history")
    yield line("coordinator", *ids, "--group", facts["group"], name="coordinator")
    yield line("why", f"{first['topic']}-{first['partition']}@{first['start_offset']}", name="why")
    yield line("gaps", f"{first['topic']}-{first['partition']}", name="gaps")
    yield line("explain", f"ProducerFencedException: transactionalId={first['transactional_id']}", *SOON,
               name="explain")  # fmt: skip
    yield line("report", *SOON, "--output", "report.md", name="report")


def _everything(line: CommandLine, connect: Callable[[], Cluster], facts: Mapping[str, Any]) -> Iterator[Call]:
    """Each command in each format, each table, each tool."""
    staged = facts["staged"]
    by_name = {each["name"]: each for each in staged}
    first = staged[0]
    where = ["--topic", first["topic"], "--partition", str(first["partition"])]
    place = {"topic": first["topic"], "partition": first["partition"]}
    live = next(each for each in staged if each["expected"] == "ongoing")
    ids = [name for each in (first, live) for name in ("--transactional-id", each["transactional_id"])]
    held = by_name.get("offsets_never_added", first)
    for output in FORMATS:
        written = ["--format", output]
        if output != "table":
            yield line("diagnose", *SOON, *written, name=f"diagnose-{output}")
        yield line("find-hanging", *SOON, *written, name=f"find-hanging-{output}")
        yield line("list", *written, name=f"list-{output}")
        yield line("describe", *ids, *written, name=f"describe-{output}")
        yield line("describe-producers", *where, *written, name=f"describe-producers-{output}")
        yield line("partitions", *where, *written, name=f"partitions-{output}")
        yield line("lag", *written, name=f"lag-{output}")
        yield line("exposure", *written, name=f"exposure-{output}")
        yield line("coordinator", *ids, "--group", facts["group"], *written, name=f"coordinator-{output}")
        yield line("history", *ids, *written, name=f"history-{output}")
        yield line("why", f"{first['topic']}-{first['partition']}@{first['start_offset']}", *written,
                   name=f"why-{output}")  # fmt: skip
        yield line("gaps", f"{first['topic']}-{first['partition']}", *written, name=f"gaps-{output}")
        text = f"InvalidProducerEpochException: Producer attempted to produce with an old epoch. transactionalId={first['transactional_id']}"  # noqa: E501
        yield line("explain", text, "--topic", first["topic"], *SOON, *written, name=f"explain-{output}")
    yield line("diagnose", *SOON, "--short", name="diagnose-short")
    yield line("find-hanging", *SOON, "--verdict", "hanging", "--short", name="find-hanging-short")
    texts = {
        "without-names": ["TRANSACTION_ABORTABLE"],
        "producer": [f"Out of order sequence number for producer {first['producer_id']}: OutOfOrderSequenceException"],
    }
    for name, options in texts.items():
        yield line("explain", *options, *SOON, name=f"explain-{name}")
    yield line("list", "--state", "Ongoing", name="list-ongoing")
    yield line("list", "--duration-filter", "1h", name="list-duration")
    yield line("list", "--producer-id", str(live["producer_id"]), name="list-producer")
    yield line("list", "--transactional-id-pattern", f"{live['name']}.*", name="list-pattern")
    yield line("describe", "--transactional-id", "nobody", name="describe-unknown")
    yield line("history", "--transactional-id", "nobody", name="history-unknown")
    yield line("describe-producers", *where, "--broker-id", "1", name="describe-producers-broker")
    for command in ("diagnose", "partitions", "describe-producers"):
        yield line(command, "--topic", "nothing", name=f"{command}-unknown-topic")
    for command in ("find-hanging", "describe-producers"):
        yield line(command, "--broker-id", "99", name=f"{command}-unknown-broker")
    leading = CommandLine(files=line.files)
    yield leading(*line.source[:2], "partitions", *where, name="partitions-after-its-options")
    yield line("diagnose", *where, "--no-log-evidence", *SOON, name="diagnose-no-log-evidence")
    yield line("diagnose", "--max-transaction-timeout", "0s", "--recheck-after", "0s", name="diagnose-long")
    yield line("find-hanging", "--broker-id", "1", *SOON, name="find-hanging-broker")
    yield line("why", *where, "--offset", "0", name="why-committed")
    yield line("why", *where, "--offset", "1000", name="why-beyond")
    yield line("gaps", *where, "--isolation-level", "read_uncommitted", name="gaps-uncommitted")
    yield line("gaps", *where, "--start-offset", "1", "--stop-offset", "lso", name="gaps-range")
    for start, stop in (("5", "1"), ("high_watermark", "log_start"), ("9999", "high_watermark")):
        yield line("gaps", *where, "--start-offset", start, "--stop-offset", stop, name=f"gaps-from-{start}-to-{stop}")
    yield line("lag", "--group", facts["group"], name="lag-group")
    yield line("lag", "--group", "nobody", name="lag-unknown")
    yield line("coordinator", "--group", held["group"] or facts["group"], name="coordinator-group")
    yield line("exposure", "--kafka-version", facts["version"], name="exposure-version")
    yield line("report", *SOON, "--output", "report.md", name="report")
    yield line("report", *where, *SOON, "--redact", "--title", "What held payments", "--output", "report.md",
               name="report-redacted")  # fmt: skip
    step = {"at": "2026-11-21T09:58:11+00:00", "action_id": "a", "action": "abort", "step": "refused", **place,
            "target": f"{first['topic']}-{first['partition']}@{first['start_offset']}"}  # fmt: skip
    servers = (facts["bootstrap_servers"], "elsewhere:9092")  # of the actions, only those on this cluster are shown
    trail = "".join(json.dumps({**step, "bootstrap_servers": each, "who": each}) + "\n" for each in servers)
    yield line("report", *where, *SOON, "--output", "report.md", files={"audit.jsonl": trail}, name="report-actions")
    yield line("diagnose", *where, *SOON, name="diagnose-partition")
    yield line("record", "--samples", "2", "--interval", "2s", "--output", "samples", name="record")
    for name in tables_of(CLUSTER):
        arguments: dict[str, Any] = {"recheck_after": 1.0} if name == "findings" else {}
        yield table(connect, CLUSTER, name, **arguments)
    yield tool(connect, "diagnose")
    yield tool(connect, "diagnose", label="-partition", **place)
    yield tool(connect, "explain", text="ProducerFencedException: " + live["transactional_id"])
    yield tool(connect, "why", **place, offset=first["start_offset"])
    yield tool(connect, "history", transactional_id=live["transactional_id"])
    yield tool(connect, "lag", group=facts["group"])
    yield tool(connect, "report", **place)
    for action in ("plan_abort", "plan_complete"):
        yield tool(connect, action, **place, start_offset=first["start_offset"])


def _cards(connect: Callable[[], Cluster], staged: Sequence[Mapping[str, Any]], *, are_done: bool) -> Iterator[Call]:
    """What the panel shows of a transaction: its answer, its evidence, what can be done, and once that is done."""

    def shown(each: Mapping[str, Any], cluster: Cluster, *, is_done: bool = False) -> Iterator[str]:
        found = cluster.records(Finding, topics=[each["topic"]], partitions=[each["partition"]], recheck_after=1.0)

        def html(*parts: Part) -> str:
            return html_text(parts, connection=Connection.of(cluster))

        for finding in found:
            yield from (choice(finding), html(answer_section(finding), *evidence_section(finding).parts))
        chosen = next((row for row in found if row.start_offset == each["start_offset"]), None)
        if chosen is None or chosen.action is None:
            yield html(*map(why_not_section, found))
            try:
                yield html(fence_section(plan_fence(cluster, each["transactional_id"])))
            except ActionRefused as refused:
                yield html(problem_section(refused))
            return
        yield button_text(chosen)
        plan = checked_plan(cluster, chosen, recheck_after=1.0)
        yield html(passed(plan, Audit("audit.jsonl")))
        if is_done:
            done = plan.execute(
                confirm=plan.target, audit=Audit("audit.jsonl"), recheck_after=1.0, cancel=threading.Event()
            )
            yield html(done_section(plan, done, "audit.jsonl"))

    for each in staged:
        yield card(connect, partial(shown, each), name=f"card-{_label(each)}")
    for each in _alone(staged) if are_done else ():
        yield card(connect, partial(shown, each, is_done=True), name=f"{each['action']}-{_label(each)}-done-card")


def _alone(staged: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Those that are ended by a marker, but for the two that a list ends."""
    of_list = [each for each in staged if each["action"] == "abort"][2:4]
    return (each for each in staged if each["action"] in {"abort", "complete"} and each not in of_list)


def _dry_runs(line: CommandLine, staged: Sequence[Mapping[str, Any]]) -> Iterator[Call]:
    """What the action that is safe would do, or why an abort is refused; and what a fence would do."""
    for number, each in enumerate(staged):
        action = each["action"] if each["action"] in {"abort", "complete"} else "abort"
        yield line(action, *_target(each), *SOON, name=f"{action}-{_label(each)}")
        if number < 2:
            yield line(action, *_target(each), *SOON, "--format", "json", name=f"{action}-{_label(each)}-json")
        yield _fence(line, each)


def _fence(line: CommandLine, each: Mapping[str, Any], suffix: str = "", *options: str) -> Call:
    return line("fence", "--transactional-id", each["transactional_id"], *options, name=f"fence-{_label(each)}{suffix}")


def _flink(line: CommandLine, staged: Sequence[Mapping[str, Any]], checkpoint: bytes) -> Iterator[Call]:
    """What a checkpoint of Flink decides about the first transaction, and that it says nothing of the second."""
    first, second = staged[:2]
    with_checkpoint = CommandLine(
        source=[*line.source, "--flink-checkpoint", "chk-5"], files={**line.files, "chk-5/_metadata": checkpoint}
    )
    yield with_checkpoint("diagnose", *SOON, name="diagnose-flink")
    yield with_checkpoint("abort", *_target(first), *SOON, name="abort-flink")
    yield with_checkpoint("fence", "--transactional-id", first["transactional_id"], name="fence-flink")
    for each, label in ((first, "commit"), (second, "commit-of-another")):
        yield with_checkpoint("commit", "--transactional-id", each["transactional_id"], *SOON, name=label)
    commit = ["--transactional-id", first["transactional_id"], *SOON]
    yield with_checkpoint("commit", *commit, "--format", "json", name="commit-json")
    confirm = ["--confirm", first["transactional_id"]]
    yield with_checkpoint("commit", *commit, *confirm, name="commit-done")
    yield with_checkpoint("commit", *commit, *confirm, name="commit-again")


def _refusals(line: CommandLine, staged: Sequence[Mapping[str, Any]]) -> Iterator[Call]:
    """What is not safe, confirmed."""
    for each in staged:
        if each["expected"] == "ongoing":
            confirm = ["--transactional-id", each["transactional_id"], "--confirm", each["transactional_id"]]
            yield line("fence", *confirm, name=f"fence-{_label(each)}-refused")
        for action in ("abort", "complete"):
            if each["action"] != action:
                yield line(action, *_target(each), *SOON, *_confirmed(each), name=f"{action}-{_label(each)}-refused")
    first = staged[0]
    yield line("abort", *_target(first), *SOON, "--confirm", "another-0@1", name="abort-another-confirmed")
    yield line("abort", *_target(first), *SOON, *_confirmed(first), "--max-save-bytes", "1", name="abort-too-large")
    yield line("abort", *_target(first), *SOON, *_confirmed(first), "--audit-file", "/dev/full",
               name=f"abort-{_label(first)}-unaudited")  # fmt: skip
    live = next(each for each in staged if each["label"] == "open-young")
    fence = ["--transactional-id", live["transactional_id"]]
    for name, override in (("long", []), ("long-overridden", ["--override", "ongoing"])):
        yield line("fence", *fence, "--max-transaction-timeout", "0", *override, "--confirm", live["transactional_id"],
                   name=f"fence-{_label(live)}-{name}")  # fmt: skip
    yield line("fence", *fence, "--override", "ongoing", name=f"fence-{_label(live)}-overridden")
    yield line("fence", "--transactional-id", "nobody", name="fence-unknown")


def _typed(line: CommandLine, staged: Sequence[Mapping[str, Any]]) -> Iterator[Call]:
    """What a person types at the prompt: nothing, an end of the input, another name, and the right one."""
    first = staged[0]
    live = next(each for each in staged if each["label"] == "open-young")
    (_, right), abort = _confirmed(first), [*_target(first), *SOON]
    for name, typed in (("nothing", "\n"), ("end", ""), ("another", "yes\n")):
        yield line("abort", *abort, typed=typed, name=f"abort-{_label(first)}-typed-{name}")
    yield line("abort", *abort, "--format", "json", typed="", name=f"abort-{_label(first)}-json-at-a-terminal")
    yield line("abort", *abort, typed=f"{right}\n", name=f"abort-{_label(first)}-done-typed")
    fence = ["--transactional-id", live["transactional_id"], "--override", "ongoing"]
    yield line("fence", *fence, typed=f"{live['transactional_id']}\n", name=f"fence-{_label(live)}-done-typed")


def _actions(line: CommandLine, staged: Sequence[Mapping[str, Any]]) -> Iterator[Call]:
    """The actions that are safe, confirmed; two of them as a list."""
    hanging = [each for each in staged if each["action"] == "abort"]
    for each in _alone(staged):
        output = ["--format", "json"] if each in hanging[1:2] else []
        yield line(each["action"], *_target(each), *SOON, *_confirmed(each), *output,
                   name=f"{each['action']}-{_label(each)}-done")  # fmt: skip
    if many := hanging[2:4]:
        files, confirm = {"hanging.csv": _csv(many)}, ["--confirm", f"{len(many)} transactions"]
        yield line("abort", "--list", "hanging.csv", *SOON, files=files, name="abort-list")
        yield line("abort", "--list", "hanging.csv", *SOON, *confirm, files=files, name="abort-list-done")
    for each in staged:
        if each["later"] == "overdue" or each["label"] == "open-young":
            override = ["--override", "ongoing"] if each["later"] != "overdue" else []
            confirm = ["--transactional-id", each["transactional_id"], "--confirm", each["transactional_id"]]
            yield line("fence", *confirm, *override, name=f"fence-{_label(each)}-done")


def _target(each: Mapping[str, Any]) -> list[str]:
    where = ["--topic", each["topic"], "--partition", str(each["partition"])]
    return [*where, "--start-offset", str(each["start_offset"])]


def _confirmed(each: Mapping[str, Any]) -> list[str]:
    return ["--confirm", f"{each['topic']}-{each['partition']}@{each['start_offset']}"]


def _label(each: Mapping[str, Any]) -> str:
    return str(each["label"])


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["topic", "partition", "producer_id", "start_offset"], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
