"""The attacks by hand and by other formulas, and their null within the pairs of every record."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tasks.audits.membership import attacks
from tasks.audits.membership.attacks import ATTACKS, References, fit_variance_prior, leave_pairs_out, pair_models
from tasks.audits.membership.measures.attacks import Matching, balanced_records, measure_rates
from tasks.audits.membership.measures.attacks import attacks as attacks_table
from tasks.audits.membership.trainings import stack_answers
from tasks.datasets.mixtures import draw_balanced_members
from tests.tasks.audits.membership.made_up import make_answers

NAN = np.nan
ONE = References(
    phi=np.array([2.0, -1.0]),
    inside=np.array([[1.0, 0.0], [3.0, 2.0], [NAN, NAN], [NAN, NAN]]),
    outside=np.array([[NAN, NAN], [NAN, NAN], [-1.0, 0.0], [1.0, 4.0]]),
)


def test_lira_is_the_ratio_of_two_normal_densities() -> None:
    def log(values: object, centre: float, scale: float) -> float:
        return float(stats.norm.logpdf(values, centre, scale))

    by_hand = [log(2, 2, 1) - log(2, 0, 1), log(-1, 1, 1) - log(-1, 2, 2)]
    assert by_hand == pytest.approx(attacks.lira_online(ONE))
    # Deviations about the records' own means: 1, 1, 1, 1 inside and 1, 1, 2, 2 outside, two degrees of freedom each.
    inside, outside = np.sqrt(4 / 2), np.sqrt(10 / 2)
    fixed = [log(2, 2, inside) - log(2, 0, outside), log(-1, 1, inside) - log(-1, 2, outside)]
    assert fixed == pytest.approx(attacks.lira_fixed(ONE))
    assert [2.0, -1.5] == pytest.approx(attacks.lira_offline(ONE))


def test_scores_without_any_spread_have_finite_ratios() -> None:
    same = References(np.array([2.0]), np.array([[1.0], [1.0], [NAN], [NAN]]), np.array([[NAN], [NAN], [1.0], [1.0]]))
    for attack in (attacks.lira_online, attacks.lira_fixed, attacks.student_ratio):
        assert [0.0] == pytest.approx(attack(same))
    assert np.isfinite(attacks.lira_offline(same)).all()


def test_student_s_ratio_predicts_by_the_mean_and_the_variance_that_its_prior_leaves() -> None:
    expected = np.zeros(2)
    for sign, means, variances in ((1, [2, 1], [2, 2]), (-1, [0, 2], [2, 8])):
        variance = np.array(variances, dtype=float)  # of two models: one degree of freedom
        freedom, prior = fit_variance_prior(variance, 1.0)
        shrunk = (variance + freedom * prior) / (1 + freedom)
        scale = np.sqrt(1.5 * shrunk)  # of a new value and of the mean of two
        expected += sign * stats.t.logpdf(ONE.phi, 1 + freedom, means, scale)
    assert expected == pytest.approx(attacks.student_ratio(ONE), rel=1e-9)


def test_losses_are_log_likelihoods_and_calibrated_ones_stand_beside_models_without_the_record() -> None:
    def log(odds: float) -> float:
        return float(np.log(1 / (1 + np.exp(-odds))))

    assert [log(2), log(-1)] == pytest.approx(attacks.loss(ONE))
    assert [log(2) - (log(-1) + log(1)) / 2, log(-1) - (log(0) + log(4)) / 2] == pytest.approx(
        attacks.calibrated_loss(ONE)
    )


def test_rmia_orders_records_as_its_share_of_other_records_does() -> None:
    stream = np.random.default_rng(5)
    references = References(*(stream.normal(1, 2, shape) for shape in ((60,), (6, 60), (6, 60))))
    ratio = np.exp(attacks.rmia(references))
    own = 1 / (1 + np.exp(-references.phi))
    mean = np.mean([1 / (1 + np.exp(-side)) for side in (references.inside, references.outside)], axis=(0, 1))
    assert own / mean == pytest.approx(ratio)
    for gamma in (1.0, 2.0):
        share = (ratio[:, None] / ratio > gamma).mean(axis=1)  # Zarifzadeh et al. 2024, eq. 4, with all records as z
        order = np.argsort(ratio)
        assert (np.diff(share[order]) >= 0).all()


def test_shrunk_variances_meet_the_prior_that_they_were_drawn_from() -> None:
    stream = np.random.default_rng(6)
    true = 2.0 / stream.chisquare(8, 20_000) * 8  # inverse gamma with 8 degrees of freedom and scale 2
    seen = true * stream.chisquare(6, 20_000) / 6
    freedom, scale = fit_variance_prior(seen, 6)
    assert (8, 2) == (pytest.approx(freedom, rel=0.1), pytest.approx(scale, rel=0.05))
    assert 1000 == fit_variance_prior(stream.chisquare(6, 200) / 6 * 0 + 1, 6)[0]


def test_variances_that_are_alike_have_the_strongest_prior_and_unlike_ones_a_weak_one() -> None:
    from scipy import special

    freedom, scale = fit_variance_prior(np.full(10, 3.0), 6)
    log_mean = np.log(3) - special.digamma(3) + np.log(3) + special.digamma(500) - np.log(500)
    assert (1000, np.exp(log_mean)) == (freedom, pytest.approx(scale))
    assert 1000 == fit_variance_prior(np.array([3.0]), 6)[0]
    weak, _ = fit_variance_prior(np.exp(np.linspace(-6, 6, 50)), 6)
    assert weak < 1


def test_a_pooled_variance_counts_the_models_of_its_side() -> None:
    uneven = References(np.zeros(1), np.array([[1.0], [3.0], [NAN]]), np.array([[NAN], [NAN], [0.0]]))
    more = References(np.zeros(1), uneven.inside, np.array([[0.0], [1.0], [2.0]]))
    # Inside 2 / (2 - 1) = 2, outside 2 / (3 - 1) = 1.
    expected = stats.norm.logpdf(0, 2, np.sqrt(2)) - stats.norm.logpdf(0, 1, 1)
    assert [expected] == pytest.approx(attacks.lira_fixed(more))


def test_members_are_inside_and_others_outside() -> None:
    member = np.array([[True], [True], [False], [False]])
    references = leave_pairs_out(np.arange(4.0)[:, None], member, pair_models(member, 0), 0)
    assert [1.0] == references.inside[~np.isnan(references.inside)].tolist()
    assert set(references.outside[~np.isnan(references.outside)].tolist()) < {2.0, 3.0}


def test_partners_are_a_matching_of_members_and_others() -> None:
    member = draw_balanced_members(31, 8, 1)
    partners = pair_models(member, 0)
    models = np.arange(8)[:, None] + np.zeros(31, dtype=int)
    assert (models == np.take_along_axis(partners, partners, axis=0)).all()
    assert (member != np.take_along_axis(member, partners, axis=0)).all()
    references = leave_pairs_out(np.zeros((8, 31)), member, partners, 3)
    sides = [(~np.isnan(side)).sum(axis=0) for side in (references.inside, references.outside)]
    assert [{3}, {3}] == [set(side.tolist()) for side in sides]  # which says nothing of the target
    assert np.isnan([references.inside[3], references.outside[3]]).all()


def test_where_nothing_is_remembered_members_win_half_of_their_pairs_record_by_record() -> None:
    models, records, won = 8, 40, dict[str, list[float]]()
    for seed in range(40):
        stream = np.random.default_rng(seed)
        member = draw_balanced_members(records, models, seed)
        phi = stream.standard_t(5, (models, records)) + stream.normal(size=records)
        partners = pair_models(member, seed)
        for name, attack in ATTACKS.items():
            scores = np.stack([attack(leave_pairs_out(phi, member, partners, target)) for target in range(models)])
            beaten = scores > np.take_along_axis(scores, partners, axis=0)
            won.setdefault(name, []).append(float(beaten[member].mean()))
    # 40 designs of 4 x 40 pairs, which are coins: 6,400 of them have a standard deviation of .00625.
    assert {name: pytest.approx(0.5, abs=4.5 * 0.00625) for name in ATTACKS} == {
        name: np.mean(shares) for name, shares in won.items()
    }


def test_thresholds_are_those_of_other_targets() -> None:
    member = np.array([[True] * 1000 + [False] * 1000, [False] * 1000 + [True] * 1000])
    scores = np.tile(np.arange(2000.0), (2, 1))
    first, second = measure_rates(scores, member)
    # Of the second model 0 to 999 are others: 998 is exceeded by .1 % of them, 989 by 1 %.
    assert (first[0], first[2]) == (0.001, 0.01)
    assert (first[1], first[3]) == (1.0, 1.0)
    assert (second[0], second[2]) == (0.001, 0.01)


def test_without_a_model_attacks_are_measured_on_records_that_half_of_the_others_have() -> None:
    tables = make_answers(8, 40, 3.0, 1)
    member = np.stack([table["member"].to_numpy() for table in tables])
    found = balanced_records(stack_answers(tables[1:]))
    assert found is not None
    assert (6, (member[0] != member[7]).sum()) == found.member.shape  # the eighth is left out, too
    assert (3 == found.member.sum(axis=0)).all()
    assert 6 * len(ATTACKS) == attacks_table(Matching(0), tables[1:]).num_rows
    assert 0 == attacks_table(Matching(0), tables[:3]).num_rows
