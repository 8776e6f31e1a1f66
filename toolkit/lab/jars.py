"""The jars of a Kafka version, downloaded once from Maven Central.

`LISTS` has them for some versions; for others Ivy, whose jar is part of pyspark, resolves them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from platformdirs import user_cache_path
from tqdm.auto import tqdm

from toolkit.errors import LabError
from toolkit.java import Download, download, find_java, locked, repository_url

LISTS = Path(__file__).with_name("jar_lists")
"""A file for each version: SHA-256 and path of every jar. ``python -m tests.jar_lists`` writes one."""

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


def fetch_jars(version: str) -> Path:
    """Return the directory with the jars of a Kafka version, after a download if they are not in the cache.

    The repository is KAFKA_TXN_MAVEN if set, else the mirror of Maven Central that ``~/.m2/settings.xml`` names, else
    Maven Central; HTTPS_PROXY and JAVA_TOOL_OPTIONS are honoured. Afterwards it works offline.

    Raises LabError: the repository could not be reached or has no such version, pyspark is not installed, or there is
    no Java.
    """
    home = user_cache_path("kafka-txn-toolkit") / "kafka"
    jars = home / version
    if jars.is_dir():
        return jars
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / f"{version}.lock"):
        if not jars.is_dir():
            partial = home / f"{version}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            try:
                _fetch(version, partial)
                (partial / "jars").rename(jars)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return jars


def _fetch(version: str, directory: Path) -> None:
    jar_list = LISTS / f"{version}.txt"
    if not jar_list.exists():
        resolve(version, directory)
        return
    jars = directory / "jars"
    jars.mkdir(parents=True)
    lines = (line.split() for line in jar_list.read_text().splitlines())
    downloads = [Download(path, jars / path.rpartition("/")[2], digest) for digest, path in lines]
    download(downloads, repository_url(), title=f"Fetching Kafka {version}")


def resolve(version: str, directory: Path) -> None:
    """Resolve the jars of a version by Ivy into the folder ``jars`` of a new directory."""
    repository = repository_url()
    ivy = _ivy()
    directory.mkdir()
    settings, downloads = directory / "settings.xml", directory / "ivy.xml"
    settings.write_text(SETTINGS.format(repository=repository))
    downloads.write_text(WANTED.format(version=version))
    command: list[str | Path] = [find_java(), *_proxy(), "-Dsun.net.client.defaultConnectTimeout=20000", "-jar", ivy]
    command += ["-settings", settings, "-ivy", downloads, "-cache", directory / "cache", "-types", "jar", "bundle"]
    command += ["-retrieve", f"{directory}/jars/[artifact]-[revision](-[classifier]).[ext]"]
    output = _run(command, title=f"Fetching Kafka {version}")
    if output:
        raise _failure(version, repository, output)


def _run(command: list[str | Path], *, title: str) -> str:
    """Run Ivy with a progress bar; return its output if it failed, else nothing."""
    lines = []
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
        tqdm(desc=f"{title}: looking up", unit=" jars") as bar,
    ):
        assert ivy.stdout
        found = 0
        for line in ivy.stdout:
            lines.append(line)
            if line.startswith("\tfound "):
                found += 1
                bar.update()
            elif "[SUCCESSFUL ]" in line:
                if bar.total is None:
                    bar.reset(total=found)
                    bar.set_description(f"{title}: downloading")
                bar.update()
    return "".join(lines) if ivy.returncode else ""


def _failure(version: str, repository: str, output: str) -> LabError:
    artifact = f"org.apache.kafka:kafka_2.13:{version}"
    if unreachable := re.search(r"Server access error at url (\S+) \((.*)\)", output, re.IGNORECASE):
        return LabError(
            f"{artifact} could not be fetched: {unreachable[1]} did not answer ({unreachable[2]}).",
            means="The lab downloads each Kafka version once, and this one is not in the cache; nothing was kept.",
            do="Go online for the first start, or name a mirror in KAFKA_TXN_MAVEN (and a proxy in HTTPS_PROXY).",
        )
    if missing := re.findall(r":: (\S+)#(\S+);(\S+): not found", output):
        return LabError(
            f"{repository} has no {', '.join(':'.join(each) for each in missing)}.",
            means=f"Either there is no Kafka {version}, or this mirror lacks a part of it; nothing was kept.",
            do="Use a released version, such as 4.3.1, 3.9.2, 3.5.2 or 2.8.2, or name a mirror in KAFKA_TXN_MAVEN.",
        )
    return LabError(
        f"{artifact} could not be fetched: {' '.join(output.split())[-600:]}",
        means="The Ivy resolver failed; nothing was kept.",
        do="Try again; usually a proxy or mirror returned something other than a jar.",
    )


def _ivy() -> Path:
    pyspark = find_spec("pyspark")
    found = sorted(Path(pyspark.origin).parent.glob("jars/ivy-*.jar")) if pyspark and pyspark.origin else []
    if not found:
        raise LabError(
            "The lab fetches Kafka with the Ivy jar inside pyspark, and pyspark is not installed (or has no jars).",
            means="This Kafka version is not in the cache yet, so it cannot be started.",
            do="Run pip install pyspark.",
        )
    return found[-1]


def _proxy() -> list[str]:
    proxy = urlsplit(urllib.request.getproxies().get("https", ""))
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 8080}"]
