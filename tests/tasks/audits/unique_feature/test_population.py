import numpy as np
import pytest

from tasks.audits.unique_feature import population
from tasks.numerics.statistics import Estimate, rank_p_value
from tests.support.calibration import DRAWS, assert_rate


def test_the_rank_p_value_counts_those_that_score_as_much() -> None:
    assert 0.25 == rank_p_value(np.array([3.0, 1.0, 2.0, 0.0]))
    assert 1.0 == rank_p_value(np.array([0.0, 1.0, 2.0, 3.0]))
    # Ties count against the feature.
    assert 0.75 == rank_p_value(np.array([1.0, 1.0, 2.0, 0.0]))


def test_a_population_counts_the_feature_and_is_read_back_from_its_setting() -> None:
    own, glyphs = population.Population(201), population.Population(4_457_400, are_all_glyphs=True)
    assert ({"others": 200}, {"glyphs": 4_457_400}) == (own.setting, glyphs.setting)
    assert [own, glyphs] == [population.Population.from_setting(each.setting) for each in (own, glyphs)]
    assert [10, 222_870, 0] == [each.last_called for each in (own, glyphs, population.Population(19))]
    assert [1, 2] == [own.fewest_called(canaries) for canaries in (10, 11)]


def test_scores_are_standardised_over_the_family_and_averaged_over_models() -> None:
    one = np.array([[3.0, 0.0], [1.0, 0.0], [1.0, 0.0], [3.0, 0.0]])  # class 0: +-1 about 2; class 1: unmoved
    other = np.array([[0.0, 8.0], [0.0, 4.0], [0.0, 4.0], [0.0, 0.0]])
    found = population.label_directed_scores(np.stack([one, other]), 0)
    assert [0.5, -0.5, -0.5, 0.5] == found.tolist()
    spread = np.std([8, 4, 4, 0])
    assert [2 / spread, 0, 0, -2 / spread] == pytest.approx(
        population.label_directed_scores(np.stack([one, other]), 1).tolist()
    )
    assert [1, 0] == [population.favoured_label(np.stack([one, other]), label) for label in (None, 0)]


def test_with_the_label_unknown_members_stand_where_they_stand_highest() -> None:
    scores = np.array([[0.1, -1.0], [5.0, -9.0], [4.0, -8.0], [-3.0, -1.0], [0.0, -1.0]])
    # Above so many in each class: (2, 2), (4, 0), (3, 1), (0, 2), (1, 2); equal places by their scores.
    standing, classes = population.highest_standing(scores)
    assert [1.0, 3.0, 2.0, 0.0, 0.0] == standing.tolist()
    assert [0, 0, 0, 1, 1] == classes.tolist()
    # Three are above two and have the same score there, one of them in either class.
    tied = np.array([[-2.0, -1.0], [5.0, -9.0], [4.0, -8.0], [-3.0, -1.0], [-4.0, -1.0]])
    assert [0.0, 2.0, 1.0, 0.0, 0.0] == population.highest_standing(tied)[0].tolist()


def test_differences_of_pairs_are_standardised_one_by_one() -> None:
    found = population.mean_standardised_scores([np.array([1.0, 3.0]), np.array([0.0, 40.0]), np.array([2.0, 2.0])])
    assert [-2 / 3, 2 / 3] == pytest.approx(found.tolist())


def test_a_label_that_is_nearly_certain_hides_no_push_towards_it() -> None:
    rng = np.random.default_rng(7)
    odds = rng.normal(6, 1, 200)  # of class 1: its log P is at most 0, that of class 0 has a long tail
    odds[0] = 9
    log_p = -np.logaddexp(0, np.stack([odds, -odds], axis=1))[None]
    assert 1 / 200 == rank_p_value(population.label_directed_scores(log_p, 1))
    assert population.standardise(log_p)[0].max(axis=1)[0] < 1.0
    assert rank_p_value(population.label_directed_scores(log_p)) <= 2 / 200
    assert 1 == population.favoured_label(log_p)


def test_the_push_is_the_distance_from_the_rest_of_the_family() -> None:
    log_p = np.array([[[-1.0], [-2.0], [-2.2], [-1.8]]])
    estimate, null = population.push(log_p, log_p, 0)
    assert 1.0 == pytest.approx(estimate.value)
    assert [1.0 - 0.2, 1.0 + 0.2] == pytest.approx([estimate.low, estimate.high])
    assert (1, 0.0) == (estimate.n, null)


