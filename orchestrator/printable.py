"""Text of users' names, labels and errors as it may be printed, and as a spreadsheet may open it."""

from __future__ import annotations

import re

# Control and format characters (Cc, Cf), separators of lines and lone surrogates: a terminal obeys them, or shows what
# follows in another order. Blanks and letters of all scripts pass.
INVISIBLE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
IN_LINES = re.compile(f"[{INVISIBLE}]")
IN_A_LINE = re.compile(f"[\t\n{INVISIBLE}]")
FORMULA = re.compile(r"[=+\-@\t\r\n]")  # OWASP, "CSV injection"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)", re.IGNORECASE)


def printable(text: str) -> str:
    """The text in one line, with every character that a terminal would obey written as Python escapes it."""
    return IN_A_LINE.sub(_escape, text)


def printable_lines(text: str) -> str:
    """The same of a text of several lines, whose ends and tabs are kept."""
    return IN_LINES.sub(_escape, text)


def inert(text: str) -> str:
    """The text as a cell that no spreadsheet computes: what begins a formula follows an apostrophe; numbers do not."""
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
