"""The archive of the classes that a Java program loads, with a real Java."""

import subprocess
from pathlib import Path

import pytest

from toolkit.java import class_archive_options, find_java


@pytest.mark.lab
def test_an_incomplete_class_archive_is_written_again(tmp_path: Path) -> None:
    java, archive = find_java(), tmp_path / "classes.jsa"
    archive.write_bytes(bytes(4096))  # as while Java is writing it, or after a kill
    for option in ("ArchiveClassesAtExit", "SharedArchiveFile"):
        options = class_archive_options(archive, new=archive)
        assert options[0] == f"-XX:{option}={archive}"
        process = subprocess.run([java, *options, "-version"], capture_output=True, text=True, timeout=60)
        assert (process.returncode, process.stdout) == (0, "")
        assert "archive" not in process.stderr
