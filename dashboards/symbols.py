"""Explains the technical words and symbols on a page before they are used."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dashboards.run import Run
from orchestrator.spec import audits
from tasks.contract.looks import INTERVAL

INTERVAL_MEANING = "contains the true value in 95 of 100 such audits"
COMMON: Mapping[str, str] = {
    "nats": "the unit of natural logarithms: 0.1 more is 1.1 times the probability, 0.7 more is twice the probability",
    INTERVAL: f"a range that {INTERVAL_MEANING}",
    "null": "the value that the estimate would have without memorisation",
    "p": "the probability of an equal or larger value without memorisation; one-sided unless stated otherwise",
    "n": "the sample size: the number of independent units of the estimate",
}
COLUMNS = {INTERVAL: "low", "null": "null", "p": "p_value", "n": "n"}  # heading -> summary column


def explain_symbols(run: Run) -> list[tuple[str, str]]:
    """Return the meanings of the symbols and words in the answer and summary. The audit's own come first."""
    rows = run.summary
    texts = [str(row[name]) for row in rows for name in ("metric", "setting", "unit")]
    texts += [
        f"{described_run.verdict.sentence} {described_run.verdict.limits_in_full}"
        for described_run in (run.cells or (run,))
        if described_run.verdict
    ]
    text = "\n".join(texts)
    columns = set()
    for name, column in COLUMNS.items():
        if any(row.get(column) is not None for row in rows):
            columns.add(name)
    registered = audits.find_installed(run.audit)
    symbols = {} if registered is None else registered.audit.wording.symbols
    own_symbols = {}
    for name, words in symbols.items():
        if _occurs(name, text):
            own_symbols[name] = words
    common = {}
    for name, words in COMMON.items():
        if name in columns or _occurs(name, text):
            common[name] = words
    return [*own_symbols.items(), *(item for item in common.items() if item[0] not in own_symbols)] if rows else []


def _occurs(name: str, text: str) -> bool:
    """Whether the text contains this symbol as a separate word."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
