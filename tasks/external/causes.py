"""Why the answers of a model may not be those that were expected: the likely causes, the user's own settings first.

Most often the user's own settings differ from the training's; an altered table is the last thing to suspect.
"""

from __future__ import annotations

ORDER = "its classes stand in another order"
INTERFACE = "the interface (normalisation, layout, outputs) or the shape is not that of its training"
TRAINING = "it was trained differently"
ALTERED = "its answers were altered"
TRAINING_MODE = "it was asked in training mode, or draws random numbers"
PREPARED = "its inputs were augmented, or prepared in another way the second time"


def list_causes(*causes: str) -> str:
    """A phrase that numbers causes in order of likelihood: `likely causes, in this order: (1) ..., (2) ...`."""
    numbered = ", ".join(f"({number}) {cause}" for number, cause in enumerate(causes, start=1))
    return f"likely causes, in this order: {numbered}"


def unlike_causes(controls: str) -> str:
    """Why a model is unlike those that it is compared with on images that none of them should know."""
    return list_causes(f"{controls} were trained on, too", ORDER, INTERFACE, TRAINING, ALTERED)


# Why one input got two answers.
REPEATS = list_causes(TRAINING_MODE, PREPARED, ALTERED)
MISSES = list_causes(ORDER, INTERFACE, "the accuracy that is stated is of other images", ALTERED)


def as_sentence(phrase: str) -> str:
    return f"{phrase[0].upper()}{phrase[1:]}."
