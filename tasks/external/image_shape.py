"""Shapes of images with the channels first or last."""

from __future__ import annotations

from collections.abc import Collection

CHANNELS = (1, 3, 4)  # possible numbers of image channels


def channel_axis(sizes: tuple[int, ...], channels: Collection[int] = CHANNELS) -> int | None:
    """Return the axis of the channels in the three sizes of an image: 0 or 2, or None if they leave it open."""
    is_first = sizes[0] in channels
    is_last = sizes[2] in channels
    if is_first == is_last:
        return None
    return 0 if is_first else 2


def channels_last(sizes: tuple[int, int, int], channels: Collection[int] = CHANNELS) -> tuple[int, int, int]:
    """Return height, width and channels of an image whose sizes are in this order, or channels, height and width.

    Sizes that fit both orders, or neither, are returned unchanged.
    """
    if channel_axis(sizes, channels) == 0:
        return sizes[1], sizes[2], sizes[0]
    return sizes
