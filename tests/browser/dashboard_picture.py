"""Draw the Grafana dashboard from metrics of incidents; ``python -m tests.browser.dashboard_picture``, 6 minutes.

It writes ``docs/dashboard.png``. Node.js draws it, with the components of
Grafana (``@grafana/ui``, from npm) that draw panels in Grafana, too; there is no Grafana server in the registries.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.browser.opened import browser
from tests.process import COMMAND, ROOT, run, started
from tests.tools.prometheus_stack import prometheus
from toolkit.lab import Kafka
from toolkit.lab.broker import free_ports
from toolkit.lab.clients import BlockedConsumer
from toolkit.lab.incidents import INCIDENTS, REPLICATED
from toolkit.views.monitoring import grafana_dashboard

PICTURE = ROOT / "docs/dashboard.png"
SOURCES = Path(__file__).with_name("dashboard")
PAUSE_S = 45  # between incidents
MINUTES = 5  # in the picture
PROPERTIES = {**REPLICATED.properties, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 86_400_000}


@contextmanager
def incidents(folder: Path) -> Iterator[str]:
    """A recorder of a cluster with four open transactions, of which one hangs; the address of its Prometheus."""
    (port,) = free_ports(1)
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka("4.3.1", brokers=2, properties=PROPERTIES))
        command = [*COMMAND, "record", "--bootstrap-server", kafka.bootstrap_servers, "--interval", "5s"]
        command += ["--output", str(folder / "recording"), "--late-padding", "5s", "--metrics-port", str(port)]
        log = stack.enter_context((folder / "record.log").open("wb"))
        stack.enter_context(started(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT))
        rules = run("prometheus-rules").stdout
        address = stack.enter_context(prometheus(folder, rules, recorder_port=port))
        time.sleep(PAUSE_S)
        INCIDENTS["skipped_marker"](kafka, topic="invoices")
        time.sleep(PAUSE_S)
        hanging = INCIDENTS["never_added"](kafka, topic="orders")
        stack.enter_context(BlockedConsumer(kafka, "orders", "billing", partition=hanging.partition))
        time.sleep(PAUSE_S)
        overdue = INCIDENTS["overdue"](kafka, topic="payments", timeout_ms=30_000)
        stack.enter_context(BlockedConsumer(kafka, "payments", "fraud-check", partition=overdue.partition))
        time.sleep(PAUSE_S)
        INCIDENTS["open_young"](kafka, topic="shipments")
        time.sleep(2 * PAUSE_S)
        yield address


@contextmanager
def page(folder: Path) -> Iterator[str]:
    """The address of the page that draws the dashboard."""
    shutil.copytree(SOURCES, folder)
    (folder / "dashboard.json").write_text(grafana_dashboard())
    for command in (["npm", "install", "--silent", "--no-fund", "--no-audit"], ["npm", "run", "--silent", "build"]):
        subprocess.run(command, cwd=folder, check=True)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


if __name__ == "__main__":
    with (
        TemporaryDirectory() as temporary,
        page(Path(temporary) / "page") as address,
        incidents(Path(temporary)) as scraper,
        browser() as chromium,
    ):
        opened = chromium.new_page(viewport={"width": 1640, "height": 2000})
        opened.goto(f"{address}?prometheus={scraper}&minutes={MINUTES}")
        opened.wait_for_function("window.drawn", timeout=120_000)
        opened.locator("#dashboard").screenshot(path=PICTURE, animations="disabled")
    sys.stdout.write(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes\n")
