"""What the neighbours of a background draw, by the model that was trained on the picture and by the other: figure 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards.audits.deja_vu.pictures import LONGEST, MODELS, picture_and_crop
from dashboards.columns import with_columns
from dashboards.gallery import Gallery, Item, Picture, Strip, encode_png, error_reason
from dashboards.run import Run
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.measures.inferences import OTHER
from tasks.audits.deja_vu.measures.reconstruction import DRAWN
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.datasets.catalog import is_embedded, load_with_boxes

EACH = 6  # pictures of each kind
TITLE = "Drawings"
KINDS = {  # by whether the target's drawing shows the true object, and the reference's
    (True, False): "Drawn rightly by the model trained on it alone",
    (False, True): "Drawn rightly by the model not trained on it alone",
    (True, True): "Drawn rightly by both models",
    (False, False): "Drawn rightly by neither model",
}
CAPTION = (
    "What is drawn from the mean embedding of the public pictures nearest to a crop, by diffusion models of either "
    "model's embeddings that begin as the same noise. What a drawing shows is said by a classifier that was trained "
    f"on public pictures alone. Of the pictures that were drawn, which chance chose, the first {EACH} of each kind."
)
Row = Mapping[str, Any]
Pair = tuple[Row, Row]  # of one picture: the target's drawing and the reference's


def reconstruction(run: Run, show_images: bool) -> Gallery | None:
    """The drawings of each kind by both models; of private data a note with the pictures' ids. None without any."""
    kinds = _group_by_kind(pairs(run.table("drawn")))
    if not kinds:
        return None
    config = run.private_config
    if not isinstance(config, DejaVu):
        changed = "The drawings cannot be shown: the audit has changed since the run was made."
        return Gallery(CAPTION, False, changed, title=TITLE)
    ids = " ".join(f"{KINDS[kind]}: {', '.join(pair[0]['id'] for pair in found)}." for kind, found in kinds.items())
    if not (show_images or is_embedded(config.data.name)):
        data = config.data.named().name
        hidden = f"Drawings of {data} show images of yours and are not shown unless asked for with --show-images"
        return Gallery(CAPTION, False, f"{hidden}. {ids}", title=TITLE)
    try:
        return Gallery(CAPTION, True, "", items=tuple(items(config, kinds)), title=TITLE)
    except (ValueError, OSError, IndexError) as error:  # DatasetError among them
        return Gallery(CAPTION, False, f"The drawings cannot be shown{error_reason(run, error)}. {ids}", title=TITLE)


@with_columns(DRAWN.names, list)
def pairs(table: pa.Table) -> list[Pair]:
    """Both models' drawings of each picture that both drew, by set and id."""
    rows = {(row["set"], row["id"], row["model"]): row for row in table.to_pylist()}
    targets = [row for (name, _, model), row in sorted(rows.items()) if name == model]
    others = [rows.get((row["set"], row["id"], OTHER[row["set"]])) for row in targets]
    return [(row, other) for row, other in zip(targets, others, strict=True) if other is not None]


def _group_by_kind(found: list[Pair]) -> dict[tuple[bool, bool], list[Pair]]:
    """The first pairs of each kind that there is."""
    kinds = {kind: [pair for pair in found if (right(pair[0]), right(pair[1])) == kind] for kind in KINDS}
    return {kind: of_kind[:EACH] for kind, of_kind in kinds.items() if of_kind}


def right(row: Row) -> bool:
    return bool(row["drawn_label"] == row["label"])


def items(config: DejaVu, kinds: Mapping[tuple[bool, bool], list[Pair]]) -> Iterator[Item]:
    """Each picture with its crop and both drawings."""
    held = load_with_boxes(config.data, config.correlation)
    side = min(config.training.augmentation.resolution, LONGEST)
    for kind, found in kinds.items():
        for pair in found:
            target = pair[0]
            title = f"{target['id']}, set {target['set']}, class {held.names[target['label']]}"
            strips = tuple(strip(row, model, held) for row, model in zip(pair, MODELS.values(), strict=True))
            yield Item(title, picture_and_crop(target["id"], held, config, side), strips, KINDS[kind])


def strip(row: Row, model: str, held: BoxedPictures) -> Strip:
    """One model's drawing. ValueError where its bytes are not those of a picture."""
    side, says = row["side"], held.names[row["drawn_label"]]
    pixels = np.frombuffer(row["drawing"], np.uint8).reshape(side, side, 3)
    how = "rightly" if right(row) else "wrongly"
    words = f"The drawing of {row['id']} by the model {model.lower()}, in which the classifier sees {says}"
    return Strip(f"{model}: it shows {says}, {how}", (Picture(encode_png(pixels), says, words),))
