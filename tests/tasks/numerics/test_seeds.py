"""Streams never change: a stored result can be drawn again, number by number, from its seed and name."""

import hashlib

import numpy as np
import pytest

from tasks.numerics import seeds


@pytest.mark.parametrize(
    ("seed", "names", "path", "expected"),
    [
        (0, (), "0", 2033344993903900207),
        (7, ("batch order", 3), "7\x1fstr:batch order\x1fint:3", 2341170679917246849),
        (2**63, ("initial weights",), "9223372036854775808\x1fstr:initial weights", 6116636383310707517),
        (-1, ("é",), "-1\x1fstr:é", 9177624547125540686),
    ],
)
def test_derived_seed_is_63_bits_of_its_digest(
    seed: int, names: tuple[str | int, ...], path: str, expected: int
) -> None:
    digest = hashlib.sha256(path.encode()).digest()
    assert expected == seeds.derive(seed, *names)
    assert expected == sum(byte << 8 * position for position, byte in enumerate(digest[:8])) // 2


def test_stream_is_numpys_pcg64_from_derived_seed() -> None:
    first = seeds.generator(7, "batch order", 3)
    assert first.bit_generator.random_raw(3).tolist() == [1835320684547163524, 6903589397680511870, 5645724045440110068]  # type: ignore[union-attr]
    assert seeds.generator(7, "batch order", 3).random(2).tolist() == [0.09949293366968082, 0.37424433114565525]
    assert seeds.generator(7, "batch order", 3).permutation(8).tolist() == [1, 6, 5, 3, 7, 2, 0, 4]


def test_equal_seeds_and_names_give_equal_streams() -> None:
    names = [("weights",), ("batch order", 1), ("batch order", 2)]
    forwards = [seeds.generator(5, *name).random(4).tolist() for name in names]
    backwards = []
    for name in reversed(names):
        backwards.append(seeds.generator(5, *name).random(4).tolist())
    assert forwards == backwards[::-1]
    weights = seeds.generator(5, "weights")
    order = seeds.generator(5, "batch order", 1)
    mixed = [(float(weights.random()), float(order.random())) for _ in range(4)]
    assert forwards[:2] == [list(numbers) for numbers in zip(*mixed, strict=True)]


def test_other_seeds_and_names_give_other_streams() -> None:
    paths = [
        (5,),
        (6,),
        (5, "a"),
        (5, "b"),
        (5, "a", "b"),
        (5, "b", "a"),
        (5, "ab"),
        (5, "a", 1),
        (5, "a", "1"),  # a number differs from its text
        (5, "a1"),
        (51, "a"),
        (5, 1),
        (5, "str:a"),
        (5, ""),
    ]
    assert len(paths) == len({seeds.derive(seed, *names) for seed, *names in paths})
    assert len(paths) == len({seeds.generator(seed, *names).random() for seed, *names in paths})


def test_neighbouring_streams_are_uncorrelated() -> None:
    # 1,000 epochs' first numbers, and their differences from the next epoch's: uniform, and not correlated.
    first = np.array([seeds.generator(0, "batch order", epoch).random() for epoch in range(1000)])
    assert pytest.approx(first.mean(), abs=4 / np.sqrt(12 * 1000)) == 0.5
    assert pytest.approx(first.var(), abs=4 / np.sqrt(180 * 1000)) == 1 / 12
    assert pytest.approx(np.corrcoef(first[1:], first[:-1])[0, 1], abs=4 / np.sqrt(1000)) == 0.0
