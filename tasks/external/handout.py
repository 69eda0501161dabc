"""Pictures for a model's owner, who evaluates the model on them and sends back a table of its outputs or embeddings.

README.txt          what the owner does, and what comes back
NAME/000000.png     a set's pictures, losslessly; their ids are these paths
images.csv          image, set, row: written last, so that a folder without it is known to be half written

There may be more pictures to embed than fit in memory: they are written as they come.
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
IMAGES, README, ASIDE = "images.csv", "README.txt", ".part"
SCHEMA = pa.schema([("image", pa.string()), ("set", pa.string()), ("row", pa.int64())])
TEXT = """\
Pictures for your model
=======================

We would like to know what your model says of these pictures. The model stays with you: all we need is a table.

What to do
----------
1. Take the pictures that images.csv lists (column "image" is each one's path in this folder).
2. Give every one of them to your model, prepared as you prepare any picture (size, scaling, normalisation), with the
   model in evaluation mode and in single precision (float32). Do not augment them.
3. Write down the probability of every class, one row per picture, and send us the table: outputs.csv, or a .parquet
   file with the same columns.

What to send back
-----------------
Column "image", with the path exactly as in images.csv, and one column per class: p0, p1, p2, ... in the order in which
your model numbers its classes; please tell us that order by their names, too, for we may number them otherwise. Write
all the digits you have: a probability that is rounded to 0 or to 1 tells less. The lines may be in any order, but there
has to be one for every picture. For three classes they look like this:

image,p0,p1,p2
{example},0.0312846,0.9686241,9.13e-05

Instead of probabilities you may send logits (columns logit0, logit1, ...) or natural logarithms of probabilities
(columns logp0, logp1, ...).

{promise}A script that does it
---------------------
With Python, PyTorch, torchvision and Pillow, run in this folder; put your own model and preparation in:

{script}"""
PROMISE = """\
What we promise
---------------
The names and the order of the {what} say nothing about them, so that every answer is worth the same to us; some
{what} are there more than once. A list that we keep says what each of them is. We cannot change it any more: this
is its SHA-256. When we have your answers we can send you the list, and you can compute its SHA-256 yourself.

    {commitment}

{draw}"""
BOUND = """\
Neither of us chose what is drawn here: it follows from the commitment that you had from us before you knew any more,
and from the nonce that was named after it, {nonce}.

    {commitment}

"""
SCRIPT = """\
import csv, torch
from PIL import Image
from torchvision.transforms.functional import to_tensor  # (channels, height, width) in [0, 1]

model = torch.jit.load("model.pt", map_location="cpu").eval()  # your model, whatever it is, in evaluation mode
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
    """Write the pictures, list and README to a folder; return the list (image, set, row), whose ids the answers name.

    Each set has a name and images (n, h, w, 1 or 3). `commitment` is the SHA-256 of the list that says what each
    picture is, where the owner is told it. The bytes depend on the pictures and on it alone. A folder may be there if
    what is in it is the same, whole or in part; DatasetError, in one line and before anything is written, otherwise.
    """
    given = list(sets)
    rows = _rows(given)
    held = [(image, png(pixels)) for (image, _, _), pixels in zip(rows, _images(given), strict=True)]
    text = TEXT.format(example=rows[0][0], script=_indent_script(SCRIPT), promise=promise("pictures", commitment, draw))
    held.append((README, text.encode()))
    held.append((IMAGES, "".join(f"{image},{name},{row}\n" for image, name, row in [SCHEMA.names, *rows]).encode()))
    write_all(folder, held)
    return table_of_rows(SCHEMA, rows)


def promise(what: str, commitment: str, draw: Draw | None = None) -> str:
    """What an owner is promised of `what` is handed out, by a bound draw or another; empty without a commitment."""
    if not commitment:
        return ""
    bound = BOUND.format(nonce=draw.nonce, commitment=draw.stated) if draw is not None and draw.nonce else ""
    return PROMISE.format(what=what, commitment=commitment, draw=bound)


def image_of(name: str, row: int) -> str:
    """The id of a set's picture: its path in the folder."""
    return f"{name}/{row:06d}.png"


def png(pixels: Pixels) -> bytes:
    """One picture (h, w, 1 or 3) as PNG without any metadata."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(out, "PNG", compress_level=6)
    return out.getvalue()


def check_names(names: Sequence[str], what: str, taken: Sequence[str]) -> None:
    """Raise DatasetError unless there are sets of `what`, each with a different name that a file may have."""
    for number, name in enumerate(names):
        if not NAME.fullmatch(name) or name in taken:
            raise DatasetError(f"set {number} is called {name!r}; use letters, digits, dots, dashes and underscores")
        if name in names[:number]:
            raise DatasetError(f"two sets are called {name!r}")
    if not names:
        raise DatasetError(f"there are no {what} to write")


def write_all(folder: Path, held: Sequence[tuple[str, bytes]]) -> None:
    """Write these files to the folder, in that order; DatasetError, before writing any, where others are there."""
    _check_contents(folder, dict(held))
    for path, content in held:
        write_whole(folder / path, content)


def _rows(sets: list[tuple[str, Pixels]]) -> list[tuple[str, str, int]]:
    check_names([name for name, _ in sets], "pictures", taken=(README, IMAGES))
    for name, images in sets:
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3) or not len(images):
            raise DatasetError(f"set {name!r} is {images.dtype} {images.shape}; expected uint8 (n, h, w, 1 or 3)")
    return [(image_of(name, row), name, row) for name, images in sets for row in range(len(images))]


def _images(sets: list[tuple[str, Pixels]]) -> Iterator[Pixels]:
    for _, images in sets:
        yield from images


def _check_contents(folder: Path, held: dict[str, bytes]) -> None:
    if folder.exists() and not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder")
    for path in sorted(folder.rglob("*")) if folder.exists() else []:
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or (name.endswith(ASIDE) and name.removesuffix(ASIDE) in held):
            continue
        if name not in held or path.read_bytes() != held[name]:
            what = "is not what would be written" if name in held else "does not belong there"
            raise DatasetError(f"{folder} is not empty: {name} {what}; name a new folder")


def write_whole(path: Path, content: bytes) -> None:
    """Written aside and renamed: a reader sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ASIDE)
    aside.write_bytes(content)
    os.replace(aside, path)


