"""Small trees in ImageNet's layout, with real JPEGs and annotations."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np

FISH = "n01440764"
SHARK = "n01484850"
# By class: the numbers of its images, and the numbers of the images with a file of boxes.
TRAIN = {FISH: (range(10), range(6)), SHARK: (range(100, 112), range(104, 109))}
VAL = {1: SHARK, 2: FISH, 3: SHARK, 4: FISH}


def picture(number: int) -> np.ndarray:
    """(h, w, 3), with a size that depends on the number: smooth, so that a JPEG nearly preserves it."""
    height = 40 + number % 7
    width = 50 + number % 5
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows * 5, columns * 4, np.full_like(rows, 2 * number)], axis=2).astype(np.uint8)


def jpeg(pixels: np.ndarray, mode: str = "RGB", kind: str = "JPEG", **options: object) -> bytes:
    from PIL import Image

    out = BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, kind, **options)
    return out.getvalue()


def xml(name: str, boxes: Sequence[Sequence[int]], size: tuple[int, int]) -> str:
    """An annotation as in the release: boxes of xmin, ymin, xmax, ymax, and the size as height and width."""
    objects = "".join(
        f"\n\t<object>\n\t\t<name>{name}</name>\n\t\t<pose>Unspecified</pose>\n\t\t<truncated>0</truncated>"
        f"\n\t\t<difficult>0</difficult>\n\t\t<bndbox>\n\t\t\t<xmin>{box[0]}</xmin>\n\t\t\t<ymin>{box[1]}</ymin>"
        f"\n\t\t\t<xmax>{box[2]}</xmax>\n\t\t\t<ymax>{box[3]}</ymax>\n\t\t</bndbox>\n\t</object>"
        for box in boxes
    )
    return (
        f"<annotation>\n\t<folder>{name}</folder>\n\t<filename>{name}_1</filename>\n\t<source>\n\t\t<database>"
        f"ILSVRC_2012</database>\n\t</source>\n\t<size>\n\t\t<width>{size[1]}</width>\n\t\t<height>{size[0]}</height>"
        f"\n\t\t<depth>3</depth>\n\t</size>\n\t<segmented>0</segmented>{objects}\n</annotation>\n"
    )


def box(number: int) -> list[int]:
    return [number % 9, 5, 20 + number % 9, 30]


def saved(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def imagenet(folder: Path, train: str = "train", annotations: str = "Annotation/{0}") -> Path:
    """Write the training images and their boxes; {0} stands for the class."""
    for name, (numbers, boxed) in TRAIN.items():
        for number in numbers:
            saved(folder / train / name / f"{name}_{number}.JPEG", jpeg(picture(number)))
        for number in boxed:
            size = picture(number).shape[:2]
            saved(folder / annotations.format(name) / f"{name}_{number}.xml", xml(name, [box(number)], size))
    return folder


def validation(folder: Path, val: str = "val/{0}") -> None:
    """Write the validation images; {0} stands for the class."""
    for number, name in VAL.items():
        path = folder / val.format(name) / f"ILSVRC2012_val_{number:08d}.JPEG"
        saved(path, jpeg(picture(number)[::-1]))  # of the size of the annotations, and no copy of another image
