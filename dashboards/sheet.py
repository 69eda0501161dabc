"""Estimates how much of a certificate fits on one sheet of A4, from the number of printed lines of its texts.

Heights are in CSS pixels, at the print sizes of `page.css`. They are estimates, because the layout depends on the
browser, and slightly too large, so that a sheet never overflows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import TypeVar

from orchestrator.run_folder.notes import Details

Item = TypeVar("Item")

SHEET = 1047  # height of A4 without margins of 1 cm
TOP = 135  # heading and facts of the page, and the certificate's heading
NOTICE = 32  # a notice
HEADING = 20  # heading of a part of the certificate
# height and characters of a line of text
LINE = 13
WIDTH = 130
SIGNED = 62  # the lines to sign
FINDING = 130  # a separate finding and its number line
LINES = 4  # lines of its sentence that FINDING includes
TABLE = 50  # caption and head of a table, and a line below it
ROW = 19  # a row of the table of audited items
# height and characters of a line of a finding in a table without other columns
TOLD = 9.5
WIDE = 125
COLUMN = 14  # characters that another column takes from that line
THINGS = 6  # rows of audited items that are always shown
LARGEST = 1.3  # maximum magnification of a short certificate; text of 9 points is easy to read


def remaining_height(notices: int, texts: Iterable[Iterable[str]], details: Details) -> float:
    """The height that remains for tables below the notices, the details and the texts of each part."""
    parts = list(texts)
    above = TOP + NOTICE * notices + (SIGNED + _text_height(filter(None, astuple(details))) if details else 0)
    return SHEET - above - 2 * TABLE - sum(HEADING + _text_height(part) for part in parts)


def row_count(height: float, least_rows: int) -> int:
    """The number of rows of audited items that fit into this height, and at least `least_rows`."""
    return max(least_rows, int(height // ROW))


def zoom_factor(free_height: float) -> float:
    """The possible magnification of a certificate that leaves this height free: lines become higher and more."""
    return max(1.0, min(LARGEST, math.floor(100 * math.sqrt(SHEET / max(1.0, SHEET - free_height))) / 100))


def finding_height(sentence: str) -> float:
    """The height of a separate finding, whose sentence may be long."""
    return FINDING + LINE * max(0, math.ceil(len(sentence) / WIDTH) - LINES)


def _text_height(paragraphs: Iterable[str]) -> float:
    return sum(LINE * max(1, math.ceil(len(text) / WIDTH)) + 3 for text in paragraphs)


def row_height(text: str, columns: int) -> float:
    """The height of a row with this text after `columns` other columns."""
    return max(24.0, 5 + TOLD * math.ceil(len(text) / max(20, WIDE - COLUMN * columns)))


def fitting_items(items: Sequence[Item], heights: Sequence[float], remaining: float) -> list[Item]:
    """The first items that fit into the remaining height, and at least one."""
    fitting: list[Item] = []
    for item, height in zip(items, heights, strict=True):
        remaining -= height
        if fitting and remaining < 0:
            break
        fitting.append(item)
    return fitting
