"""Reconstructions by both models from the neighbours of a background, as in figure 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards.audits.deja_vu.pictures import LONGEST, MODELS, picture_and_crop
from dashboards.columns import with_columns
from dashboards.gallery import Gallery, Item, Picture, Strip, describe_withheld, encode_png, error_reason, list_groups
from dashboards.run import Run
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.measures.inferences import OTHER
from tasks.audits.deja_vu.measures.reconstruction import DRAWN
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.datasets.catalog import is_embedded, load_with_boxes

EACH = 6  # images per kind
TITLE = "Reconstructions"
KINDS = {  # keyed by whether the target's and the reference's reconstructions are correct
    (True, False): "Correct only by the model trained on the image",
    (False, True): "Correct only by the model not trained on the image",
    (True, True): "Correct by both models",
    (False, False): "Correct by neither model",
}
CAPTION = (
    "Reconstructions from the mean embedding of the public images nearest to a crop, by diffusion models of both "
    "models' embeddings, from the same noise. A classifier that was trained only on public images names the object. "
    f"The first {EACH} of each kind among randomly chosen images."
)
Row = Mapping[str, Any]
Pair = tuple[Row, Row]  # the target's and the reference's reconstruction of one image


def reconstruction(run: Run, show_images: bool) -> Gallery | None:
    """Show both models' reconstructions of each kind, or a note with the ids of private images.

    Returns None if there are none.
    """
    kinds = _group_by_kind(pairs(run.table("drawn")))
    if not kinds:
        return None
    config = run.private_config
    if not isinstance(config, DejaVu):
        changed = "The reconstructions cannot be shown: the audit has changed since the run."
        return Gallery(CAPTION, False, changed, title=TITLE)
    ids_of_kinds = {}
    for kind, pairs_of_kind in kinds.items():
        ids_of_kinds[KINDS[kind]] = [pair[0]["id"] for pair in pairs_of_kind]
    ids = list_groups(ids_of_kinds)
    if not (show_images or is_embedded(config.data.name)):
        hidden = describe_withheld(f"Reconstructions of {config.data.named().name}")
        return Gallery(CAPTION, False, f"{hidden} {ids}", title=TITLE)
    try:
        return Gallery(CAPTION, True, "", items=tuple(items(config, kinds)), title=TITLE)
    except (ValueError, OSError, IndexError) as error:  # includes DatasetError
        return Gallery(
            CAPTION, False, f"The reconstructions cannot be shown{error_reason(run, error)}. {ids}", title=TITLE
        )


@with_columns(DRAWN.names, list)
def pairs(table: pa.Table) -> list[Pair]:
    """Return both models' reconstructions of each image, by set and id."""
    rows = {(row["set"], row["id"], row["model"]): row for row in table.to_pylist()}
    targets = [row for (name, _, model), row in sorted(rows.items()) if name == model]
    references = []
    for row in targets:
        references.append(rows.get((row["set"], row["id"], OTHER[row["set"]])))
    result = []
    for row, reference in zip(targets, references, strict=True):
        if reference is not None:
            result.append((row, reference))
    return result


def _group_by_kind(all_pairs: list[Pair]) -> dict[tuple[bool, bool], list[Pair]]:
    """Return the first pairs of each kind that occurs."""
    kinds = {}
    for kind in KINDS:
        of_kind = []
        for pair in all_pairs:
            if (is_correct(pair[0]), is_correct(pair[1])) == kind:
                of_kind.append(pair)
        if of_kind:
            kinds[kind] = of_kind[:EACH]
    return kinds


def is_correct(row: Row) -> bool:
    return bool(row["drawn_label"] == row["label"])


def items(config: DejaVu, kinds: Mapping[tuple[bool, bool], list[Pair]]) -> Iterator[Item]:
    """Yield each image together with the crop and both reconstructions."""
    data = load_with_boxes(config.data, config.correlation)
    side = min(config.training.augmentation.resolution, LONGEST)
    for kind, pairs_of_kind in kinds.items():
        for pair in pairs_of_kind:
            target = pair[0]
            title = f"{target['id']}, set {target['set']}, class {data.names[target['label']]}"
            strips = tuple(strip(row, model, data) for row, model in zip(pair, MODELS.values(), strict=True))
            yield Item(title, picture_and_crop(target["id"], data, config, side), strips, KINDS[kind])


def strip(row: Row, model: str, data: BoxedPictures) -> Strip:
    """Return one model's reconstruction. Raises ValueError if its bytes are not an image."""
    side = row["side"]
    predicted_class = data.names[row["drawn_label"]]
    pixels = np.frombuffer(row["drawing"], np.uint8).reshape(side, side, 3)
    judgement = "wrongly"
    if is_correct(row):
        judgement = "correctly"
    words = f"The reconstruction of {row['id']} by the model {model.lower()}, classified as {predicted_class}"
    return Strip(
        f"{model}: classified as {predicted_class}, {judgement}", (Picture(encode_png(pixels), predicted_class, words),)
    )
