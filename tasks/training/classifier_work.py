"""How much the training of a classifier computes, as far as that is known before it runs."""

from __future__ import annotations

from tasks.training.recipe import Recipe
from tasks.work import Work, format_shape

# MLP-1 keeps about epoch 42 of 1,437 digits and 12 of MNIST's 60,000 images: the more images, the fewer epochs.
DIGITS, KEPT = 1437, 42.0
FALL = -1 / 3  # the exponent between the two
# And the wider, the fewer: 81, 54, 41 and 25 epochs of digits at a width of 0.25, 0.5, 1 and 2.
FALL_WITH_WIDTH = -1 / 2
FACTOR = 2.0  # by which another network or data set may need fewer epochs, or more
BEGUN = "begin to train a classifier"  # what a training takes however short it is
VALIDATED = 1 / 3  # of a step on an image: its forward pass alone


def classifier_work(
    network: str,
    shape: tuple[int, ...],
    recipe: Recipe,
    examples: int,
    validated: int,
    kept: bool = False,
    way: str = "train",
    width: float = 1.0,
    times: float = 1.0,
) -> Work:
    """Of a training on so many examples with so many validation images after every epoch.

    With `kept` it ends at the epoch that another one of the recipe's, which had patience, went back to. The `way` to
    train names the unit, which is that of the network in its published width; at this `width` an image is so many
    `times` the work.
    """
    unit = f"{way} {network} on {format_shape(shape)}"
    each = times * (examples + VALIDATED * validated)
    if not (recipe.patience or kept):
        return Work({unit: recipe.epochs * each}, {BEGUN: 1.0})
    best = kept_epoch(examples, width)
    least, expected, most = (
        min(recipe.epochs, epoch + recipe.patience) for epoch in (best / FACTOR, best, best * FACTOR)
    )
    return Work({unit: expected * each}, {BEGUN: 1.0}, least / expected, most / expected)


def kept_epoch(examples: int, width: float = 1.0) -> float:
    """The epoch of the lowest validation loss that is expected of so many examples, by a network of this width."""
    return max(1.0, KEPT * float((max(1, examples) / DIGITS) ** FALL * width**FALL_WITH_WIDTH))
