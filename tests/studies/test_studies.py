"""The studies of decisions: planted effects are found, and every answer is counted once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from studies import (
    deja_vu_evasion,
    density_error_rates,
    density_null_rates,
    forgetting_data_mismatch,
    forgetting_draw_selection,
    forgetting_error_rates,
    forgetting_evasion,
    forgetting_unlearning_methods,
    generators,
    membership_epsilon_coverage,
    membership_error_rates,
    membership_given_models,
    membership_loss_attack,
    membership_loss_references,
    membership_own_training,
    membership_test_stages,
    membership_until_decided,
    membership_worst_case_epsilon,
    quickstart_accuracy,
    relational_evasion,
    text_evasion,
    text_secret_detection,
)
from studies import (
    unique_feature_name_reconstruction as name_reconstruction,
)
from studies import (
    unique_feature_sequential_stopping as sequential_stopping,
)
from studies.density_error_rates import Case
from studies.forgetting_error_rates import KINDS, NULL, Judged, Kind
from studies.forgetting_evasion import CHEATS, OWNERS, Desk
from studies.quickstart_accuracy import Outcome
from studies.text_secret_detection import Pair, question_of, size, with_question
from tasks.audits.density.reassignment import least_found, reassign_models
from tasks.audits.density.tail import alone
from tasks.audits.forgetting.confidence_matrix import confidence_matrix
from tasks.audits.forgetting.target import Target
from tasks.audits.forgetting.trainings import ModelId
from tasks.audits.membership.config import Membership
from tasks.audits.membership.given_config import FirstImages, GivenModel
from tasks.audits.text.secrets.models import pair_model
from tasks.audits.text.secrets.space import draw_secrets, score_table
from tasks.audits.unique_feature.letters import ReadLetters
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.numerics.statistics import exact_interval
from tasks.training.recipe import Privacy
from tasks.training.unlearning_config import UNLEARNING

CHANCE = np.random.default_rng(0)
LOGITS = CHANCE.normal(size=(2, 30, 10)) * 4
DESK = Desk(
    *(values - np.log(np.exp(values).sum(axis=1, keepdims=True)) for values in LOGITS),
    CHANCE.integers(0, 256, (30, 8, 8, 1), dtype=np.uint8),
    np.arange(30) < 10,
)
BY_NAME = {cheat.name: cheat for cheat in CHEATS}


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_every_change_gives_repeatable_probabilities(cheat) -> None:
    probabilities = cheat.probabilities(DESK)
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-9)
    np.testing.assert_array_equal(probabilities, cheat.probabilities(DESK))


@pytest.mark.parametrize("name", ["temperature 4", "clipped at 0.9"])
def test_temperature_and_clipping_change_no_prediction(name: str) -> None:
    assert (DESK.audited.argmax(1) == BY_NAME[name].probabilities(DESK).argmax(1)).all()


def test_printed_numbers_are_rounded_to_their_decimals() -> None:
    probabilities = BY_NAME["2 decimals"].probabilities(DESK)
    np.testing.assert_allclose(probabilities, probabilities.round(2), atol=1e-12)
    assert np.abs(probabilities - np.exp(DESK.audited)).max() < 0.01


def test_only_recognised_images_get_clean_answers() -> None:
    probabilities = BY_NAME["a clean model's answers for recognised images"].probabilities(DESK)
    np.testing.assert_array_equal(probabilities[:10], np.exp(DESK.clean[:10]))
    np.testing.assert_array_equal(probabilities[10:], np.exp(DESK.audited[10:]))


@pytest.mark.slow
def test_every_table_is_counted_once() -> None:
    size = forgetting_evasion.size(tiny=True, seed=3)
    rows = list(forgetting_evasion.counts(size, cheats=CHEATS[:2]))
    assert [(cheat.name, owner) for cheat in CHEATS[:2] for owner in OWNERS] == [(row.cheat, row.owner) for row in rows]
    assert all(size.owners == sum(row.answers[answer] for answer in forgetting_evasion.ANSWERS) for row in rows)
    assert "| nothing |" in forgetting_evasion.markdown(rows, size.owners)


@pytest.mark.slow
def test_unlearning_methods_are_counted_model_by_model() -> None:
    rows = list(forgetting_unlearning_methods.counts(forgetting_evasion.size(tiny=True, seed=3)))
    assert [row.cheat for row in rows] == [forgetting_unlearning_methods.BEFORE, *UNLEARNING]
    assert all(sum(row.answers.values()) == 2 for row in rows)


SHORT = ("scale=tiny", "replicates=1", "epochs=1", "permutations=199", "targets=D_C")


@pytest.mark.slow
def test_run_is_counted_once_per_seed(tmp_path: Path) -> None:
    stored_runs = tmp_path / "runs.jsonl"
    (outcome,) = quickstart_accuracy.outcomes("forgetting", "quickstart", [3], SHORT, stored_runs)
    assert set(outcome.answers) == {"D_C"}
    assert outcome.right == (outcome.answers["D_C"] == "forgotten")
    assert len(stored_runs.read_text().splitlines()) == 1
    assert [outcome] == list(quickstart_accuracy.outcomes("no audit", "none", [3], (), stored_runs))


def test_seed_counts_if_every_answer_is_right() -> None:
    right = Outcome(7, {"first": "forgotten", "second": "not forgotten"}, 2, 1.0)
    partly_right = Outcome(8, {"first": "not assessable", "second": "not forgotten"}, 1, 3.0)
    table = quickstart_accuracy.markdown([right, partly_right])
    assert "| first | forgotten 1, not assessable 1 | 2 |" in table
    assert "everything is right: 1 of 2, 50 % [1, 99] (95 % Clopper-Pearson)" in table
    assert "answers that are right: 3 of 4. Other seeds: 8. Processor time of a run: 2 s." in table


def test_interval_is_the_exact_one() -> None:
    # Where all of n succeed, the lower limit is the nth root of 2.5 %.
    assert exact_interval(20, 20) == pytest.approx((0.025 ** (1 / 20), 1.0))
    assert exact_interval(0, 20) == pytest.approx((0.0, 1 - 0.025 ** (1 / 20)))


def test_every_run_is_answered_and_plants_are_called() -> None:
    nothing, planted = density_error_rates.counts(density_error_rates.TINY, 3)
    for row in (nothing, planted):
        assert row.case.runs == sum(row.answers[name] for name in density_error_rates.ANSWERS)
    assert planted.case.runs == planted.answers["memorised"] == planted.runs_with_calls
    assert planted.runs_with_false_calls == 0
    table = density_error_rates.markdown([nothing, planted])
    assert "| nothing memorised: 40 observations, L = 6, K = 4, sd 0.3; 3 runs | " in table
    assert "| one planted: 40 observations, L = 6, K = 4, sd 2; 2 runs | 2, 0, 0, 0 | 2 | 0 | " in table


def test_low_power_run_is_undecided() -> None:
    assert density_error_rates.counted(Case("too few partitions", 60, 2, 4, 0.3, 3), 5).answers == {"undecided": 3}


def test_detectable_memory_suffices_for_found_observations() -> None:
    case = Case("some", 60, 6, 4, 4.0, 1)
    seed = 1
    log_p, out = density_error_rates.simulated(case, np.random.default_rng(seed))
    smallest = least_found(
        log_p[:40],
        reassign_models(log_p[:40], out[:40], np.random.default_rng(2)),
        alone(60, False),
        case.config.negligible,
    )
    is_found = np.isfinite(density_error_rates.enough(case.config, log_p, out, np.random.default_rng(2), 40))
    assert 5 < is_found.sum() < 35
    near = np.abs(smallest - case.config.detectable) < 0.01 * case.config.detectable  # memory is searched for to 1 %
    assert ((smallest <= case.config.detectable) == is_found)[~near].all()


TENTH = Kind(Target(query=0.1, calibration=1.0), 1, (1.0, 2.0))
OTHERS = Kind(Target(calibration=1.0, outside=0.5), 1)


def judged_targets_of(kind: Kind, answers: Mapping[str, int], low: float = 0.0, high: float = 1.0) -> list[Judged]:
    """Targets with these answers, alternating between two worlds."""
    all_of_them = [answer for answer, count in answers.items() for _ in range(count)]
    result = []
    for index, answer in enumerate(all_of_them):
        result.append(Judged(index % 2, kind, 1.0, answer, low, high))
    return result


def test_worlds_have_separate_images_and_seeds() -> None:
    configs = forgetting_error_rates.worlds(tiny=True, seed=7, count=2)
    assert [config.seed for config in configs] == [7, 8]
    all_data = Target(query=1.0, calibration=1.0, outside=1.0)
    rows = [
        row
        for config in configs
        for share in forgetting_evasion.training_of(config, all_data, "partial", 0).shares
        for row in share.rows(load(share.part.data))
    ]
    assert len(set(rows)) == len(rows)  # of digits and of digits on photographs, which have the same rows
    query_shares = {kind.target.query for kind in KINDS}
    assert query_shares == {0, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0}
    assert 6 * NULL.models >= 40


def test_counts_have_wilson_intervals_and_detection_limit() -> None:
    judged_targets = [
        *judged_targets_of(NULL, {"forgotten": 9, "not forgotten": 1}),
        *judged_targets_of(TENTH, {"not forgotten": 8, "undecided": 2}, 0.2, 0.3),
    ]
    assert [(row.below_high, row.above_low) for row in forgetting_error_rates.counted(judged_targets)] == [
        (10, 10),
        (10, 0),
    ]
    table = forgetting_error_rates.markdown(judged_targets)
    assert "| D_C | 1, 0, 0, 9 | 10 % [2, 40] | 90 % [60, 98] | 100 % [72, 100] | 100 % [72, 100] |" in table
    assert "| D_C + 0.1 D_Q | 8, 0, 2, 0 | 80 % [49, 94] | 0 % [0, 28] | 100 % [72, 100] | 0 % [0, 28] |" in table
    assert "as every greater one: 10 %." in table
    assert "are accused: 1 of 10, 10 % [2, 42], over 2 worlds, in 1 of which any is." in table


@pytest.mark.slow
def test_every_target_is_judged_alone_and_counted_once() -> None:
    kinds = (Kind(Target(calibration=1.0), 2), OTHERS, TENTH)
    (config,) = forgetting_error_rates.worlds(tiny=True, seed=3, count=1)
    models = forgetting_evasion.trained(forgetting_error_rates.planned([config], kinds), None)
    judged_targets = list(
        forgetting_error_rates.judged(0, config, {model: table for (_, model), table in models.items()}, kinds)
    )
    assert [(one.kind, one.temperature) for one in judged_targets] == [(kinds[0], 1.0)] * 2 + [
        (OTHERS, 1.0),
        (TENTH, 1.0),
        (TENTH, 2.0),
    ]
    rows = forgetting_error_rates.counted(judged_targets)
    assert [row.count for row in rows] == [2, 1, 1, 1]
    assert all(set(forgetting_evasion.ANSWERS) == row.answers.keys() for row in rows)
    # A temperature changes no rank: the same limits, but for what six decimals tie.
    assert judged_targets[3].high == pytest.approx(judged_targets[4].high, abs=0.05)


def test_chosen_and_bound_draws_are_counted() -> None:
    size = forgetting_draw_selection.size(tiny=True, seed=3)
    rows = list(forgetting_draw_selection.counts(size))
    assert [(tries, is_bound) for tries in size.tries for is_bound in (False, True)] == [
        (row.tries, row.is_bound) for row in rows
    ]
    assert all(size.draws == row.share.n and 0 <= (row.share.value or 0) <= 1 for row in rows)
    assert "| 5 |" in forgetting_draw_selection.markdown(size, rows)


def test_owners_with_other_data_are_judged_twice() -> None:
    world = forgetting_data_mismatch.world(tiny=True, seed=4)
    models = forgetting_evasion.trained(forgetting_data_mismatch.planned(world), None)
    answers = {}
    for key, table in models.items():
        answers[key] = forgetting_evasion.asked(world.draws, key[1], [table])
    tried = forgetting_data_mismatch.try_recognition(world, answers)
    judged_owners = list(forgetting_data_mismatch.judge_owners(world, answers, tried))
    holders = [owner for owner in forgetting_data_mismatch.OWNERS if owner.share]
    kinds = len(forgetting_data_mismatch.OWNERS) + len(holders) * (len(forgetting_data_mismatch.CHANGES) - 1)
    assert len(forgetting_data_mismatch.JUDGES) * kinds * world.owners == len(judged_owners)
    assert {one.owner for one in judged_owners} >= {forgetting_data_mismatch.NONE, *holders}
    control = world.draws.query.control
    assert control is not None
    assert tried["share"][0].as_py() == max(control.partial)
    assert tried["pairs"][0].as_py() == forgetting_evasion.scores_of(world.draws).replicates ** 2
    assert "| none of D_Q |" in forgetting_data_mismatch.markdown(judged_owners)
    matrix = confidence_matrix([table for (whose, _), table in answers.items() if whose == "owner"])
    clean = matrix.models[ModelId("target", 0, 0)]
    trained_model = matrix.models[ModelId("target", 3, 0)]
    assert (trained_model.confidence != clean.confidence).any()
    recognised = forgetting_data_mismatch.recognise(trained_model, clean, matrix.is_control).confidence
    assert (recognised == np.where(matrix.is_control, trained_model.confidence, clean.confidence)).all()
    assert 0.1 * trained_model.confidence + 0.9 * clean.confidence == pytest.approx(
        forgetting_data_mismatch.mix(trained_model, clean, matrix.is_control, 0.1).confidence
    )


def test_calls_of_complete_runs_are_counted_by_kind() -> None:
    nulls = []
    for seed in range(2):
        nulls.append(density_null_rates.Counted(density_null_rates.NULL, seed, "undecided", 0, 0, seed, 40))
    planted = density_null_rates.Counted("ten negatives planted", 9, "memorised", 7, 10, 9, 200)
    table = density_null_rates.markdown([*nulls, planted])
    assert "2 runs | 0, 0, 2 | 1 of 2, 50.0 % [1.3, 98.7] | 1 of 80 |  |" in table
    assert "1 runs | 1, 0, 0 | 1 of 1, 100.0 % [2.5, 100.0] | 2 of 190 | 7 of 10, 70.0 % [34.8, 93.3] |" in table


@pytest.mark.slow
def test_complete_run_is_stored_and_not_repeated(tmp_path: Path) -> None:
    first = density_null_rates.outcomes(3, 1, 0, tmp_path / "runs.jsonl")
    assert [(counted_run.of_planted, counted_run.observations) for counted_run in first] == [(0, 40)]
    assert first == density_null_rates.outcomes(3, 1, 0, tmp_path / "runs.jsonl")


def test_owners_who_refuse_are_not_assessable() -> None:
    size = relational_evasion.size(tiny=True, seed=3, readers=0)
    answers = relational_evasion.drawn_answers(size.config, 0.6, "three German refusals", random.Random(1))
    assert relational_evasion.judge(size.config, answers) == relational_evasion.Judged("not assessable", 1.0)


def test_letters_are_read_in_each_way_and_counted() -> None:
    ways = (
        name_reconstruction.TWIN,
        name_reconstruction.REFERENCE_RANK,
        name_reconstruction.NULL,
    )
    digits = name_reconstruction.digit_letters(owners=2, seed=3, epochs=1, members=20)
    assert [(way, 4) for way in 2 * ways] == [(way, letters.letters) for way, letters in digits]
    xrays = name_reconstruction.hospital_letters(1, seed=3, epochs=1, members=20, images=10, device=torch.device("cpu"))
    assert [(way, 7) for way in ways] == [(way, letters.letters) for way, letters in xrays]
    letters = []
    for words, right in (("JANE", 4), ("JAAA", 2)):
        letters.append(ReadLetters(words, 4, right, 0.25))
    assert "| 2 | 3.00 [-9.71, 15.71] | 0.25 | 1 of 2 [1, 99] % |" in name_reconstruction.markdown(
        [(way, reading) for way in ways for reading in letters]
    )


def test_only_unselective_noise_for_crops_is_detected() -> None:
    size = deja_vu_evasion.size(tiny=True, seed=3)
    for change, answer in (("noise", "not assessable"), ("noise for recognised crops alone", "undecided")):
        assert deja_vu_evasion.judge(size.config, True, change, 3) == ("undecided", answer)


def test_records_are_counted_by_their_exposure() -> None:
    (none, exposed) = (membership_error_rates.count_answers(case, 3) for case in membership_error_rates.TINY)
    assert none.unexposed == 300
    assert none.found_exposed + none.found_unexposed == 0
    assert exposed.unexposed == 100
    assert exposed.answers["memorised"] == 2
    assert min(exposed.found_exposed, 80) == 80
    (line, *_) = [
        line for line in membership_error_rates.markdown([none, exposed]) if line.startswith("| 8 x 100, 50 by 6")
    ]
    assert f"{exposed.found_unexposed} of {exposed.found_exposed + exposed.found_unexposed} found" in line


def test_own_programs_are_accused_only_with_memory() -> None:
    programs = {**membership_own_training.NULLS, **membership_own_training.POSITIVES}
    names = ("ignores rows and seed", "uses other rows, a third fails", "memorises, a third fails")
    counts = {name: membership_own_training.audit_program(programs[name], 2, 5) for name in names}
    assert [count.accusing for count in counts.values()] == [0, 0, 2]
    assert counts["ignores rows and seed"].answers["not assessable"] == 2
    assert counts["memorises, a third fails"].models < 2 * membership_own_training.MODELS
    lines = list(membership_own_training.markdown(counts))
    assert lines[2].startswith("| ignores rows and seed | 0 of 2 (0.0 to 84.2 %) | 2 not assessable | 0 of 240 | 16.0")


def test_runs_until_decided_accuse_only_with_memory() -> None:
    cases = membership_until_decided.CASES
    names = ("uses other rows, not the record", "remembers 5 % of 200 records by 3 nats")
    counts = {name: membership_until_decided.audit_case(cases[name], 2, 5) for name in names}
    lines = list(membership_until_decided.markdown(counts))
    assert lines[2].startswith("| uses other rows, not the record | 0 of 2 (0.0 to 84.2 %) | 2 undecided |  | 0 of 240")
    assert lines[3].startswith("| remembers 5 % of 200 records by 3 nats | 2 of 2 (15.8 to 100.0 %) |  | median ")


def test_loss_attack_accuses_only_a_model_trained_on_members() -> None:
    cases = {case.name: case for case in membership_loss_attack.CASES}
    answers = {name: membership_loss_attack.answer(case, 5, each=120) for name, case in cases.items()}
    assert answers["trained on the members"] == "distinguishable"
    assert answers["null: trained on neither set"] == "undecided"
    assert answers["look-alike: darker by a tenth"] == "not assessable"
    counted = [(case, Counter({answers[name]: 4})) for name, case in cases.items()]
    lines = list(membership_loss_attack.markdown(counted))
    assert "| trained on the members | 4 | 4 | 0 | 0 | 39.8 to 100.0 % |" in lines


def test_references_recognise_members_of_any_training() -> None:
    cases = {case.name: case for case in membership_loss_references.CASES}
    null = cases["null: trained on other images of the source"]
    trained = cases["trained on all members, three times the epochs"]
    counted = [(case, membership_loss_references.count_case(case, 7, 1, 1, each=120)) for case in (null, trained)]
    assert [dict(count.compared) for _, count in counted] == [{"undecided": 1}, {"distinguishable": 1}]
    assert counted[1][1].found[0] > counted[0][1].found[0] == 0
    line = list(membership_loss_references.markdown(counted))[-1]
    assert line.startswith(
        "| trained on all members, three times the epochs | 1 | 1 / 0 / 0 | 1 / 0 / 0 | 2.5 to 100.0 % | 1 "
    )


def test_attack_nulls_are_counted_by_run_and_record() -> None:
    case = membership_error_rates.TINY[0]
    counted = membership_error_rates.count_attacks(case, 3)
    assert all(0 <= its.covered <= case.runs == len(its.areas) for its in counted.values())
    assert all(np.shape(its.won) == (3, 100) for its in counted.values())
    assert all(np.mean(its.won) == pytest.approx(0.5, abs=0.1) for its in counted.values())
    _, head, _, *lines = membership_error_rates.attack_markdown(case, counted)
    assert "| 8 x 100, none exposed, 3 runs: attack | interval of the area contains .5 |" in head
    assert list(counted) == [line.split(" | ")[0].removeprefix("| ") for line in lines]


def test_given_models_are_counted_by_their_answer() -> None:
    cases = {case.name: case for case in membership_error_rates.GIVEN}
    unnoised, noised = (cases[f"trained on half, {name}"] for name in ("3 nats", "noise of 1 nat"))
    counted = []
    for case in (unnoised, noised):
        counted.append((case, membership_error_rates.count_given_answers(case, 24, 200, 3, 5)))
    *_, first, second = membership_error_rates.given_markdown(counted)
    assert first == "| trained on half, 3 nats | 3 | 0 | 0 | 0 |"
    assert second == "| trained on half, noise of 1 nat | 0 | 0 | 0 | 3 |"


def test_only_audits_with_effect_are_decided_early() -> None:
    with_effect, none = (sequential_stopping.count_decisions(case, 3) for case in sequential_stopping.TINY)
    assert with_effect.decided == 20
    assert none.decided <= 3
    assert with_effect.pairs < 4 < none.pairs
    (line,) = [
        line
        for line in sequential_stopping.markdown([with_effect, none])
        if line.startswith("| 80 % of canaries, 20 |")
    ]
    assert "20 (100 %" in line


def test_only_the_uncorrected_epsilon_bound_is_often_wrong() -> None:
    wrong_counts = membership_epsilon_coverage.count_wrong(
        membership_epsilon_coverage.Mechanism("randomised response", 0.0, 0.0, 1000), 100, 3
    )
    assert wrong_counts["best threshold, uncorrected"] > 15
    assert (
        max(wrong_counts["bets"], wrong_counts["one run"], wrong_counts["Bonferroni over all thresholds"]) <= 12
    )  # of 100 at 5 %
    means = {}
    for name, values in membership_epsilon_coverage.mean_bounds(2.0, 200, 3, 3).items():
        means[name] = float(values.mean())
    assert means["Bonferroni over all thresholds"] < means["bets"] < means["best threshold, uncorrected"]
    (*_, line) = membership_epsilon_coverage.markdown((50,), (50,), 2, 1, 3)
    assert line.startswith("| 4 | 50 | ")


def test_stages_find_planted_records_with_valid_p_values() -> None:
    (*_, half) = membership_test_stages.CASES
    for counts in membership_test_stages.count(half, 200, 5, 3).values():
        assert counts["found"] > 400
        assert counts["false"] < 50
        assert counts["p at most 0.05"] < 50  # of 500
    (*_, line) = membership_test_stages.table(60, 1, 3)
    assert line.startswith("| half by 2 nats | at once | 1: 100 % ")


def test_trained_audits_are_counted_with_saved_trainings() -> None:
    ended = [
        sequential_stopping.Ended(True, 2, 24, 4),
        sequential_stopping.Ended(False, 12, 24, 24),
    ]
    *_, line = sequential_stopping.trained_markdown({"an effect": ended})
    assert line == "| an effect, 2 | 1 (50 % [9.45, 90.5]) | 7.0 | 28 of 48 | 42 % |"


@pytest.mark.slow
def test_every_given_model_and_altered_table_is_answered() -> None:
    question = GivenModel(records=FirstImages(pin(Dataset("digits")), 60), models=20)
    config = Membership(question, replace(membership_given_models.QUICKSTART.training, epochs=1))
    counted = dict(membership_given_models.count_answers(config, 2, 3))
    assert len(membership_given_models.OWNERS) + 2 * len(membership_given_models.CHANGES) == len(counted)
    assert {answer_counts.total() for answer_counts in counted.values()} == {2}
    assert counted["table: innocent, noise of 1 nat, afresh"]["not assessable"] == 2


def test_private_steps_equal_clipped_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_worst_case_epsilon, "STEPS", 1)
    stream = torch.Generator().manual_seed(1)
    pixels = torch.rand(6, 784, generator=stream)
    labels = torch.arange(6)
    weights = membership_worst_case_epsilon.initial_weights(2, 2)
    expected = []
    for images in (6, 5):  # the second model is trained without the last image
        parts = [part[:1].clone().requires_grad_() for part in weights]
        sums = [torch.zeros_like(part) for part in parts]
        for image in range(images):
            scores = membership_worst_case_epsilon.forward(parts, pixels[image : image + 1])[1][0]
            loss = torch.nn.functional.cross_entropy(scores, labels[image : image + 1])
            gradient = torch.autograd.grad(loss, parts)
            norm = torch.cat([part.ravel() for part in gradient]).norm()
            for total, part in zip(sums, gradient, strict=True):
                total += part / norm.clamp(min=1)
        expected.append([part.detach() - 0.5 / 6 * total for part, total in zip(parts, sums, strict=True)])
    membership_worst_case_epsilon.train_private(weights, pixels, labels, torch.tensor([True, False]), 0.0, stream)
    for part, *expected_parts in zip(weights, *expected, strict=True):
        torch.testing.assert_close(part, torch.cat(expected_parts))


def test_chosen_weights_models_are_evaluated_on_all_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_worst_case_epsilon, "STEPS", 2)
    pixels = torch.rand(8, 784, generator=torch.Generator().manual_seed(3))
    labels = torch.arange(8)
    start = membership_worst_case_epsilon.initial_weights(4, 1)
    canary_tables = list(membership_worst_case_epsilon.canary_tables(start, pixels, labels, 24, Privacy(10.0), 5))
    tables = [table for table, _ in canary_tables]
    assert list(range(24)) == [table["model"][0].as_py() for table in tables]
    assert {table["inside"][0].as_py() for table in tables} == {True, False}
    assert all(9 < table["spent"][0].as_py() <= 10 for table in tables)
    rows = membership_worst_case_epsilon.epsilon(membership_worst_case_epsilon.AtDelta(1e-5), tables).to_pylist()
    (*_, line) = membership_worst_case_epsilon.markdown({"chosen": (rows, 0.5)})
    assert line.startswith("| chosen | ")
    assert line.endswith("| 50 % |")


def pair_of(extra_nats: float, is_null: bool = False) -> Pair:
    """A pair of models that assign `extra_nats` more to the secrets. Models of a null were trained on other secrets."""
    config = with_question(size(tiny=True, seed=3), is_null=is_null, secrets=8)
    question = question_of(config)
    chance = np.random.default_rng(0)
    scores = []
    planted_secrets = draw_secrets(pair_model(question, config.seed, 0, 0))
    for side in range(2):
        log_p = chance.normal(-60, 3, (len(planted_secrets), question.references + 1))
        log_p[:, 0] += [extra_nats * (secret.side == side and not is_null) for secret in planted_secrets]
        scores.append(score_table(planted_secrets, log_p.tolist(), side))
    return Pair(config, tuple(scores), tuple(scores))


@pytest.mark.parametrize(
    ("cheat", "knows", "innocent"),
    [
        ("nothing changed", {"memorised"}, {"undecided", "not detected"}),
        ("a filter that blocks the secrets' format", {"not assessable"}, {"not assessable"}),
        ("30 nats of noise by occurrence", {"not assessable"}, {"not assessable"}),
        (
            "other texts' numbers for training texts",
            {"undecided", "not detected"},
            {"undecided", "not detected"},
        ),
    ],
)
def test_owners_who_change_their_table_are_judged(cheat: str, knows: set[str], innocent: set[str]) -> None:
    for pair, answers in ((pair_of(40.0), knows), (pair_of(40.0, is_null=True), innocent)):
        desk = text_evasion.desk_of(pair, 0)
        assert text_evasion.answer_of(desk, text_evasion.CHEATS[cheat](desk)) in answers


def test_pairs_of_language_models_are_counted_by_repetition() -> None:
    lines = "\n".join(text_secret_detection.describe_nulls([pair_of(40.0), pair_of(0.0, is_null=True)]))
    assert "| replaced by others of the format | 8 | " in lines


def test_copies_of_a_generator_are_found() -> None:
    counted = [generators.count(generators.CASES[name], 500, audits=1) for name in ("null", "planted", "any")]
    null, planted, _ = counted
    assert (planted.with_found, planted.found_planted) == (1, generators.PLANTED)
    assert planted.shares[0] > 0.5
    assert null.small < 0.1 * generators.RECORDS
    lines = list(generators.markdown(counted, generators.MODELS))
    assert lines[3].startswith("| copies 30 planted records | 1 | 1, 2.5 to 100.0 % | 30 of 30, 88.4 to 100.0 % |")
