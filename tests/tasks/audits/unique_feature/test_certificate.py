"""What a person is told of a feature: of the test that decided, and of no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tasks.audits.unique_feature import AUDIT, UniqueFeature
from tasks.audits.unique_feature.external_models import ExternalModels
from tasks.certificate import Certificate
from tasks.datasets.features import Feature, Glyph, Words
from tasks.external.model_file import ModelFile
from tasks.files import File
from tests.tasks.audits.unique_feature.test_verdict import calls, pushed, table

NAMES = Words("JANE DOE", size=9)


def of_pairs(*row: Any) -> Certificate:
    found = AUDIT.certify("Is it?", UniqueFeature(), table(*row))
    assert found is not None
    return found


def of_models(p_value: float, feature: Feature = NAMES) -> Certificate:
    config = UniqueFeature(feature=feature, given=ExternalModels(shape=(64, 64, 1)))
    found = AUDIT.certify("Is it?", config, pushed(0.4, 0.2, 0.6, p_value))
    assert found is not None
    return found


def test_of_a_model_that_was_given_it_tells_the_place_among_the_family_on_which_the_answer_rests() -> None:
    found = of_models(3 / 201)
    (finding,) = found.findings
    assert "memorised" == finding.answer
    assert (
        "Asked about 201 names, the model singled out this one more than 198 of the 200 others; of 1,000 models that "
        "never saw it about 15 would stand so far in front."
    ) == finding.sentence
    line = finding.line
    assert line is not None
    assert (3, None, 101.0, (11, 201)) == (line.estimate, line.low, line.null, line.usual)
    assert [(10, "memorised at place 10 and before")] == [(each.value, each.words) for each in line.boundaries]
    assert "Does a model know the words 'JANE DOE' from the training data?" == found.asked
    assert "at place 10 or before (a test on one side, p at most 0.05)" in found.rule
    assert "Of 100 models that never saw it, about 5 are called so" in found.error


def test_given_models_are_called_by_their_files() -> None:
    models = tuple(ModelFile(f"folds/fold{at}.pt") for at in range(5))
    config = UniqueFeature(feature=NAMES, given=ExternalModels(models[:1], shape=(64, 64, 1)))
    rows = pushed(0.4, 0.2, 0.6, 3 / 201)
    found = AUDIT.certify("Is it?", config, rows)
    assert found is not None
    assert ["fold0"] == [each.target for each in found.findings]
    assert "the model (fold0) answers" in AUDIT.verdict(config, rows).sentence
    assert "fold0, fold1, fold2, fold3 and 1 more" == replace(config.given, models=models).describe


@pytest.mark.parametrize(("p_value", "answer"), [(10 / 201, "memorised"), (11 / 201, "undecided")])
def test_the_answer_changes_where_the_place_passes_the_boundary(p_value: float, answer: str) -> None:
    (finding,) = of_models(p_value).findings
    assert finding.line is not None
    assert answer == finding.answer
    assert (answer == "memorised") == (finding.line.estimate <= finding.line.boundaries[0].value)


def test_what_is_asked_about_is_called_by_its_kind() -> None:
    assert "Asked about 201 signs" in of_models(0.5, Glyph()).findings[0].sentence


def test_of_pairs_it_tells_the_factor_with_its_interval() -> None:
    (finding,) = of_pairs(0.3656, 0.1775, 0.5537).findings
    assert "gave that image’s label 1.44 times the probability" in finding.sentence
    assert "(95 % interval 1.19 to 1.74 times, over 12 pairs of trainings; 1 where nothing" in finding.sentence
    assert finding.line is not None
    assert (0.1775, 0.5537) == (finding.line.low, finding.line.high)


def test_where_canaries_that_are_called_decide_these_are_on_the_line() -> None:
    (finding,) = of_pairs(0.02, -0.03, 0.07, 20, *calls(0.15, 20)).findings
    assert "memorised" == finding.answer
    assert finding.line is not None
    assert ("networks, of 20, that are told from their twins", 3.0) == (finding.line.what, finding.line.estimate)
    assert "One by one, 3 of 20 are told from their twins." in finding.sentence


def test_where_chance_hardly_brings_so_many_small_ranks_their_p_is() -> None:
    (finding,) = of_pairs(0.02, -0.03, 0.07, 10, *calls(0.0, 10, p_value=0.0002)).findings
    assert finding.line is not None
    assert (0.0002, 0.001) == (finding.line.estimate, finding.line.boundaries[0].value)
    assert "with p = 0.0002." in finding.sentence


def test_of_a_null_it_says_that_nothing_is_to_be_found() -> None:
    config = UniqueFeature(burnt=Glyph(kind="random", seed=1))
    found = AUDIT.certify("Is it?", config, table(0.02, 0.01, 0.03))
    assert found is not None
    said = found.findings[0].sentence
    assert (
        "Networks that saw another feature in one training image gave that image’s label, when shown the letter A,"
        in said
    )
    assert "so this is a null: nothing is to be found." in said
    assert "Nothing is disclosed by this: it is a false alarm." in found.steps[0]
    assert "run the audit itself: burnt=null." in found.steps[1]


def test_without_an_interval_the_effect_is_told_and_one_beyond_all_numbers_is_no_error() -> None:
    (finding,) = of_pairs(0.3656, None, None, 1).findings
    assert "1.44 times the probability" in finding.sentence
    assert "(no interval, over 1 pair of trainings" in finding.sentence
    assert "no interval, over 2 pairs" in of_pairs(0.5, -12.0, 13.0, 2).findings[0].sentence
    assert "to more than 3e+43 times" in of_pairs(0.5, -900.0, 901.0, 3).findings[0].sentence


def test_the_error_rate_is_that_of_a_family_of_its_size() -> None:
    config = UniqueFeature(feature=NAMES, given=ExternalModels(shape=(64, 64, 1)))
    few = pushed(0.4, 0.2, 0.6, 0.5, members=10)
    found = AUDIT.certify("Is it?", config, few)
    assert found is not None
    assert "about 0 are called so" in found.error
    assert found.findings[0].line is not None
    assert (None, ()) == (found.findings[0].line.usual, found.findings[0].line.boundaries)


def test_steps_are_for_what_was_given() -> None:
    def steps(**given: Any) -> str:
        config = UniqueFeature(feature=NAMES, given=ExternalModels(shape=(64, 64, 1), **given))
        found = AUDIT.certify("Is it?", config, pushed(0.4, 0.2, 0.6, 0.5))
        assert found is not None
        return found.steps[0]

    assert "given.models=fold0.pt" in steps()
    assert "unrounded and in single precision" in steps(outputs=(File("o.csv"),))  # whose repeats are not there
    few = of_pairs(0.02, -0.3, 0.34, 20, *calls(0.0, 20)).steps
    assert ("Train more canaries (canaries=200) or rank each among more others (family.count=1000): what is stored "
            "already is not trained again.",) == few  # fmt: skip
