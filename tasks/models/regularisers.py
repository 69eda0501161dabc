"""What the paper adds to a network against overfitting, inside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.models.layers import Layers, Start

DENSE, CONVOLUTIONAL = 0.2, 0.5  # rates of dropout


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

    @property
    def bias(self) -> Start | None:
        """How a hidden layer's bias starts; None where batch norm takes it away again, so that it has no gradient."""
        from tasks.models.layers import ZERO

        return None if self.batch_norm else ZERO


PLAIN = Regularisers()


def activate(layers: Layers, x: Tensor, number: int, rate: float, regularisers: Regularisers) -> Tensor:
    """ReLU of a hidden layer's values: batch norm directly before it, dropout of `rate` after it, where asked for.

    `number` counts the network's activations from 1: norm1, norm2, ...
    """
    if regularisers.batch_norm:
        x = layers.batch_norm(f"norm{number}", x, momentum=0.01, epsilon=1e-3)
    # In place where that saves much: no gradient needs what came out of a convolution, pooling or batch norm.
    x = x.relu_() if x.dim() == 4 else x.relu()
    return layers.dropout(x, rate) if regularisers.dropout else x
