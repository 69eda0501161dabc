import numpy as np
import pytest
import torch
from scipy import stats

from tasks.models.counter_rng import GAMMA, CounterRng, counters, member_key, mix_words, step_keys


def splitmix64(seed: int, count: int) -> list[int]:
    """The published generator, in Python's integers."""
    words = []
    wrap = 2**64 - 1
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) & wrap
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & wrap
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & wrap
        words.append(z ^ (z >> 31))
    return words


def test_stream_is_splitmix64() -> None:
    # The first two words of seed 1234567, as its authors' C code prints them.
    assert splitmix64(1234567, 2) == [6457827717110365317, 3203168211198807973]
    words = mix_words(1234567 + counters(1000, torch.device("cpu")))
    assert splitmix64(1234567, 1000) == [word % 2**64 for word in words.tolist()]


def test_numbers_of_model_are_independent_of_others() -> None:
    keys = torch.tensor([member_key(seed) for seed in range(5)])
    for draw in (
        lambda draws: draws.uniform(3, (7, 11)),
        lambda draws: draws.normal(3, (7, 11)),
        lambda draws: draws.dropout_mask(3, (7, 11), 0.5),
    ):
        together = draw(CounterRng(keys))
        assert together.shape == (5, 7, 11)
        for index, key in enumerate(keys):
            assert torch.equal(draw(CounterRng(key[None]))[0], together[index])
    assert torch.equal(CounterRng(keys[[4, 1]]).uniform(0, (3,)), CounterRng(keys).uniform(0, (3,))[[4, 1]])


@pytest.mark.parametrize("first", [1, 3, 4])
def test_later_rows_have_the_numbers_of_all_rows(first: int) -> None:
    keys = torch.tensor([member_key(seed) for seed in range(2)])
    whole = CounterRng(keys)
    later = CounterRng(keys, first_row=first)
    rows = 7 - first
    assert torch.equal(later.words(3, (rows, 3)), whole.words(3, (7, 3))[:, first:])
    assert torch.equal(later.quarters(3, (rows, 3)), whole.quarters(3, (7, 3))[:, first:])
    assert torch.equal(later.normal(3, (rows, 3)), whole.normal(3, (7, 3))[:, first:])
    assert torch.equal(later.dropout_mask(3, (rows, 3), 0.5), whole.dropout_mask(3, (7, 3), 0.5)[:, first:])


def test_members_steps_and_sites_have_own_numbers() -> None:
    members = torch.tensor([member_key(seed) for seed in range(40)])
    words = [
        CounterRng(step_keys(members, torch.full((40,), step))).words(site, (50,))
        for step in range(20)
        for site in range(5)
    ]
    assert len(torch.cat(words).unique()) == 40 * 20 * 5 * 50


def test_step_key_depends_only_on_member_and_step() -> None:
    members = torch.tensor([5, 6, 5])
    keys = step_keys(members, torch.tensor([1, 1, 2]))
    assert len(keys.unique()) == 3
    assert torch.equal(step_keys(members[1:2], torch.tensor([1])), keys[1:2])
    assert mix_words(torch.tensor([5 + GAMMA])).equal(keys[:1])


def test_uniform_numbers_are_uniform_in_every_dtype() -> None:
    draws = CounterRng(torch.tensor([member_key(0), member_key(1)]))
    numbers = draws.uniform(0, (200_000,), torch.float64)
    assert torch.equal(draws.uniform(0, (200_000,)).double(), numbers)
    assert (numbers >= 0).all()
    assert (numbers < 1).all()
    for row in numbers.numpy():
        assert stats.kstest(row, "uniform").pvalue > 1e-4
        assert abs(np.corrcoef(row[:-1], row[1:])[0, 1]) < 5 / np.sqrt(len(row))
    assert abs(np.corrcoef(numbers.numpy())[0, 1]) < 5 / np.sqrt(200_000)


def test_normal_numbers_are_normal() -> None:
    numbers = CounterRng(torch.tensor([member_key(3)])).normal(1, (200_000,), torch.float64)
    assert torch.isfinite(numbers).all()
    assert stats.kstest(numbers[0].numpy(), "norm").pvalue > 1e-4


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 0.99])
def test_dropped_share_is_the_rate(rate: float) -> None:
    kept_share = CounterRng(torch.tensor([member_key(9)])).dropout_mask(0, (400_000,), rate).double().mean().item()
    assert abs(kept_share - (1 - rate)) <= 5 * np.sqrt(rate * (1 - rate) / 400_000)


def test_odd_number_of_draws_is_a_prefix() -> None:
    draws = CounterRng(torch.tensor([member_key(9)]))
    assert torch.equal(draws.uniform(0, (8,))[:, :5], draws.uniform(0, (5,)))
    assert torch.equal(draws.normal(0, (8, 3))[:, :5], draws.normal(0, (5, 3)))
    assert torch.equal(draws.dropout_mask(0, (8,), 0.5)[:, :5], draws.dropout_mask(0, (5,), 0.5))
