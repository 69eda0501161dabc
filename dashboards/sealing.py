"""The seal of a page, put into it once all else is drawn."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from dashboards import document
from dashboards.run import Run
from orchestrator.inspection import page_seal
from orchestrator.inspection.search_results import TRIALS

PLACEHOLDER = "<!--seal-->"  # in a template; texts of others are escaped and cannot hold it
LISTED = 'id="audited"'  # of the list of what was audited, where the page has one before


def add_seal(page: str, runs: Sequence[Run], file: str) -> str:
    """The page with its seal at `PLACE`. It shows `runs`, and will be written under the name `file`."""
    named = list(dict.fromkeys(entry for run in runs for entry in page_seal.audited_items(run.journal, run.store)))
    tables = [table for run in runs for table in page_seal.tables(run.journal, run.store)]
    several = len({table.run for table in tables}) > 1
    section = document.render(
        "seal.html",
        file=file,
        shown=Markup(page_seal.SHOWN.format(page_seal.ZEROS)),
        audited=[] if LISTED in page else named,
        tables=[table for table in tables if table.name in ("summary", TRIALS) or not several],
        all_tables=len(tables),
        several=several,
        element=Markup(page_seal.element([run.name for run in runs], named, tables)),
    )
    return page_seal.seal_page(page.replace(PLACEHOLDER, section))
