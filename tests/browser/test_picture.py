"""The picture of the panel in README and docs is that of the panel as it is."""

from tests.browser.screenshot import PICTURE, fingerprint, signature


def test_the_picture_is_of_these_sources() -> None:
    assert signature(PICTURE) == fingerprint(), "take it again: python -m tests.browser.screenshot"
