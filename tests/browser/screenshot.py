"""The picture of the panel in the README: ``python -m tests.browser.screenshot`` writes ``docs/panel.png``.

Another file, width or dark colours: ``python -m tests.browser.screenshot FILE 800 dark``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.browser.opened import browser, panel_in

TARGET = Path(__file__).resolve().parents[2] / "docs/panel.png"
LONGEST = 60_000  # ms, for a step


def take(target: Path, *, width: int, dark: bool) -> None:
    """Choose what hangs, do the dry run, type the confirmation, and take the picture."""
    with (
        TemporaryDirectory() as folder,
        browser() as chromium,
        panel_in("Voila", chromium, Path(folder), width=width, height=2200, dark=dark) as panel,
    ):
        panel.get_by_role("button", name="HANGING").first.click()
        panel.locator("iframe[data-drawn]").wait_for(timeout=LONGEST)
        panel.get_by_role("button", name="Dry run").click()
        panel.get_by_text("The dry run passed").wait_for(timeout=LONGEST)
        panel.get_by_role("textbox").fill(panel.locator("b.number").inner_text())
        target.parent.mkdir(exist_ok=True)
        panel.screenshot(path=target, animations="disabled")
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    _, *arguments = sys.argv
    take(
        Path(arguments[0]) if arguments else TARGET,
        width=int(arguments[1]) if len(arguments) > 1 else 1440,
        dark="dark" in arguments[2:],
    )
