"""Valid and invalid configurations."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.errors import SpecError
from orchestrator.planning.commitment import commitment_of
from tasks.audits.forgetting import draw
from tasks.audits.forgetting.audited import PUBLISHED, Given, ReturnedTables, Trained
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.data_sets import load_data_sets
from tasks.audits.forgetting.presets import QUICKSTART, TABLE1, TABLE2, tiny
from tasks.audits.forgetting.query_set import ControlSet, HeldBack, NamedImages, QuerySet
from tasks.audits.forgetting.target import Target
from tasks.audits.forgetting.trainings import partial_shares
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Remainder
from tasks.external.model_file import ModelFile
from tasks.numerics import seeds
from tasks.worker.files import File
from tests.support.settings import with_settings

SECRET = "b1946ac92492d2347c6235b4d2611184"
DIGITS = pin(Dataset("digits"))
ON_PHOTOS = pin(Dataset("digits-on-photos"))
SMOKE = replace(QUICKSTART, query=QuerySet(Dataset("digits"), 1237, 200))
RETURNED_TABLE = Given(tables=ReturnedTables((File("theirs.csv"),)))
BOUND = ReturnedTables((File("theirs.csv"),), bound_by="a notary")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"permutations": 300}, "permutations is 300; it must be at least 319, or no target could be not forgotten"),
        ({"schedule": ((5, 0.1), (2, 0.5))}, "it must be pairs of ascending epochs from 1 and factors above 0"),
        ({"partial": (0.1, 0.1)}, "partial has 0.1 twice; each must be there once"),
        ({"optimiser": "best"}, "optimiser is 'best'; allowed: adam, rmsprop, nesterov"),
        ({"query.secret": "1234"}, "secret has 4 characters; expected at least 16"),
        ({"targets": ()}, "targets is empty; there must be at least one, or a given model or table of outputs"),
        ({"targets": (Target(0.5), Target(0.5, 0))}, "targets has 0.5 D_Q twice; each must be there once"),
        ({"outside": None}, "outside is none; it must be a data set for targets that are trained on it"),
        ({"network": "cnn9"}, "cnn9"),
    ],
)
def test_impossible_settings_are_refused_by_name(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError, match=re.escape(expected)) as caught:
        with_settings(Forgetting(), fields)
    assert "\n" not in str(caught.value)


def test_target_needs_a_share_of_some_data() -> None:
    with pytest.raises(ValueError, match="a target is trained on nothing; one of query, calibration and outside must"):
        Target()


def test_targets_are_named_by_their_training_data() -> None:
    targets = (*PUBLISHED, Target(outside=1.0))
    expected = ["D_Q", "0.5 D_C", "0.75 D_C", "D_C", "D_C + 0.1 D_Q", "D_C + 0.5 D_Q", "D_C + D_Q", "out of domain"]
    assert expected == [str(target) for target in targets]
    assert [target.remembers for target in targets] == [True, False, False, False, True, True, True, False]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"given.outputs": "theirs.csv"}, RETURNED_TABLE),
        ({"outputs": "theirs.csv"}, RETURNED_TABLE),
        ({"given.outputs": "theirs.csv", "given.bound_by": "a notary"}, replace(RETURNED_TABLE, tables=BOUND)),
        ({"given.models": "a.pt"}, Given(models=(ModelFile("a.pt"),))),
        ({"given.models": "a.pt", "given.outputs": "theirs.csv"}, replace(RETURNED_TABLE, models=(ModelFile("a.pt"),))),
        ({"targets": "D_C"}, Trained((Target(calibration=1.0),), None)),
        ({"audited": "given"}, Given()),
    ],
)
def test_models_to_audit_are_selected_by_their_fields(settings: dict[str, Any], expected: Given | Trained) -> None:
    config = with_settings(QUICKSTART, settings)
    assert config.audited == expected
    assert replace(config, question=QUICKSTART.question) == QUICKSTART


def test_outside_set_is_needed_only_by_its_targets() -> None:
    assert TABLE1.outside == Part(Dataset("cifar10#28x28#grey"))
    assert list(with_settings(TABLE1, targets=PUBLISHED).parts) == [TABLE1.query.pool, TABLE1.calibration]


@pytest.mark.parametrize("config", [TABLE1, TABLE2, QUICKSTART])
def test_tiny_audit_keeps_the_targets(config: Forgetting) -> None:
    small = tiny(config)
    training, small_training = config.question.training, small.question.training
    assert small.audited.targets == config.audited.targets
    assert small_training.network == training.network
    assert bool(small_training.crop) == bool(training.crop)
    assert {part.data.name.partition("#")[0] for part in small.parts} <= {"digits", "photos", "digits-on-photos"}
    assert (small.question.replicates, small_training.epochs) <= (2, 2)


def test_named_control_set_leaves_the_pool_undivided() -> None:
    part = QuerySet(Dataset("digits"), control=ControlSet(NamedImages(Dataset("digits"), 700, 100)))
    assert (part.held_back, part.is_controlled, part.query_part(0)) == (0.0, True, part.pool)


def test_existing_shares_are_not_trained_again() -> None:
    small = load_data_sets(tiny(QUICKSTART))
    uncontrolled = load_data_sets(tiny(TABLE1))
    assert QUICKSTART.audited is not None
    assert partial_shares(QUICKSTART.audited, small) == (0.05, 0.25)
    assert partial_shares(RETURNED_TABLE, small) == (0.05, 0.1, 0.25)
    assert partial_shares(QUICKSTART.audited, uncontrolled) == ()


def test_secret_hides_held_back_images_and_their_order() -> None:
    hidden = with_settings(SMOKE, secret=SECRET)
    rows = SMOKE.query_part
    digits = load(Dataset("digits"))
    orders = hidden.query_part
    assert isinstance(rows, Remainder)
    assert isinstance(orders, Remainder)
    shared = set(rows.held_rows(digits).tolist()) & set(orders.held_rows(digits).tolist())
    assert 30 < len(shared) < 70  # of 100, as for any two draws
    assert SMOKE.probes.seed != hidden.probes.seed
    assert hidden.query_part != with_settings(hidden, secret=SECRET[::-1]).query_part
    named_config = with_settings(hidden, {"query.control.data": "digits", "query.control.examples": 100})
    assert named_config.probes.control == Part(Dataset("digits"), 0, 100)
    assert named_config.probes.seed == hidden.probes.seed


def test_missing_secret_keeps_earlier_draws() -> None:
    assert Remainder(SMOKE.query.pool, 0.5, seeds.derive(SMOKE.seed, "control")) == SMOKE.query_part
    assert seeds.derive(SMOKE.seed, "handed out") == SMOKE.probes.seed


def test_guessable_secret_is_refused_and_secrets_stay_hidden() -> None:
    with pytest.raises(ValueError, match="secret has 4 characters; expected at least 16") as caught:
        ControlSet(secret="1234")
    assert "1234" not in str(caught.value)
    assert SECRET not in repr(QuerySet(Dataset("digits"), control=ControlSet(secret=SECRET)))


def test_nothing_held_back_is_not_guessable() -> None:
    assert not QuerySet(Dataset("digits"), control=None).is_guessable
    assert QuerySet(Dataset("digits")).is_guessable
    assert not QuerySet(Dataset("digits"), control=ControlSet(secret=SECRET)).is_guessable
    control = tiny(with_settings(QUICKSTART, secret=SECRET)).query.control
    assert control is not None
    assert control.secret == SECRET


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"query.held_back": 0.3}, ControlSet(HeldBack(0.3))),
        ({"query.control": "none"}, None),
        ({"query.control.data": "digits", "query.control.first": 9}, ControlSet(NamedImages(Dataset("digits"), 9))),
        ({"query.secret": SECRET}, ControlSet(secret=SECRET)),
        ({"permutations": 999, "negligible": 0.2}, ControlSet(permutations=999, negligible=0.2)),
    ],
)
@pytest.mark.parametrize("config", [QUICKSTART, TABLE1])
def test_control_set_is_set_by_short_names(
    config: Forgetting, settings: dict[str, Any], expected: ControlSet | None
) -> None:
    assert with_settings(config, settings).query.control == expected


@pytest.mark.parametrize("named_config", [False, True])
def test_pool_commitment_is_that_of_earlier_versions(named_config: bool) -> None:
    config = with_settings(SMOKE, {"query.data": DIGITS, "secret": SECRET, "seed": 7})
    content: list[object] = [[DIGITS.identity(), 1237, 200]]
    if named_config:
        config = with_settings(config, {"query.control.data": DIGITS, "query.control.examples": 100})
        content.append([DIGITS.identity(), 0, 100])
    text = json.dumps(["engram draw 1", [*content, 0.0 if named_config else 0.5], 7, SECRET], separators=(",", ":"))
    assert draw(config).pool_commitment == hashlib.sha256(text.encode()).hexdigest()


def test_commitment_covers_how_answers_are_read() -> None:
    config = with_settings(SMOKE, {"query.data": DIGITS, "calibration.data": ON_PHOTOS, "secret": SECRET})
    trained_config = commitment_of(draw(config))
    models = {"given.models": (ModelFile("a.pt", "a" * 64),)}
    tables = {"given.outputs": (File("a.csv", "b" * 64),), "given.bound_by": "a notary"}
    for settings in ({"targets": "D_C"}, {"audited": "given"}, models, tables, {**models, **tables}):
        assert commitment_of(draw(with_settings(config, settings))) == trained_config
    for other_config in ({"given.interface.gives": "probabilities"}, {"given.columns": ("a", "b")}):
        assert commitment_of(draw(with_settings(config, {**tables, **other_config}))) != trained_config
