"""Write down the jars of Kafka versions (`toolkit.lab.broker.LISTS`): python -m tests.jar_lists 4.3.1

Ivy, whose jar is part of pyspark, resolves them.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from toolkit.java import find_java, repository_url
from toolkit.lab.broker import LISTS

SETTINGS = """\
<ivysettings>
  <settings defaultResolver="maven"/>
  <resolvers><ibiblio name="maven" m2compatible="true" root="{repository}"/></resolvers>
</ivysettings>
"""

# slf4j-simple logs to a broker's standard error, in every version and without a file to configure it. Connect and its
# web server are what kafka-tools would bring along and no tool needs.
WANTED = """\
<ivy-module version="2.0">
  <info organisation="toolkit" module="lab"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}" conf="default->master,runtime"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{version}" conf="default->master,runtime"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default->master,runtime"/>
    <exclude org="org.slf4j" module="slf4j-(log4j12|reload4j)" matcher="regexp"/>
    <exclude org="org.apache.kafka" module="connect-.*" matcher="regexp"/>
    <exclude org="org[.](eclipse[.]jetty|glassfish).*" matcher="regexp"/>
  </dependencies>
</ivy-module>
"""


def jar_list(version: str) -> str:
    """A line for each jar that Ivy finds: its SHA-256, and its path in a Maven repository."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, "ivy")
        _resolve(version, directory)
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


def _resolve(version: str, directory: Path) -> None:
    """Resolve the jars of a version by Ivy into the folder ``jars`` of a new directory."""
    directory.mkdir()
    settings, wanted = directory / "settings.xml", directory / "ivy.xml"
    settings.write_text(SETTINGS.format(repository=repository_url()))
    wanted.write_text(WANTED.format(version=version))
    (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
    command: list[str | Path] = [find_java(), "-jar", ivy, "-settings", settings, "-ivy", wanted]
    command += ["-cache", directory / "cache", "-types", "jar", "bundle"]
    command += ["-retrieve", f"{directory}/jars/[artifact]-[revision](-[classifier]).[ext]"]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    for version in sys.argv[1:]:
        (LISTS / f"{version}.txt").write_text(jar_list(version))
