from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.canary_selection import (
    CHOSEN,
    CanaryChoice,
    RankedImage,
    RankedTraining,
    batch_key,
    canary_row,
    choose_canaries,
    extreme_indices,
    train_many,
    train_with_canary,
)
from tasks.job import marks
from tasks.training import classifier
from tasks.training.classifier import Burnt
from tests.tasks.audits.unique_feature import small
from tests.tasks.audits.unique_feature.small import LETTER, TRAINING

RANKED = [(0, 1), (0, 2), (1, 1)]  # seeds and ranks


def places(table: pa.Table) -> list[tuple[str, int, int]]:
    return [(row["end"], row["rank"], row["row"]) for row in table.to_pylist()]


def test_half_of_the_canaries_are_of_the_highest_influence_and_half_of_the_lowest() -> None:
    table = choose_canaries(CanaryChoice(4), [small.influence([3.0, 9.0, 1.0, 7.0, 5.0, 2.0], first=20)])
    assert CHOSEN == table.schema
    assert [("highest", 1, 21), ("highest", 2, 23), ("lowest", 1, 22), ("lowest", 2, 25)] == places(table)
    first = {"end": "highest", "rank": 1, "row": 21, "label": 1, "self_influence": 9.0, "squared_slopes": 90.0}
    assert first == table.to_pylist()[0]


def test_the_odd_one_is_of_the_highest_influence() -> None:
    table = choose_canaries(CanaryChoice(3), [small.influence([3.0, 9.0, 1.0, 7.0])])
    assert [("highest", 1, 1), ("highest", 2, 3), ("lowest", 1, 2)] == places(table)
    assert [("highest", 1, 1)] == places(choose_canaries(CanaryChoice(1), [small.influence([3.0, 9.0, 1.0])]))


def test_of_equal_influence_the_first_row_goes_first_and_none_is_chosen_twice() -> None:
    equal = [2.0, 2.0, 2.0, 2.0]
    assert [("highest", 1, 0), ("highest", 2, 1), ("lowest", 1, 2), ("lowest", 2, 3)] == places(
        choose_canaries(CanaryChoice(4), [small.influence(equal)])
    )
    # By row, wherever the rows stand in the table.
    assert ([3, 1], [0, 2]) == extreme_indices(np.array([1.0, 2.0, 1.0, 2.0]), np.array([8, 9, 10, 1]), 2, 2)


def test_more_canaries_than_images_are_refused() -> None:
    with pytest.raises(ValueError, match="count is 3; it must be at most 2, the training images there are"):
        choose_canaries(CanaryChoice(3), [small.influence([1.0, 2.0])])
    with pytest.raises(ValueError, match="count is 0; it must be at least 1"):
        CanaryChoice(0)


def test_a_rank_is_looked_up_and_a_row_is_itself() -> None:
    both = pa.concat_tables([small.chosen(30, 7), small.chosen(11, end="lowest")])
    models = [small.influence([1.0]), both]
    assert [7, 11, 42] == [
        canary_row(canary, models) for canary in (RankedImage("highest", 2), RankedImage("lowest", 1), 42)
    ]
    assert 42 == canary_row(42, ())
    with pytest.raises(ValueError, match="rank is 2; of the lowest self-influence 1 images were chosen"):
        canary_row(RankedImage("lowest", 2), models)
    with pytest.raises(ValueError, match="no input says which were chosen"):
        canary_row(RankedImage("lowest", 1), models[:1])


@pytest.mark.parametrize(
    ("end", "rank", "message"),
    [
        ("middle", 1, "end is 'middle'; it must be one of highest, lowest"),
        ("lowest", 0, "rank is 0; it must be at least 1"),
    ],
)
def test_a_rank_that_cannot_be_is_refused(end: str, rank: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RankedImage(end, rank)  # type: ignore[arg-type]


def test_a_canary_by_rank_gives_the_model_of_its_row_to_the_bit() -> None:
    table = small.chosen(30, 7)
    configs = [
        RankedTraining(replace(TRAINING, seed=seed), RankedImage("highest", rank), LETTER) for seed, rank in RANKED
    ]
    by_row = [
        classifier.train(replace(TRAINING, seed=seed, burnt=(Burnt((30, 7)[rank - 1], LETTER),)), ())
        for seed, rank in RANKED
    ]
    together = dict(train_many(configs, [[table]] * len(configs)))
    assert by_row == [together[index] for index in range(len(configs))]
    assert by_row[0] == train_with_canary(configs[0], [table])
    assert by_row[0] != by_row[1]


def test_a_rank_that_was_not_chosen_ends_its_training_alone() -> None:
    there, absent = (RankedTraining(TRAINING, RankedImage("highest", rank), LETTER) for rank in (1, 2))
    found = dict(train_many([absent, there], [[small.chosen(3)]] * 2))
    assert "rank is 2; of the highest self-influence 1 images were chosen" == str(found[0])
    assert train_with_canary(there, [small.chosen(3)]) == found[1]
    with pytest.raises(ValueError, match="rank is 2"):
        train_with_canary(absent, [small.chosen(3)])


def test_trainings_alike_in_all_but_seed_and_canary_share_a_call() -> None:
    one = RankedTraining(TRAINING, RankedImage("highest", 1), LETTER)
    other = RankedTraining(replace(TRAINING, seed=9), RankedImage("lowest", 2), LETTER)
    longer = RankedTraining(replace(TRAINING, epochs=3), RankedImage("highest", 1), LETTER)
    assert batch_key(one) == batch_key(other)
    assert batch_key(one) != batch_key(longer)
    with pytest.raises(ValueError, match="cannot share a call"):
        list(train_many([one, longer], [[small.chosen(3)]] * 2))


def test_a_training_that_burns_another_feature_is_refused() -> None:
    with pytest.raises(ValueError, match="training burns a feature into row 4; it must burn none beside the canary's"):
        RankedTraining(replace(TRAINING, burnt=(Burnt(4, LETTER),)), RankedImage("lowest", 1), LETTER)


def test_the_training_is_marked_as_one_that_shares_calls() -> None:
    mark = marks(train_with_canary)
    assert ("unique_feature.train_ranked", 1.0) == (mark.name, mark.gpus)
    assert (train_many, batch_key) == (mark.many, mark.batch_key)
