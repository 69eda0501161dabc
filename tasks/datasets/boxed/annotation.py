"""Read the boxes of one image from an XML file in Pascal VOC format, as used by ImageNet.

annotation/size/width, height                          of the annotated image, in pixels
annotation/object/name                                 the class of each object
annotation/object/bndbox/xmin, ymin, xmax, ymax        the object's first and last pixel, from 0

Other elements are ignored. A file that declares a document type, which may contain entities, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.parsers import expat

import numpy as np

from tasks.datasets.boxed.pictures import NO_BOXES, Boxes
from tasks.datasets.dataset import DatasetError, unreadable

LARGEST = 1 << 20  # bytes; actual files have less than 2 KiB
DEEPEST = 16  # nested elements; actual files have four levels
FURTHEST = 1_000_000  # pixels
OBJECT = ("annotation", "object")
SIDES = ("xmin", "ymin", "xmax", "ymax")


class Refused(Exception):
    """The file is invalid. The message continues a sentence that begins with the file's name."""


@dataclass(frozen=True)
class Annotation:
    """The objects' names and corners, and the annotated image's height and width (None if the file states no size)."""

    names: tuple[str, ...]
    corners: tuple[tuple[float, float, float, float], ...]  # first column, first row, last column, last row
    size: tuple[float, float] | None

    def boxes(self, height: int, width: int) -> Boxes:
        """Return the boxes (m, 4) for an image of this size.

        Boxes annotated at another size are rescaled and extended to whole pixels.
        """
        if not self.corners:
            return NO_BOXES
        tall, wide = self.size or (height, width)
        corners = np.array(self.corners).reshape(-1, 2, 2)
        first, last = corners.min(axis=1), corners.max(axis=1) + 1  # corners may come in any order
        scale = np.array([width / wide, height / tall])
        edges = [np.floor(first * scale + 1e-9), np.ceil(last * scale - 1e-9)]
        boxes: Boxes = np.concatenate(edges, axis=1).clip(-FURTHEST, FURTHEST).astype(np.int32)
        return boxes


def read(path: Path) -> Annotation:
    """Read the objects in the file. Raises DatasetError if it is damaged."""
    try:
        with path.open("rb") as file:
            encoded = file.read(LARGEST + 1)
    except OSError as error:
        raise unreadable(path, error) from None
    try:
        return parse_annotation(encoded)
    except (expat.ExpatError, Refused, LookupError, ValueError) as error:  # including unknown encodings
        raise DatasetError(f"{path} is not an annotation of boxes: {error}") from None


def parse_annotation(encoded: bytes) -> Annotation:
    if len(encoded) > LARGEST:
        raise Refused(f"it has more than {LARGEST} bytes")
    reader = Reader()
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.StartElementHandler = reader.begin
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.Parse(encoded, True)
    return reader.annotation()


class Reader:
    """Handler of XML parser events that collects the annotation."""

    def __init__(self) -> None:
        self.path: list[str] = []
        self.words: list[str] = []
        self.size: dict[str, str] = {}
        self.objects: list[dict[str, str]] = []

    def doctype(self, *_: object) -> None:
        raise Refused("it declares a document type")

    def begin(self, name: str, _: dict[str, str]) -> None:
        if len(self.path) == DEEPEST:
            raise Refused(f"its elements are nested more than {DEEPEST} deep")
        self.path.append(name)
        self.words = []
        if tuple(self.path) == OBJECT:
            self.objects.append({})

    def text(self, words: str) -> None:
        self.words.append(words)

    def end(self, name: str) -> None:
        above = tuple(self.path[:-1])
        words = "".join(self.words).strip()
        if above == ("annotation", "size"):
            self.size[name] = words
        elif (above == OBJECT and name == "name") or (above == (*OBJECT, "bndbox") and name in SIDES):
            self.objects[-1][name] = words
        self.path.pop()
        self.words = []

    def annotation(self) -> Annotation:
        corners = []
        for number, fields in enumerate(self.objects, 1):
            left, top, right, bottom = (_number_of(fields, side, f"object {number}") for side in SIDES)
            corners.append((left, top, right, bottom))
        sides = []
        if self.size:
            sides = [_number_of(self.size, side, "size") for side in ("height", "width")]
        size = None
        if all(side >= 1 for side in sides) and sides:
            size = (sides[0], sides[1])
        return Annotation(tuple(fields.get("name", "") for fields in self.objects), tuple(corners), size)


def _number_of(fields: dict[str, str], side: str, where: str) -> float:
    try:
        number = float(fields[side])
    except KeyError:
        raise Refused(f"its {where} has no {side}") from None
    except ValueError:
        raise Refused(f"{side} of its {where} is {fields[side]!r:.40}; it must be a number") from None
    if not abs(number) < FURTHEST:
        raise Refused(f"{side} of its {where} is {fields[side]!r:.40}; it must be pixels of a picture")
    return number


def only_name(annotation: Annotation, known_classes: Sequence[str], path: Path) -> str:
    """Return the class shared by all objects.

    Raises DatasetError if there is none, or if there are several known classes.
    """
    names = sorted(set(annotation.names) & set(known_classes)) or sorted(set(annotation.names))
    if len(names) != 1:
        raise DatasetError(f"{path} has objects of {', '.join(names) or 'no class'}; they must be of one class")
    return names[0]
