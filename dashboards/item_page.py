"""The page of a model or data set: everything that the runs of a store asked of it, favourable or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dashboards import document, run_rows
from orchestrator.inspection import item_history, page_seal, status
from orchestrator.inspection.item_history import History, Item
from orchestrator.inspection.pages import ITEMS
from orchestrator.quantities import encodable, format_count
from orchestrator.spec import audits
from orchestrator.store import Store

SHOWN = 5  # names of runs in a notice


def draw(store: Store, digest: str, root: Path) -> None:
    """Write the page of the item with this digest below the folder. Raises OSError if it cannot be written."""
    history = item_history.read_history(store)
    draw_item(store, history, run_rows.read_rows(store, status.overview(store)), history.items[digest], root)


def draw_item(store: Store, history: History, all_rows: Sequence[run_rows.RunRow], item: Item, root: Path) -> None:
    """Write the page of an item below the folder `root`, given the history and the rows of all runs."""
    rows = [row for row in all_rows if row.status.run in item.runs]
    entry = item_history.audited_item(item, store)
    path = root / ITEMS / item.page
    page = document.render(
        "item.html",
        item=item,
        rows=rows,
        drawings=run_rows.draw_effects(rows),
        counts=run_rows.count_words(rows),
        notices=list(_notices(history, rows)),
        questions=_questions(rows),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    document.write(path, _add_seal(page, store, item, entry, path.name))


def _add_seal(page: str, store: Store, item: Item, entry: Any, file: str) -> str:
    tables = item_history.summaries(item, store)
    section = document.render(
        "seal.html",
        file=file,
        shown=Markup(page_seal.SHOWN_DIGEST.format(page_seal.ZEROS)),
        audited=[entry],
        tables=tables,
        all_tables=len(tables),
        several=True,
        element=Markup(page_seal.element(item.runs, [entry], tables, item.digest)),
    )
    return page_seal.seal_page(encodable(page.replace(document.PLACEHOLDER, section)))


def _questions(rows: Sequence[run_rows.RunRow]) -> dict[str, str]:
    """Return the questions of the audits that have a row."""
    questions = {}
    for name in _audits(rows):
        registered = audits.find_installed(name)
        questions[name] = "This audit is not installed." if registered is None else registered.question
    return questions


def _audits(rows: Sequence[run_rows.RunRow]) -> list[str]:
    """Return the audits of these runs. A run whose plan is damaged has none."""
    return sorted({row.status.audit for row in rows} - {""})


def _notices(history: History, rows: Sequence[run_rows.RunRow]) -> Iterator[str]:
    """Yield notices about runs that the page may lack: unreadable and removed ones."""
    if history.unreadable:
        yield (
            f"The folders of {format_count(len(history.unreadable), 'run')} cannot be read, so this page may lack "
            f"runs: {_list(history.unreadable)}."
        )
    if history.absent:
        yield (
            f"{format_count(len(history.absent), 'run')} of sweeps and searches have no folder, so this page may lack "
            f"runs: {_list([f'{run} of {whole}' for run, whole in history.absent.items()])}."
        )
    for audit in _audits(rows):
        looks = [row.status.look["number"] for row in rows if row.status.audit == audit and row.status.look]
        answered = sum(1 for row in rows if row.status.audit == audit and row.status.look)
        if looks and max(looks) > answered:
            yield (
                f"A run of {audit} was look {max(looks)} at its question, but this page has only {answered} answered "
                f"{format_count(answered, 'run').partition(' ')[2]} of this audit: earlier runs examined another model "
                "or data set, or their folders were removed."
            )


def _list(names: Sequence[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
