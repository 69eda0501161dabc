"""Pages as files: rendered from a template with all values escaped, and written atomically."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dashboards import glyph, inline, numbers, signs
from orchestrator.quantities import format_count
from orchestrator.store.provenance import versions

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **context: Any) -> str:
    """The rendered template. Values are escaped unless they are markup."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
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
        "size": numbers.size,
        "counted": format_count,
        "sample": numbers.sample,
        "short": numbers.short,
        "glyph": glyph.glyph,
        "base64": lambda data: base64.b64encode(data).decode(),
    }
    environment.globals |= {
        "zip": zip,
        "badge_of": signs.badge,
        "glyph": glyph.glyph,
        "light": inline.colours(False),
        "dark": inline.colours(True),
    }
    version = versions().get("engram-audit", "of no known version")
    return environment.get_template(template).render(version=version, **context)


def write(path: Path, text: str) -> None:
    """Write the file atomically; OSError if it cannot be written."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
