"""Signs of answers: each of the common ones has a colour and a shape of its own, other answers those of their tone."""

from __future__ import annotations

import re

from markupsafe import Markup

from tasks.contract.verdict import Meaning

SIZE = 14
ROUND = 'cx="7" cy="7" r="5"'
DIAMOND = 'd="M7 1.2 12.8 7 7 12.8 1.2 7z"'
SQUARE = 'x="2" y="2" width="10" height="10"'
# Answer, or tone of an answer that is not among them -> its shape; hollow where the model is cleared.
SHAPES = {
    "memorised": f"<circle {ROUND}/>",
    "not forgotten": f"<path {DIAMOND}/>",
    "not seen": f'<circle class="hollow" {ROUND}/>',
    "forgotten": f'<path class="hollow" {DIAMOND}/>',
    "undecided": f'<circle class="hollow" {ROUND}/><path d="M7 2a5 5 0 0 1 0 10z"/>',
    "not judged": f'<circle class="hollow" {ROUND}/><path class="hollow" d="M3.5 10.5 10.5 3.5"/>',
    "accused": f"<rect {SQUARE}/>",
    "cleared": f'<rect class="hollow" {SQUARE}/>',
    "open": f'<rect class="hollow" {SQUARE}/><path d="M7 2h5v10H7z"/>',
}


def kind(answer: str, tone: str) -> str:
    """The class of a page's elements that speak of this answer: `not-seen`."""
    return re.sub(r"\W+", "-", answer if answer in SHAPES else tone)


def sign(answer: str, tone: str) -> Markup:
    """The sign as `<svg>`, hidden from screen readers, since the answer stands beside it."""
    shape = SHAPES.get(answer) or SHAPES.get(tone, SHAPES["open"])
    # Our own markup alone: nothing here comes from outside.
    size = f'width="{SIZE}" height="{SIZE}" viewBox="0 0 {SIZE} {SIZE}"'
    return Markup(f'<svg class="sign" {size} aria-hidden="true" focusable="false">{shape}</svg>')


def badge(answer: str, meaning: Meaning) -> Markup:
    """The answer with its sign, in its colour, and in its title what its audit says that it means."""
    return Markup('<span class="badge {}" title="{}">{} {}</span>').format(
        kind(answer, meaning.tone), meaning.words, sign(answer, meaning.tone), answer
    )
