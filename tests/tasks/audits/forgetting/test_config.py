"""What a run may be asked for, and how it is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tasks.audits.forgetting.config import PUBLISHED, Forgetting
from tasks.audits.forgetting.presets import QUICKSTART, TABLE1, TABLE2, tiny
from tasks.audits.forgetting.query_set import QuerySet
from tasks.audits.forgetting.target import ExternalTargets, Target
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Remainder
from tasks.models.catalog import Network
from tasks.numerics import seeds
from tasks.worker.files import File

SMOKE = replace(QUICKSTART, query=QuerySet(Dataset("digits"), 1237, 200))
THEIRS = ExternalTargets(outputs=(File("theirs.csv"),))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"replicates": 0}, "replicates is 0; it must be at least 1"),
        ({"epochs": 0}, "epochs is 0; it must be at least 1"),
        ({"batch": 0}, "batch is 0; it must be at least 1"),
        ({"link": -1}, "link is -1; it must be at least 0"),
        ({"permutations": 0}, "permutations is 0; it must be at least 1"),
        (
            {"permutations": 300, "query": QuerySet(Dataset("mnist"))},
            "permutations is 300; it must be at least 319, or no target could be not forgotten",
        ),
        ({"crop": -1}, "crop is -1; it must be at least 0"),
        ({"seed": -1}, "seed is -1; it must be at least 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be a finite number above 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; it must be a finite number above 0"),
        ({"schedule": ((5, 0.1), (2, 0.5))}, "it must be pairs of an epoch from 1, ascending, and a factor above 0"),
        ({"negligible": 1.0}, "negligible is 1.0; it must be between 0 and 1"),
        ({"partial": (0.0,)}, "partial is (0.0,); each must be above 0 and at most 1"),
        ({"partial": (0.1, 0.1)}, "partial has 0.1 twice; each must be there once"),
        ({"optimiser": "best"}, "optimiser is 'best'; it must be one of"),
        ({"measures": ("all",)}, "it must be some of scores, examples"),
        ({"measures": ()}, "it must be some of scores, examples"),
        ({"targets": ()}, "targets is empty; there must be at least one, or a given model or table of outputs"),
        ({"targets": (Target(0.5), Target(0.5, 0))}, "targets has 0.5 D_Q twice; each must be there once"),
        ({"outside": None}, "outside is none; it must be a data set for targets that are trained on it"),
        ({"network": Network("cnn9")}, "cnn9"),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)) as caught:
        Forgetting(**fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ({"query": 1.5}, "query is 1.5; it must be a share from 0 to 1"),
        ({"calibration": -0.1}, "calibration is -0.1; it must be a share from 0 to 1"),
        ({"outside": float("nan")}, "outside is nan; it must be a share from 0 to 1"),
        ({}, "a target is trained on nothing; one of query, calibration and outside must be above 0"),
    ],
)
def test_a_target_is_trained_on_shares_of_something(shares: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Target(**shares)


def test_targets_are_called_by_what_they_are_trained_on() -> None:
    targets = (*PUBLISHED, Target(outside=1.0))
    expected = ["D_Q", "0.5 D_C", "0.75 D_C", "D_C", "D_C + 0.1 D_Q", "D_C + 0.5 D_Q", "D_C + D_Q", "out of domain"]
    assert expected == [str(target) for target in targets]
    assert [True, False, False, False, True, True, True, False] == [target.remembers for target in targets]


def test_given_models_are_audited_in_place_of_targets() -> None:
    config = replace(TABLE1, given=THEIRS)
    assert ((), None) == (config.targets, config.outside)


def test_a_set_out_of_domain_has_to_be_there_only_for_targets_that_train_on_it() -> None:
    assert Part(Dataset("cifar10#28x28#grey")) == TABLE1.outside
    assert [TABLE1.query.pool, TABLE1.calibration] == list(replace(TABLE1, targets=PUBLISHED).parts)


@pytest.mark.parametrize("config", [TABLE1, TABLE2, QUICKSTART])
def test_the_tiny_audit_has_the_same_targets_on_embedded_data(config: Forgetting) -> None:
    small = tiny(config)
    assert (config.targets, config.network, bool(config.crop)) == (small.targets, small.network, bool(small.crop))
    assert {"digits", "photos", "digits-on-photos"} >= {part.data.name.partition("#")[0] for part in small.parts}
    assert (small.replicates, small.epochs) <= (2, 2)


def test_a_control_set_of_its_own_leaves_all_of_the_pool_to_the_query_set() -> None:
    given = QuerySet(Dataset("digits"), control=Part(Dataset("digits"), 700, 100))
    assert (0.0, True, given.pool) == (given.held_back, given.is_controlled, given.query_part(0))
    with pytest.raises(ValueError, match=r"held_back is 1\.0; it must be a share from 0 to below 1"):
        QuerySet(Dataset("digits"), held_back=1.0)


def test_shares_that_targets_have_are_not_trained_again_and_without_a_control_set_none_are() -> None:
    assert (0.05, 0.25) == QUICKSTART.partial_shares
    assert () == TABLE1.partial_shares


SECRET = "b1946ac92492d2347c6235b4d2611184"


def test_with_a_secret_the_seed_does_not_say_what_is_held_back_nor_in_which_order_it_is_handed_out() -> None:
    hidden = replace(SMOKE, query=replace(SMOKE.query, secret=SECRET))
    known, digits = SMOKE.query_part, load(Dataset("digits"))
    drawn = hidden.query_part
    assert isinstance(known, Remainder)
    assert isinstance(drawn, Remainder)
    shared = set(known.held_rows(digits).tolist()) & set(drawn.held_rows(digits).tolist())
    assert 30 < len(shared) < 70  # of 100, as of any two draws
    assert SMOKE.probes.seed != hidden.probes.seed
    assert hidden.query_part != replace(hidden, query=replace(hidden.query, secret=SECRET[::-1])).query_part
    given = replace(hidden.query, held_back=0.0, control=Part(Dataset("digits"), 0, 100))
    assert replace(hidden, query=given).probes.seed == hidden.probes.seed


def test_without_a_secret_what_is_held_back_and_handed_out_stays_as_it_was() -> None:
    assert Remainder(SMOKE.query.pool, 0.5, seeds.derive(SMOKE.seed, "control")) == SMOKE.query_part
    assert seeds.derive(SMOKE.seed, "handed out") == SMOKE.probes.seed


def test_a_secret_that_could_be_guessed_is_refused_and_none_is_shown() -> None:
    with pytest.raises(ValueError, match="secret has 4 characters; it must have at least 16") as caught:
        QuerySet(Dataset("digits"), secret="1234")
    assert "1234" not in str(caught.value)
    assert SECRET not in repr(QuerySet(Dataset("digits"), secret=SECRET))


def test_where_nothing_is_held_back_there_is_nothing_to_guess() -> None:
    plain = QuerySet(Dataset("digits"), held_back=0.0, secret=SECRET)
    assert ("", False) == (plain.secret, plain.is_guessable)
    controlled = QuerySet(Dataset("digits"))
    assert (True, False) == (controlled.is_guessable, replace(controlled, secret=SECRET).is_guessable)
    assert SECRET == tiny(replace(QUICKSTART, query=replace(QUICKSTART.query, secret=SECRET))).query.secret
