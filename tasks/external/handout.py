"""Write images for a model's owner, who evaluates the model on them and returns a table of outputs or embeddings.

README.txt          instructions for the owner, and the format of the table
NAME/000000.png     the images of a set, stored losslessly; these paths are their ids
images.csv          image, set, row: written last, so that a folder without it is known to be incomplete

Images to embed may exceed memory, so they are written one batch at a time.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from tasks.contract.schemas import table_of_rows
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Pixels
from tasks.external.bound_draw import Draw

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
IMAGES = "images.csv"
README = "README.txt"
ASIDE = ".part"
SCHEMA = pa.schema([("image", pa.string()), ("set", pa.string()), ("row", pa.int64())])
TEXT = """\
Images for your model
=====================

Please evaluate your model on these images. The model stays with you: we only need a table.

Instructions
------------
1. Use the images listed in images.csv (column "image" is the path in this folder).
2. Evaluate your model on each image, with your usual preparation (size, scaling, normalisation), in evaluation mode
   and in single precision (float32). Do not augment the images.
3. Save the probability of every class, one row per image, and send us the table: outputs.csv, or a .parquet file with
   the same columns.

Format of the table
-------------------
Column "image", with the path exactly as in images.csv, and one column per class: p0, p1, p2, ... in the order of your
model's classes. Please also send us the names of the classes in this order, since our order may differ. Print all
digits: a probability rounded to 0 or 1 is less informative. The rows may be in any order, but every image needs a row.
For three classes, the table looks like this:

image,p0,p1,p2
{example},0.0312846,0.9686241,9.13e-05

Instead of probabilities you may send logits (columns logit0, logit1, ...) or natural logarithms of probabilities
(columns logp0, logp1, ...).

{promise}Script
------
For Python with PyTorch, torchvision and Pillow. Run it in this folder with your own model and preparation:

{script}"""
PROMISE = """\
Our commitment
--------------
The names and the order of the {what} reveal nothing about them, and some occur more than once. We keep a list that
identifies each of them. This is its SHA-256, so we can no longer change the list. Once we have your answers, we can
send you the list, and you can verify its SHA-256.

    {commitment}

{draw}"""
BOUND = """\
Neither party chose this draw: it follows from the commitment that we sent you earlier, and from the nonce that was
named afterwards, {nonce}.

    {commitment}

"""
SCRIPT = """\
import csv, torch
from PIL import Image
from torchvision.transforms.functional import to_tensor  # (channels, height, width) in [0, 1]

model = torch.jit.load("model.pt", map_location="cpu").eval()  # your model, in evaluation mode
with open("images.csv") as listed, open("outputs.csv", "w", newline="") as file, torch.no_grad():
    table = csv.writer(file)
    for number, row in enumerate(csv.DictReader(listed)):
        pixels = to_tensor(Image.open(row["image"]))[None]  # your own preparation
        p = model(pixels).double().softmax(1)[0].tolist()
        if number == 0: table.writerow(["image", *(f"p{k}" for k in range(len(p)))])
        table.writerow([row["image"], *p])
"""


def write_pictures(
    folder: Path, sets: Iterable[tuple[str, Pixels]], commitment: str = "", draw: Draw | None = None
) -> pa.Table:
    """Write images, list and README to a folder. Returns the list (image, set, row), whose ids the answers contain.

    Each set has a name and images (n, h, w, 1 or 3). If the owner receives it, `commitment` is the SHA-256 of the list
    that identifies each image. The bytes depend only on the images and the commitment. The folder may already contain
    some or all of these files. If it contains anything else, DatasetError is raised before any file is written.
    """
    named_sets = list(sets)
    rows = _rows(named_sets)
    files = []
    for (image, _, _), pixels in zip(rows, _images(named_sets), strict=True):
        files.append((image, png(pixels)))
    text = TEXT.format(example=rows[0][0], script=_indent_script(SCRIPT), promise=promise("pictures", commitment, draw))
    files.append((README, text.encode()))
    files.append((IMAGES, "".join(f"{image},{name},{row}\n" for image, name, row in [SCHEMA.names, *rows]).encode()))
    write_all(folder, files)
    return table_of_rows(SCHEMA, rows)


def promise(kind: str, commitment: str, draw: Draw | None = None) -> str:
    """Return the README section about the commitment, depending on whether the draw is bound.

    Returns an empty string if there is no commitment.
    """
    if not commitment:
        return ""
    bound = ""
    if draw is not None and draw.nonce:
        bound = BOUND.format(nonce=draw.nonce, commitment=draw.stated)
    return PROMISE.format(what=kind, commitment=commitment, draw=bound)


def image_of(name: str, row: int) -> str:
    """Return an image's id: its path in the folder."""
    return f"{name}/{row:06d}.png"


