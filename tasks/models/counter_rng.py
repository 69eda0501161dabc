"""Draw random numbers for many models at once, as a function of each model's seed, its step and a site in the network.

The generator is counter-based, so numbers do not depend on other draws, on a model's place in a stack, or on the device
(the bits are integers). A stream is SplitMix64 started at a key: word i of key k is mix(k + i gamma). Steele, Lea &
Flood 2014, "Fast splittable pseudorandom number generators", figures 13 and 14.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, cached_property, lru_cache

import torch
from torch import Tensor

from tasks.numerics import seeds

GAMMA = 0x9E3779B97F4A7C15 - 2**64  # as a signed 64-bit word
FIRST = 0xBF58476D1CE4E5B9 - 2**64
SECOND = 0x94D049BB133111EB - 2**64
BITS = 32  # of a word that a draw of an integer uses


class CounterRng:
    """Random numbers for each model, derived from its key (models,) int64 and, with `steps` (models,), for one step.

    Every method takes a `site` in the network, and different sites have different numbers. Results are (models,
    *shape), where the first axis of `shape` counts rows, and all numbers are independent. The first row is
    `first_row` of those for which numbers are drawn.
    """

    def __init__(self, keys: Tensor, steps: Tensor | None = None, first_row: int = 0) -> None:
        self._members = keys
        self._steps = steps
        self._first_row = first_row

    @cached_property
    def keys(self) -> Tensor:
        """The key of every model, (models,), computed on the first draw."""
        if self._steps is None:
            return self._members
        return step_keys(self._members, self._steps)

    def words(self, site: int, shape: Sequence[int]) -> Tensor:
        """Return words of 64 random bits, (models, *shape) int64."""
        return self._bits(site, shape, torch.int64).view(-1, *shape)

    def quarters(self, site: int, shape: Sequence[int]) -> Tensor:
        """Return words of 16 random bits, (models, *shape) int16."""
        return self._bits(site, shape, torch.int16).reshape(-1, *shape)

    def _bits(self, site: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return words of random bits of an integer type, (models, number of values)."""
        count = math.prod(shape)
        before = self._first_row * math.prod(shape[1:])
        in_word = 8 // dtype.itemsize
        first_word = before // in_word
        skipped = before - first_word * in_word
        starts = mix_words(self.keys ^ site_key(site))
        if first_word:
            starts = starts + ((first_word * GAMMA + 2**63) % 2**64 - 2**63)  # as a signed 64-bit word
        words = mix_words(starts[:, None] + counters(-(-(skipped + count) // in_word), starts.device), spare=False)
        return words.view(dtype)[:, skipped : skipped + count]

    def uniform(self, site: int, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw from U[0, 1) in steps of 2^-24. The numbers are the same in every dtype."""
        halves = self._bits(site, shape, torch.int32)
        return halves.bitwise_and(0xFFFFFF).to(dtype).mul_(2.0**-24).view(-1, *shape)

    def normal(self, site: int, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw from N(0, 1). Box & Muller 1958: sqrt(-2 log(1 - u)) cos(2 pi v)."""
        uniform = self.uniform(site, (*shape, 2), dtype)  # in pairs, so that fewer rows are a prefix of more rows
        radius = uniform[..., 0].neg().log1p_().mul_(-2).sqrt_()
        return radius.mul_(uniform[..., 1].mul(2 * math.pi).cos_())

    def dropout_mask(self, site: int, shape: Sequence[int], rate: float) -> Tensor:
        """Return a mask of kept values: True with probability 1 - rate (rate < 1), to within 2^-17."""
        quarters = self._bits(site, shape, torch.int16)
        return (quarters >= round(rate * 2**16) - 2**15).view(-1, *shape)


def row_bits(keys: Tensor, site: int, rows: Tensor) -> Tensor:
    """Return a random bit for each model's rows (models, n) int64, which depends on neither step nor position."""
    starts = mix_words(keys ^ site_key(site))
    return mix_words(starts[:, None] + (rows + 1) * GAMMA, spare=False).bitwise_and_(1)


def member_key(seed: int) -> int:
    """Return the key from which all steps' draws of a model are derived."""
    return seeds.derive(seed, "draws")


def step_keys(members: Tensor, steps: Tensor) -> Tensor:
    """Return the keys for a step, from each model's key and its number of completed steps, both (models,) int64."""
    return mix_words(members + steps.long() * GAMMA)


def mix_words(words: Tensor, spare: bool = True) -> Tensor:
    """Apply SplitMix64's finaliser. If `spare` is set, the argument is not changed."""
    words = words.clone() if spare else words
    # Right-shifting a signed word copies the sign bit, so the copied bits are masked.
    words.bitwise_xor_((words >> 30).bitwise_and_(2**34 - 1)).mul_(FIRST)
    words.bitwise_xor_((words >> 27).bitwise_and_(2**37 - 1)).mul_(SECOND)
    return words.bitwise_xor_((words >> 31).bitwise_and_(2**33 - 1))


@cache
def site_key(site: int) -> int:
    return seeds.derive(site, "site")


@lru_cache(256)
def counters(count: int, device: torch.device) -> Tensor:
    """Return 1 gamma, 2 gamma, ...: the counter of a stream.

    It is cached because a CUDA graph stores its address.
    """
    return torch.arange(1, count + 1, device=device) * GAMMA
