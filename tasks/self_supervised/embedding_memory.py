"""Which layers' embeddings are in host memory at a time, and how much memory their jobs reserve.

At the published size of `deja_vu`, all layers of a ResNet-101 with its projector take 48 GB for the public images and
53 GB for the crops.
"""

from __future__ import annotations

from collections.abc import Mapping

# Bytes of embeddings in memory at a time, unless a single layer has more. More layers at a time decode and embed the
# images fewer times.
HELD_BYTES = 2**34
FLOAT_BYTES = 4
BASE_BYTES = 3 * 2**30  # libraries, weights, activations, and images of one step
LEAST_RESERVED = 2**33  # bytes; what jobs need that need less is measured while they run


def group_layers(widths: Mapping[int, int], images: int, most: int = HELD_BYTES) -> list[tuple[int, ...]]:
    """Divide layers into consecutive groups whose embeddings of these images take at most `most` bytes.

    A layer that takes more is alone.
    """
    groups: list[list[int]] = []
    used = 0
    for layer, width in widths.items():
        needed = FLOAT_BYTES * width * images
        if not groups or used + needed > most:
            groups.append([])
            used = 0
        groups[-1].append(layer)
        used += needed
    return [tuple(group) for group in groups]


def reserved_memory(widths: Mapping[int, int], images: int, besides: int = 0) -> int:
    """Return the bytes of host memory that a job with embeddings of these images reserves, besides `besides` bytes.

    0 if it needs so little that no reservation is necessary.
    """
    largest = 0
    for group in group_layers(widths, images):
        largest = max(largest, FLOAT_BYTES * images * sum(widths[layer] for layer in group))
    needed = BASE_BYTES + besides + largest
    return needed if needed >= LEAST_RESERVED else 0
