"""The documents that come out, with where a model takes over; of private texts their rows alone."""

from __future__ import annotations

from dashboards.gallery import Gallery, Record, error_reason
from dashboards.run import Run
from tasks.audits.text.config import Text
from tasks.datasets.catalog import is_embedded, load_texts

EACH = 12  # documents
TITLE = "Documents that come out"
CAPTION = (
    f"Up to {EACH} documents whose next tokens models write that were trained on them, those first that come out most "
    "often beyond models that never saw them."
)


def examples(run: Run, show_images: bool) -> Gallery | None:
    """The texts of embedded data, and of one's own where texts are asked for; else a note with their rows."""
    tables = (run.table("documents"), run.table("insertions"))
    table = next((each for each in tables if "near" in each.column_names), None)
    if table is None:
        return None
    known = [row for row in table.to_pylist() if (row["near"] or 0) > (row["near_twin"] or 0)]
    chosen = sorted(known, key=lambda row: (row["near_twin"] - row["near"], row["row"]))[:EACH]
    config = run.private_config
    if not chosen or not isinstance(config, Text):
        return None
    if not (show_images or is_embedded(config.data.name)):
        rows = ", ".join(str(row["row"]) for row in chosen)
        yours = (
            f"Texts of {config.data.named().name} are yours and are not shown unless asked for with --show-texts. "
            f"{len(known):,} documents come out: rows {rows}."
        )
        return Gallery(CAPTION, False, yours, title=TITLE)
    try:
        texts = load_texts(config.data, config.examples)
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
