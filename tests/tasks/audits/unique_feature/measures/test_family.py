"""Outputs of models for the feature and its family, and the ranks of single models."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.answer import verdict
from tasks.audits.unique_feature.design import load_design
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
    uncarried_feature,
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
from tests.tasks.audits.unique_feature.made_up import INK, LABEL, configure, reads_the_letter
from tests.tasks.audits.unique_feature.made_up import family as made_family
from tests.tasks.summary_rows import by_name

STRENGTH, MEMBERS, PROBES = 3.0, 15, 40
SHAPE = (28, 28, 1)


def asked(feature: Glyph = Glyph()) -> Relatives:
    return Relatives(pin(Dataset("photos")), "test", PROBES, feature, AskedFamily(count=MEMBERS), seed=5)


def test_a_model_that_reads_the_letter_has_the_familys_scores_worked_out_by_hand() -> None:
    data = pin(Dataset("digits"))
    canary = int(np.flatnonzero(load(data).train_labels == LABEL)[0])
    table = pair_family(PairFamily(data, canary, asked()), [reads_the_letter(STRENGTH), reads_the_letter(0.0)])
    said, twin = model_families(table)
    assert {"canary": canary, "label": LABEL, "seed": 17, "model": "canary"} == said.about
    assert twin.about["model"] == "twin"
    # A member's brightness where the letter has its ink: the share of that ink which it has too.
    members = [Glyph(), *family(Glyph(), Family(count=MEMBERS), 5, SHAPE[:2])]
    shared = np.array(
        [glyph_pixels(member).ravel()[INK].mean() / 255 for member in members if isinstance(member, Glyph)]
    )
    expected = STRENGTH * shared - np.log(np.exp(STRENGTH * shared) + 9)
    assert expected == pytest.approx(said.log_p[:, LABEL], abs=1e-5)
    assert STRENGTH * shared - np.log(9) == pytest.approx(said.log_odds[:, LABEL], abs=1e-5)
    assert 1.0 == shared[0] > shared[1:].max()
    assert np.full((MEMBERS + 1, 10), np.log(0.1)) == pytest.approx(twin.log_p, abs=1e-6)
    assert not twin.d.any()
    assert (said.d > 0).all()


def test_only_the_first_probe_images_are_asked_about() -> None:
    clean = probe_images(Dataset("photos"), "test", SHAPE, PROBES)
    assert (load(Dataset("photos")).test_images[:PROBES] == clean).all()
    assert len(load(Dataset("photos")).test_images) == len(probe_images(Dataset("photos"), "test", SHAPE))
    drawn = dict(burn_family(clean, Glyph(), Family(count=3), 1))
    assert list(drawn) == [0, 1, 2, 3]
    assert (burn(clean, Glyph()) == drawn[0]).all()


def test_a_random_patch_may_be_another_member_of_the_family() -> None:
    clean = probe_images(Dataset("photos"), "test", SHAPE, 200)
    found = probe_set_triples(clean, Burning(Glyph(), "family", 3)).random
    glyphs = found[:, 1:6, 1:6, 0]
    ink = int(glyph_pixels(Glyph()).sum())
    assert {ink} == {int(glyph.sum()) for glyph in glyphs.astype(int)}
    assert len({glyph.tobytes() for glyph in glyphs}) > 50
    assert not any((glyph == glyph_pixels(Glyph())).all() for glyph in glyphs)
    # An image's patch depends on its row, not on which others are there.
    again = probe_set_triples(clean, Burning(Glyph(), "family", 3)).random
    assert (again == found).all()


def test_each_pair_is_asked_about_one_feature_that_its_canary_did_not_carry() -> None:
    data = pin(Dataset("digits"))
    # The letter's own brightness at its ink is 1: the uncarried feature scores what the letter scored above.
    config = PairFamily(data, 3, asked(Glyph(kind="random", seed=8)), uncarried=Glyph())
    said, _ = model_families(pair_family(config, [reads_the_letter(STRENGTH), reads_the_letter(0.0)]))
    assert said.null is not None
    expected = STRENGTH - np.log(np.exp(STRENGTH) + 9)
    assert expected == pytest.approx(said.null.log_p[0, LABEL], abs=1e-5)
    assert (said.log_p[1:] == said.null.log_p[1:]).all()
    assert len(said.log_p) == MEMBERS + 1


def test_others_that_look_like_the_uncarried_feature_are_left_out_of_its_ranking() -> None:
    log_p = np.array([[-1.0, -2.0], [-3.0, -1.0], [-2.0, -2.0], [-3.0, -1.0]])
    (model,) = model_families(made_family(4, {"canary": log_p}, uncarried=True))
    assert model.null is not None
    assert model.null.log_p.tolist() == [[-3.0, -1.0], [-2.0, -2.0]]
    assert len(model.log_p) == 3


def test_the_uncarried_feature_is_the_one_whose_family_the_carried_ones_are_of_and_the_reverse() -> None:
    config = configure(data=Dataset("digits"), probe=Dataset("photos"), canaries=3)
    drawn = with_settings(config, drawn=True)
    digits = load(Dataset("digits"))
    for canary in canaries(drawn, drawn.question, digits):
        assert Glyph() == uncarried_feature(load_design(drawn), canary, digits.shape)
    features = [
        uncarried_feature(load_design(config), canary, digits.shape)
        for canary in canaries(config, config.question, digits)
    ]
    assert features == [canary.carried_feature for canary in canaries(drawn, drawn.question, digits)]
    assert len(set(features)) == 3
    letters = with_settings(config, family=Family("letters", count=5))
    same = Canary(0, 1, Glyph(), own_feature(letters.asked_feature, letters.family, letters.seed, 0, digits.shape))
    assert uncarried_feature(load_design(letters), same, digits.shape) is None


def test_canaries_with_drawn_features_are_other_images_of_other_seeds() -> None:
    config = configure(data=Dataset("digits"), probe=Dataset("photos"), canaries=20)
    letter, drawn = (trainings(with_settings(config, drawn=on)).pairs for on in (False, True))
    assert not {pair.clean.seed for pair in letter} & {pair.clean.seed for pair in drawn}
    assert [pair.canary.image for pair in letter] != [pair.canary.image for pair in drawn]


# By member and class: member 0 stands second in class 0, and highest in class 1.
LOG_P = [[-1.0, -0.5], [-2.0, -1.0], [-3.0, -1.5], [-0.5, -2.0]]
D = [0.5, 0.1, 0.7, 0.3]


def said(label: int | None, d: list[float], log_p: list[list[float]], log_odds: list[list[float]]) -> pa.Table:
    about = {"canary": None, "label": label, "seed": 1, "model": "given"}
    rows = [
        about | {"member": member, "d": d[member], "log_p": log_p[member], "log_odds": log_odds[member]}
        for member in range(len(d))
    ]
    return pa.Table.from_pylist(rows[::-1], FAMILY)


def ranked(tables: list[pa.Table]) -> Iterator[Row]:
    return single_family_rows([model for table in tables for model in model_families(table)])


def test_the_push_towards_a_known_label_is_ranked_among_the_family() -> None:
    odds = [[1.0, 4.0], [0.0, 1.0], [0.5, 2.0], [2.0, 0.0]]
    found = by_name(ranked([said(0, D, LOG_P, odds)]))
    effect = 1.0 - 2.5 / 3
    others = [0.0 - 2.5 / 3, 0.5 - 2.5 / 3, 2.0 - 2.5 / 3]
    assert {
        ("push towards a label", '{"label": 0, "label known": true}'): pytest.approx(
            [effect, None, None, 1, "model", 0.0, 2 / 4, None]
        ),
        (OTHERS, '{"label": 0, "label known": true}'): pytest.approx(
            [0.0, min(others), max(others), 3, "feature", None, None, None]
        ),
        (UPPER, '{"confidence": 0.975}'): pytest.approx(
            [effect - min(others), None, None, 1, "model", None, None, None]
        ),
        # Labels are 0.4375 apart. Pushed by so little none of the three others is above 95 % of a family of so few.
        ("share of pushes that would be found", '{"nats": 0.00875}'): [0.0, None, None, 1, "model", None, None, None],
        (TIED, "{}"): [0.0, None, None, 1, "model", 0.0, None, None],
        ("rank among the family", "{}"): [2.0, None, None, 1, "model", 2.5, 0.5, None],
        ("KL above the family", "{}"): pytest.approx([0.5 - 1.1 / 3, None, None, 1, "model", 0.0, 0.5, None]),
    } == found


def test_without_a_label_the_one_pushed_most_is_taken_of_the_family_too() -> None:
    odds = [[1.0, 4.0], [0.0, 1.0], [0.5, 2.0], [2.0, 0.0]]
    found = by_name(ranked([said(None, D, LOG_P, odds)]))
    row = found["push towards a label", '{"label": 1, "label known": false}']
    # The others' own best labels: 1, 1 and 0, by how many they are above; the null is the mean of what that gives.
    null = np.mean([1.0 - 1.0, 2.0 - 1.0, 2.0 - 2.5 / 3])
    assert [4.0 - 1.0, 1, "model", null, 1 / 4] == pytest.approx([row[0], row[3], row[4], row[5], row[6]])
    assert [null, 0.0, 2.0 - 2.5 / 3] == pytest.approx(found[OTHERS, '{"label": 1, "label known": false}'][:3])


def test_of_several_models_scores_are_averaged_so_that_all_have_one_p_value() -> None:
    second = [[-0.1, -3.0], [-2.0, -1.0], [-3.0, -1.5], [-2.5, -2.0]]
    found = by_name(ranked([said(0, D, LOG_P, LOG_P), said(0, [0.9, 0.0, 0.1, 0.2], second, second)]))
    assert found["rank among the family", "{}"] == [1.0, None, None, 2, "model", 2.5, 0.25, None]
    kl = found["KL above the family", "{}"]
    assert pytest.approx([kl[0], kl[3], kl[6]]) == [(0.5 - 1.1 / 3 + 0.9 - 0.1) / 2, 2, 0.25]
    assert by_name(ranked([])) == {}


def answered(odds: np.ndarray, label: int | None = 1) -> tuple[str, str]:
    log_p = -np.logaddexp(0, -odds)
    model = ModelFamily({"canary": None, "label": label, "seed": 1, "model": "given"}, np.zeros(len(odds)), log_p, odds)
    said = verdict(UniqueFeature(Panel()), pa.Table.from_pylist(list(single_family_rows([model])), SUMMARY))
    return said.answer, said.sentence


@pytest.mark.parametrize("label", [None, 1])
def test_a_model_that_says_the_same_of_every_feature_is_not_cleared(golden: Golden, label: int | None) -> None:
    same = np.tile([-4.0, 0.0, 2.0], (201, 1))
    answer, sentence = answered(same, label)
    assert answer == "not assessable"
    golden(sentence)
    rounded = np.round(same + np.random.default_rng(13).normal(0, 0.2, same.shape), 0)
    assert answered(rounded, label)[0] == "not assessable"


def test_a_temperature_clears_no_model_and_one_that_hardly_moves_is_cleared_at_any() -> None:
    rng = np.random.default_rng(14)
    answers = {spread: {1: set[str](), 30: set[str]()} for spread in (0.01, 0.5)}
    for spread, by_temperature in answers.items():
        for _ in range(40):
            odds = np.array([-3.0, 0.0, 3.0]) + rng.normal(0, spread, (201, 3))
            odds[0, 1] = -2 * spread  # stands low by chance, so that no rank accuses it
            for temperature, said in by_temperature.items():
                said.add(answered(odds / temperature)[0])
    assert {0.01: {1: {"not detected"}, 30: {"not detected"}}, 0.5: {1: {"undecided"}, 30: {"undecided"}}} == answers


def test_the_push_is_the_distance_from_the_rest_of_the_family() -> None:
    log_p = np.array([[[-1.0], [-2.0], [-2.2], [-1.8]]])
    estimate, null = push(log_p, log_p, 0)
    assert pytest.approx(estimate.value) == 1.0
    assert pytest.approx([estimate.low, estimate.high]) == [1.0 - 0.2, 1.0 + 0.2]
    assert (estimate.n, null) == (1, 0.0)


def test_a_family_with_a_tail_to_one_side_shifts_the_interval_to_the_other() -> None:
    # The others deviate by -2, -1 and 3 from their mean 2: what was seen, 5 above it, may be an effect of 2 to 7.
    log_p = np.array([[[7.0], [0.0], [1.0], [5.0]]])
    estimate, _ = push(log_p, log_p, 0)
    assert estimate.value == 5.0
    assert pytest.approx([estimate.low, estimate.high]) == [5.0 - 3, 5.0 + 2]


def test_with_the_label_unknown_each_of_the_others_chooses_its_own() -> None:
    # By log P the asked one stands highest in label 1, and the others in 0, 2 and 2: their odds there are chosen.
    log_p = np.array([[[0.0, 9.0, 0.0], [9.0, 0.0, 1.0], [1.0, 1.0, 8.0], [2.0, 1.5, 9.0]]])
    log_odds = np.array([[[0.0, 7.0, 0.0], [3.0, 1.0, 0.0], [0.0, 4.0, 6.0], [0.0, 1.0, 9.0]]])
    estimate, null = push(log_p, log_odds)
    assert pytest.approx(estimate.value) == 7 - (1 + 4 + 1) / 3
    # Less their means 1 of label 0 and 5 of label 2.
    assert np.mean([3 - 1, 6 - 5, 9 - 5]) == pytest.approx(null)
    # At most 4 is chosen, more than the 2 of label 1, where the least is -1.
    assert pytest.approx([estimate.low, estimate.high]) == [5 - 4, 5 + 1]
    _, known = push(log_p, log_odds, 1)
    assert known == 0.0

    others = mean_push_of_others(log_p, log_odds)
    assert Estimate(pytest.approx(7 / 3), 1.0, 4.0, 3) == others  # of three, the least and the most
    known = mean_push_of_others(log_p, log_odds, 1)
    assert Estimate(0.0, -1.0, 2.0, 3) == known


def test_percentiles_are_counted_so_that_one_more_value_would_be_as_likely_in_every_gap() -> None:
    assert pytest.approx(central_range(np.arange(79.0))) == (1.0, 77.0)  # the second of 80 gaps on


def test_how_far_labels_are_apart_says_which_push_matters() -> None:
    # Means over the family 1 and 5 of one model, 1 and 4 of the other.
    log_odds = np.array([[[0.0, 4.0], [2.0, 6.0]], [[0.0, 0.0], [2.0, 8.0]]])
    assert separation(log_odds) == 1.5
    assert pytest.approx([smallest_relevant_push(each) for each in (1.5, 5.0, 100.0)]) == [0.03, 0.1, 0.1]


def test_ties_are_those_of_the_model_with_most() -> None:
    log_odds = np.array([[[1.0], [1.0], [1.0], [2.0], [1.0]], [[9.0], [1.0], [2.0], [3.0], [4.0]]])
    assert most_tied_share(log_odds, 0) == pytest.approx(6 / 10)
    assert most_tied_share(log_odds[1:], 0) == 0.0


def test_with_the_label_unknown_the_null_has_the_same_choice_of_labels() -> None:
    rng = np.random.default_rng(3)
    drawn = [rng.normal(0, 1, (1, 101, 10)) for _ in range(100)]
    estimates = [push(log_p, log_p) for log_p in drawn]
    gained = np.mean([estimate.value for estimate, _ in estimates])
    assert np.mean([null for _, null in estimates]) == pytest.approx(gained, abs=0.15)
    assert gained > 1


def test_the_share_of_pushes_that_would_be_found_is_that_of_the_others_that_would_stand_first() -> None:
    # 39 others, 1 apart: called are the first two of 40. Pushed by 2.5 the highest four would be.
    odds = np.arange(40.0)[::-1].reshape(1, 40, 1)
    log_p = -np.logaddexp(0, -odds)
    assert pytest.approx(detectable_share(log_p, odds, 0.5, 0)) == 2 / 39
    assert pytest.approx(detectable_share(log_p, odds, 2.5, 0)) == 4 / 39
    assert pytest.approx(detectable_share(log_p, odds, 2.0, 0)) == 3 / 39  # what is as large is above it
    assert 1.0 == detectable_share(log_p, odds, 50.0, 0) == detectable_share(log_p, odds, 50.0)
    # Nine of the others lie far above thirty: these are found where they are pushed by half of the way, no others.
    odds = np.concatenate([[0.0], np.arange(30.0), np.full(9, 100.0)]).reshape(1, 40, 1)
    assert pytest.approx(detectable_share(odds, odds, 50.0, 0)) == 9 / 39
    few = np.arange(19.0).reshape(1, 19, 1)  # the first of nineteen is not among 5 %
    assert detectable_share(few, few, 50.0, 0) == 0.0


def test_what_is_said_to_be_found_of_pushes_is_found() -> None:
    rng = np.random.default_rng(12)
    said, found = [], []
    for _ in range(400):
        odds = rng.normal(0, 1, (1, 201, 1))
        said.append(detectable_share(-np.logaddexp(0, -odds), odds, 2.0, 0))
        odds[0, 0] += 2.0
        found.append(rank_p_value(odds[0, :, 0]) <= 0.05)
    assert np.mean(said) == pytest.approx(np.mean(found), abs=0.06)


@pytest.mark.parametrize(("others", "coverage"), [(19, 18 / 20), (39, 0.95), (119, 0.95)])
def test_the_push_interval_covers_zero_as_often_as_it_says_where_nothing_is_memorised(
    others: int, coverage: float
) -> None:
    # The asked one is below the k-th of n others in k of n + 1 cases, whatever they are drawn from; here to one side.
    drawn = np.random.default_rng(5).exponential(1, (DRAWS, 1, others + 1, 1))
    found = [push(log_p, log_p, 0)[0] for log_p in drawn]
    above = sum(each.low is not None and each.low > 0 for each in found)
    below = sum(each.high is not None and each.high < 0 for each in found)
    assert_rate((1 - coverage) / 2, above)
    assert_rate((1 - coverage) / 2, below)


def test_a_push_towards_a_label_that_is_nearly_certain_shows_in_its_odds() -> None:
    odds = np.full((1, 50, 1), 8.0) + np.random.default_rng(8).normal(0, 0.1, (1, 50, 1))
    odds[0, 0, 0] = 11
    log_p = -np.logaddexp(0, -odds)
    estimate, _ = push(log_p, odds, 0)
    assert estimate.value == pytest.approx(3.0, abs=0.1)
    assert log_p[0, 0, 0] - log_p[0, 1:, 0].mean() < 0.001


@pytest.mark.parametrize("nats", [0.0, 2.0, 6.0])
def test_with_the_label_unknown_the_interval_covers_the_push_towards_the_chosen_label(nats: float) -> None:
    # One class in ten is pushed, by nats or not at all; where another one is chosen, nothing pushes towards that.
    rng = np.random.default_rng(11)
    covered, below, draws = 0, 0, 300
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