def test_a_family_with_a_tail_to_one_side_shifts_the_interval_to_the_other() -> None:
    # The others deviate by -2, -1 and 3 from their mean 2: what was seen, 5 above it, may be an effect of 2 to 7.
    log_p = np.array([[[7.0], [0.0], [1.0], [5.0]]])
    estimate, _ = population.push(log_p, log_p, 0)
    assert 5.0 == estimate.value
    assert [5.0 - 3, 5.0 + 2] == pytest.approx([estimate.low, estimate.high])


def test_with_the_label_unknown_each_of_the_others_chooses_its_own() -> None:
    # By log P the asked one stands highest in label 1, and the others in 0, 2 and 2: their odds there are chosen.
    log_p = np.array([[[0.0, 9.0, 0.0], [9.0, 0.0, 1.0], [1.0, 1.0, 8.0], [2.0, 2.0, 9.0]]])
    log_odds = np.array([[[0.0, 7.0, 0.0], [3.0, 1.0, 0.0], [0.0, 4.0, 6.0], [0.0, 1.0, 9.0]]])
    estimate, null = population.push(log_p, log_odds)
    assert 7 - (1 + 4 + 1) / 3 == pytest.approx(estimate.value)
    # Less their means 1 of label 0 and 5 of label 2.
    assert np.mean([3 - 1, 6 - 5, 9 - 5]) == pytest.approx(null)
    # At most 4 is chosen, more than the 2 of label 1, where the least is -1.
    assert [5 - 4, 5 + 1] == pytest.approx([estimate.low, estimate.high])
    _, known = population.push(log_p, log_odds, 1)
    assert 0.0 == known

    others = population.mean_push_of_others(log_p, log_odds)
    assert Estimate(pytest.approx(7 / 3), 1.0, 4.0, 3) == others  # of three, the least and the most
    known = population.mean_push_of_others(log_p, log_odds, 1)
    assert Estimate(0.0, -1.0, 2.0, 3) == known


def test_how_far_labels_are_apart_says_which_push_matters() -> None:
    # Means over the family 1 and 5 of one model, 1 and 4 of the other.
    log_odds = np.array([[[0.0, 4.0], [2.0, 6.0]], [[0.0, 0.0], [2.0, 8.0]]])
    assert 1.5 == population.separation(log_odds)
    assert [0.03, 0.1, 0.1] == pytest.approx([population.smallest_relevant_push(each) for each in (1.5, 5.0, 100.0)])


def test_ties_are_counted_among_the_others_of_the_model_that_has_most() -> None:
    log_odds = np.array([[[1.0], [1.0], [1.0], [2.0], [1.0]], [[9.0], [1.0], [2.0], [3.0], [4.0]]])
    assert 3 / 4 == population.tied_share(log_odds, 0)
    assert 1 / 4 == population.tied_share(log_odds[1:], 0)


def test_with_the_label_unknown_the_null_has_the_same_choice_of_labels() -> None:
    rng = np.random.default_rng(3)
    drawn = [rng.normal(0, 1, (1, 101, 10)) for _ in range(100)]
    estimates = [population.push(log_p, log_p) for log_p in drawn]
    gained = np.mean([estimate.value for estimate, _ in estimates])
    assert np.mean([null for _, null in estimates]) == pytest.approx(gained, abs=0.15)
    assert gained > 1


@pytest.mark.parametrize("label", [None, 2])
def test_a_feature_that_nobody_trained_on_is_called_as_often_as_the_level_says(label: int | None) -> None:
    # Models differ, members share what every model says of them, and the asked one is like any other: 2 ranks of 40.
    rng = np.random.default_rng(4)
    shared = rng.normal(0, 1, (DRAWS, 1, 40, 5))
    drawn = shared + rng.normal(0, 0.5, (DRAWS, 2, 40, 5))
    p_values = np.array([rank_p_value(population.label_directed_scores(log_p, label)) for log_p in drawn])
    assert_rate(0.05, int((p_values <= 0.05).sum()))
    assert_rate(0.5, int((p_values <= 0.5).sum()))


