"""Estimates how much of a certificate fits on one A4 sheet, from the number of printed lines in its texts.

Heights are in CSS pixels at the print sizes in `page.css`. The layout depends on the browser, so they are slightly
overestimated to keep a sheet from overflowing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import TypeVar

from orchestrator.run_folder.notes import Details

Item = TypeVar("Item")

SHEET = 1047  # height of A4 with 1 cm margins
TOP = 135  # page heading and facts, plus the certificate heading
NOTICE = 32  # one notice
HEADING = 20  # heading of one certificate section
# Height of a text line, and characters per line.
LINE = 13
WIDTH = 130
SIGNED = 62  # signature lines
NOTE = 16  # line on missing details
STRIP = 90  # images next to the answer, and their label
FINDING = 130  # a separate finding with its number line
LINES = 4  # sentence lines included in FINDING
TABLE = 50  # table caption, table head and a line below the table
ROW = 19  # one row in the table of audited items
# Height and characters of one line in a finding table without other columns.
TOLD = 9.5
WIDE = 125
COLUMN = 14  # characters that each other column takes from that line
THINGS = 6  # minimum number of audited items shown
LARGEST = 1.3  # maximum magnification of a short certificate; 9-point text is easy to read


def remaining_height(notices: int, texts: Iterable[Iterable[str]], details: Details) -> float:
    """Return the height left for tables below the notices, the details and the texts of each section."""
    parts = list(texts)
    above = TOP + NOTICE * notices + (SIGNED + _text_height(filter(None, astuple(details))) if details else 0)
    return SHEET - above - 2 * TABLE - sum(HEADING + _text_height(part) for part in parts)


def row_count(height: float, least_rows: int) -> int:
    """Return how many rows of audited items fit into this height, but at least `least_rows`."""
    return max(least_rows, int(height // ROW))


def zoom_factor(free_height: float) -> float:
    """Return how far a certificate with this much free height can be magnified.

    Magnification makes lines taller and, because fewer words fit, more numerous.
    """
    return max(1.0, min(LARGEST, math.floor(100 * math.sqrt(SHEET / max(1.0, SHEET - free_height))) / 100))


def finding_height(sentence: str) -> float:
    """Return the height of a separate finding, whose sentence may span several lines."""
    return FINDING + LINE * max(0, math.ceil(len(sentence) / WIDTH) - LINES)


def _text_height(paragraphs: Iterable[str]) -> float:
    return sum(LINE * max(1, math.ceil(len(text) / WIDTH)) + 3 for text in paragraphs)


def row_height(text: str, columns: int) -> float:
    """Return the height of a row with this text next to `columns` other columns."""
    return max(24.0, 5 + TOLD * math.ceil(len(text) / max(20, WIDE - COLUMN * columns)))


def fitting_items(items: Sequence[Item], heights: Sequence[float], remaining: float) -> list[Item]:
    """Return the leading items that fit into the remaining height, but at least one."""
    fitting: list[Item] = []
    for item, height in zip(items, heights, strict=True):
        remaining -= height
        if fitting and remaining < 0:
            break
        fitting.append(item)
    return fitting
