"""The image shape that a model takes, for data sets whose images have other shapes or several."""

from __future__ import annotations

from collections.abc import Iterable

from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.options import CHANNELS
from tasks.external.loading import load_model
from tasks.external.model_file import Interface, ModelFile, pin

Shape = tuple[int, int, int]  # height, width, channels

SIDES = (28, 32, 48, 64, 96, 112, 128, 160, 192, 224, 256, 299, 320, 384, 448, 512)  # common sides of square inputs
SMALL = "#8x8"  # decoding at this size is fast; only the classes are read
COLOURS = {channels: name for name, channels in CHANNELS.items()}


def fit_dataset(name: str, model: ModelFile, interface: Interface) -> str:
    """Return the name of the data set with the size and the colours that the model takes.

    Images of one size keep it if the model accepts it. Otherwise they are resized to the only common square size that
    the model accepts. Raises DatasetError if there is none, or several, and if the images cannot be read.
    """
    pinned = pin(model)
    try:
        images = load(Dataset.parse(name))
    except DatasetError:
        if "#" in name:
            raise
        images = load(Dataset.parse(f"{name}{SMALL}"))
        colours = _in_order(images.shape[2])
        shapes: list[Shape] = []
    else:
        height, width, channels = images.shape
        colours = _in_order(channels)
        shapes = [(height, width, channels) for channels in colours]
    for shape in shapes:
        if _accepts(pinned, interface, shape, images.classes):
            return name if shape == shapes[0] else f"{name}#{COLOURS[shape[2]]}"
    if "#" in name:
        raise DatasetError(
            f"{name} has images of {_format(images.shape)}, which model {model.named().name} does not accept; remove "
            "the size to let Engram find it, or give another"
        )
    accepted = [
        (side, channels)
        for channels in colours
        for side in SIDES
        if _accepts(pinned, interface, (side, side, channels), images.classes)
    ]
    if len({side for side, _ in accepted}) == 1:
        side, channels = accepted[0]
        return f"{name}#{side}x{side}#{COLOURS[channels]}"
    if not accepted:
        problem = f"accepts none of the square sizes {SIDES[0]} to {SIDES[-1]}"
    else:
        problem = f"accepts {', '.join(str(side) for side, _ in accepted[:4])} and other sizes"
    subject = "images of one size" if shapes else "images of several sizes"
    raise DatasetError(
        f"{name} has {subject}, and model {model.named().name} {problem}; give the size that it was trained with, such "
        "as --size 224x224"
    )


def _in_order(channels: int) -> tuple[int, ...]:
    """Return the possible numbers of channels, beginning with that of the images."""
    return (channels, *(number for number in COLOURS if number != channels))


def _accepts(model: ModelFile, interface: Interface, shape: Shape, classes: int) -> bool:
    """Return whether the model returns a row of numbers for an image of this shape."""
    try:
        load_model(model, shape, interface, classes)
    except ValueError:
        return False
    return True


def _format(numbers: Iterable[int]) -> str:
    return " x ".join(map(str, numbers))
