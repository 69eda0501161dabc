"""The names of the classes that class numbers in a configuration refer to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from orchestrator.spec.config_parts import walk
from tasks.contract.job import CLASS_NUMBER
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import PictureSet

LISTED = 20  # maximum number of class names in a line


def requested_classes(configs: Iterable[Any]) -> list[dict[str, Any]]:
    """List each class number that is set, with the class names of every image data set in its configuration.

    Names are ordered by class number. Data sets with a single class, such as probe images, are omitted.
    """
    rows: list[dict[str, Any]] = []
    for config in configs:
        numbers = list(_class_numbers(config))
        if not numbers:
            continue
        for data, names in _named_sets(config):
            for path, number in numbers:
                row = {"field": path, "number": number, "data": data.name, "names": list(names)}
                if row not in rows:
                    rows.append(row)
    return rows


def describe_classes(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return one line for each row of `requested_classes`."""
    lines = []
    for row in rows:
        names = row["names"]
        class_names = ", ".join(f"{number}: {name}" for number, name in enumerate(names[:LISTED]))
        remainder = ""
        if len(names) > LISTED:
            remainder = f" and {len(names) - LISTED} more"
        meaning = "no class"
        if row["number"] < len(names):
            meaning = repr(names[row["number"]])
        lines.append(
            f"{row['field']}={row['number']} is {meaning} of {row['data']}, whose classes are {class_names}{remainder}"
        )
    return lines


def _class_numbers(config: Any) -> Iterator[tuple[str, int]]:
    for path, part in walk(config):
        if not dataclasses.is_dataclass(part) or isinstance(part, type):
            continue
        for field in dataclasses.fields(part):
            number = getattr(part, field.name)
            if field.metadata.get(CLASS_NUMBER) and isinstance(number, int):
                yield f"{path}.{field.name}" if path else field.name, number


def _named_sets(config: Any) -> Iterator[tuple[Dataset, tuple[str, ...]]]:
    for _, part in walk(config):
        if isinstance(part, Dataset):
            images = _images_of(part)
            if images is not None and images.classes > 1:
                yield part, images.names or tuple(map(str, range(images.classes)))


def _images_of(data: Dataset) -> PictureSet | None:
    try:
        return catalog.load(data)
    except DatasetError:  # no images, or images of several sizes
        return None
