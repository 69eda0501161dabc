"""The image shape that a model takes, for data sets whose images have other shapes or several."""

from __future__ import annotations

from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.options import CHANNELS
from tasks.external.loading import accepts_shape, load_model
from tasks.external.model_file import Interface, ModelFile, pin

SIDES = (28, 32, 48, 64, 96, 112, 128, 160, 192, 224, 256, 299, 320, 384, 448, 512)  # common sides of square inputs
SMALL = "#8x8"  # decoding at this size is fast; only the classes are read
MOST_NAMED = 4  # sizes
COLOURS = {channels: name for name, channels in CHANNELS.items()}


def fit_dataset(name: str, model: ModelFile, interface: Interface) -> str:
    """Return the name of the data set with the size and the colours that the model takes.

    Images of one size keep it if the model accepts it. Otherwise they are resized to the only common square size that
    the model accepts. Raises DatasetError if there is none, or several, if the model rejects a size in the name, and if
    the images cannot be read.
    """
    pinned = pin(model)
    has_options = "#" in name
    try:
        images = load(Dataset.parse(name))
    except DatasetError:
        if has_options:
            raise
        images = load(Dataset.parse(f"{name}{SMALL}"))
        has_one_size = False
    else:
        has_one_size = True
    if images.is_table:
        load_model(pinned, images.shape, interface, images.classes)  # raises an error that describes the mismatch
        return name
    height, width, channels = images.shape
    colours = _in_order(channels)
    if has_one_size:
        for colour in colours:
            if _is_loaded(pinned, interface, (height, width, colour), images.classes):
                return name if colour == channels else f"{name}#{COLOURS[colour]}"
    accepted: dict[int, int] = {}
    for colour in colours:
        for side in SIDES:
            if accepts_shape(pinned, (side, side, colour), interface, images.classes):
                accepted.setdefault(side, colour)
    if len(accepted) == 1 and not has_options:
        ((side, colour),) = accepted.items()
        return f"{name}#{side}x{side}#{COLOURS[colour]}"
    sides = ", ".join(f"{side}x{side}" for side in list(accepted)[:MOST_NAMED])
    if len(accepted) > MOST_NAMED:
        sides = f"{sides} and other sizes"
    side = next(iter(accepted), 224)
    own_size = f"{height}x{width}" if has_one_size else "several sizes"
    raise DatasetError(
        f"{name} has images of {own_size}, and model {pinned.named().name} accepts {sides or 'no common square size'}; "
        f"give the size that it was trained with, such as --size {side}x{side}"
    )


def _in_order(channels: int) -> tuple[int, ...]:
    """Return the possible numbers of channels, beginning with that of the images."""
    return (channels, *(number for number in COLOURS if number != channels))


def _is_loaded(model: ModelFile, interface: Interface, shape: tuple[int, int, int], classes: int) -> bool:
    """Return whether the model accepts images of this shape in a batch of any size."""
    if accepts_shape(model, shape, interface, classes):
        return True
    if model.kind != "torchscript":  # only traced models have a fixed batch size
        return False
    try:
        load_model(model, shape, interface, classes)
    except ValueError:
        return False
    return True
