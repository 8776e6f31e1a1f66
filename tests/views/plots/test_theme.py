"""Both palettes are readable, and kinds are distinguishable in grey."""

import dataclasses

import pytest

from tests.views.plots.drawn import contrast
from toolkit.errors import UsageError
from toolkit.schema.verdict import Verdict
from toolkit.views.plots.plot_theme import KINDS, STATES, THEMES, theme_named


@pytest.mark.parametrize("name", THEMES)
def test_every_colour_has_enough_contrast(name: str) -> None:
    theme = THEMES[name]
    for role in {field.name for field in dataclasses.fields(theme)} - {"background", "grid", "held"}:
        least = 4.5 if role in {"text", "muted", "alarm", "warn"} else 3
        assert contrast(theme[role], theme.background) >= least, role


def test_every_verdict_has_its_own_symbol_and_the_worst_is_first() -> None:
    assert min(Verdict, key=lambda verdict: verdict.urgency) == "hanging"
    assert len({verdict.symbol for verdict in Verdict}) == len(Verdict)


def test_every_kind_has_its_own_symbol_and_hanging_is_the_widest() -> None:
    assert len({appearance.symbol for appearance in KINDS.values()}) == len(KINDS)
    assert max(KINDS, key=lambda kind: KINDS[kind].width) == "hanging"


def test_every_state_has_its_own_hatch() -> None:
    assert len({appearance.hatch for appearance in STATES.values()}) == len(STATES)


def test_an_unknown_theme_is_rejected() -> None:
    with pytest.raises(UsageError, match="no theme 'blue'"):
        theme_named("blue")
