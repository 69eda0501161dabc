"""Lists of reproduced documents and of secrets that are found. For private texts, only a note is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dashboards.gallery import Gallery, Record, error_reason
from dashboards.run import Run
from tasks.audits.text.config import Text
from tasks.audits.text.given.model import given_question, questions
from tasks.audits.text.question import Documents, Identifiers, Insertions, Secrets
from tasks.audits.text.reproduced import MOST_NAMED, name_thing, rank_surest
from tasks.audits.text.secrets.models import pair_model
from tasks.audits.text.secrets.space import draw_secrets
from tasks.datasets.catalog import is_embedded, load_texts

MOST_DOCUMENTS = 12
TITLE = "Reproduced documents"
CAPTION = (
    f"Up to {MOST_DOCUMENTS} documents that trained models continue with nearly the original text, sorted by the "
    "difference from control models."
)


SECRETS_TITLE = "Secrets that are found"
SECRETS_CAPTION = f"Up to {MOST_NAMED} texts that contain a found secret or identifier, the surest first."


def examples(run: Run, show_images: bool) -> Gallery | None:
    """List reproduced documents, or secrets that are found. Returns None if there are none."""
    return documents(run, show_images) or secrets(run, show_images)


def secrets(run: Run, show_images: bool) -> Gallery | None:
    """List the secrets that are found. Unless texts are requested, write a note instead."""
    name = "secrets"
    if "format" in run.table("identifiers").column_names:
        name = "identifiers"
    found_items = []
    for index, item in enumerate(run.table(name).to_pylist()):
        if item.get("found"):
            found_items.append({**item, "index": index})
    config = run.private_config
    if not found_items or not isinstance(config, Text):
        return None
    if not show_images:
        note = f"{len(found_items):,} {name} were found. --show-texts shows their texts."
        return Gallery(SECRETS_CAPTION, False, note, title=SECRETS_TITLE)
    listed_items = sorted(found_items, key=rank_surest)[:MOST_NAMED]
    try:
        texts = _secret_texts(config, listed_items)
    except (ValueError, OSError) as error:  # includes DatasetError
        note = f"The texts cannot be shown{error_reason(run, error)}."
        return Gallery(SECRETS_CAPTION, False, note, title=SECRETS_TITLE)
    records = []
    for item, text in zip(listed_items, texts, strict=True):
        fields = (("text", text), ("rank", f"{item['rank']:,} of {item['candidates']:,}"))
        records.append(Record(name_thing(config, item), fields))
    return Gallery(SECRETS_CAPTION, True, records=tuple(records), title=SECRETS_TITLE)


def _secret_texts(config: Text, items: Sequence[dict[str, Any]]) -> list[str]:
    """Return the tested text of each item."""
    question = config.question
    if isinstance(question, Secrets):
        pairs = {item["pair"] for item in items}
        secrets_by_pair = {}
        for pair in pairs:
            secrets_by_pair[pair] = draw_secrets(pair_model(question, config.seed, pair, 0))
        return [secrets_by_pair[item["pair"]][item["secret"] - 1].text for item in items]
    candidates = questions(given_question(config))
    if isinstance(question, Identifiers):
        return [candidates[item["index"]][0] for item in items]
    return [candidates[item["secret"] - 1][0] for item in items]


def documents(run: Run, show_images: bool) -> Gallery | None:
    """List the texts if they are embedded data or requested. Otherwise, write a note with row numbers."""
    tables = (run.table("documents"), run.table("insertions"))
    table = next((candidate for candidate in tables if "near_verbatim" in candidate.column_names), None)
    if table is None:
        return None
    reproduced_rows = [row for row in table.to_pylist() if _excess(row) > 0]
    listed_rows = sorted(reproduced_rows, key=lambda row: (-_excess(row), row["row"]))[:MOST_DOCUMENTS]
    config = run.private_config
    if not listed_rows or not isinstance(config, Text) or not isinstance(config.question, Documents | Insertions):
        return None
    data = config.question.data
    if not (show_images or is_embedded(data.name)):
        row_numbers = ", ".join(str(row["row"]) for row in listed_rows)
        note = (
            f"{len(reproduced_rows):,} documents of {data.named().name} are reproduced, in rows {row_numbers}. "
            "--show-texts shows their texts."
        )
        return Gallery(CAPTION, False, note, title=TITLE)
    try:
        texts = load_texts(data, config.question.examples)
    except (ValueError, OSError) as error:  # includes DatasetError
        return Gallery(CAPTION, False, f"The texts cannot be shown{error_reason(run, error)}.", title=TITLE)
    records = []
    for row in listed_rows:
        shares = f"{row['near_verbatim']:.2f}, of control models {row['near_verbatim_control']:.2f}"
        fields = (("document", texts[row["row"]]), ("share of models that reproduce it", shares))
        records.append(Record(f"row {row['row']}, {row['repetitions']} times in the training data", fields))
    return Gallery(CAPTION, True, records=tuple(records), title=TITLE)


def _excess(row: dict[str, Any]) -> float:
    """Return the share of trained models that reproduce a document minus the share of control models that do."""
    return float((row["near_verbatim"] or 0) - (row["near_verbatim_control"] or 0))
