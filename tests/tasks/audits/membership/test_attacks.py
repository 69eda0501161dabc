"""The attacks against hand calculations and other formulas, and their null within pairs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tasks.audits.membership import attacks
from tasks.audits.membership.attacks import (
    ATTACKS,
    ListedReferences,
    ListedSide,
    Moments,
    Prior,
    fit_prior,
    fit_variance_prior,
    normal_ratio,
    posterior,
)
from tasks.audits.membership.left_out import pair_models
from tasks.audits.membership.measures.attacks import Matching, balanced_records, precision
from tasks.audits.membership.measures.attacks import attacks as attacks_table
from tasks.audits.membership.measures.given import rank_p_values
from tasks.audits.membership.target_scores import (
    counts_above,
    find_thresholds,
    score_attack,
    score_targets,
    sort_scores,
    targets_of,
)
from tasks.audits.membership.trainings import Answers, stack_answers
from tasks.datasets.mixtures import draw_balanced_members
from tasks.numerics import seeds
from tests.tasks.audits.membership.made_up import make_answers
from tests.tasks.audits.membership.one_target import leave_pairs_out, partners, score_slowly, thresholds_slowly

Floats = NDArray[np.float64]
NAN = np.nan


def listed(phi: Floats, inside: Floats, outside: Floats) -> ListedReferences:
    return ListedReferences(phi, ListedSide(inside), ListedSide(outside))


def draw_references(*shapes: tuple[int, ...], seed: int) -> ListedReferences:
    stream = np.random.default_rng(seed)
    phi, inside, outside = (stream.normal(1, 2, shape) for shape in shapes)
    return listed(phi, inside, outside)


ONE = listed(
    phi=np.array([2.0, -1.0]),
    inside=np.array([[1.0, 0.0], [3.0, 2.0], [NAN, NAN], [NAN, NAN]]),
    outside=np.array([[NAN, NAN], [NAN, NAN], [-1.0, 0.0], [1.0, 4.0]]),
)


def test_lira_is_the_ratio_of_two_normal_densities() -> None:
    def log(values: object, centre: float, scale: float) -> float:
        return float(stats.norm.logpdf(values, centre, scale))

    by_hand = [log(2, 2, 1) - log(2, 0, 1), log(-1, 1, 1) - log(-1, 2, 2)]
    assert by_hand == pytest.approx(attacks.lira_online(ONE))
    # Deviations about the records' own means: 1, 1, 1, 1 inside and 1, 1, 2, 2 outside, with two degrees of freedom
    # each.
    inside = np.sqrt(4 / 2)
    outside = np.sqrt(10 / 2)
    fixed = [log(2, 2, inside) - log(2, 0, outside), log(-1, 1, inside) - log(-1, 2, outside)]
    assert fixed == pytest.approx(attacks.lira_fixed(ONE))
    assert pytest.approx(attacks.lira_offline(ONE)) == [2.0, -1.5]


def test_scores_without_any_spread_have_finite_ratios() -> None:
    references = listed(np.array([2.0]), np.array([[1.0], [1.0], [NAN], [NAN]]), np.array([[NAN], [NAN], [1.0], [1.0]]))
    for attack in (attacks.lira_online, attacks.lira_fixed, attacks.bavaria_t, attacks.bavaria_n):
        assert pytest.approx(attack(references)) == [0.0]
    assert np.isfinite(attacks.lira_offline(references)).all()
    impossible = listed(*(np.full((count, 1), -1e3) for count in (1, 4, 4)))
    assert [np.log(1e300) - 1e3] == pytest.approx(attacks.rmia(impossible)[0])


def test_bavaria_uses_conjugate_update_of_its_prior() -> None:
    # By hand: prior mean 1 with the weight of 2 references, shape 3 and variance 4; references 2 and 6.
    after = posterior(ListedSide(np.array([[2.0], [6.0], [NAN]])), Prior(1.0, 2.0, 3.0, 4.0))
    assert pytest.approx([float(parameter[0]) for parameter in vars(after).values()]) == [2.5, 4, 4, 20.5 / 4]
    expected = np.zeros(2)
    normal = np.zeros(2)
    for sign, side in ((1, ONE.inside), (-1, ONE.outside)):
        after = posterior(side, fit_prior(side))
        # A new value has the t distribution with 2 shape degrees of freedom: Murphy 2007, eq. 206.
        scale = np.sqrt(after.variance * (after.count + 1) / after.count)
        expected += sign * stats.t.logpdf(ONE.phi, 2 * after.shape, after.mean, scale)
        normal += sign * stats.norm.logpdf(ONE.phi, after.mean, np.sqrt(after.variance))
    assert expected == pytest.approx(attacks.bavaria_t(ONE), rel=1e-9, abs=1e-9)
    assert normal == pytest.approx(attacks.bavaria_n(ONE), rel=1e-9, abs=1e-9)


def test_lira_is_a_special_case_of_bavaria() -> None:
    references = draw_references((60,), (6, 60), (6, 60), seed=4)
    flat_prior = Prior(mean=5.0, count=0.0, shape=0.0, variance=5.0)
    assert attacks.lira_online(references) == pytest.approx(normal_ratio(references, flat_prior, flat_prior), rel=1e-9)
    pooled_priors = []
    for side in (references.inside, references.outside):
        pooled_priors.append(Prior(5.0, 0.0, np.inf, float(side.phi.var(axis=0, ddof=1).mean())))
    assert attacks.lira_fixed(references) == pytest.approx(normal_ratio(references, *pooled_priors), rel=1e-9)


def test_bavaria_orders_unlikely_records_like_rmia() -> None:
    stream = np.random.default_rng(4)
    centre = stream.normal(-20, 3, 60)  # so unlikely that log-odds equal log p; the references agree on it
    references = listed(centre + stream.normal(size=60), np.tile(centre + 0.5, (4, 1)), np.tile(centre, (4, 1)))
    unit_prior = Prior(0.0, 0.0, np.inf, 1.0)
    orders = (
        np.argsort(scores) for scores in (normal_ratio(references, unit_prior, unit_prior), attacks.rmia(references))
    )
    assert np.array_equal(*orders)


def test_fitted_prior_recovers_means_and_variances() -> None:
    stream = np.random.default_rng(7)
    variance = 2.0 / stream.chisquare(10, 20_000) * 10
    mean = 3 + np.sqrt(variance / 0.2) * stream.normal(size=20_000)
    fitted = fit_prior(ListedSide(mean + np.sqrt(variance) * stream.normal(size=(7, 20_000))))
    expected = (3, 0.2, 5, 2)
    assert expected == (
        pytest.approx(fitted.mean, abs=0.1), pytest.approx(fitted.count, rel=0.1),
        pytest.approx(fitted.shape, rel=0.1), pytest.approx(fitted.variance, rel=0.05),
    )  # fmt: skip
    # Means that differ only by chance, and a single reference, which has no variance.
    assert pytest.approx(fit_prior(ListedSide(np.tile([[0.0], [1.0]], (1, 9)))).count) == 1000
    assert Prior(2.0, 0.0, np.inf, 1.0) == fit_prior(ListedSide(np.array([[1.0, 3.0], [NAN, NAN]])))


def test_label_ratio_compares_both_sides_of_references() -> None:
    right = listed(
        np.array([1.0, 0.0]),
        inside=np.array([[1.0, 1.0], [1.0, 1.0], [NAN, NAN], [NAN, NAN]]),
        outside=np.array([[NAN, NAN], [NAN, NAN], [0.0, 1.0], [1.0, 0.0]]),
    )
    # Right by (2 + 1) / (2 + 2) inside and (1 + 1) / (2 + 2) outside.
    assert [np.log(0.75 / 0.5), np.log(0.25 / 0.5)] == pytest.approx(attacks.label_ratio(right))


@pytest.mark.parametrize("excess", [0.0015, 0.0025, 0.5])
def test_variance_prior_solves_its_equation(excess: float) -> None:
    from scipy import special

    log_ratio = np.sqrt(2 * (excess + special.polygamma(1, 3)))  # of two variances with 6 degrees of freedom each
    freedom, _ = fit_variance_prior(Moments.of(np.array([0.0, log_ratio])), 6)
    assert (freedom == 1000) == (excess < special.polygamma(1, 500))
    if freedom < 1000:
        assert excess == pytest.approx(float(special.polygamma(1, freedom / 2)))


def test_calibrated_loss_subtracts_mean_over_non_members() -> None:
    def log(odds: float) -> float:
        return float(np.log(1 / (1 + np.exp(-odds))))

    assert [log(2), log(-1)] == pytest.approx(attacks.loss(ONE))
    assert [log(2) - (log(-1) + log(1)) / 2, log(-1) - (log(0) + log(4)) / 2] == pytest.approx(
        attacks.calibrated_loss(ONE)
    )


def test_rmia_ratio_orders_records_like_published_form() -> None:
    references = draw_references((60,), (6, 60), (6, 60), seed=5)
    ratio = np.exp(attacks.rmia(references))
    confidence = 1 / (1 + np.exp(-references.phi))
    mean = np.mean([1 / (1 + np.exp(-side.phi)) for side in (references.inside, references.outside)], axis=(0, 1))
    assert confidence / mean == pytest.approx(ratio)
    for gamma in (1.0, 2.0):
        share = (ratio[:, None] / ratio > gamma).mean(axis=1)  # Zarifzadeh et al. 2024, eq. 4, with all records as z
        order = np.argsort(ratio)
        assert (np.diff(share[order]) >= 0).all()


def test_variance_prior_is_recovered_from_samples() -> None:
    stream = np.random.default_rng(6)
    true = 2.0 / stream.chisquare(8, 20_000) * 8  # inverse gamma with 8 degrees of freedom and scale 2
    sample_variances = true * stream.chisquare(6, 20_000) / 6
    freedom, scale = fit_variance_prior(Moments.of(np.log(sample_variances)), 6)
    assert pytest.approx(freedom, rel=0.1) == 8
    assert pytest.approx(scale, rel=0.05) == 2
    assert fit_variance_prior(Moments.of(np.zeros(200)), 6)[0] == 1000


def test_equal_variances_have_the_strongest_prior() -> None:
    from scipy import special

    freedom, scale = fit_variance_prior(Moments.of(np.full(10, np.log(3.0))), 6)
    log_mean = np.log(3) - special.digamma(3) + np.log(3) + special.digamma(500) - np.log(500)
    assert freedom == 1000
    assert np.exp(log_mean) == pytest.approx(scale)
    assert fit_variance_prior(Moments.of(np.log([3.0])), 6)[0] == 1000
    weak, _ = fit_variance_prior(Moments.of(np.linspace(-6, 6, 50)), 6)
    assert weak < 1


def test_pooled_variance_counts_models_of_its_side() -> None:
    more_references = listed(np.zeros(1), np.array([[1.0], [3.0], [NAN]]), np.array([[0.0], [1.0], [2.0]]))
    # Inside 2 / (2 - 1) = 2, outside 2 / (3 - 1) = 1.
    expected = stats.norm.logpdf(0, 2, np.sqrt(2)) - stats.norm.logpdf(0, 1, 1)
    assert [expected] == pytest.approx(attacks.lira_fixed(more_references))


def test_members_are_inside_and_non_members_outside() -> None:
    member = np.array([[True], [True], [False], [False]])
    references = leave_pairs_out(np.arange(4.0)[:, None], member, pair_models(member, 0), 0)
    assert references.inside.phi.tolist() == [[1.0]]
    assert {*references.outside.phi.ravel()} < {2.0, 3.0}


def test_partners_match_members_with_non_members() -> None:
    member = draw_balanced_members(31, 8, 1)
    pairs = pair_models(member, 0)
    matched = np.stack([partners(pairs, target) for target in range(8)])
    models = np.arange(8)[:, None] + np.zeros(31, dtype=int)
    assert (models == np.take_along_axis(matched, matched, axis=0)).all()
    assert (member != np.take_along_axis(member, matched, axis=0)).all()
    numbers = np.tile(np.arange(8.0)[:, None], 31)  # each model's score is its own number
    for limit, reference_count in ((None, 3), (3, 3), (1, 1)):
        by_target = []
        for target in range(8):
            by_target.append(leave_pairs_out(numbers, member, pairs, target, limit))
        for side, is_member in ((by_target[3].inside, True), (by_target[3].outside, False)):
            models = side.phi.astype(int)
            # the same for members and non-members
            assert models.shape == (reference_count, 31)
            assert (is_member == np.take_along_axis(member, models, axis=0)).all()
            assert not ((models == 3) | (models == matched[3])).any()
        for record in range(31):  # partners have the same references
            partner = by_target[matched[3, record]]
            assert np.array_equal(by_target[3].inside.phi[:, record], partner.inside.phi[:, record])
            assert np.array_equal(by_target[3].outside.phi[:, record], partner.outside.phi[:, record])


def test_leaving_out_only_the_target_reveals_membership() -> None:
    models = 8
    records = 200
    areas = dict[str, list[float]]()
    for seed in range(10):
        member = draw_balanced_members(records, models, seed)
        phi = np.random.default_rng(seed).normal(size=(models, records))
        pairs = pair_models(member, seed)
        for kind in ("target alone", "pair"):
            for target in range(models):
                references = leave_pairs_out(phi, member, pairs, target)
                if kind == "target alone":
                    is_kept = (np.arange(models) != target)[:, None]
                    references = listed(
                        phi[target], *(np.where(is_kept & side, phi, NAN) for side in (member, ~member))
                    )
                # RMIA's choice of Pr(z): the references with the highest scores, in the number of the larger side.
                count = references.outside.count
                score = attacks.rmia(references) - 0.5 * (count > 3)
                is_member = member[target]
                areas.setdefault(kind, []).append(
                    float(stats.mannwhitneyu(score[is_member], score[~is_member])[0]) / 100**2
                )
    assert pytest.approx(np.mean(areas["pair"]), abs=0.02) == 0.5
    assert np.mean(areas["target alone"]) < 0.4


def test_members_win_half_of_pairs_without_memory() -> None:
    models = 8
    records = 40
    win_rates = dict[str, list[NDArray[np.float64]]]()
    for seed in range(40):
        stream = np.random.default_rng(seed)
        member = draw_balanced_members(records, models, seed)
        phi = stream.standard_t(5, (models, records)) + stream.normal(size=records)
        targets = targets_of(Answers(np.arange(records), member, phi, phi > 0), seed)
        for name, scores in score_targets(targets):
            wins = targets.pairs_won(slice(0, records), scores).sum(axis=0)
            win_rates.setdefault(name, []).append(wins / (models // 2))
    # 40 designs with 4 x 40 pairs, which are coin flips: 6,400 flips have a standard deviation of .00625.
    assert {name: pytest.approx(0.5, abs=4.5 * 0.00625) for name in ATTACKS} == {
        name: np.mean(shares) for name, shares in win_rates.items()
    }
    # By record: 160 coin flips each, with a standard deviation of .04.
    assert all(np.abs(np.mean(shares, axis=0) - 0.5).max() < 4.5 * 0.04 for shares in win_rates.values())


def test_lira_tail_is_not_a_p_value() -> None:
    scores = np.random.default_rng(8).exponential(size=(65, 20_000))  # skewed; the first model is the target
    no_references = np.full((1, 20_000), NAN)
    tail = stats.norm.sf(attacks.lira_offline(listed(scores[0], no_references, scores[1:])))
    ranked = rank_p_values(scores[0], scores[1:], np.ones((64, 20_000), dtype=bool))
    assert (tail <= 0.001).mean() > 0.01  # at a nominal .1 %
    assert pytest.approx((ranked <= 1 / 65).mean(), abs=4.5 * np.sqrt(1 / 65 / 20_000)) == 1 / 65


def test_thresholds_come_from_other_targets() -> None:
    member = np.array([[True] * 1000 + [False] * 1000, [False] * 1000 + [True] * 1000])
    sides = sort_scores(np.tile(np.arange(2000.0), (2, 1)), member)
    thresholds = find_thresholds(sides.outside, (0.001, 0.01))
    # For the second model, 0 to 999 are non-members: .1 % exceed 998, 1 % exceed 989.
    assert [counts_above(sides.inside, of_rate).tolist() for of_rate in thresholds] == [[1, 1], [10, 10]]
    assert [counts_above(sides.outside, of_rate).tolist() for of_rate in thresholds] == [[1000, 0], [1000, 0]]


@pytest.mark.parametrize("scale", [None, 0.0, 1.0, 40.0])
def test_thresholds_equal_those_of_complete_sorts(scale: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.audits.membership.target_scores.SAMPLE", 100)  # of 2,560 scores
    stream = np.random.default_rng(11)
    member = draw_balanced_members(320, 16, 0)
    scores = stream.normal(size=(16, 320)) + 3 * (np.arange(16) == 2)[:, None]
    if scale is not None:
        scores = np.round(scale * scores)  # equal scores
    rates = (0.001, 0.01, 0.3, 0.9, 1.0)
    sides = sort_scores(scores.copy(), member)
    assert np.array_equal(find_thresholds(sides.outside, rates), thresholds_slowly(scores, member, rates))


def hard_cases() -> list[object]:
    """Log-odds (models, records), and a limit on the number of pairs."""
    stream = np.random.default_rng(12)
    ordinary = stream.normal(1, 3, (12, 90))
    outlying = ordinary.copy()
    outlying[3] += 1e7
    few_models = stream.normal(1, 3, (4, 30))
    cases: list[object] = []
    for name, phi, limits in (
        ("ordinary", ordinary, (None, 1, 2, 3)),
        ("ties", np.round(ordinary), (None, 2)),
        ("constant", np.full((12, 90), 0.3), (None, 1, 2)),
        ("far from 0", ordinary + 1e3, (None, 3)),
        ("one extreme model", outlying, (None, 2)),
        ("extreme probabilities", 300 * ordinary, (None, 2)),
        ("single references", few_models, (None, 1)),
        ("one record", ordinary[:, :1], (None, 2)),
    ):
        cases += [pytest.param(phi, limit, id=f"{name}, {limit or 'all'} pairs") for limit in limits]
    return cases


@pytest.mark.parametrize(("phi", "max_pairs"), hard_cases())
def test_scores_equal_those_of_one_target_after_another(
    phi: Floats, max_pairs: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.audits.membership.left_out.SCORES_AT_ONCE", 40 * len(phi))  # several blocks
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    models, records = phi.shape
    member = np.random.default_rng(1).permuted(np.tile(np.arange(models)[:, None] % 2 == 0, records), axis=0)
    targets = targets_of(Answers(np.arange(records), member, phi, phi > 0), 5)
    if max_pairs is not None:
        targets = targets.with_pairs(max_pairs)
    assert max_pairs is None or targets.references == max_pairs
    for attack, expected in score_slowly(targets).items():
        scores = score_attack(targets, attack)
        assert scores == pytest.approx(expected, rel=1e-9, abs=1e-9), attack
        if len(np.unique(phi)) < 100:  # equal scores are equal in both, although their sums have another order
            ranks = np.unique(scores, return_inverse=True)[1]
            assert np.array_equal(ranks, np.unique(expected, return_inverse=True)[1]), attack
    stream = seeds.generator(5, "pairs of models")
    order = np.argsort(stream.random(member.shape) + member, axis=0)
    assert np.array_equal(np.take_along_axis(targets.pairs, order, axis=0)[:, 0], np.arange(models) % (models // 2))
    matched = np.stack([partners(targets.pairs, target) for target in range(models)])
    partner_phi = np.take_along_axis(phi, matched, axis=0)
    won = np.where(member, (phi > partner_phi) + 0.5 * (phi == partner_phi), 0.0)
    assert np.array_equal(targets.pairs_won(slice(0, records), phi), won)


def test_precision_is_share_of_members_among_calls() -> None:
    hits = np.array([0.2, 0.3, 0.4, 0.3])
    alarms = np.array([0.02, 0.01, 0.01, 0.02])
    with_interval = precision(hits, alarms, 0.1)
    assert with_interval.value == pytest.approx(0.1 * 0.3 / (0.1 * 0.3 + 0.9 * 0.015))
    assert with_interval.low is not None
    assert with_interval.high is not None
    assert with_interval.low < with_interval.value < with_interval.high
    assert precision(alarms, alarms, 0.01).value == pytest.approx(0.01)
    assert precision(hits, 0 * alarms, 0.1).value == 1.0
    assert precision(hits, 0 * alarms, 0.1).low is None
    assert precision(0 * hits, 0 * alarms, 0.1).value is None


def test_missing_model_leaves_balanced_records() -> None:
    tables = make_answers(8, 40, 3.0, 1)
    member = np.stack([table["member"].to_numpy() for table in tables])
    balanced = balanced_records(stack_answers(tables[1:]))
    assert balanced is not None
    # the eighth model is left out as well
    assert balanced.member.shape == (6, (member[0] != member[7]).sum())
    assert (balanced.member.sum(axis=0) == 3).all()
    assert 6 * len(ATTACKS) == attacks_table(Matching(0), tables[1:]).num_rows
    assert attacks_table(Matching(0), tables[:3]).num_rows == 0
