"""Prometheus as a real process, set up as in `docs/recording.md`."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.process import ROOT, is_listening, started
from toolkit.lab.broker import free_ports
from toolkit.lab.clients import until

PROMETHEUS = shutil.which("prometheus")
QUICK = "1s"


@contextmanager
def prometheus(folder: Path, rules: str, *, recorder_port: int) -> Iterator[str]:
    """Its address; it scrapes a recorder every second, and evaluates rules every second."""
    assert PROMETHEUS
    (port,) = free_ports(1)
    scraping = _documented("prometheus.yml")
    scraping["global"] = {"scrape_interval": QUICK, "scrape_timeout": QUICK, "evaluation_interval": QUICK}
    scraping["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{recorder_port}"]
    del scraping["alerting"]
    (folder / "kafka-txn.rules.yml").write_text(rules)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(scraping))
    command = [PROMETHEUS, "--config.file=prometheus.yml", "--storage.tsdb.path=series"]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    log = folder / "prometheus.log"
    with log.open("wb") as out, started(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT):
        until(lambda: is_listening(f"127.0.0.1:{port}") or None, awaited=f"Prometheus ({log})")
        yield f"http://127.0.0.1:{port}"


def _documented(name: str) -> dict[str, Any]:
    """The YAML that follows the name of a file in the documentation."""
    text = (ROOT / "docs/recording.md").read_text()
    found = re.search(rf"`{re.escape(name)}`.*?```yaml\n(.*?)```", text, re.DOTALL)
    assert found
    settings: dict[str, Any] = yaml.safe_load(found[1])
    return settings
