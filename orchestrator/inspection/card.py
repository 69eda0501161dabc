"""Parts of a model card from an audit: the YAML block that model hubs read, and a section of text.

The block is Hugging Face's `model-index`. For each answer it contains the effect (the number that compares runs), the
value expected without memorisation, the p-value, and the SHA-256 of the report file, which identifies the report.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from orchestrator import rounding
from orchestrator.errors import EngramError
from orchestrator.headlines import format_headline
from orchestrator.inspection import answers, page_seal, results
from orchestrator.inspection.disclosure import Disclosure, typed_config
from orchestrator.inspection.search_results import is_search
from orchestrator.quantities import printable
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits
from orchestrator.store import Store
from orchestrator.store.regular_file import regular_bytes
from tasks.contract.verdict import Verdict
from tasks.datasets.dataset import Dataset

TASK = "memorization-audit"
NUMBERS = {
    "low": "low",
    "high": "high",
    "null": "null",
    "p": "p_value",
    "n": "n",
    "unit": "unit",
}  # argument name -> summary column


@dataclass(frozen=True)
class CardEntry:
    """A run, its answer, and the summary row that compares runs.

    If the summary lacks this row, `row` is the first row that supports the answer and `effect` is empty.
    """

    run: Journal
    verdict: Verdict
    row: answers.Row
    effect: str


def model_card(journal: Journal, store: Store, page: Path) -> str:
    """Return the YAML block and the text section for a run, or for a sweep's cells, whose report is this page.

    The user's own words and folders are withheld, as on a public page. Raises EngramError if no answer has a number
    yet.
    """
    public_journal = Disclosure().journal(journal.folder)
    about = public_journal.about()
    if is_search(about):
        raise EngramError(f"{journal.run} is a search; a card describes one audit: name the run of one of its trials")
    entries = [entry for run in public_journal.parts() if (entry := _entry(run, store)) is not None]
    if not entries:
        raise EngramError(
            f"run {journal.run} has no answer with a number yet; engram resume {journal.run} continues it"
        )
    digest = hashlib.sha256(regular_bytes(page)).hexdigest()
    index = [{"name": _model(entries[0].run), "results": [_result(entry, digest) for entry in entries]}]
    block = yaml.safe_dump({"model-index": index}, sort_keys=False, allow_unicode=True, width=10_000)
    return f"---\n{block}---\n\n{_section(audits.find(about['audit']).question, entries, digest)}"


def _entry(run: Journal, store: Store) -> CardEntry | None:
    verdict = results.answer(run, store)
    if verdict is None:
        return None
    headline = results.headline(run, store)
    if headline is not None:
        return CardEntry(run, verdict, headline.row, format_headline(headline))
    rows = answers.supporting_rows(verdict, results.summary(run, store).table.to_pylist())
    if rows:
        return CardEntry(run, verdict, rows[0], "")
    return None


def _result(entry: CardEntry, digest: str) -> dict[str, Any]:
    about = entry.run.about()
    row = entry.row
    numbers = {}
    for name, column in NUMBERS.items():
        if row[column] is not None:
            numbers[name] = row[column]
    return {
        "task": {"type": TASK, "name": audits.find(about["audit"]).question},
        "dataset": {"type": "audited", "name": _data(entry.run)},
        "metrics": [
            {
                "type": f"{about['audit']} {row['metric']}",
                "name": answers.row_name(row),
                "value": row["estimate"],
                "args": {
                    "answer": entry.verdict.answer,
                    **({"effect": entry.effect} if entry.effect else {}),
                    **numbers,
                    "setting": rounding.parse_setting(row["setting"]) or {},
                    "run": entry.run.run,
                    "report_sha256": digest,
                },
            }
        ],
    }


def _section(question: str, entries: Sequence[CardEntry], digest: str) -> str:
    head = ("run", "effect", "answer", *answers.HEAD)
    lines = [
        "## Memorisation audit",
        "",
        f"{question[:1].upper()}{question[1:]}",
        "",
        _line(head),
        "|---" * len(head) + "|",
    ]
    for entry in entries:
        lines.append(_line((entry.run.run, entry.effect, entry.verdict.answer, *answers.row_cells(entry.row))))
    for entry in entries:
        lines += ["", f"{entry.run.run}: {printable(entry.verdict.sentence)} {printable(entry.verdict.limits_in_full)}"]
    return "\n".join([*lines, "", f"SHA-256 of the report: `{digest}`", ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(printable(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _model(run: Journal) -> str:
    """Describe in a few words what was audited. Returns the audit's name if it declares no subject."""
    about: Mapping[str, Any] = run.about()
    subject = audits.find(about["audit"]).audit.wording.subject
    config = typed_config(about)
    if subject is None or config is None:
        return str(about["audit"])
    return subject(config)


def _data(run: Journal) -> str:
    """Return the name, without folders, of the data set in the run's configuration, or else the name of the audit."""
    names = (
        page_seal.public_name(pinned_item)
        for _, pinned_item in page_seal.pinned_items(run)
        if isinstance(pinned_item, Dataset)
    )
    return next(names, str(run.about()["audit"]))