@pytest.mark.parametrize("push", [0.0, 2.0, 6.0])
def test_with_the_label_unknown_the_interval_covers_the_push_towards_the_chosen_label(push: float) -> None:
    # One class in ten is pushed, by nats or not at all; where another one is chosen, nothing pushes towards that.
    rng = np.random.default_rng(11)
    covered, below, draws = 0, 0, 300
    for _ in range(draws):
        odds = rng.normal(0, 1, (1, 121, 10))
        odds[0, 0, 3] += push
        log_p = -np.logaddexp(0, -odds)
        estimate, _ = population.push(log_p, odds)
        true = push if population.favoured_label(log_p) == 3 else 0.0
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= true <= estimate.high
        below += estimate.low > true
    assert covered / draws >= 0.93
    assert below / draws <= 0.05


def test_the_share_of_pushes_that_would_be_found_is_that_of_the_others_that_would_stand_first() -> None:
    # 39 others, 1 apart: called are the first two of 40. Pushed by 2.5 the highest four would be.
    odds = np.arange(40.0)[::-1].reshape(1, 40, 1)
    log_p = -np.logaddexp(0, -odds)
    assert 2 / 39 == pytest.approx(population.detectable_share(log_p, odds, 0.5, 0))
    assert 4 / 39 == pytest.approx(population.detectable_share(log_p, odds, 2.5, 0))
    assert 1.0 == population.detectable_share(log_p, odds, 50.0, 0) == population.detectable_share(log_p, odds, 50.0)
    # Nine of the others lie far above thirty: these are found where they are pushed by half of the way, no others.
    odds = np.concatenate([[0.0], np.arange(30.0), np.full(9, 100.0)]).reshape(1, 40, 1)
    assert 9 / 39 == pytest.approx(population.detectable_share(odds, odds, 50.0, 0))
    few = np.arange(19.0).reshape(1, 19, 1)  # the first of nineteen is not among 5 %
    assert 0.0 == population.detectable_share(few, few, 50.0, 0)


def test_what_is_said_to_be_found_of_pushes_is_found() -> None:
    rng = np.random.default_rng(12)
    said, found = [], []
    for _ in range(400):
        odds = rng.normal(0, 1, (1, 201, 1))
        said.append(population.detectable_share(-np.logaddexp(0, -odds), odds, 2.0, 0))
        odds[0, 0] += 2.0
        found.append(rank_p_value(odds[0, :, 0]) <= 0.05)
    assert np.mean(said) == pytest.approx(np.mean(found), abs=0.06)


@pytest.mark.parametrize(("others", "coverage"), [(19, 18 / 20), (39, 0.95), (119, 0.95)])
def test_the_push_interval_covers_zero_as_often_as_it_says_where_nothing_is_memorised(
    others: int, coverage: float
) -> None:
    # The asked one is below the k-th of n others in k of n + 1 cases, whatever they are drawn from; here to one side.
    drawn = np.random.default_rng(5).exponential(1, (DRAWS, 1, others + 1, 1))
    found = [population.push(log_p, log_p, 0)[0] for log_p in drawn]
    above = sum(each.low is not None and each.low > 0 for each in found)
    below = sum(each.high is not None and each.high < 0 for each in found)
    assert_rate((1 - coverage) / 2, above)
    assert_rate((1 - coverage) / 2, below)


def test_a_pairs_difference_leaves_what_the_canary_did() -> None:
    rng = np.random.default_rng(6)
    twin = rng.normal(0, 5, (30, 3))
    canary = twin + rng.normal(0, 0.1, (30, 3))
    canary[0, 2] += 1
    assert 1 / 30 == pytest.approx(rank_p_value(population.twin_difference(canary, twin, 2)))
    assert rank_p_value(population.label_directed_scores(canary[None], 2)) != pytest.approx(1 / 30)


def test_a_push_towards_a_label_that_is_nearly_certain_shows_in_its_odds() -> None:
    odds = np.full((1, 50, 1), 8.0) + np.random.default_rng(8).normal(0, 0.1, (1, 50, 1))
    odds[0, 0, 0] = 11
    log_p = -np.logaddexp(0, -odds)
    estimate, _ = population.push(log_p, odds, 0)
    assert estimate.value == pytest.approx(3.0, abs=0.1)
    assert log_p[0, 0, 0] - log_p[0, 1:, 0].mean() < 0.001
