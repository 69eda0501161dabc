"""Page files: rendered from a template with all values escaped, sealed, and written atomically."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from dashboards import numbers, signs
from dashboards.chart import Figure
from dashboards.drawing import PALETTE
from dashboards.gallery import PRINTED
from dashboards.run import Run
from orchestrator.inspection import page_seal
from orchestrator.inspection.search_results import TRIALS
from orchestrator.quantities import encodable, format_count, format_duration
from orchestrator.store import atomic_write
from orchestrator.store.provenance import versions

TEMPLATES = Path(__file__).parent / "templates"
PLACEHOLDER = "<!--seal-->"  # appears only in templates, because all other text is escaped
LISTED = 'id="audited"'  # marks a page whose certificate lists the audited items


def render(template: str, **context: Any) -> str:
    """Render the template. Values are escaped unless they are markup."""
    version = versions().get("engram-audit", "of no known version")
    return make_environment(TEMPLATES).get_template(template).render(version=version, **context)


@cache  # keeps compiled templates, because compiling takes longer than rendering
def make_environment(templates: Path) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": numbers.number,
        "interval": numbers.interval,
        "of_row": numbers.row_value,
        "p_value": numbers.p_value,
        "setting": numbers.setting,
        "duration": numbers.duration,
        "moment": numbers.moment,
        "passed": format_duration,
        "size": numbers.size,
        "counted": format_count,
        "sample": numbers.sample,
        "short": numbers.short,
        "glyph": signs.glyph,
        "base64": lambda data: base64.b64encode(data).decode(),
    }
    environment.globals |= {
        "zip": zip,
        "badge_of": signs.badge,
        "glyph": signs.glyph,
        "light": colours(False),
        "dark": colours(True),
        "printed_records": PRINTED,
    }
    return environment


def write(path: Path, text: str) -> None:
    """Write the file atomically. Raises OSError if it cannot be written."""
    with atomic_write.put_in_place(path) as draft:
        draft.write_text(encodable(text), encoding="utf-8")


def inline(figure: Figure) -> Markup:
    """Return the figure's `<svg>` element for a page that declares `colours()`."""
    svg = figure.svg
    for name, (light, _) in PALETTE.items():
        svg = svg.replace(light, f"var(--{name})")
    opening_tag = f'<svg role="img" aria-label="{escape(figure.alt)}" '
    return Markup(opening_tag + svg.removeprefix("<svg "))


def colours(dark: bool) -> Markup:
    """Return the palette as CSS declarations."""
    return Markup("".join(f"--{name}:{colour[dark]};" for name, colour in PALETTE.items()))


def add_seal(page: str, runs: Sequence[Run], file: str) -> str:
    """Replace `PLACEHOLDER` with the seal for a page that shows `runs` and will be named `file`."""
    items = list(dict.fromkeys(entry for run in runs for entry in page_seal.audited_items(run.journal, run.store)))
    tables = [table for run in runs for table in page_seal.tables(run.journal, run.store)]
    several = len({table.run for table in tables}) > 1
    section = render(
        "seal.html",
        file=file,
        shown=Markup(page_seal.SHOWN_DIGEST.format(page_seal.ZEROS)),
        audited=[] if LISTED in page else items,
        tables=[table for table in tables if table.name in ("summary", TRIALS) or not several],
        all_tables=len(tables),
        several=several,
        element=Markup(page_seal.element([run.name for run in runs], items, tables)),
    )
    return page_seal.seal_page(encodable(page.replace(PLACEHOLDER, section)))
