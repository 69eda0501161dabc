"""Compare a page with the page redrawn from its store.

The same version draws the same page from the same results, byte for byte. Only three parts may differ: the file name of
the page, the sizes and dates of the audited files, and the last digits of the coordinates in a figure, which processors
round differently.
"""

from __future__ import annotations

import re

from orchestrator.inspection.page_seal import ZEROS
from orchestrator.quantities import printable

VERSION = re.compile(rb"Drawn by Engram (\S+)\. Please cite")
# Parts that may differ, each limited so that no sentence fits into it.
SIZE = rb"(?:[\d.]+ (?:bytes|[kMGT]B))?"
DATE = rb'(?:[\d-]*|<time datetime="[\dT:+.-]*">[\d :-]* UTC</time>)'
VARYING_PARTS = {
    rb"(<code>engram report verify )[^<\s]*(\.html</code>)": rb"\1\2",
    rb'(</code></td><td(?: class="number")?>)' + SIZE + b"(</td><td>)" + DATE + b"(</td></tr>)": rb"\1\2\3",
    rb'("size": )(?:null|\d+)(, "modified": )(?:null|"[\dT:+-]*")': rb"\1\2",
}
DRAWING = re.compile(rb"<svg\b.*?</svg>", re.DOTALL)
GEOMETRY = re.compile(rb'(?<= )(?:d|[xy][12]?|c[xy]|r[xy]?|points|width|height|transform|viewBox)="[^"<>]*"')
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e-?\d+)?")
ROUNDING = 0.05  # tolerance, in units of the figure
EXCERPT_LENGTH = 60  # characters shown of a difference


def version_of(page: bytes) -> str:
    """Return the Engram version that the page says it was written by. Returns an empty string if it states none."""
    match = VERSION.search(page)
    return match[1].decode() if match else ""


def first_difference(page: bytes, page_digest: str, drawn_page: bytes, drawn_digest: str) -> str | None:
    """Describe the first difference between a page and the page drawn from its store. Returns None if they agree.

    The digests are those in the seals of the two pages.
    """
    page_text, page_numbers = _comparable(page, page_digest)
    drawn_text, drawn_numbers = _comparable(drawn_page, drawn_digest)
    if page_text != drawn_text:
        return _excerpt(page_text, drawn_text)
    for number, expected in zip(page_numbers, drawn_numbers, strict=True):
        if abs(float(number) - float(expected)) > ROUNDING:
            return f"a drawing has {number.decode()}; the store gives {expected.decode()}"
    return None


def _comparable(page: bytes, digest: str) -> tuple[bytes, list[bytes]]:
    """Return the page without the parts that may differ, and the coordinates in its figures."""
    text = page.replace(digest.encode(), ZEROS.encode())
    for pattern, replacement in VARYING_PARTS.items():
        text = re.sub(pattern, replacement, text)
    numbers: list[bytes] = []

    def take_number(number: re.Match[bytes]) -> bytes:
        numbers.append(number[0])
        return b"#"

    def take_numbers(drawing: re.Match[bytes]) -> bytes:
        return GEOMETRY.sub(lambda attribute: NUMBER.sub(take_number, attribute[0]), drawing[0])

    return DRAWING.sub(take_numbers, text), numbers


def _excerpt(page_text: bytes, drawn_text: bytes) -> str:
    """Quote the two texts at their first difference."""
    first = next(
        (
            index
            for index, (page_byte, drawn_byte) in enumerate(zip(page_text, drawn_text, strict=False))
            if page_byte != drawn_byte
        ),
        min(len(page_text), len(drawn_text)),
    )
    start = max(page_text.rfind(b">", 0, first) + 1, first - EXCERPT_LENGTH // 2)
    excerpts = []
    for text in (page_text, drawn_text):
        excerpts.append(printable(text[start : start + EXCERPT_LENGTH].decode(errors="replace")))
    return f"the page has {excerpts[0]!r}; the store gives {excerpts[1]!r}"
