"""Take pictures of the panel with 2, 5 and 500 findings, light and dark, and of the page of notebook 9.

``python -m tests.browser.screenshot`` writes ``notebooks/panel.png`` and ``live.png``, both dark, as the theme of
JupyterLab is not the browser's, with a palette of 128 colours, which needs Pillow (``pip install pillow``); with FOLDER
it also writes all six of the panel, as ``panel-500-dark.png``, to that folder, and prints what axe finds in each.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.browser.opened import START_TIMEOUT_MS, browser
from tests.browser.panel_page import panel_on
from tests.browser.servers import voila
from tests.browser.test_panel_access import violations
from tests.notebooks.books import FOLDER
from toolkit.config import ClientConfig
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient

COLOURS = 128
COUNTS = (2, 5, 500)
SHOWN = 5  # findings in the picture of the README
STEP_TIMEOUT_MS = 120_000


def stage_findings(kafka: Kafka, number: int) -> str:
    """Open transactions on that many partitions of a topic: all hang but one, which is live."""
    topic = f"orders-{number}" if number > COUNTS[0] else "orders"
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as client:
        new = broker_client.CreateTopics.CreatableTopic
        created = new(name=topic, num_partitions=number, replication_factor=1, assignments=[], configs=[])
        client.send_one(broker_client.CreateTopics(topics=[created], timeout_ms=60_000, validate_only=False))
        lost = TxnProducer(client, "orders-writer-3").init()
        for partition in range(number - 1):
            lost.send(topic, partition, records=1 + partition % 40)
        for partition in range(min(number - 1, 3)):  # records that no group receives
            write = TxnProducer(client, f"payments-{partition}").init()
            write.add(topic, partition)
            write.send(topic, partition, records=20 - partition)
            write.end(commit=True)
    INCIDENTS["open_young"](kafka, topic=topic, partition=number - 1)
    return topic


def take_pictures(folder: Path, kafka: Kafka, counts: Sequence[int]) -> None:
    """Choose the most urgent finding, do the dry run, type the confirmation, and take the picture."""
    for number in counts:
        topic = stage_findings(kafka, number)
        for dark in (False, True):
            place = folder / f"served-{number}-{dark}"
            with browser() as chromium, panel_on(chromium, kafka, [topic], place, dark=dark, height=2400) as panel:
                panel.get_by_role("button", name="HANGING").first.click()
                panel.locator("iframe[data-drawn]").wait_for(timeout=STEP_TIMEOUT_MS)
                panel.get_by_role("button", name="Dry run").click()
                panel.get_by_text("The dry run passed").first.wait_for(timeout=STEP_TIMEOUT_MS)
                target_name = panel.locator("p", has_text="To do it, type").locator("code").first.inner_text()
                panel.get_by_role("textbox", name="To do it, type").fill(target_name)
                target = folder / f"panel-{number}-{'dark' if dark else 'light'}.png"
                panel.screenshot(path=target, animations="disabled")
                print(f"{target.name}: {target.stat().st_size:,} bytes, {violations(panel.page)}", flush=True)


def take_live_picture(folder: Path) -> None:
    """Notebook 9 as a page of Voila, once it has looked."""
    target = FOLDER / "live.png"
    notebook = Path(shutil.copy(FOLDER / "09_live.ipynb", folder))
    with browser() as chromium, voila(notebook, folder / "server", dark=True) as address:
        page = chromium.new_page(viewport={"width": 1000, "height": 1400})  # a part that is not in view is not drawn
        page.goto(address, timeout=2 * START_TIMEOUT_MS)
        live = page.locator(".widget-html-content", has=page.locator(".kafka-txn-tiles .alarm"))
        live.wait_for(timeout=STEP_TIMEOUT_MS)
        live.screenshot(path=target, animations="disabled")
        print(f"{target.name}: {reduced(target).stat().st_size:,} bytes, {violations(page, '.widget-html-content')}")


def reduced(picture: Path) -> Path:
    """The picture with a palette, a third of its size; unchanged without Pillow."""
    with suppress(ImportError):
        from PIL import Image

        with Image.open(picture) as whole:  # the default method makes one colour of those of two verdicts
            small = whole.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        small.save(picture, optimize=True)
    return picture


if __name__ == "__main__":
    with TemporaryDirectory() as temporary, Kafka("4.3.1", properties=EVERYDAY.properties) as lab:
        folder = Path(sys.argv[1]).resolve() if sys.argv[1:] else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        take_pictures(folder, lab, COUNTS if sys.argv[1:] else (SHOWN,))
        reduced(Path(shutil.copy(folder / f"panel-{SHOWN}-dark.png", FOLDER / "panel.png")))
        take_live_picture(Path(temporary))
