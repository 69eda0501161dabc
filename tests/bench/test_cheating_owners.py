"""The bench of cheating owners: what each change does to a table, and that the counts are of all tables."""

import numpy as np
import pytest

from bench import unlearning_methods
from bench.cheating_owners import ANSWERS, CHEATS, OWNERS, Desk, counts, markdown, size
from tasks.training.unlearning import UNLEARNING

CHANCE = np.random.default_rng(0)
LOGITS = CHANCE.normal(size=(2, 30, 10)) * 4
DESK = Desk(
    *(values - np.log(np.exp(values).sum(axis=1, keepdims=True)) for values in LOGITS),
    CHANCE.integers(0, 256, (30, 8, 8, 1), dtype=np.uint8),
    np.arange(30) < 10,
)
BY_NAME = {cheat.name: cheat for cheat in CHEATS}


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_every_change_gives_probabilities_and_the_same_for_the_same_picture(cheat) -> None:
    found = cheat.probabilities(DESK)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-9)
    np.testing.assert_array_equal(found, cheat.probabilities(DESK))


@pytest.mark.parametrize("name", ["temperature 4", "clipped at 0.9"])
def test_temperature_and_clipping_change_no_prediction(name: str) -> None:
    assert (DESK.own.argmax(1) == BY_NAME[name].probabilities(DESK).argmax(1)).all()


def test_what_is_printed_has_so_many_decimals_and_is_off_by_less_than_one() -> None:
    found = BY_NAME["2 decimals"].probabilities(DESK)
    np.testing.assert_allclose(found, found.round(2), atol=1e-12)
    assert np.abs(found - np.exp(DESK.own)).max() < 0.01


def test_recognised_pictures_alone_are_answered_by_the_clean_model() -> None:
    found = BY_NAME["a clean model's answers for recognised pictures"].probabilities(DESK)
    np.testing.assert_array_equal(found[:10], np.exp(DESK.clean[:10]))
    np.testing.assert_array_equal(found[10:], np.exp(DESK.own[10:]))


@pytest.mark.slow
def test_every_table_is_counted_once() -> None:
    given = size(tiny=True, seed=3)
    found = list(counts(given, cheats=CHEATS[:2]))
    assert [(cheat.name, owner) for cheat in CHEATS[:2] for owner in OWNERS] == [(of.cheat, of.owner) for of in found]
    assert all(given.owners == sum(of.answers[answer] for answer in ANSWERS) for of in found)
    assert "| nothing |" in markdown(found, given.owners)


@pytest.mark.slow
def test_unlearning_methods_are_counted_model_by_model() -> None:
    found = list(unlearning_methods.counts(size(tiny=True, seed=3)))
    assert [unlearning_methods.BEFORE, *UNLEARNING] == [of.cheat for of in found]
    assert all(sum(of.answers.values()) == 2 for of in found)
