"""Digits on photographs: a second source of the digits' domain, made of real images.

Each digit is blended onto a square of a photograph by the absolute difference of the two, |square - digit|, which
turns the square's levels over where there is ink. The squares are as large as the digits and lie anywhere in the two
photographs that `photos` is cut from, every place being equally likely; the photographs are grey, as the digits are.

An image's origin is its digit's: who needs a source that holds none of the digits of another takes other rows.

Ganin et al. 2016, "Domain-adversarial training of neural networks", JMLR 17, section 5.2.4 (MNIST-M), who blend onto
colour photographs of BSDS500.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tasks import seeds
from tasks.datasets import embedded
from tasks.datasets.content import Content, Source, digest_of
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images, Pixels, decode_picture, luma
from tasks.datasets.overlap import origins

RULE = "digits on photos 1"
SEED = 0


@dataclass(frozen=True)
class Blended:
    """Row i of each split is row i of the digits' split, on a square of its own and with its label."""

    digits: Content
    encoded: tuple[bytes, ...]  # the photographs

    def digest(self) -> str:
        return digest_of(RULE, [self.digits.digest().encode(), *self.encoded])

    def images(self) -> Images:
        digits = self.digits.images()
        photographs = [luma(decode_picture(photo)) for photo in self.encoded]
        train = blend_digits(digits.train_images, photographs, "train")
        test = blend_digits(digits.test_images, photographs, "test")
        return replace(digits, train_images=train, test_images=test, train_origins=origins(digits))


def source(digits: Source) -> Source:
    """These digits on the photographs."""
    photographs = embedded.photographs()
    return Source(
        f"{RULE} {digits.rule}",
        (*digits.files, *photographs),
        lambda: Blended(digits.read(), tuple(path.read_bytes() for path in photographs)),
    )


def blend_digits(digits: Pixels, photographs: Sequence[Pixels], split: str) -> Pixels:
    """|square - digit| of each digit (n, h, w, 1) and its square of a photograph (height, width, 1).

    A row's square depends on the row and the split, and not on how many rows there are.
    """
    height, width = digits.shape[1:3]
    smallest = np.min([photo.shape[:2] for photo in photographs], axis=0)
    if digits.shape[3] != 1 or height > smallest[0] or width > smallest[1]:
        most = f"grey and at most {smallest[0]} x {smallest[1]}"
        raise DatasetError(f"digits to lay on photographs are {digits.shape[1:]}; they must be {most}")
    every = [sliding_window_view(photo[..., 0], (height, width)) for photo in photographs]
    ends = np.cumsum([windows.shape[0] * windows.shape[1] for windows in every])
    places = seeds.generator(SEED, "squares", split).integers(ends[-1], size=len(digits))
    out = np.empty_like(digits)
    for windows, end in zip(every, ends, strict=True):
        across = windows.shape[1]
        begin = end - windows.shape[0] * across
        rows = np.flatnonzero((places >= begin) & (places < end))
        top, left = np.divmod(places[rows] - begin, across)
        squares = windows[top, left][..., None]
        out[rows] = np.maximum(squares, digits[rows]) - np.minimum(squares, digits[rows])
    return out