def png(pixels: Pixels) -> bytes:
    """Encode an image (h, w, 1 or 3) as PNG without metadata."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(out, "PNG", compress_level=6)
    return out.getvalue()


def check_names(names: Sequence[str], kind: str, reserved_names: Sequence[str]) -> None:
    """Raise DatasetError unless there are sets, and their names are distinct and valid as file names."""
    for number, name in enumerate(names):
        if not NAME.fullmatch(name) or name in reserved_names:
            raise DatasetError(f"set {number} is named {name!r}; use letters, digits, dots, dashes and underscores")
        if name in names[:number]:
            raise DatasetError(f"two sets are named {name!r}")
    if not names:
        raise DatasetError(f"there are no {kind} to write")


def write_all(folder: Path, files: Sequence[tuple[str, bytes]]) -> None:
    """Write these files to the folder in this order. If it contains other files, raises DatasetError before writing."""
    _check_contents(folder, dict(files))
    for path, content in files:
        write_whole(folder / path, content)


def _rows(sets: list[tuple[str, Pixels]]) -> list[tuple[str, str, int]]:
    check_names([name for name, _ in sets], "images", reserved_names=(README, IMAGES))
    for name, images in sets:
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3) or not len(images):
            raise DatasetError(f"set {name!r} is {images.dtype} {images.shape}; expected uint8 (n, h, w, 1 or 3)")
    return [(image_of(name, row), name, row) for name, images in sets for row in range(len(images))]


def _images(sets: list[tuple[str, Pixels]]) -> Iterator[Pixels]:
    for _, images in sets:
        yield from images


def _check_contents(folder: Path, files: dict[str, bytes]) -> None:
    if folder.exists() and not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder")
    for path in sorted(folder.rglob("*")) if folder.exists() else []:
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or (name.endswith(ASIDE) and name.removesuffix(ASIDE) in files):
            continue
        if name not in files or path.read_bytes() != files[name]:
            problem = "is not one of the files to write"
            if name in files:
                problem = "has different content"
            raise DatasetError(f"{folder} is not empty: {name} {problem}; choose a new folder")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it, so that readers never see an incomplete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ASIDE)
    aside.write_bytes(content)
    os.replace(aside, path)


def _indent_script(script: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in script.splitlines(keepends=True))


EMBEDDING_TEXT = """\
Images for your encoder
=======================

Please embed these images with your encoder. The encoder stays with you: we only need a table.

Instructions
------------
1. Use the images listed in images.csv (column "image" is the path in this folder).
2. Embed each image with your encoder in evaluation mode, with your usual normalisation. The images have the final
   size: do not crop or augment them.
3. Save the embedding of each image, a list of numbers, as returned by your encoder: neither normalised afterwards nor
   rounded. If there are several layers, use the layer that you provide to users.

Format of the table
-------------------
One file, embeddings.parquet, with two columns:

image       text: the path exactly as in images.csv, for instance {example}
embedding   a list of floats (32 bits), of the same length for every image

The rows may be in any order, but every image needs a row.

Script
------
For Python with PyTorch, torchvision, Pillow and pyarrow. Run it in this folder with your own encoder and normalisation:

{script}"""
EMBEDDING_SCRIPT = """\
import csv, torch
import pyarrow as pa, pyarrow.parquet as pq
from PIL import Image
from torchvision.transforms.functional import to_tensor  # (channels, height, width) in [0, 1]

encoder = torch.jit.load("encoder.pt", map_location="cpu").eval()  # your encoder, in evaluation mode
schema = pa.schema([("image", pa.string()), ("embedding", pa.list_(pa.float32()))])
with open("images.csv") as listed, pq.ParquetWriter("embeddings.parquet", schema) as file, torch.no_grad():
    images = [row["image"] for row in csv.DictReader(listed)]
    for start in range(0, len(images), 256):
        batch = images[start : start + 256]
        pixels = torch.stack([to_tensor(Image.open(image).convert("RGB")) for image in batch])  # your own normalisation
        embeddings = encoder(pixels).flatten(1).float().tolist()
        file.write_table(pa.table([batch, embeddings], schema=schema))
"""


@dataclass(frozen=True, eq=False)
class ToEmbed:
    """Images to embed: their number, and a function that yields their pixels (rows, h, w, 3) in batches, in order."""

    count: int
    pixels: Callable[[], Iterator[Pixels]]


def write_to_embed(folder: Path, sets: Sequence[tuple[str, ToEmbed]]) -> pa.Table:
    """Write images, list and README to a folder. Returns the list (image, set, row), whose ids the table must contain.

    The bytes depend only on the images. The folder may already contain some or all of these files. Otherwise
    DatasetError is raised; if it contains unknown files, before any file is written.
    """
    check_names([name for name, _ in sets], "images", reserved_names=(README, IMAGES))
    rows = [(image_of(name, row), name, row) for name, image_set in sets for row in range(image_set.count)]
    if not rows:
        raise DatasetError("there are no images to write")
    _check_names(folder, {README, IMAGES, *(image for image, _, _ in rows)})
    for name, image_set in sets:
        for row, pixels in enumerate(_single_pictures(name, image_set)):
            _write_once(folder, image_of(name, row), png(pixels))
    _write_once(
        folder, README, EMBEDDING_TEXT.format(example=rows[0][0], script=_indent_script(EMBEDDING_SCRIPT)).encode()
    )
    listing = "".join(f"{image},{name},{row}\n" for image, name, row in [SCHEMA.names, *rows])
    _write_once(folder, IMAGES, listing.encode())
    return table_of_rows(SCHEMA, rows)


def _single_pictures(name: str, image_set: ToEmbed) -> Iterator[Pixels]:
    """Yield the images (h, w, 1 or 3) of a set. Raises DatasetError for arrays of another type or shape."""
    for batch in image_set.pixels():
        if batch.dtype != np.uint8 or batch.ndim != 4 or batch.shape[3] not in (1, 3):
            raise DatasetError(f"set {name!r} is {batch.dtype} {batch.shape}; expected uint8 (n, h, w, 1 or 3)")
        yield from batch


def _check_names(folder: Path, files: set[str]) -> None:
    """Raise DatasetError if the folder contains any other file."""
    if folder.exists() and not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder")
    for path in sorted(folder.rglob("*")) if folder.exists() else []:
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and name.removesuffix(ASIDE) not in files:
            raise DatasetError(f"{folder} is not empty: {name} is not one of the files to write; choose a new folder")


def _write_once(folder: Path, name: str, content: bytes) -> None:
    """Write a file unless it exists. Raises DatasetError if it exists with different content."""
    path = folder / name
    if not path.exists():
        write_whole(path, content)
    elif path.read_bytes() != content:
        raise DatasetError(f"{folder} is not empty: {name} has different content; choose a new folder")
