"""The words and symbols of a page's science, explained before they are used."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dashboards.run import Run
from orchestrator.spec import audits

COMMON: Mapping[str, str] = {
    "nats": "the unit of natural logarithms: 0.1 more is a tenth more probable, 0.7 more twice as probable",
    "95 % interval": "a range that holds the true value in 95 of 100 such audits",
    "null": "what the estimate is where nothing is memorised",
    "p": "how often chance alone brings as much where nothing is memorised; on one side unless it says otherwise",
    "n": "the size of the sample: how many independent units the estimate is over",
}
COLUMNS = {"95 % interval": "low", "null": "null", "p": "p_value", "n": "n"}  # of the summary, headed so


def explain_symbols(run: Run) -> list[tuple[str, str]]:
    """Each symbol or word that the answer or the summary uses, with its meaning: the audit's own first."""
    rows = run.summary
    said = [str(row[name]) for row in rows for name in ("metric", "setting", "unit")]
    said += [f"{each.verdict.sentence} {each.verdict.limits_in_full}" for each in (run.cells or (run,)) if each.verdict]
    text = "\n".join(said)
    columns = {name for name, column in COLUMNS.items() if any(row.get(column) is not None for row in rows)}
    registered = audits.find_installed(run.audit)
    symbols = {} if registered is None else registered.audit.wording.symbols
    own = {name: words for name, words in symbols.items() if _occurs(name, text)}
    common = {name: words for name, words in COMMON.items() if name in columns or _occurs(name, text)}
    return [*own.items(), *(item for item in common.items() if item[0] not in own)] if rows else []


def _occurs(name: str, text: str) -> bool:
    """Whether the text uses this symbol, as a word of its own."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
