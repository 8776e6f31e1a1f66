"""The docs: a page for each verdict and cause, commands that exist, and a site that builds without a warning."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from tests.causes import cause_names
from tests.golden.examples import example_text, examples
from tests.notebooks.books import BOOKS, code_cells, read
from toolkit.analysis.diagnosis.decision import CAUSES
from toolkit.cli.commands import app
from toolkit.config import ClientConfig
from toolkit.schema.verdict import DOCS_URL, Verdict, cause_page, symptom_page, verdict_page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
WRITTEN = sorted(
    path
    for path in [*DOCS.glob("*.md"), *DOCS.glob("[a-z]*/*.md")]
    if path.parent.name not in {"symptoms", "notebooks"}
)
PROPERTIES = re.compile(r"^```properties\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"kafka-txn ([a-z][a-z-]*)((?: +[^\s`|]+)*)")


def names(folder: str) -> set[str]:
    return {path.stem for path in (DOCS / folder).glob("*.md")} - {"index"}


def test_each_verdict_and_cause_has_a_page_with_its_sentence() -> None:
    assert names("verdicts") == set(Verdict)
    assert names("causes") == CAUSES.keys()
    for name in Verdict:
        assert f"{{{{ verdict.{name} }}}}" in (DOCS / f"verdicts/{name}.md").read_text()
    for cause in CAUSES:
        assert f'{{{{ cause["{cause}"] }}}}' in (DOCS / f"causes/{cause}.md").read_text()


@pytest.mark.parametrize("folder", ["verdicts", "causes"])
def test_each_page_has_origin_proof_remedy_and_warning(folder: str) -> None:
    for name in names(folder):
        text = (DOCS / folder / f"{name}.md").read_text()
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert headings[:3] == ["How it happens", "How to prove it", "What is safe"], name
        assert "**Never:**" in text, name


def test_each_page_shows_a_finding_of_the_lab_as_it_is_printed_now() -> None:
    found = examples()
    assert set(Verdict) | CAUSES.keys() == found.keys()
    for name, row in found.items():
        folder = "verdicts" if name in set(Verdict) else "causes"
        section = (DOCS / folder / f"{name}.md").read_text().split("## How to prove it\n")[1].split("\n## ")[0]
        assert f"```{{literalinclude}} ../output/{name}.txt" in section, name
        assert name in {row["verdict"], *cause_names(row)}
        assert name in example_text(row) or row["verdict"] == "ended"  # that is one line, without its cause


def test_commands_in_the_docs_have_their_options() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    named = [(path, name, rest) for path in WRITTEN for name, rest in COMMAND.findall(path.read_text())]
    assert {name for _, name, _ in named} >= commands.keys(), "each is shown somewhere"
    for path, name, rest in named:
        if name in commands:
            known = {flag for each in commands[name].params for flag in (*each.opts, *each.secondary_opts)}
            assert set(re.findall(r"(?<!\S)--[a-z-]+", rest)) <= known, f"{path.name}: {name} {rest}"


def test_client_properties_in_the_docs_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")  # broker:9092 does not name it
    (tmp_path / "ca.crt").touch()
    blocks = [block for path in WRITTEN for block in PROPERTIES.findall(path.read_text())]
    assert blocks
    for block in blocks:
        (tmp_path / "client.properties").write_text(block)
        config = ClientConfig.from_properties(tmp_path / "client.properties", bootstrap_servers="broker:9092")
        assert config.librdkafka()["security.protocol"] == "SASL_SSL"


def test_the_docs_url_is_the_same_everywhere() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Documentation"] == DOCS_URL
    assert urls["Changelog"].startswith(DOCS_URL)


@pytest.mark.full
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    """It warns of links that lead nowhere. Pages of notebooks show what is stored in git, and not what proves it."""
    site = tmp_path / "site"
    line = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-b", "dirhtml", "-d", str(tmp_path / "doctrees")]
    done = subprocess.run([*line, str(DOCS), str(site)], cwd=ROOT, capture_output=True, text=True, timeout=1100)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    linked = [*map(verdict_page, Verdict), *map(cause_page, CAUSES), *map(symptom_page, names("symptoms"))]
    assert [url for url in linked if not (site / url.removeprefix(DOCS_URL) / "index.html").is_file()] == []
    notebooks = {path.parent.name: path.read_text() for path in site.glob("notebooks/*_*/index.html")}
    assert notebooks.keys() == {path.stem for path in BOOKS}
    for path in BOOKS:
        outputs = [output for cell in code_cells(read(path)) for output in cell.outputs]
        figures = [output for output in outputs if "<img alt=" in output.get("data", {}).get("text/html", "")]
        assert notebooks[path.stem].count("data:image/svg+xml;base64,") >= len(figures), path.stem
    asserted = [line for text in notebooks.values() for line in re.findall("assert .*", re.sub("<[^>]+>", "", text))]
    assert [line for line in asserted if "stop here" not in line] == []  # that one is for the reader
