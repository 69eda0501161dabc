"""Refusals of contradictory settings and of settings of another question."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import SpecError
from tasks.models.catalog import Network
from tasks.training.privacy_config import DifferentialPrivacy
from tests.tasks.audits.unique_feature.made_up import configure

CHOSEN_WITH_PRIVACY = "the canary; choice must be random and neighbours_left_out 0"
PRIVATE: dict[str, Any] = {"privacy": DifferentialPrivacy(1.0), "patience": 0}
EARLY_STOPPING = {"canaries": 12, "drawn": True, "stopping_level": 0.05}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"schedule": ((5, 0.1), (2, 0.5))},
            "schedule is ((5, 0.1), (2, 0.5)); it must be pairs of ascending epochs from 1 and factors above 0",
        ),
        ({"beside_plain": True}, "beside_plain is on; it must be off for a network without regularisers"),
        (
            {"network": Network("mlp9")},
            "network is 'mlp9'; it must be one of mlp1, cnn1, cnn2, densenet100, resnet18, airbench, "
            "PACKAGE.MODULE:FACTORY",
        ),
        ({"probe_split": "train"}, "probe_split is 'train'; allowed: test, both"),
        ({"privacy": DifferentialPrivacy(1.0)}, "privacy is set and patience is 10; it must be 0"),
        (PRIVATE | {"network": Network("cnn2")}, "privacy is set and network is cnn2; it must be mlp1 or cnn1"),
        (PRIVATE | {"choice": "self-influence"}, CHOSEN_WITH_PRIVACY),
        (
            {"width": 0.5, "network": Network("densenet100")},
            "width is 0.5 and network is densenet100; network must be one of mlp1, cnn1, cnn2 for it",
        ),
        (PRIVATE | {"neighbours_left_out": 10}, CHOSEN_WITH_PRIVACY),
    ],
)
def test_conflicts_of_pairs(settings: dict[str, Any], message: str) -> None:
    refuse(settings, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"question": "latents", "network": "cnn1"}, "network is not a field of question=latents"),
        ({"question": "course", "measures": "family"}, "measures is not a field of question=course"),
        ({"question": "course", "link": 2}, "link is not a field of question=course"),
        ({"question": "pictures", "epochs": 2}, "epochs is not a field of question=pictures"),
        ({"question": "panel", "neighbours_left_out": 10}, "neighbours_left_out is not a field of question=panel"),
        ({"question": "panel", "judged_by": "references"}, "question.judged_by is 'references'; allowed: answers, "),
        (
            {"choice": "self-influence", "neighbours_left_out": 10},
            "neighbours_left_out is not a field of question.choice=self-influence",
        ),
        ({"choice": "best"}, "question.choice is 'best'; allowed: random, self-influence"),
        ({"family.look_alikes": 9}, "unknown field 'question.family.look_alikes'"),
        ({"given.shape": "28,28,1", "epochs": 3}, "epochs is not a field of question=given"),
        ({"given.shape": "28,28,1", "given.models": "m.pt", "outputs": "o.csv"}, "outputs is not a field of"),
        ({"given.models": "m.pt"}, "question.shape is missing"),
        ({"first_layer": True}, "'first_layer' is not a field but a choice of question.judged_by"),
    ],
)
def test_question_has_only_its_own_fields(settings: dict[str, Any], message: str) -> None:
    refuse(settings, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"drawn": False}, "add drawn=true"),
        ({"choice": "self-influence"}, "add choice=random"),
        ({"seeds": 2}, "add seeds=1"),
        ({"one_seed": True}, "one_seed=false"),
    ],
)
def test_conflicts_of_bets(settings: dict[str, Any], message: str) -> None:
    refuse(EARLY_STOPPING | settings, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"given.models": "nets:build+w.pt"},
            "classes is none; it must be the number of classes that nets",
        ),
        ({"given.shape": "28,28,2"}, "shape is (28, 28, 2); it must be height, width and 1 or 3 channels"),
        ({"given.models": ()}, "models is empty; it must name at least one file"),
        ({"given.secret": "short"}, "secret has 5 characters; expected at least 16"),
        (
            {"given.models": "m.pt", "given.secret": "0" * 16},
            "secret is given with models; it must be left out",
        ),
        ({"labelled.accuracy": 0.9}, "labelled.data is missing; only accuracy is given"),
    ],
)
def test_conflicts_of_given_models(settings: dict[str, Any], message: str) -> None:
    refuse({"given.shape": "28,28,1", **settings}, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"given.references": "a.pt", "given.label": 3}, "references has 1 model; it must have at least 2"),
        (
            {"given.references": "a.pt,b.pt", "given.label": 3, "given.models": "b.pt"},
            "references has b.pt, which is given twice",
        ),
        ({"given.references": "a.pt,a.pt", "given.label": 3}, "references has a.pt, which is given twice"),
        ({"given.references": "a.pt,b.pt"}, "question.source.judged_by.label is missing"),
    ],
)
def test_conflicts_of_references(settings: dict[str, Any], message: str) -> None:
    refuse({"given.shape": "28,28,1", **settings}, message)


def refuse(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        configure(settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
