"""Exact tests of whether codes are uniform over their alphabets, like random ids and unlike increasing numbers.

Codes are tested position by position, over all characters, against the previous code, and, as integers, by their
remainders. Each statistic is compared with that of the same number of random codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

MODULI = (7, 9, 11, 97)  # moduli of common check digits, in addition to Luhn's
SIMULATIONS = 4999
Codes = NDArray[np.int64]  # (codes, characters): the position of each character in its alphabet


def evenness_p_values(texts: Sequence[str], alphabets: Sequence[str], chance: np.random.Generator) -> list[float]:
    """Return the exact p-value of each statistic of `_unevenness`.

    The p-values are exact because the draws are exchangeable under the null hypothesis.
    """
    sizes = np.array([len(alphabet) for alphabet in alphabets])
    codes = np.array(
        [[alphabet.index(character) for character, alphabet in zip(text, alphabets, strict=True)] for text in texts]
    )
    observed = np.array(list(_unevenness(codes, sizes)))
    larger = np.zeros(len(observed), dtype=np.int64)
    for _ in range(SIMULATIONS):
        larger += np.array(list(_unevenness(chance.integers(0, sizes, codes.shape), sizes))) >= observed - 1e-9
    return [float(p) for p in (1 + larger) / (1 + SIMULATIONS)]


def _unevenness(codes: Codes, sizes: NDArray[np.int64]) -> Iterator[float]:
    """Yield statistics that are large for uneven codes: by position, overall, of neighbours and of remainders."""
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    counts = np.bincount((codes + offsets).ravel(), minlength=int(sizes.sum()))
    expected = np.repeat(len(codes) / sizes, sizes)
    yield float(((counts - expected) ** 2 / expected).sum())
    for size in np.unique(sizes):
        yield _chi_square(codes[:, sizes == size].ravel(), int(size))
    yield float((codes[1:] == codes[:-1]).sum())
    if set(sizes.tolist()) == {10}:
        doubled = 2 * codes[:, ::-1][:, 1::2]
        yield _chi_square((codes[:, ::-1][:, ::2].sum(1) + (doubled - 9 * (doubled > 9)).sum(1)) % 10, 10)
        for modulus in MODULI:
            rest = np.zeros(len(codes), dtype=np.int64)
            for digits in codes.T:
                rest = (10 * rest + digits) % modulus
            yield _chi_square(rest, modulus)


def _chi_square(values: NDArray[np.int64], size: int) -> float:
    expected = len(values) / size
    return float(((np.bincount(values, minlength=size) - expected) ** 2).sum() / expected)
