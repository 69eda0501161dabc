"""Likely causes of unexpected model answers, starting with the user's own settings.

The most common cause is that the settings differ from those of the training. An altered table is the least likely.
"""

from __future__ import annotations

ORDER = "its classes are in another order"
INTERFACE = "the interface (normalisation, layout, outputs) or the shape differs from its training"
TRAINING = "it was trained differently"
ALTERED = "its answers were altered"
TRAINING_MODE = "it was evaluated in training mode, or draws random numbers"
PREPARED = "its inputs were augmented, or prepared differently the second time"


def list_causes(*causes: str) -> str:
    """Format causes in order of likelihood: `likely causes, in this order: (1) ..., (2) ...`."""
    numbered = ", ".join(f"({number}) {cause}" for number, cause in enumerate(causes, start=1))
    return f"likely causes, in this order: {numbered}"


def unlike_causes(controls: str) -> str:
    """List why a model may differ from its comparison models on images that no model was trained on."""
    return list_causes(f"{controls} were in its training data", ORDER, INTERFACE, TRAINING, ALTERED)


# Two different answers to the same input.
REPEATS = list_causes(TRAINING_MODE, PREPARED, ALTERED)
# An accuracy that differs from the stated one.
MISSES = list_causes(ORDER, INTERFACE, "the stated accuracy refers to other images", ALTERED)


def as_sentence(phrase: str) -> str:
    return f"{phrase[0].upper()}{phrase[1:]}."
