"""The postmortem report: complete, without network access, and without injected markup."""

import datetime as dt
import re
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from toolkit.command_line import command_line
from toolkit.errors import UsageError
from toolkit.lab import samples
from toolkit.schema import ACTIONS, FINDINGS, LOG_TRANSACTIONS, PARTITIONS, RECORDED
from toolkit.schema.verdict import DOCS_URL, RUNBOOK_URL, Verdict, cause_page
from toolkit.views.document import Command, Grid
from toolkit.views.plots.notebook_figure import image_svg
from toolkit.views.renderers import sentence_text
from toolkit.views.report import Report, report
from toolkit.views.row_formats import GridTexts

AT = dt.datetime(2026, 11, 21, 9, 58, 11, tzinfo=dt.UTC)
EVIL = '<script>alert("1")</script>|`x`\x1b[31m'
VOID = {"meta", "rect", "path"}  # elements of the page that have no end tag


class Page(HTMLParser):
    """Elements that are properly nested, the text between them, and all references."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.opened: list[str] = []
        self.tags: list[str] = []
        self.refers: list[str] = []
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.refers += [str(value) for name, value in attrs if name in {"src", "href", "action", "srcset", "data"}]
        if tag not in VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.opened and self.opened[-1] not in {"style", "script"}:
            self.text += f" {data.strip()}" if data.strip() else ""


def finding(**columns: object) -> dict[str, Any]:
    row = {
        "topic": "orders", "partition": 0, "queue_position": 1, "producer_id": 171100, "producer_epoch": 1,
        "transactional_id": "payments-7", "start_offset": 100, "verdict": "hanging", "reason": "Nobody will end it.",
        "cause": "a late batch (late-after-abort)",
        "remedy": "kafka-txn abort --topic orders --partition 0 --start-offset 100",
        "missing": [], "evidence": [{"source": "Fetch", "broker_id": 1, "observed_at": AT, "name": "marker_before",
                                     "value": "offset 99: ABORT"}],
        "opened_at": AT - dt.timedelta(hours=2), "opened_at_clock": "broker", "last_stable_offset": 100,
        "high_watermark": 2215, "offsets_held": 2115, "records_held": 2000, "bytes_held": 81_920,
        "groups_held": ["billing", "fraud"], "compaction_held": True, "held_from": AT - dt.timedelta(hours=2),
        "held_ms": 7_200_000, "observed_at": AT,
    }  # fmt: skip
    return {**dict.fromkeys(FINDINGS.names), **row, **columns}


def action(**columns: object) -> dict[str, Any]:
    row = {
        "at": AT + dt.timedelta(minutes=1), "action_id": "a1", "action": "abort", "step": "outcome", "who": "ann@ops",
        "bootstrap_servers": "broker:9092", "target": "orders-0@100", "topic": "orders", "partition": 0,
        "start_offset": 100, "request": "WriteTxnMarkers", "response": "NONE", "last_stable_offset_before": 100,
        "last_stable_offset_after": 2216,
    }  # fmt: skip
    return {**dict.fromkeys(ACTIONS.names), **row, **columns}


def of_sample(name: str, **more: Any) -> Report:
    sample = samples.load(name)
    files, where = sample.log_dir(), [(sample.topic, sample.partition)]
    audit = sample.audit()
    return report(
        sample.finding_rows(),
        log_transactions=files.log_transactions(partitions=where),
        lso_timeline=files.lso_timeline(partitions=where),
        transaction_history=files.transaction_history(),
        actions=audit.rows() if audit else None,
        **more,
    )


LINKS = {cause_page("late-after-abort"), RUNBOOK_URL}


def plain(markdown: str) -> str:
    markdown = re.sub(r"<(https:[^ >]*)>", r"\1", markdown)
    return re.sub(r"\\([\\`*_\[\]<>|#~&])", r"\1", markdown)


def check_markdown_tables(text: str) -> int:
    """Assert that every row of a table has as many cells as its heading; returns the number of tables."""
    tables = 0
    width = 0
    for line in text.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) - 1
        if not line.startswith("|"):
            width = 0
            continue
        tables += width == 0
        width = width or cells
        assert cells == width, line
    return tables


def test_the_page_loads_nothing_from_the_network() -> None:
    made = of_sample("late-message")
    page = Page(made.html)
    assert set(page.refers) == LINKS, "links to follow, and nothing that is fetched"
    own = made.html.replace(DOCS_URL, "").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|@import|url\((?!#)|<script|<link|<img|<iframe", own)
    assert "prefers-color-scheme: dark" in made.html
    assert "@media print" in made.html


def test_record_contents_are_never_in_it() -> None:
    sample = samples.load("late-message")
    log = next((sample.path / "log-dir" / "orders-0").glob("*.log")).read_bytes()
    made = of_sample("late-message")
    assert b"record 0" in log
    assert "record 0" not in made.html + made.markdown


def test_external_text_never_becomes_markup() -> None:
    row = finding(
        topic=EVIL, transactional_id=EVIL, reason=EVIL, cause=EVIL, remedy=EVIL, missing=[EVIL], error=EVIL,
        groups_held=[EVIL], verdict=Verdict.UNKNOWN,
        evidence=[{"source": EVIL, "broker_id": 1, "observed_at": AT, "name": EVIL, "value": EVIL}],
    )  # fmt: skip
    step = action(topic=EVIL, who=EVIL, target=EVIL, response=EVIL, error=EVIL)
    samples_of = [{"topic": EVIL, "partition": 0, "observed_at": AT, "last_stable_offset": 1, "high_watermark": end}
                  for end in (2, 3)]  # fmt: skip
    made = report([row], actions=[step], partitions=samples_of, title=EVIL)
    assert len(made.pictures) == 1
    assert "<script>" not in made.pictures[0][1]
    page = Page(made.html)
    assert "script" not in page.tags
    assert "<script>" in page.text
    assert "\x1b" not in made.html + made.markdown
    assert not re.search(r"(?<!\\)<script", made.markdown)
    assert check_markdown_tables(made.markdown) >= 3


def test_the_markdown_has_the_content_of_the_page() -> None:
    made = of_sample("several-open")
    text = " ".join(plain(made.markdown).replace("|", " ").split())
    for section in (*made.sections, *made.appendix):
        for field in section.fields:
            for value in field.values:
                said = command_line(value.argv) if isinstance(value, Command) else sentence_text(value)
                assert " ".join(said.split()) in text
        for grid in (each for each in section.parts if isinstance(each, Grid)):
            assert all(" ".join(cell.split()) in text for row in GridTexts.of(grid).cells for cell in row)
    assert check_markdown_tables(made.markdown) >= 5


def test_it_is_saved_with_its_pictures(tmp_path: Path) -> None:
    made = of_sample("long-history")
    assert Page(made.html).opened == []
    assert len(made.html) < 300_000
    assert made.save(tmp_path / "report.html").read_text() == made.html
    markdown = made.save(tmp_path / "report.md").read_text()
    ((alternative, picture),) = made.pictures
    assert f"![{alternative.split(' ')[0]} LSO" in plain(markdown)
    assert re.sub(r"!\[.*\]\(report-1\.svg\)\n\n", "", markdown) == made.markdown
    assert (tmp_path / "report-1.svg").read_text() == image_svg(picture)
    assert [each.name for each in sorted(tmp_path.iterdir())] == ["report-1.svg", "report.html", "report.md"]


def test_each_partition_has_its_timeline_in_the_theme_of_the_page() -> None:
    made = of_sample("long-history")
    ((text, _),) = made.pictures
    assert text.startswith("orders-0: LSO was held at 3,254 for 29 s by producer 3")
    assert made.html.count("<svg") == 1
    colours = set(re.findall(r'(?:fill|stroke)="([^"]*)"', made.html[made.html.index("<svg") :]))
    assert all(each.startswith(("var(--kafka-txn-", "url(#")) for each in colours - {"none"})
    assert made.html.count("--kafka-txn-alarm: ") == 2, "chosen, or of the system; never on paper"
    assert len(report([finding(), finding(topic="clicks")], partitions=[*SAMPLES, *of("clicks")]).pictures) == 2
    assert report([finding()], partitions=of("clicks")).pictures == []


def of(topic: str) -> list[dict[str, Any]]:
    return [{**sample, "topic": topic} for sample in SAMPLES]


SAMPLES: list[dict[str, Any]] = [
    {"topic": "orders", "partition": 0, "observed_at": AT, "last_stable_offset": 1, "high_watermark": 2}
]


def test_a_recording_is_drawn_up_to_the_finding() -> None:
    sample = samples.load("flight-recording")
    recording = sample.recording()
    assert recording
    observed = RECORDED["partitions"].rows(recording.history("partitions"))
    made = report(sample.finding_rows(), partitions=observed)
    ((text, picture),) = made.pictures
    assert text.startswith("orders-0: LSO held at 15 by producer 1")
    assert "18:21:15" not in picture, "when it was over"
    assert PARTITIONS.name not in Page(made.html).text.split("Not included")[1]


def test_without_plotly_the_report_says_that_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys.modules["toolkit.views.report.report"], "find_spec", lambda name: None)
    made = of_sample("late-message")
    assert "Not drawn: plotly is not installed" in Page(made.html).text
    assert "Not drawn: plotly is not installed" in made.save(tmp_path / "report.md").read_text()
    assert "<svg" not in made.html
    assert [each.name for each in tmp_path.iterdir()] == ["report.md"]


class Drawn:
    """What plotly's Figure offers to a page."""

    def __init__(self, theme: str = "one") -> None:
        self.theme = theme

    def to_html(self, *, full_html: bool, include_plotlyjs: bool, config: Mapping[str, object]) -> str:
        assert not full_html
        return f"<div>figure {self.theme}</div>" + ("<script>plotly</script>" if include_plotlyjs else "")


