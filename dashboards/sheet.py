"""How much of a certificate one sheet of A4 holds, by how many lines its texts take in print.

What a browser makes of a text is not known here, so it is estimated, in CSS pixels at the sizes that `page.css` has in
print, and always as a little more than it takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import TypeVar

from orchestrator.run_folder.notes import Details

Item = TypeVar("Item")

SHEET = 1047  # height of A4 less margins of 1 cm
TOP = 135  # the page's own heading and facts, and the certificate's heading
NOTICE = 32  # a note below these
HEADING = 20  # of a part of the certificate
LINE, WIDTH = 13, 130  # height and characters of a line of text
SIGNED = 62  # the place to sign
FINDING = 130  # a finding by itself, with its number line
LINES = 4  # of its sentence
TABLE = 50  # caption and head of a table, and a line below it
ROW = 19  # a row of what was audited
TOLD, WIDE = 9.5, 125  # height and characters of a line of a finding in a table that has no other columns
COLUMN = 14  # characters that another column takes of it
THINGS = 6  # rows of what was audited that are shown in any case
LARGEST = 1.3  # times that a certificate of few words is magnified; 9 points are read without effort


def remaining_height(notices: int, told: Iterable[Iterable[str]], details: Details) -> float:
    """The height that so many notes, these details and the parts of a certificate with these texts leave for its
    tables.
    """
    parts = list(told)
    above = TOP + NOTICE * notices + (SIGNED + _text_height(filter(None, astuple(details))) if details else 0)
    return SHEET - above - 2 * TABLE - sum(HEADING + _text_height(part) for part in parts)


def row_count(height: float, least: int) -> int:
    """How many rows of what was audited so much height holds, and so many in any case."""
    return max(least, int(height // ROW))


def zoom_factor(left: float) -> float:
    """How many times a certificate that leaves so much of its sheet can be magnified: lines get higher, and more."""
    return max(1.0, min(LARGEST, math.floor(100 * math.sqrt(SHEET / max(1.0, SHEET - left))) / 100))


def finding_height(sentence: str) -> float:
    """The height of a finding by itself, whose sentence may be long."""
    return FINDING + LINE * max(0, math.ceil(len(sentence) / WIDTH) - LINES)


def _text_height(paragraphs: Iterable[str]) -> float:
    return sum(LINE * max(1, math.ceil(len(text) / WIDTH)) + 3 for text in paragraphs)


def row_height(text: str, columns: int) -> float:
    """The height of a row of a table with so many columns before this text."""
    return max(24.0, 5 + TOLD * math.ceil(len(text) / max(20, WIDE - COLUMN * columns)))


def fitting_items(items: Sequence[Item], heights: Sequence[float], left: float) -> list[Item]:
    """The first of these that fit into what is left, and the first one in any case."""
    shown: list[Item] = []
    for item, height in zip(items, heights, strict=True):
        left -= height
        if shown and left < 0:
            break
        shown.append(item)
    return shown
