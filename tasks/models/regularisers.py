"""What the paper adds to a network against overfitting, inside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Regularisers:
    """Hartley & Tsaftaris, "Unintended memorisation of unique features in neural networks", A.4.

    Dropout of 0.2 after dense layers and 0.5 after convolutional ones, none on the logits; batch norm directly before
    each activation, with Keras's momentum 0.99 (the running statistics move by 0.01) and epsilon 0.001.
    """

    dropout: bool = False
    batch_norm: bool = False

    def __str__(self) -> str:
        return " and ".join(name for name, on in (("dropout", self.dropout), ("batch norm", self.batch_norm)) if on)


PLAIN = Regularisers()
