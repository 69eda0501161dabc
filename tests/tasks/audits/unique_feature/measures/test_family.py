"""Outputs of models for the feature and its family, and the ranks of single models."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.answer import verdict
from tasks.audits.unique_feature.design import load_design, uncarried_feature
from tasks.audits.unique_feature.evaluation import Burning, burn_family, probe_images, probe_set_triples
from tasks.audits.unique_feature.measures.family import (
    OTHERS,
    UPPER,
    PairFamily,
    central_range,
    detectable_share,
    mean_push_of_others,
    most_tied_share,
    pair_family,
    push,
    separation,
    single_family_rows,
    smallest_relevant_push,
)
from tasks.audits.unique_feature.pairs.canary_selection import Canary, canaries, own_feature
from tasks.audits.unique_feature.population import FAMILY, ModelFamily, Relatives, favoured_label, model_families
from tasks.audits.unique_feature.questions import Panel
from tasks.audits.unique_feature.trainings import trainings
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Estimate, Row
from tasks.contract.ties import TIED
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import AskedFamily, Family, Glyph, burn, family, glyph_pixels
from tasks.numerics.ranks import rank_p_value
from tests.support.calibration import DRAWS, assert_rate
from tests.support.golden import Golden
from tests.support.settings import with_settings
from tests.tasks.audits.unique_feature.made_up import INK, LABEL, configure, letter_model
from tests.tasks.audits.unique_feature.made_up import family as made_family
from tests.tasks.summary_rows import by_name

STRENGTH = 3.0
MEMBERS = 15
PROBES = 40
SHAPE = (28, 28, 1)


def relatives_of(feature: Glyph = Glyph()) -> Relatives:
    return Relatives(pin(Dataset("photos")), "test", PROBES, feature, AskedFamily(count=MEMBERS), seed=5)


def test_letter_models_family_scores_agree_with_hand_calculation() -> None:
    data = pin(Dataset("digits"))
    canary = int(np.flatnonzero(load(data).train_labels == LABEL)[0])
    table = pair_family(PairFamily(data, canary, relatives_of()), [letter_model(STRENGTH), letter_model(0.0)])
    canary_family, control_family = model_families(table)
    assert canary_family.about == {"canary": canary, "label": LABEL, "seed": 17, "model": "canary"}
    assert control_family.about["model"] == "twin"
    # A member's brightness at the letter's ink is the share of that ink that it contains.
    members = [Glyph(), *family(Glyph(), Family(count=MEMBERS), 5, SHAPE[:2])]
    shared = np.array(
        [glyph_pixels(member).ravel()[INK].mean() / 255 for member in members if isinstance(member, Glyph)]
    )
    expected = STRENGTH * shared - np.log(np.exp(STRENGTH * shared) + 9)
    assert expected == pytest.approx(canary_family.log_p[:, LABEL], abs=1e-5)
    assert STRENGTH * shared - np.log(9) == pytest.approx(canary_family.log_odds[:, LABEL], abs=1e-5)
    assert 1.0 == shared[0] > shared[1:].max()
    assert np.full((MEMBERS + 1, 10), np.log(0.1)) == pytest.approx(control_family.log_p, abs=1e-6)
    assert not control_family.d.any()
    assert (canary_family.d > 0).all()


def test_only_first_probe_images_are_evaluated() -> None:
    clean = probe_images(Dataset("photos"), "test", SHAPE, PROBES)
    assert (load(Dataset("photos")).test_images[:PROBES] == clean).all()
    assert len(load(Dataset("photos")).test_images) == len(probe_images(Dataset("photos"), "test", SHAPE))
    images_by_member = dict(burn_family(clean, Glyph(), Family(count=3), 1))
    assert list(images_by_member) == [0, 1, 2, 3]
    assert (burn(clean, Glyph()) == images_by_member[0]).all()


def test_random_patch_can_be_a_family_member() -> None:
    clean = probe_images(Dataset("photos"), "test", SHAPE, 200)
    patches = probe_set_triples(clean, Burning(Glyph(), "family", 3)).random
    glyphs = patches[:, 1:6, 1:6, 0]
    ink = int(glyph_pixels(Glyph()).sum())
    assert {int(glyph.sum()) for glyph in glyphs.astype(int)} == {ink}
    assert len({glyph.tobytes() for glyph in glyphs}) > 50
    assert not any((glyph == glyph_pixels(Glyph())).all() for glyph in glyphs)
    # The patch of an image depends only on its row.
    repeated_patches = probe_set_triples(clean, Burning(Glyph(), "family", 3)).random
    assert (repeated_patches == patches).all()


def test_pairs_are_evaluated_on_an_uncarried_feature() -> None:
    data = pin(Dataset("digits"))
    # The letter's brightness at its ink is 1: the uncarried feature has the letter's score from above.
    config = PairFamily(data, 3, relatives_of(Glyph(kind="random", seed=8)), uncarried=Glyph())
    canary_family, _ = model_families(pair_family(config, [letter_model(STRENGTH), letter_model(0.0)]))
    assert canary_family.null is not None
    expected = STRENGTH - np.log(np.exp(STRENGTH) + 9)
    assert expected == pytest.approx(canary_family.null.log_p[0, LABEL], abs=1e-5)
    assert (canary_family.log_p[1:] == canary_family.null.log_p[1:]).all()
    assert len(canary_family.log_p) == MEMBERS + 1


def test_lookalikes_of_the_uncarried_feature_are_left_out() -> None:
    log_p = np.array([[-1.0, -2.0], [-3.0, -1.0], [-2.0, -2.0], [-3.0, -1.0]])
    (model,) = model_families(made_family(4, {"canary": log_p}, uncarried=True))
    assert model.null is not None
    assert model.null.log_p.tolist() == [[-3.0, -1.0], [-2.0, -2.0]]
    assert len(model.log_p) == 3


def test_carried_and_uncarried_features_swap_their_families() -> None:
    config = configure(data=Dataset("digits"), probe=Dataset("photos"), canaries=3)
    drawn_config = with_settings(config, drawn=True)
    digits = load(Dataset("digits"))
    for canary in canaries(drawn_config, drawn_config.question, digits):
        assert Glyph() == uncarried_feature(load_design(drawn_config), canary, digits.shape)
    features = [
        uncarried_feature(load_design(config), canary, digits.shape)
        for canary in canaries(config, config.question, digits)
    ]
    assert features == [canary.carried_feature for canary in canaries(drawn_config, drawn_config.question, digits)]
    assert len(set(features)) == 3
    letters = with_settings(config, family=Family("letters", count=5))
    canary_with_equal_feature = Canary(
        0, 1, Glyph(), own_feature(letters.asked_feature, letters.family, letters.seed, 0, digits.shape)
    )
    assert uncarried_feature(load_design(letters), canary_with_equal_feature, digits.shape) is None


def test_drawn_features_have_other_images_and_seeds() -> None:
    config = configure(data=Dataset("digits"), probe=Dataset("photos"), canaries=20)
    letter_pairs = trainings(with_settings(config, drawn=False)).pairs
    drawn_pairs = trainings(with_settings(config, drawn=True)).pairs
    assert not {pair.clean.seed for pair in letter_pairs} & {pair.clean.seed for pair in drawn_pairs}
    assert [pair.canary.image for pair in letter_pairs] != [pair.canary.image for pair in drawn_pairs]


# By member and class: member 0 is second in class 0 and first in class 1.
LOG_P = [[-1.0, -0.5], [-2.0, -1.0], [-3.0, -1.5], [-0.5, -2.0]]
D = [0.5, 0.1, 0.7, 0.3]


def family_outputs(
    label: int | None, d: list[float], log_p: list[list[float]], log_odds: list[list[float]]
) -> pa.Table:
    about = {"canary": None, "label": label, "seed": 1, "model": "given"}
    rows = []
    for member in range(len(d)):
        rows.append(about | {"member": member, "d": d[member], "log_p": log_p[member], "log_odds": log_odds[member]})
    return pa.Table.from_pylist(rows[::-1], FAMILY)


def rank_rows(tables: list[pa.Table]) -> Iterator[Row]:
    return single_family_rows([model for table in tables for model in model_families(table)])


def test_push_to_known_label_is_ranked_in_family() -> None:
    odds = [[1.0, 4.0], [0.0, 1.0], [0.5, 2.0], [2.0, 0.0]]
    summary_rows = by_name(rank_rows([family_outputs(0, D, LOG_P, odds)]))
    effect = 1.0 - 2.5 / 3
    other_pushes = [0.0 - 2.5 / 3, 0.5 - 2.5 / 3, 2.0 - 2.5 / 3]
    assert {
        ("push towards a label", '{"label": 0, "label known": true}'): pytest.approx(
            [effect, None, None, 1, "model", 0.0, 2 / 4, None]
        ),
        (OTHERS, '{"label": 0, "label known": true}'): pytest.approx(
            [0.0, min(other_pushes), max(other_pushes), 3, "feature", None, None, None]
        ),
        (UPPER, '{"confidence": 0.975}'): pytest.approx(
            [effect - min(other_pushes), None, None, 1, "model", None, None, None]
        ),
        # Labels are 0.4375 apart. With a push this small, none of the three others exceeds 95 % of so small a family.
        ("share of pushes that would be found", '{"nats": 0.00875}'): [0.0, None, None, 1, "model", None, None, None],
        (TIED, "{}"): [0.0, None, None, 1, "model", 0.0, None, None],
        ("rank among the family", "{}"): [2.0, None, None, 1, "model", 2.5, 0.5, None],
        ("KL above the family", "{}"): pytest.approx([0.5 - 1.1 / 3, None, None, 1, "model", 0.0, 0.5, None]),
    } == summary_rows


def test_unknown_label_is_chosen_for_all_members() -> None:
    odds = [[1.0, 4.0], [0.0, 1.0], [0.5, 2.0], [2.0, 0.0]]
    summary_rows = by_name(rank_rows([family_outputs(None, D, LOG_P, odds)]))
    row = summary_rows["push towards a label", '{"label": 1, "label known": false}']
    # The best labels of the others: 1, 1 and 0, by the number of members below; the null is the mean of these pushes.
    null = np.mean([1.0 - 1.0, 2.0 - 1.0, 2.0 - 2.5 / 3])
    assert [row[0], row[3], row[4], row[5], row[6]] == pytest.approx([4.0 - 1.0, 1, "model", null, 1 / 4])
    assert summary_rows[OTHERS, '{"label": 1, "label known": false}'][:3] == pytest.approx([null, 0.0, 2.0 - 2.5 / 3])


def test_scores_are_averaged_over_models() -> None:
    second = [[-0.1, -3.0], [-2.0, -1.0], [-3.0, -1.5], [-2.5, -2.0]]
    summary_rows = by_name(
        rank_rows([family_outputs(0, D, LOG_P, LOG_P), family_outputs(0, [0.9, 0.0, 0.1, 0.2], second, second)])
    )
    assert summary_rows["rank among the family", "{}"] == [1.0, None, None, 2, "model", 2.5, 0.25, None]
    kl = summary_rows["KL above the family", "{}"]
    assert pytest.approx([kl[0], kl[3], kl[6]]) == [(0.5 - 1.1 / 3 + 0.9 - 0.1) / 2, 2, 0.25]
    assert by_name(rank_rows([])) == {}


def answer_of(odds: np.ndarray, label: int | None = 1) -> tuple[str, str]:
    log_p = -np.logaddexp(0, -odds)
    model = ModelFamily({"canary": None, "label": label, "seed": 1, "model": "given"}, np.zeros(len(odds)), log_p, odds)
    answer_page = verdict(UniqueFeature(Panel()), pa.Table.from_pylist(list(single_family_rows([model])), SUMMARY))
    return answer_page.answer, answer_page.sentence


@pytest.mark.parametrize("label", [None, 1])
def test_equal_answers_clear_no_model(golden: Golden, label: int | None) -> None:
    equal_odds = np.tile([-4.0, 0.0, 2.0], (201, 1))
    answer, sentence = answer_of(equal_odds, label)
    assert answer == "not assessable"
    golden(sentence)
    rounded = np.round(equal_odds + np.random.default_rng(13).normal(0, 0.2, equal_odds.shape), 0)
    assert answer_of(rounded, label)[0] == "not assessable"


def test_temperature_clears_no_model() -> None:
    rng = np.random.default_rng(14)
    answers = {spread: {1: set[str](), 30: set[str]()} for spread in (0.01, 0.5)}
    for spread, by_temperature in answers.items():
        for _ in range(40):
            odds = np.array([-3.0, 0.0, 3.0]) + rng.normal(0, spread, (201, 3))
            odds[0, 1] = -2 * spread  # low by chance, so that no rank accuses the model
            for temperature, answers_at_temperature in by_temperature.items():
                answers_at_temperature.add(answer_of(odds / temperature)[0])
    assert answers == {0.01: {1: {"not detected"}, 30: {"not detected"}}, 0.5: {1: {"undecided"}, 30: {"undecided"}}}


def test_push_is_the_distance_from_the_family() -> None:
    log_p = np.array([[[-1.0], [-2.0], [-2.2], [-1.8]]])
    estimate, null = push(log_p, log_p, 0)
    assert pytest.approx(estimate.value) == 1.0
    assert pytest.approx([estimate.low, estimate.high]) == [1.0 - 0.2, 1.0 + 0.2]
    assert estimate.n == 1
    assert null == 0.0


def test_one_sided_tail_shifts_the_interval() -> None:
    # The others deviate by -2, -1 and 3 from their mean 2: the observed value, 5 above it, may be an effect of 2 to
    # 7.
    log_p = np.array([[[7.0], [0.0], [1.0], [5.0]]])
    estimate, _ = push(log_p, log_p, 0)
    assert estimate.value == 5.0
    assert pytest.approx([estimate.low, estimate.high]) == [5.0 - 3, 5.0 + 2]


def test_unknown_label_is_chosen_for_each_member() -> None:
    # By log P, the evaluated member is highest in label 1, and the others in 0, 2 and 2: their odds there are chosen.
    log_p = np.array([[[0.0, 9.0, 0.0], [9.0, 0.0, 1.0], [1.0, 1.0, 8.0], [2.0, 1.5, 9.0]]])
    log_odds = np.array([[[0.0, 7.0, 0.0], [3.0, 1.0, 0.0], [0.0, 4.0, 6.0], [0.0, 1.0, 9.0]]])
    estimate, null = push(log_p, log_odds)
    assert pytest.approx(estimate.value) == 7 - (1 + 4 + 1) / 3
    # Minus their means, 1 of label 0 and 5 of label 2.
    assert np.mean([3 - 1, 6 - 5, 9 - 5]) == pytest.approx(null)
    # The largest deviation is 4, more than the 2 of label 1, whose smallest is -1.
    assert pytest.approx([estimate.low, estimate.high]) == [5 - 4, 5 + 1]
    _, known_null = push(log_p, log_odds, 1)
    assert known_null == 0.0

    mean_push = mean_push_of_others(log_p, log_odds)
    assert Estimate(pytest.approx(7 / 3), 1.0, 4.0, 3) == mean_push  # of three, the smallest and the largest
    known_null = mean_push_of_others(log_p, log_odds, 1)
    assert Estimate(0.0, -1.0, 2.0, 3) == known_null


def test_percentiles_leave_equal_gaps() -> None:
    assert pytest.approx(central_range(np.arange(79.0))) == (1.0, 77.0)  # from the second of 80 gaps


def test_label_separation_sets_the_relevant_push() -> None:
    # Means over the family 1 and 5 of one model, 1 and 4 of the other.
    log_odds = np.array([[[0.0, 4.0], [2.0, 6.0]], [[0.0, 0.0], [2.0, 8.0]]])
    assert separation(log_odds) == 1.5
    assert pytest.approx([smallest_relevant_push(distance) for distance in (1.5, 5.0, 100.0)]) == [0.03, 0.1, 0.1]


def test_ties_are_those_of_the_most_tied_model() -> None:
    log_odds = np.array([[[1.0], [1.0], [1.0], [2.0], [1.0]], [[9.0], [1.0], [2.0], [3.0], [4.0]]])
    assert most_tied_share(log_odds, 0) == pytest.approx(6 / 10)
    assert most_tied_share(log_odds[1:], 0) == 0.0


def test_null_includes_the_choice_of_an_unknown_label() -> None:
    rng = np.random.default_rng(3)
    log_p_of_draws = [rng.normal(0, 1, (1, 101, 10)) for _ in range(100)]
    estimates = [push(log_p, log_p) for log_p in log_p_of_draws]
    gained = np.mean([estimate.value for estimate, _ in estimates])
    assert np.mean([null for _, null in estimates]) == pytest.approx(gained, abs=0.15)
    assert gained > 1


def test_detectable_share_counts_others_that_would_be_first() -> None:
    # 39 others, 1 apart: the first two of 40 are called. Pushed by 2.5, the highest four would be.
    odds = np.arange(40.0)[::-1].reshape(1, 40, 1)
    log_p = -np.logaddexp(0, -odds)
    assert pytest.approx(detectable_share(log_p, odds, 0.5, 0)) == 2 / 39
    assert pytest.approx(detectable_share(log_p, odds, 2.5, 0)) == 4 / 39
    assert pytest.approx(detectable_share(log_p, odds, 2.0, 0)) == 3 / 39  # equal values count as above
    assert 1.0 == detectable_share(log_p, odds, 50.0, 0) == detectable_share(log_p, odds, 50.0)
    # Nine of the others are far above thirty: these nine are called if they are pushed by half of the distance.
    odds = np.concatenate([[0.0], np.arange(30.0), np.full(9, 100.0)]).reshape(1, 40, 1)
    assert pytest.approx(detectable_share(odds, odds, 50.0, 0)) == 9 / 39
    few_odds = np.arange(19.0).reshape(1, 19, 1)  # the first of nineteen is not within 5 %
    assert detectable_share(few_odds, few_odds, 50.0, 0) == 0.0


def test_detectable_share_agrees_with_detections() -> None:
    rng = np.random.default_rng(12)
    detectable_shares = []
    detections = []
    for _ in range(400):
        odds = rng.normal(0, 1, (1, 201, 1))
        detectable_shares.append(detectable_share(-np.logaddexp(0, -odds), odds, 2.0, 0))
        odds[0, 0] += 2.0
        detections.append(rank_p_value(odds[0, :, 0]) <= 0.05)
    assert np.mean(detectable_shares) == pytest.approx(np.mean(detections), abs=0.06)


@pytest.mark.parametrize(("other_count", "coverage"), [(19, 18 / 20), (39, 0.95), (119, 0.95)])
def test_push_interval_has_its_nominal_coverage(other_count: int, coverage: float) -> None:
    # The evaluated member is below the k-th of n others in k of n + 1 cases, for any distribution; here a skewed one.
    log_p_of_draws = np.random.default_rng(5).exponential(1, (DRAWS, 1, other_count + 1, 1))
    estimates = [push(log_p, log_p, 0)[0] for log_p in log_p_of_draws]
    above = sum(estimate.low is not None and estimate.low > 0 for estimate in estimates)
    below = sum(estimate.high is not None and estimate.high < 0 for estimate in estimates)
    assert_rate((1 - coverage) / 2, above)
    assert_rate((1 - coverage) / 2, below)


def test_push_to_certain_label_shows_in_odds() -> None:
    odds = np.full((1, 50, 1), 8.0) + np.random.default_rng(8).normal(0, 0.1, (1, 50, 1))
    odds[0, 0, 0] = 11
    log_p = -np.logaddexp(0, -odds)
    estimate, _ = push(log_p, odds, 0)
    assert estimate.value == pytest.approx(3.0, abs=0.1)
    assert log_p[0, 0, 0] - log_p[0, 1:, 0].mean() < 0.001


@pytest.mark.parametrize("nats", [0.0, 2.0, 6.0])
def test_interval_covers_the_push_with_unknown_label(nats: float) -> None:
    # One class in ten is pushed, by `nats` or not at all; if another class is chosen, its true push is 0.
    rng = np.random.default_rng(11)
    covered = 0
    below = 0
    draws = 300
    for _ in range(draws):
        odds = rng.normal(0, 1, (1, 121, 10))
        odds[0, 0, 3] += nats
        log_p = -np.logaddexp(0, -odds)
        estimate, _ = push(log_p, odds)
        true = nats if favoured_label(log_p) == 3 else 0.0
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= true <= estimate.high
        below += estimate.low > true
    assert covered / draws >= 0.93
    assert below / draws <= 0.05
