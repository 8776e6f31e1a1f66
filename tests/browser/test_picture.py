"""The pictures of the panel and of the dashboard in README and docs are of these as they are."""

from tests.browser import dashboard_picture, screenshot


def test_the_picture_is_of_this_panel() -> None:
    found = screenshot.signature(screenshot.PICTURE)
    assert found == screenshot.fingerprint(), "take it again: python -m tests.browser.screenshot"


def test_the_picture_is_of_this_dashboard() -> None:
    found = screenshot.signature(dashboard_picture.PICTURE)
    assert found == dashboard_picture.fingerprint(), "take it again: python -m tests.browser.dashboard_picture"
