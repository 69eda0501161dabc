"""Pictures for an encoder's owner, who embeds them and sends back a table of the embeddings.

README.txt          what the owner does, and what comes back
NAME/000000.png     a set's pictures, losslessly; their ids are these paths
images.csv          image, set, row: written last, so that a folder without it is known to be half written

There may be more pictures than fit in memory: they are written as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Pixels
from tasks.external.handout import (
    ASIDE,
    IMAGES,
    README,
    SCHEMA,
    check_names,
    image_of,
    indent_script,
    png,
    put,
)

TEXT = """\
Pictures for your encoder
=========================

We would like to know how your encoder embeds these pictures. The encoder stays with you: all we need is a table.

What to do
----------
1. Take the pictures that images.csv lists (column "image" is each one's path in this folder).
2. Give every one of them to your encoder, normalised as you normalise any picture, in evaluation mode. They have the
   size at which they are to be seen: do not crop or augment them.
3. Write down the embedding of each, a list of numbers, as your encoder gives it: not normalised afterwards, not
   rounded. Where there are several layers, take the one that you give to others.

What to send back
-----------------
One file, embeddings.parquet, with two columns:

image       text: the path exactly as in images.csv, for instance {example}
embedding   a list of floats (32 bits), as many for every picture

The rows may be in any order, but there has to be one for every picture.

A script that does it
---------------------
With Python, PyTorch, torchvision, Pillow and pyarrow, run in this folder; put your own encoder and normalisation in:

{script}"""
SCRIPT = """\
import csv, torch
import pyarrow as pa, pyarrow.parquet as pq
from PIL import Image
from torchvision.transforms.functional import to_tensor  # (channels, height, width) in [0, 1]

encoder = torch.jit.load("encoder.pt", map_location="cpu").eval()  # your encoder, whatever it is, in evaluation mode
schema = pa.schema([("image", pa.string()), ("embedding", pa.list_(pa.float32()))])
with open("images.csv") as listed, pq.ParquetWriter("embeddings.parquet", schema) as file, torch.no_grad():
    images = [row["image"] for row in csv.DictReader(listed)]
    for start in range(0, len(images), 256):
        some = images[start : start + 256]
        pixels = torch.stack([to_tensor(Image.open(image).convert("RGB")) for image in some])  # your own normalisation
        embeddings = encoder(pixels).flatten(1).float().tolist()
        file.write_table(pa.table([some, embeddings], schema=schema))
"""


@dataclass(frozen=True, eq=False)
class ToEmbed:
    """Pictures to be embedded: how many they are, and their pixels, some at a time (rows, h, w, 3), in their order."""

    count: int
    pixels: Callable[[], Iterator[Pixels]]


def write(folder: Path, sets: Sequence[tuple[str, ToEmbed]]) -> pa.Table:
    """Write the pictures, list and README to a folder; return the list (image, set, row), whose ids the table names.

    The bytes depend on the pictures alone. A folder may be there if what is in it is the same, whole or in part;
    DatasetError, in one line, otherwise: before anything is written where a file does not belong there.
    """
    check_names([name for name, _ in sets], "pictures", taken=(README, IMAGES))
    rows = [(image_of(name, row), name, row) for name, held in sets for row in range(held.count)]
    if not rows:
        raise DatasetError("there are no pictures to write")
    check(folder, {README, IMAGES, *(image for image, _, _ in rows)})
    for name, held in sets:
        for row, pixels in enumerate(one_by_one(name, held)):
            once(folder, image_of(name, row), png(pixels))
    once(folder, README, TEXT.format(example=rows[0][0], script=indent_script(SCRIPT)).encode())
    listed = "".join(f"{image},{name},{row}\n" for image, name, row in [SCHEMA.names, *rows])
    once(folder, IMAGES, listed.encode())
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)


def one_by_one(name: str, held: ToEmbed) -> Iterator[Pixels]:
    """A set's pictures (h, w, 3); DatasetError where they are no pictures."""
    for some in held.pixels():
        if some.dtype != np.uint8 or some.ndim != 4 or some.shape[3] not in (1, 3):
            raise DatasetError(f"set {name!r} is {some.dtype} {some.shape}; expected uint8 (n, h, w, 1 or 3)")
        yield from some


def check(folder: Path, files: set[str]) -> None:
    """DatasetError where the folder holds anything but these files."""
    if folder.exists() and not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder")
    for path in sorted(folder.rglob("*")) if folder.exists() else []:
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and name.removesuffix(ASIDE) not in files:
            raise DatasetError(f"{folder} is not empty: {name} does not belong there; name a new folder")


def once(folder: Path, name: str, content: bytes) -> None:
    """Write a file that is not there yet; DatasetError where another one is."""
    path = folder / name
    if not path.exists():
        put(path, content)
    elif path.read_bytes() != content:
        raise DatasetError(f"{folder} is not empty: {name} is not what would be written; name a new folder")
