"""Durations as users write them."""

import pytest

from toolkit.schema.durations import duration_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(" 30s\n", 30), ("1.5h", 5400), ("1h 30m", 5400), ("interval 10 seconds", 10), (" INTERVAL  2 d ", 172_800)],
)
def test_a_duration_has_the_syntax_of_people_and_of_spark(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "1 month", "-1", "1h x"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration_s(text)
