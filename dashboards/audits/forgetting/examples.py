"""One image per class from each part of the data, as in figure 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dashboards.gallery import Gallery, Picture, describe_withheld, encode_png, error_reason
from dashboards.run import Run
from tasks.audits.forgetting.config import Forgetting
from tasks.datasets.catalog import is_embedded, load
from tasks.datasets.mixtures import Part
from tasks.datasets.picture_rows import one_image

PARTS = {"query": "Query set", "calibration": "Calibration set", "outside": "Out of domain"}
CAPTION = "An image of each class, drawn at random, from each part of the data."

Row = Mapping[str, Any]


def pictures(run: Run, show_images: bool) -> Gallery | None:
    """Show the examples by part and class. For private parts, only row numbers are shown."""
    examples = run.table("examples").to_pylist()
    if not examples:
        return None
    config = run.private_config
    if not isinstance(config, Forgetting):
        return Gallery(CAPTION, False, "The images cannot be drawn: the audit has changed since the run was made.")
    parts = dict(zip(PARTS, config.parts, strict=False))
    hidden = []
    for name, part in parts.items():
        if not (show_images or is_embedded(part.data.name)):
            hidden.append(name)
    note = " ".join(_withheld_note(name, parts[name], examples) for name in hidden)
    try:
        images = tuple(
            picture
            for name, part in parts.items()
            if name not in hidden
            for picture in _part_pictures(name, part, examples)
        )
    except (ValueError, OSError, IndexError) as error:  # includes DatasetError
        return Gallery(CAPTION, False, f"The images cannot be drawn{error_reason(run, error)}.")
    return Gallery(CAPTION, bool(images), note, images)


def _withheld_note(name: str, part: Part, examples: list[Row]) -> str:
    rows = ", ".join(str(row["row"]) for row in examples if row["part"] == name)
    note = describe_withheld(f"Images of {part.data.named().name}")
    return f"{PARTS[name]}: {note} Their rows, class by class: {rows}."


def _part_pictures(name: str, part: Part, examples: list[Row]) -> Iterator[Picture]:
    """Yield the examples from one part, sorted by class."""
    images = load(part.data)
    for row in sorted((row for row in examples if row["part"] == name), key=lambda row: row["label"]):
        title = f"{row['name'] or row['label']}, {_format_class_size(row)}, row {row['row']}"
        png = encode_png(one_image(images.train, row["row"]))
        yield Picture(png, title, f"{PARTS[name]}, {title}", f"{PARTS[name]}: {part.data.named().name}")


def _format_class_size(row: Row) -> str:
    """Format the number of images in the class, and the number of groups if images are grouped."""
    images = row["images"]
    groups = row["groups"]
    count = f"{images:,} image{'s' * (images != 1)}"
    if groups == images:
        return count
    return f"{count} in {groups:,} group{'s' * (groups != 1)}"
