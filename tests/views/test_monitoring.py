"""Prometheus rules and the Grafana dashboard: valid where they are read, and true of the metrics that there are."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.process import PATIENCE_S, ROOT, run
from toolkit.cli.commands import app
from toolkit.schema.verdict import DOCS_URL
from toolkit.sources.recording.metrics import LATE, OPEN
from toolkit.views.monitoring import RULES, SERIES_COLOURS, AlertSettings, grafana_dashboard, prometheus_rules

RUNBOOK = (ROOT / "docs/alerts.md").read_text()
SERIES = Path(__file__).with_name("alerts_test.yml")

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def promtool(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        ["promtool", *arguments], cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules_of(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def alert_names() -> list[str]:
    return [rule["alert"] for rule in rules_of(prometheus_rules()) if "alert" in rule]


def test_the_stored_rules_are_those_of_the_defaults() -> None:
    assert (ROOT / "toolkit/views" / RULES).read_text() == prometheus_rules()


def test_the_commands_print_the_results_of_the_functions() -> None:
    assert run("prometheus-rules").stdout == prometheus_rules()
    assert run("grafana-dashboard").stdout == grafana_dashboard()
    durations = "--lso-held 2h --hanging 1500ms --late 0s --group-held 90s --recorder-blind 5m --recorder-incomplete 1d"
    done = run("prometheus-rules", *durations.split(), "--job", "txn", "--runbook-url", "https://runbooks/alerts")
    found = {rule["alert"]: rule for rule in rules_of(done.stdout) if "alert" in rule}
    assert {name: rule["for"] for name, rule in found.items()} == {
        "KafkaTxnHanging": "1500ms",
        "KafkaTxnCommitNotVisible": "1500ms",
        "KafkaTxnLsoHeld": "0s",
        "KafkaTxnGroupHeld": "90s",
        "KafkaTxnLate": "0s",
        "KafkaTxnRecorderDown": "5m",
        "KafkaTxnRecorderBlind": "5m",
        "KafkaTxnRecorderIncomplete": "24h",
        "KafkaTxnRecorderUnwritten": "24h",
    }
    assert found["KafkaTxnLsoHeld"]["expr"] == "kafka_txn_partition_lso_held_seconds > 7200"
    assert found["KafkaTxnRecorderDown"]["expr"] == 'up{job="txn"} == 0 or absent(up{job="txn"})'
    assert found["KafkaTxnLate"]["annotations"]["runbook_url"] == "https://runbooks/alerts#kafkatxnlate"


def test_alerts_and_runbooks_match() -> None:
    headings = re.findall(r"^## (KafkaTxn\w+)$", RUNBOOK, re.MULTILINE)
    assert headings == alert_names()
    for section in RUNBOOK.split("\n## ")[1 : 1 + len(headings)]:
        assert all(f"**{part}**" in section for part in ("Means", "First", "Safe", "Never")), section
    for rule in rules_of(prometheus_rules()):
        if "alert" in rule:
            page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
            assert page == f"{DOCS_URL}alerts/"
            assert anchor in map(str.lower, headings)


def test_the_runbook_names_existing_commands_and_options() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    found = re.findall(r"kafka-txn ([a-z-]+)((?: --[a-z-]+(?: [A-Z]+)?)*)", RUNBOOK)
    assert {"diagnose", "abort", "fence", "coordinator", "describe"} <= {name for name, _ in found}
    for name, flags in found:
        known = {flag for option in commands[name].params for flag in option.opts}
        assert set(re.findall(r"--[a-z-]+", flags)) <= known, name


@needs_promtool
def test_each_alert_fires_in_time_and_none_on_a_healthy_cluster(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(prometheus_rules())
    shutil.copy(SERIES, tmp_path)
    assert "SUCCESS" in promtool("check", "rules", "rules.yml", cwd=tmp_path)
    assert "SUCCESS" in promtool("test", "rules", SERIES.name, cwd=tmp_path)
    steps = [step for test in yaml.safe_load(SERIES.read_text())["tests"] for step in test.get("alert_rule_test", ())]
    for expected in (True, False):
        tested = {step["alertname"] for step in steps if bool(step["exp_alerts"]) is expected}
        assert tested == set(alert_names())


def test_grafana_knows_every_key_of_the_dashboard() -> None:
    """What its own models read and write again is the same; they leave out what they do not know."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    ours = json.loads(grafana_dashboard())
    theirs = json.loads(JSONEncoder().encode(Dashboard.from_json(ours)))
    assert lost(ours, theirs) == []


def lost(ours: Any, theirs: Any, path: str = "$") -> list[str]:
    """Where `ours` has something that `theirs` has not; what `theirs` adds are defaults."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [each for key in ours for each in lost(ours[key], theirs.get(key), f"{path}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [each for at, (one, other) in pairs for each in lost(one, other, f"{path}[{at}]")]
    return [] if ours == theirs else [f"{path}: {ours!r} is read as {theirs!r}"]


def test_the_dashboard_is_portable_and_its_panels_do_not_overlap() -> None:
    dashboard = json.loads(grafana_dashboard())
    assert {"id", "uid", "version"}.isdisjoint(dashboard)
    sources = re.findall(r'"uid": "(.*?)"', grafana_dashboard())
    assert set(sources) == {"${datasource}"}
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for position in (panel["gridPos"] for panel in panels)
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]
    assert len(cells) == len(set(cells)) == 24 * (max(y for _, y in cells) + 1), "no gap either"
    for steps in limits(AlertSettings()).values():
        assert steps == [None, *sorted(steps[1:])]


def limits(settings: AlertSettings) -> dict[str, list[Any]]:
    """By panel, the values at which its colour changes."""
    defaults = {
        panel["title"]: panel["fieldConfig"]["defaults"] for panel in json.loads(grafana_dashboard(settings))["panels"]
    }
    return {
        title: [step["value"] for step in default["thresholds"]["steps"]]
        for title, default in defaults.items()
        if "thresholds" in default
    }


def test_the_colours_change_at_the_thresholds_of_the_alerts() -> None:
    found = limits(AlertSettings(lso_held=30, recorder_blind=8))
    assert found["Longest held LSO"] == [None, 10, 30]
    assert found["Held LSO by partition (top 10)"] == [None, 30]
    assert found["Age of the last sample"] == [None, 4, 8]
    assert found["Hanging transactions"] == [None, 1]
    assert LATE in grafana_dashboard()


def test_each_series_has_a_name_and_a_colour_of_its_own() -> None:
    """Drawn from real metrics, orders-0 of two clusters had one name, and a hanging transaction was green."""
    panels = {panel["title"]: panel for panel in json.loads(grafana_dashboard())["panels"]}
    legends = [target["legendFormat"] for panel in panels.values() for target in panel["targets"]]
    assert [each for each in legends if "{{topic}}" in each or "{{group}}" in each] == [
        each for each in legends if each.endswith(" {{cluster}}")
    ]
    for title, (_, _, colours) in SERIES_COLOURS.items():
        overrides = panels[title]["fieldConfig"]["overrides"]
        assert [each["matcher"]["options"] for each in overrides] == list(colours)
        assert len(set(colours.values())) == len(colours)
    assert SERIES_COLOURS["Open transactions by verdict"][2].keys() == set(OPEN)
