"""The recorded samples: each loads, has its expected finding, and is in the wheel."""

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests import record_samples
from toolkit.errors import NotFound, UsageError
from toolkit.lab import samples
from toolkit.sources.logdir import LogDir

ROOT = Path(__file__).resolve().parent.parent.parent
NAMES = samples.names()


def test_every_script_has_a_sample() -> None:
    """`test_connect` compares the findings of each sample with its index, and the corpus has all that is said of it."""
    assert sorted(record_samples.SCRIPTS) == NAMES
    for name, script in record_samples.SCRIPTS.items():
        sample = samples.load(name)
        assert (sample.expected["verdict"], sample.origin) == (script.expected, script.origin)


def test_the_dump_of_a_sample_matches_its_log_directory() -> None:
    sample = samples.load("late-message")
    dump = sample.dump_text()
    assert dump
    partitions, columns = (
        [(sample.topic, sample.partition)],
        ["first_offset", "marker_offset", "producer_id", "outcome"],
    )
    assert (
        LogDir(dump)
        .log_transactions(partitions=partitions)[columns]
        .equals(sample.log_dir().log_transactions(partitions=partitions)[columns])
    )
    assert samples.load("never-added").dump_text() is None
    assert samples.load("never-added").recording() is None


def test_a_sample_is_unpacked_once_and_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = samples.load("late-message").path
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert tmp_path in folder.parents
    assert samples.load("late-message").path == folder
    assert [path for path in files if path.stat().st_mode & 0o222] == []
    assert list(folder.parent.iterdir()) == [folder], "no partially unpacked folder remains"


def test_without_a_writable_cache_samples_are_unpacked_to_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert tmp_path in samples.load("never-added").path.parents
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"never-added cannot be unpacked.*XDG_CACHE_HOME"):
        samples.load("never-added")


@pytest.mark.parametrize("member", ["../outside", "/outside"])
def test_unpacking_writes_nothing_outside_its_folder(
    member: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        archive.addfile(tarfile.TarInfo(member))
    with pytest.raises(UsageError, match="damaged"):
        samples.unpacked(buffer.getvalue(), name="bad")
    assert not list(tmp_path.rglob("outside"))


def test_an_unknown_name_lists_the_samples() -> None:
    with pytest.raises(NotFound, match=r"no sample 'week'.*late-message"):
        samples.load("week")


def test_samples_are_in_the_wheel_and_load_from_a_zip(tmp_path: Path) -> None:
    wheel = tmp_path / "wheel.zip"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in (ROOT / "toolkit").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(ROOT))
    code = "from toolkit.lab import samples; print(samples.__file__, samples.load('orphan').path)"
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(wheel), "XDG_CACHE_HOME": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    module, unpacked = process.stdout.split()
    assert module.startswith(str(wheel))
    assert (Path(unpacked) / "log-dir" / "meta.properties").is_file()
