"""Signs of answers: none is told from another by its colour alone."""

from __future__ import annotations

import re
from itertools import combinations

from dashboards.document import TEMPLATES
from dashboards.signs import SHAPES, badge, kind, sign
from tasks.contract.verdict import ANSWERS, Meaning

COMMON = ("memorised", "not seen", "forgotten", "not forgotten", "undecided", "not judged")


def colour(name: str) -> str:
    """The colour that the page's style gives a badge of this class."""
    style = (TEMPLATES / "page.css").read_text()
    rules = re.findall(r"((?:\.badge[.\w-]*(?:, )?)+) \{[^}]*[{ ]color: var\(--(\w+)\)", style)
    own = [shade for selectors, shade in rules if f".badge.{name}" in selectors.split(", ")]
    return own[-1] if own else next(shade for selectors, shade in rules if selectors == ".badge")


def test_every_common_answer_has_a_colour_and_a_shape_of_its_own() -> None:
    assert set(ANSWERS) <= set(COMMON)
    for one, other in combinations(COMMON, 2):
        assert sign(one, "open") != sign(other, "open")
        assert colour(kind(one, "open")) != colour(kind(other, "open"))


def test_an_answer_of_an_audits_own_has_the_sign_of_its_tone() -> None:
    signs = {tone: sign("leaks", tone) for tone in ("accused", "cleared", "open")}
    assert 3 == len(set(signs.values()))
    assert all(SHAPES[tone] in drawn for tone, drawn in signs.items())
    assert "accused" == kind("leaks", "accused")


def test_a_badge_escapes_what_an_audit_says() -> None:
    assert "&lt;b&gt;" in badge("<b>", Meaning("&"))
