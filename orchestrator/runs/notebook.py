"""A run as a notebook shows it: the certificate of its page, or its answer and the first rows of its summary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from orchestrator import rounding
from orchestrator.quantities import format_count

FIRST = 5  # rows of a summary
HEIGHT = 620  # pixels of the certificate's frame, which scrolls
HEAD = re.compile(r"<!doctype html>.*?</head>", re.DOTALL)
CERTIFICATE = re.compile(r'<section aria-labelledby="certificate".*?</section>', re.DOTALL)


def certificate(page: Path) -> str | None:
    """The first page of a report in a frame of its own, so that its styles stay in it; None where it has none."""
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    head, section = HEAD.match(text), CERTIFICATE.search(text)
    if head is None or section is None:
        return None
    inside = f"{head[0]}<body><main>{section[0]}</main></body></html>"
    frame = f'sandbox="" style="width:100%;height:{HEIGHT}px;border:0" title="Certificate"'
    return f'<iframe {frame} srcdoc="{escape(inside)}"></iframe>'


def outline(title: str, paragraphs: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    """A heading, paragraphs, and the first rows of a summary as HTML."""
    parts = [f"<p><strong>{escape(title)}</strong></p>", *(f"<p>{escape(text)}</p>" for text in paragraphs if text)]
    if rows:
        names = ("metric", "setting", "estimate", "95 % interval", "n", "null", "p")
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(row))}</tr>" for row in rows[:FIRST]
        )
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        more = len(rows) - FIRST
        parts += [f"<p>and {format_count(more, 'row')} more</p>"] if more > 0 else []
    return f"<div>{''.join(parts)}</div>"


def _cells(row: dict[str, Any]) -> list[str]:
    n = row["n"]
    return [
        row["metric"],
        rounding.format_setting(row["setting"], equals=" = "),
        rounding.format_row_value(row, "estimate"),
        rounding.format_row_interval(row),
        "" if n is None else format_count(n, row["unit"] or ""),
        rounding.format_row_value(row, "null"),
        rounding.format_p_value(row["p_value"]),
    ]
