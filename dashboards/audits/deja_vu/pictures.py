"""Neighbours of memorised, correlated and most confident images, as in figures 6, 7, 11, 12 and 20."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing
from dashboards.audits.deja_vu.attacks import NULL
from dashboards.columns import with_columns
from dashboards.gallery import (
    Gallery,
    Item,
    Picture,
    Pixels,
    Strip,
    describe_withheld,
    encode_png,
    error_reason,
    list_groups,
)
from dashboards.run import Run
from tasks.audits.deja_vu.attack import attack
from tasks.audits.deja_vu.config import DejaVu
from tasks.datasets.boxed.crops import evaluation_pictures, windows
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.datasets.catalog import is_embedded, load_with_boxes
from tasks.datasets.dataset import DatasetError

EACH = 10  # images per kind
NEIGHBOURS = 10  # per image and model
LONGEST = 96  # pixels of an image on the page
# Colours of the box and the crop. Both are outlined in ink, so that they are visible on any photograph.
BOX = drawing.light("paper")
CROP = drawing.PALETTE["canary"][1]
TITLE = "Neighbours"
KINDS = {
    "memorised": "Most memorised: named correctly only by the model trained on the image",
    "correlated": "Most correlated: named correctly by both models",
    "confident": "Most confident, correct or wrong",
}
MODELS = {"target": "Trained on it", "reference": "Not trained on it"}
CAPTION = (
    f"Up to {EACH} images of each kind, the crop that the models see, and the nearest public images in order, by the "
    "model that was trained on the image and by the other model. Solid: the crop; dashed: the boxes around the object. "
    "A check mark: a neighbour of the image's class. Confidence: minus the entropy, in nats, of the classes of all "
    "voting neighbours; 0 if all agree. If only the model that was trained on an image finds its class, it remembers "
    "the image; single cases also occur by chance, like misrepresented images."
)
Row = Mapping[str, Any]
Layers = Sequence[Row]  # rows of one image, one per layer, the decisive layer first
Rows = Mapping[str, Sequence[Layers]]


def pictures(run: Run, show_images: bool) -> Gallery | None:
    """Show the images of each kind, or a note with the ids of private images. Returns None if there are none."""
    rows = select_pictures(run.table("retrieval"))
    if not any(rows.values()):
        return None
    config = run.private_config
    is_null = isinstance(config, DejaVu) and config.is_null
    if is_null:
        caption = CAPTION + NULL
    else:
        caption = CAPTION
    if not isinstance(config, DejaVu):
        changed = "The images cannot be shown: the audit has changed since the run."
        return Gallery(caption, False, changed, title=TITLE)
    ids_of_kinds = {}
    for kind, of_kind in rows.items():
        ids_of_kinds[kind.capitalize()] = [layers[0]["id"] for layers in of_kind]
    ids = list_groups(ids_of_kinds)
    if not (show_images or is_embedded(config.data.name)):
        hidden = describe_withheld(f"Images of {config.data.named().name}")
        return Gallery(caption, False, f"{hidden} {ids}", title=TITLE)
    try:
        return Gallery(caption, True, "", items=tuple(items(config, rows)), title=TITLE)
    except (ValueError, OSError, IndexError) as error:  # includes DatasetError
        return Gallery(caption, False, f"The images cannot be shown{error_reason(run, error)}. {ids}", title=TITLE)


@with_columns(("kind", "scope", "rank"), dict)
def select_pictures(table: pa.Table) -> dict[str, list[Layers]]:
    """Select the first images of each kind over all classes, by layer."""
    listed_rows = []
    for row in table.to_pylist():
        if row["scope"] == "all" and row["rank"] <= EACH:
            listed_rows.append(row)
    images_by_kind: dict[str, list[Layers]] = {}
    for kind in KINDS:
        rows = sorted((row for row in listed_rows if row["kind"] == kind), key=_rank_key)
        if rows:
            images_by_kind[kind] = [list(layers) for _, layers in groupby(rows, _rank_key)]
    return images_by_kind


def _rank_key(row: Row) -> int:
    return int(row["rank"])


def items(config: DejaVu, rows: Rows) -> Iterator[Item]:
    """Yield each image together with the crop and the neighbours."""
    data = load_with_boxes(config.data, config.correlation)
    side = min(config.training.augmentation.resolution, LONGEST)
    for kind, of_kind in rows.items():
        for layers in of_kind:
            yield item(layers, data, config, side, KINDS[kind])


def item(layers: Layers, data: BoxedPictures, config: DejaVu, side: int, group: str) -> Item:
    """Return an image and the neighbours at each layer. Layers are named if there are several."""
    row = layers[0]
    strips = tuple(
        strip(row_of_layer, model, data, side, f", layer {row_of_layer['layer']}" if len(layers) > 1 else "")
        for row_of_layer in layers
        for model in MODELS
    )
    title = f"{row['rank']}. {row['id']}, set {row['set']}, class {row['class']}"
    return Item(title, picture_and_crop(row["id"], data, config, side), strips, group)


def picture_and_crop(id_: str, data: BoxedPictures, config: DejaVu, side: int) -> tuple[Picture, Picture]:
    """Return the image with boxes and crop outlined, and the crop itself."""
    (row,) = _row_indices([id_], data)
    crops = attack(config)
    rectangle, _ = windows(data, np.array([row]), crops.crop, crops.smallest, crops.corner_share)
    (crop,) = evaluation_pictures(data, np.array([row]), side, rectangle)
    outlined = draw_outlines(data.picture(int(row)), data.boxes[int(row)].tolist(), rectangle[0].tolist())
    about = f"{id_}, class {data.names[data.labels[row]]}"
    return (
        Picture(encode_png(outlined), "image", f"{about}, whole, with outlined boxes and crop"),
        Picture(encode_png(crop), "crop", f"The crop of {about}, as the models see it"),
    )


def strip(row: Row, model: str, data: BoxedPictures, side: int, layer: str) -> Strip:
    """Return the neighbours found by one of the models at one layer."""
    ids, classes = (row[f"{model}_{name}"][:NEIGHBOURS] for name in ("neighbours", "neighbour_classes"))
    images = evaluation_pictures(data, _row_indices(ids, data), side)
    model_and_layer = f"{MODELS[model].lower()}{layer}"
    pictures = tuple(
        Picture(
            encode_png(image),
            f"✓ {name}" if name == row["class"] else name,
            f"Neighbour {rank} of {row['id']} by the model {model_and_layer}: {id_}, class {name}",
        )
        for rank, (image, id_, name) in enumerate(zip(images, ids, classes, strict=True), start=1)
    )
    votes = row[f"{model}_class"]
    confidence = drawing.format_number(row[f"{model}_confidence"])
    judgement = "wrongly"
    if votes == row["class"]:
        judgement = "correctly"
    return Strip(f"{MODELS[model]}{layer}: they vote for {votes}, {judgement}, with confidence {confidence}", pictures)


def _row_indices(ids: Sequence[str], data: BoxedPictures) -> NDArray[np.int64]:
    """Return the row numbers of these images. Raises DatasetError if one is unknown."""
    rows = [bisect_left(data.ids, id_) for id_ in ids]
    absent = []
    for id_, row in zip(ids, rows, strict=True):
        if data.ids[row : row + 1] != (id_,):
            absent.append(id_)
    if absent:
        raise DatasetError(f"{absent[0]} is not among the {len(data.ids):,} images of the data set")
    return np.array(rows, np.int64)


def draw_outlines(picture: Pixels, boxes: Sequence[Sequence[int]], crop: Sequence[int]) -> Pixels:
    """Draw dashed boxes and a solid crop on the whole image at display size."""
    from PIL import Image, ImageDraw

    height, width = picture.shape[:2]
    longest = max(height, width)
    if longest <= LONGEST:
        scale = LONGEST // longest
    else:
        scale = LONGEST / longest
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    if scale >= 1:
        how = Image.Resampling.NEAREST
    else:
        how = Image.Resampling.LANCZOS
    image = Image.fromarray(np.ascontiguousarray(picture)).resize(size, how)
    pen = ImageDraw.Draw(image)
    for box in boxes:
        for line in edges(box, scale, size):
            pen.line(line, drawing.light("ink"), 1)
            for dash in dashes(line):
                pen.line(dash, BOX, 1)
    for line in edges(crop, scale, size, 1):
        pen.line(line, drawing.light("ink"), 1)
    for line in edges(crop, scale, size):
        pen.line(line, CROP, 1)
    return np.asarray(image)


Line = tuple[int, int, int, int]  # start x, y and end x, y


def edges(box: Sequence[int], scale: float, size: tuple[int, int], inwards: int = 0) -> list[Line]:
    """Return a rectangle's four edges in display pixels, clipped to the image and moved inwards by `inwards`."""
    ends = np.array(box) * scale - (0, 0, 1, 1) + np.array((1, 1, -1, -1)) * inwards
    left, top, right, bottom = np.clip(np.rint(ends).astype(int), 0, np.array([*size, *size]) - 1).tolist()
    return [
        (left, top, right, top),
        (right, top, right, bottom),
        (left, bottom, right, bottom),
        (left, top, left, bottom),
    ]


def dashes(line: Line) -> Iterator[Line]:
    """Split a vertical or horizontal line into dashes with gaps of equal length."""
    long = 3
    x, y, to_x, to_y = line
    for start in range(0, max(to_x - x, to_y - y) + 1, 2 * long):
        on = start + long - 1
        yield min(x + start, to_x), min(y + start, to_y), min(x + on, to_x), min(y + on, to_y)
