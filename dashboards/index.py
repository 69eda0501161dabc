"""The page of a store: all runs, sortable and filterable, and links to the pages of its models and data sets.

Its only script sorts and filters the table. The page allows no other script, so text on it cannot run one.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from dashboards import document, item_page, run_rows
from orchestrator.inspection import item_history, status
from orchestrator.inspection.pages import INDEX, ITEMS
from orchestrator.store import Store

SCRIPT = (document.TEMPLATES / "index.js").read_text(encoding="utf-8")
DIGEST = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()


def draw(store: Store, root: Path, runs: Sequence[str] | None) -> None:
    """Write the page to this folder, and the pages of all models and data sets that these runs examined.

    `runs` is None for all runs. Raises OSError if a file cannot be written.
    """
    history = item_history.read_history(store)
    rows = run_rows.read_rows(store, status.overview(store))
    for item in history.items.values():
        if runs is None or not set(runs).isdisjoint(item.runs):
            item_page.draw_item(store, history, rows, item, root)
    rows.reverse()
    items = []
    for item in history.items.values():
        if (root / ITEMS / item.page).is_file():
            items.append((item, f"{ITEMS}/{item.page}"))
    page = document.render(
        "index.html",
        rows=rows,
        drawings=run_rows.draw_effects(rows),
        items=items,
        counts=run_rows.count_words(rows),
        states=list(dict.fromkeys(row.status.state for row in rows)),
        audits=sorted({row.status.audit for row in rows if row.status.audit}),
        name=root.name,
        script=Markup(SCRIPT),
        script_digest=DIGEST,
    )
    document.write(root / INDEX, page)