def test_a_figure_replaces_the_picture_with_one_script() -> None:
    one = of_sample("late-message", figure=Drawn())
    both = of_sample("late-message", figure=lambda theme: Drawn(theme))
    assert "figure one" in one.html
    assert one.html.count("<svg") == one.html.count("chart paper") == 1, "the picture, for print"
    assert one.html.count("<script>plotly</script>") == both.html.count("<script>plotly</script>") == 1
    assert "figure light" in both.html
    assert "figure dark" in both.html
    assert "figure" not in plain(one.markdown)


def test_a_real_figure_is_complete() -> None:
    graphs = pytest.importorskip("plotly.graph_objects")
    page = of_sample("late-message", figure=graphs.Figure(graphs.Scatter(x=[1, 2], y=[3, 4]))).html
    assert set(Page(page).refers) == LINKS
    assert "Plotly.newPlot" in page


def test_a_figure_cannot_inject_a_script() -> None:
    graphs = pytest.importorskip("plotly.graph_objects")
    plain_figure = graphs.Figure(graphs.Scatter(x=[1], y=[1], text=["late"]))
    evil_figure = graphs.Figure(graphs.Scatter(x=[1], y=[1], text=["</script><script>alert(1)</script>"]))
    pages = [Page(report([finding()], figure=figure, generated_at=AT).html) for figure in (plain_figure, evil_figure)]
    assert pages[0].tags == pages[1].tags


def test_data_frames_are_accepted_like_rows() -> None:
    rows = [finding()]
    assert report(FINDINGS.frame(rows), generated_at=AT).html == report(rows, generated_at=AT).html
    assert (
        "3 records" not in report(FINDINGS.frame(), log_transactions=LOG_TRANSACTIONS.frame(), generated_at=AT).markdown
    )


@pytest.mark.parametrize(("name", "why"), [("report.pdf", "ends in none of .html, .md"), ("no/report.md", "written")])
def test_an_unwritable_path_is_an_error(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=why):
        report([]).save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_shows_it_in_a_frame() -> None:
    output = report([finding()])._repr_html_()
    frame, _, instead = output.partition('<div class="kafka-txn-without-frame">')
    assert '<iframe class="kafka-txn-frame" title="Postmortem: orders-0" srcdoc=' in frame
    assert "<h1>" not in output
    assert "<h3>Postmortem: orders-0</h3>" in instead, "where frames are dropped or cut, its summary is in its place"
    assert "producer 171100" in instead
    assert "run the cell, choose Trust Notebook, or save it" in instead
    assert output.count("jpThemeLight") == 1, "it follows JupyterLab's theme; a saved page has no script"
