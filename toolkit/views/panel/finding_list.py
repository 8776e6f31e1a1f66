"""The list of findings in the panel: hundreds of them, the most urgent first, with a search and pages of buttons.

The buttons of a page are made once and then only get other texts: 500 findings cost no more than 25, and the focus
stays on the button that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ipywidgets as widgets

from toolkit.schema.live import Finding
from toolkit.views.finding_document import by_urgency
from toolkit.views.panel.panel_html import choice, is_same, tone
from toolkit.views.renderers import escaped_html

PAGE = 25


class FindingList(widgets.VBox):  # type: ignore[misc]
    """Search, the buttons of one page, and buttons for the other pages.

    `choose`: called with the finding whose button is clicked. `announce`: called with a sentence about what is listed.
    """

    def __init__(self, choose: Callable[[Finding], None], announce: Callable[[str], None]) -> None:
        self._choose, self._announce = choose, announce
        self._findings: list[Finding] = []
        self._ranked: list[Finding] = []
        self._texts: list[str] = []  # what is searched
        self._selected: Finding | None = None
        self.matches: list[Finding] = []
        self.page = 0
        self.search = widgets.Text(description="Search", placeholder="topic, id, group, verdict ...")
        self.search.observe(self._searched, "value")
        self.previous_page = widgets.Button(description="Previous page")
        self.next_page = widgets.Button(description="Next page")
        self.previous_page.on_click(lambda _: self._turn(-1))
        self.next_page.on_click(lambda _: self._turn(1))
        self._count = widgets.HTML()
        self.choices = widgets.VBox()
        self._bar = widgets.HBox([self.search, self._count, self.previous_page, self.next_page])
        self._bar.add_class("row")
        self.choices.add_class("choices")
        super().__init__([self._bar, self.choices])

    def show(self, findings: Sequence[Finding], selected: Finding | None) -> None:
        """Show findings, and which one is selected; search and page stay."""
        self._selected = selected
        if list(findings) != self._findings:
            self._findings = list(findings)
            self._ranked = by_urgency(findings)
            self._texts = [_searched_text(each) for each in self._ranked]
        self._filter()

    def _searched(self, _: object) -> None:
        self.page = 0
        self._filter()
        self._announce(f"{len(self.matches)} of {len(self._findings)} findings match.")

    def _filter(self) -> None:
        words = self.search.value.lower().split()
        pairs = zip(self._ranked, self._texts, strict=True)
        self.matches = [each for each, text in pairs if all(word in text for word in words)]
        self.page = min(self.page, max(0, (len(self.matches) - 1) // PAGE))
        self._draw()

    def _turn(self, by: int) -> None:
        last = max(0, (len(self.matches) - 1) // PAGE)
        self.page = min(max(self.page + by, 0), last)
        self._draw()
        self._announce(self._range())
        if self.previous_page.disabled or self.next_page.disabled:  # a button that is disabled loses the focus
            self.choices.children[0].focus()

    def _draw(self) -> None:
        listed = self.matches[self.page * PAGE : (self.page + 1) * PAGE]
        if len(listed) > len(self.choices.children):
            new = [self._button(number) for number in range(len(self.choices.children), len(listed))]
            self.choices.children = (*self.choices.children, *new)
        for number, button in enumerate(self.choices.children):
            finding = listed[number] if number < len(listed) else None
            button.layout.display = None if finding else "none"
            if finding:
                _dress(button, finding, is_selected=is_same(finding, self._selected))
        many = len(self._findings) > PAGE
        self._count.value = f'<span class="soft">{escaped_html(self._range())}</span>'
        self._bar.layout.display = None if many or self.search.value else "none"
        self.choices.layout.display = None if listed else "none"
        for button in (self.previous_page, self.next_page):
            button.layout.display = None if len(self.matches) > PAGE else "none"
        self.previous_page.disabled = self.page == 0
        self.next_page.disabled = (self.page + 1) * PAGE >= len(self.matches)

    def _range(self) -> str:
        """``1 to 25 of 500, the most urgent first``."""
        if not self.matches:
            return f"none of {len(self._findings)}"
        first = self.page * PAGE + 1
        last = min(first + PAGE - 1, len(self.matches))
        found = "" if len(self.matches) == len(self._findings) else f" that match, of {len(self._findings)}"
        return f"{first} to {last} of {len(self.matches)}{found}, the most urgent first"

    def _button(self, number: int) -> Any:
        button = widgets.Button()
        button.on_click(partial(self._clicked, number))
        return button

    def _clicked(self, number: int, _: object) -> None:
        place = self.page * PAGE + number
        if place < len(self.matches):
            self._choose(self.matches[place])


def _dress(button: Any, finding: Finding, *, is_selected: bool) -> None:
    """The text and the colour of a finding on a button; what has not changed is not sent."""
    classes = (tone(finding), *(("chosen",) if is_selected else ()))
    if button._dom_classes != classes:
        button._dom_classes = classes
    button.description = choice(finding)


def _searched_text(finding: Finding) -> str:
    parts = (
        choice(finding),
        finding.transactional_id,
        finding.producer_id,
        finding.owner,
        finding.outcome,
        finding.cause,
    )
    return " ".join([*(str(each) for each in parts if each is not None), *(finding.groups_held or ())]).lower()
