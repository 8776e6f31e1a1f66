"""Prometheus, Alertmanager and a receiver as real processes, set up as in `docs/recording.md`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.process import ROOT, started
from toolkit.lab.broker import free_ports
from toolkit.lab.clients import until

PROMETHEUS = shutil.which("prometheus")
ALERTMANAGER = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")  # the latter is Debian's name
QUICK = "1s"


class PrometheusStack:
    """The state of Prometheus and Alertmanager, and every notification so far, oldest first."""

    def __init__(self, prometheus: str, alertmanager: str, paged: list[dict[str, Any]]) -> None:
        self.prometheus = prometheus
        self.alertmanager = alertmanager
        self.paged = paged

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The current series of an expression."""
        parameters = urllib.parse.urlencode({"query": expr})
        result: list[dict[str, Any]] = _get(f"{self.prometheus}/api/v1/query?{parameters}")["data"]["result"]
        return result

    def suppressed(self) -> set[str]:
        """Names of alerts that fire and that others inhibit."""
        alerts = _get(f"{self.alertmanager}/api/v2/alerts")
        return {alert["labels"]["alertname"] for alert in alerts if alert["status"]["state"] == "suppressed"}

    def wait_for_page(self, status: str, name: str, **labels: str) -> dict[str, Any]:
        """The last notification of an alert with these labels, once its status is ``firing`` or ``resolved``."""
        wanted = {"alertname": name, **labels}

        def last() -> dict[str, Any] | None:
            about = [alert for alert in self.paged if wanted.items() <= alert["labels"].items()]
            return about[-1] if about and about[-1]["status"] == status else None

        return until(last, awaited=f"{name} {labels} {status}")


@contextmanager
def prometheus_stack(folder: Path, rules: str, *, recorder_port: int) -> Iterator[PrometheusStack]:
    """Scrape a recorder every second, evaluate rules every second, and notify at once."""
    assert PROMETHEUS
    assert ALERTMANAGER
    web, alerts = free_ports(2)
    with ExitStack() as stack:
        paged, pager = stack.enter_context(_pager())
        routing = _documented("alertmanager.yml")
        routing["route"] |= {"group_wait": QUICK, "group_interval": QUICK}
        routing["receivers"][0]["webhook_configs"] = [{"url": pager, "send_resolved": True}]
        scraping = _documented("prometheus.yml")
        scraping["global"] = {"scrape_interval": QUICK, "scrape_timeout": QUICK, "evaluation_interval": QUICK}
        scraping["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{recorder_port}"]
        scraping["alerting"]["alertmanagers"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{alerts}"]}]
        (folder / "kafka-txn.rules.yml").write_text(rules)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(scraping))
        (folder / "alertmanager.yml").write_text(yaml.safe_dump(routing))
        commands = {
            f"http://127.0.0.1:{alerts}": [
                *(ALERTMANAGER, "--config.file=alertmanager.yml", "--storage.path=silences"),
                *("--cluster.listen-address=", f"--web.listen-address=127.0.0.1:{alerts}"),
            ],
            f"http://127.0.0.1:{web}": [
                *(PROMETHEUS, "--config.file=prometheus.yml", "--storage.tsdb.path=series"),
                f"--web.listen-address=127.0.0.1:{web}",
            ],
        }
        for address, command in commands.items():
            stack.enter_context(_running(command, folder, address))
        yield PrometheusStack(f"http://127.0.0.1:{web}", f"http://127.0.0.1:{alerts}", paged)


def _documented(name: str) -> dict[str, Any]:
    """The YAML that follows the name of a file in the documentation."""
    text = (ROOT / "docs/recording.md").read_text()
    found = re.search(rf"`{re.escape(name)}`.*?```yaml\n(.*?)```", text, re.DOTALL)
    assert found
    settings: dict[str, Any] = yaml.safe_load(found[1])
    return settings


@contextmanager
def _running(command: Sequence[str], folder: Path, address: str) -> Iterator[None]:
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("wb") as out, started(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT) as process:

        def ready() -> bool | None:
            assert process.poll() is None, log.read_text()
            try:
                with urllib.request.urlopen(f"{address}/-/ready", timeout=10):
                    return True
            except OSError:
                return None

        until(ready, awaited=f"{command[0]} at {address}")
        yield


@contextmanager
def _pager() -> Iterator[tuple[list[dict[str, Any]], str]]:
    """Alerts as a webhook of Alertmanager gets them, and its address."""
    paged: list[dict[str, Any]] = []

    class Pager(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body: Mapping[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            paged.extend(body["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Pager) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield paged, f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def _get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.load(answer)
