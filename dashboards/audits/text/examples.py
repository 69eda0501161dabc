"""The documents that come out, and the secrets that are found; of private texts, and of secrets, a note alone."""

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

EACH = 12  # documents
TITLE = "Documents that come out"
CAPTION = (
    f"Up to {EACH} documents whose next tokens models write that were trained on them, those first that come out most "
    "often beyond models that never saw them."
)


SECRETS_TITLE = "Secrets that are found"
SECRETS_CAPTION = f"Up to {MOST_NAMED} texts with a secret, or an identifier, that is found, the surest first."


def examples(run: Run, show_images: bool) -> Gallery | None:
    """The documents that come out, or the secrets that are found; None where there are none of either."""
    return documents(run, show_images) or secrets(run, show_images)


def secrets(run: Run, show_images: bool) -> Gallery | None:
    """The texts of what is found where texts are asked for; else a note. Their numbers are on the certificate."""
    name = "identifiers" if "format" in run.table("identifiers").column_names else "secrets"
    ranked = [{**each, "at": at} for at, each in enumerate(run.table(name).to_pylist()) if each.get("found")]
    config = run.private_config
    if not ranked or not isinstance(config, Text):
        return None
    if not show_images:
        note = f"{len(ranked):,} {name} are found, whose texts are not shown unless asked for with --show-texts."
        return Gallery(SECRETS_CAPTION, False, note, title=SECRETS_TITLE)
    chosen = sorted(ranked, key=rank_surest)[:MOST_NAMED]
    try:
        texts = _secret_texts(config, chosen)
    except (ValueError, OSError) as error:  # DatasetError among them
        note = f"They cannot be shown{error_reason(run, error)}."
        return Gallery(SECRETS_CAPTION, False, note, title=SECRETS_TITLE)
    shown = tuple(
        Record(
            name_thing(config, each),
            (("text", text), ("rank", f"{each['rank']:,} of {each['candidates']:,}")),
        )
        for each, text in zip(chosen, texts, strict=True)
    )
    return Gallery(SECRETS_CAPTION, True, records=shown, title=SECRETS_TITLE)


def _secret_texts(config: Text, chosen: Sequence[dict[str, Any]]) -> list[str]:
    """The text that each of the chosen was asked about with."""
    question = config.question
    if isinstance(question, Secrets):
        pairs = {each["pair"] for each in chosen}
        drawn = {pair: draw_secrets(pair_model(question, config.seed, pair, 0)) for pair in pairs}
        return [drawn[each["pair"]][each["secret"] - 1].text for each in chosen]
    asked = questions(given_question(config))
    places = [each["at"] if isinstance(question, Identifiers) else each["secret"] - 1 for each in chosen]
    return [asked[place][0] for place in places]


def documents(run: Run, show_images: bool) -> Gallery | None:
    """The texts of embedded data, and of one's own where texts are asked for; else a note with their rows."""
    tables = (run.table("documents"), run.table("insertions"))
    table = next((each for each in tables if "near" in each.column_names), None)
    if table is None:
        return None
    known = [row for row in table.to_pylist() if (row["near"] or 0) > (row["near_twin"] or 0)]
    chosen = sorted(known, key=lambda row: (row["near_twin"] - row["near"], row["row"]))[:EACH]
    config = run.private_config
    if not chosen or not isinstance(config, Text) or not isinstance(config.question, Documents | Insertions):
        return None
    data = config.question.data
    if not (show_images or is_embedded(data.name)):
        rows = ", ".join(str(row["row"]) for row in chosen)
        yours = (
            f"Texts of {data.named().name} are yours and are not shown unless asked for with --show-texts. "
            f"{len(known):,} documents come out: rows {rows}."
        )
        return Gallery(CAPTION, False, yours, title=TITLE)
    try:
        texts = load_texts(data, config.question.examples)
    except (ValueError, OSError) as error:  # DatasetError among them
        return Gallery(CAPTION, False, f"They cannot be shown{error_reason(run, error)}.", title=TITLE)
    shown = tuple(
        Record(
            f"row {row['row']}, {row['repetitions']} times in the training data",
            (
                ("document", texts[row["row"]]),
                (
                    "share of models that write it",
                    f"{row['near']:.2f}, of the others {row['near_twin']:.2f}",
                ),
            ),
        )
        for row in chosen
    )
    return Gallery(CAPTION, True, records=shown, title=TITLE)
