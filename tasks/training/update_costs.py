"""What an update of weights reads, writes and keeps in memory, by optimiser."""

from __future__ import annotations

from tasks.contract.operations import BYTES, LAUNCHES, Operations

FLOAT = 4  # bytes of a number
# Bytes that an optimiser reads and writes for each parameter, and the operations that it starts for each tensor: Adam
# reads the weight, its gradient and two moments, and writes all but the gradient.
OPTIMISERS = {
    "adam": (7 * FLOAT, 1),
    "adamw": (9 * FLOAT, 1),
    "rmsprop": (5 * FLOAT, 1),
    "sgd": (7 * FLOAT, 1),
    "lars": (12 * FLOAT, 4),
    "nesterov": (20 * FLOAT, 1),
    "adafactor": (15 * FLOAT, 15),
}
# Numbers that an optimiser keeps for each parameter.
MOMENTS = {"adam": 2.0, "adamw": 2.0, "rmsprop": 1.0, "sgd": 1.0, "lars": 1.0, "nesterov": 2.0, "adafactor": 0.01}
# Private training computes and clips gradients of single rows. Measured on a CPU, it takes 1.1 (T5) to 2.9 (vae) times
# as long as a training without privacy.
PRIVATE = 2.0


def optimiser(name: str, parameters: float, tensors: int) -> Operations:
    """Return the operations of one update of these parameters."""
    moved, started = OPTIMISERS[name]
    return {BYTES: moved * parameters, LAUNCHES: started * tensors}


def training_bytes(name: str, parameters: float, fixed: float, peak: float) -> float:
    """Return the device memory of a training: numbers that are learned and fixed, moments, and the peak of a step.

    The peak contains the gradients. An update needs memory for another copy of them, when activations are freed.
    """
    moments = MOMENTS[name]
    return FLOAT * ((1 + moments) * parameters + fixed) + max(peak, 2 * FLOAT * parameters)