def _indent_script(script: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in script.splitlines(keepends=True))


EMBEDDING_TEXT = """\
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
EMBEDDING_SCRIPT = """\
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


def write_to_embed(folder: Path, sets: Sequence[tuple[str, ToEmbed]]) -> pa.Table:
    """Write the pictures, list and README to a folder; return the list (image, set, row), whose ids the table names.

    The bytes depend on the pictures alone. A folder may be there if what is in it is the same, whole or in part;
    DatasetError, in one line, otherwise: before anything is written where a file does not belong there.
    """
    check_names([name for name, _ in sets], "pictures", taken=(README, IMAGES))
    rows = [(image_of(name, row), name, row) for name, held in sets for row in range(held.count)]
    if not rows:
        raise DatasetError("there are no pictures to write")
    _check_names(folder, {README, IMAGES, *(image for image, _, _ in rows)})
    for name, held in sets:
        for row, pixels in enumerate(_single_pictures(name, held)):
            _write_once(folder, image_of(name, row), png(pixels))
    _write_once(
        folder, README, EMBEDDING_TEXT.format(example=rows[0][0], script=_indent_script(EMBEDDING_SCRIPT)).encode()
    )
    listed = "".join(f"{image},{name},{row}\n" for image, name, row in [SCHEMA.names, *rows])
    _write_once(folder, IMAGES, listed.encode())
    return table_of_rows(SCHEMA, rows)


def _single_pictures(name: str, held: ToEmbed) -> Iterator[Pixels]:
    """A set's pictures (h, w, 3); DatasetError where they are no pictures."""
    for some in held.pixels():
        if some.dtype != np.uint8 or some.ndim != 4 or some.shape[3] not in (1, 3):
            raise DatasetError(f"set {name!r} is {some.dtype} {some.shape}; expected uint8 (n, h, w, 1 or 3)")
        yield from some


def _check_names(folder: Path, files: set[str]) -> None:
    """DatasetError where the folder holds anything but these files."""
    if folder.exists() and not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder")
    for path in sorted(folder.rglob("*")) if folder.exists() else []:
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and name.removesuffix(ASIDE) not in files:
            raise DatasetError(f"{folder} is not empty: {name} does not belong there; name a new folder")


def _write_once(folder: Path, name: str, content: bytes) -> None:
    """Write a file that is not there yet; DatasetError where another one is."""
    path = folder / name
    if not path.exists():
        write_whole(path, content)
    elif path.read_bytes() != content:
        raise DatasetError(f"{folder} is not empty: {name} is not what would be written; name a new folder")
