"""Write down the jars of Kafka versions (`toolkit.lab.jars.LISTS`): python -m tests.jar_lists 4.3.1"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

from toolkit.lab import jars


def jar_list(version: str) -> str:
    """A line for each jar that Ivy finds: its SHA-256, and its path in a Maven repository."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, "ivy")
        jars.resolve(version, directory)
        wanted = {path.name for path in (directory / "jars").iterdir()}
        lines = []
        for path in sorted((directory / "cache").glob("*/*/*/*.jar")):
            if path.name in wanted:
                organisation, module = path.parts[-4], path.parts[-3]
                release = path.stem.removeprefix(f"{module}-")
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                lines.append(f"{digest}  {organisation.replace('.', '/')}/{module}/{release}/{path.name}")
        assert len(lines) == len(wanted), sorted(wanted)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for version in sys.argv[1:]:
        (jars.LISTS / f"{version}.txt").write_text(jar_list(version))
