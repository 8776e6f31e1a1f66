"""Take the screenshot of the panel for the README: ``python -m tests.browser.screenshot`` writes ``docs/panel.png``.

For another file, another width or the dark theme: ``python -m tests.browser.screenshot FILE 800 dark``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.browser.opened import browser, open_panel

TARGET = Path(__file__).resolve().parents[2] / "docs/panel.png"
STEP_TIMEOUT_MS = 60_000


def take_screenshot(target: Path, *, width: int, dark: bool) -> None:
    """Select the hanging transaction, do the dry run, type the confirmation, and take the screenshot."""
    with (
        TemporaryDirectory() as folder,
        browser() as chromium,
        open_panel("Voila", chromium, Path(folder), width=width, height=2200, dark=dark) as panel,
    ):
        panel.get_by_role("button", name="HANGING").first.click()
        panel.locator("iframe[data-drawn]").wait_for(timeout=STEP_TIMEOUT_MS)
        panel.get_by_role("button", name="Dry run").click()
        panel.get_by_text("The dry run passed").wait_for(timeout=STEP_TIMEOUT_MS)
        panel.get_by_role("textbox").fill(panel.locator("b.number").inner_text())
        target.parent.mkdir(exist_ok=True)
        panel.screenshot(path=target, animations="disabled")
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    _, *arguments = sys.argv
    take_screenshot(
        Path(arguments[0]) if arguments else TARGET,
        width=int(arguments[1]) if len(arguments) > 1 else 1440,
        dark="dark" in arguments[2:],
    )
