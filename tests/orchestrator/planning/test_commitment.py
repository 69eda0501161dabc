"""A commitment covers the entire configuration of an audit, on every route that checks it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from orchestrator.errors import SpecError
from orchestrator.planning.commitment import binding_of, commitment_of, committed_configuration, draw_of
from orchestrator.planning.plan import plan_of
from orchestrator.spec.fields import replace_fields
from orchestrator.spec.resolve import Cell, pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tasks.external.bound_draw import Draw

SECRET = "0123456789abcdef0123456789abcdef"
NONCE = "00112233445566778899aabbccddeeff"


@dataclass(frozen=True)
class Case:
    """An audit with a draw. `changes` gives another value for each field that changes the analysis."""

    audit: str
    preset: str
    secret: str
    changes: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)

    def spec(self, **settings: str) -> Spec:
        return Spec(self.audit, self.preset, {**self.settings, self.secret: SECRET, **settings})


CASES = (
    Case(
        "forgetting",
        "plain-digits",
        "query.secret",
        {
            "calibration.first": "710",
            "calibration.examples": "600",
            "network": "cnn1",
            "epochs": "3",
            "learning_rate": "2e-3",
            "replicates": "4",
            "partial": "0.1",
            "permutations": "1999",
            "negligible": "0.2",
            "decimals": "3",
            "calibration_share": "0.5",
            "query.control.images.held_back": "0.4",
            "given.interface.gives": "probabilities",
            "seed": "7",
        },
    ),
    Case(
        "unique_feature",
        "smoke",
        "given.secret",
        {
            "probe": "photos#28x28#grey",
            "feature.top": "4",
            "family.count": "50",
            "probes": "30",
            "given.label": "3",
            "seed": "7",
        },
        {"given.shape": "28,28,1", "probe": "digits", "feature.kind": "random"},
    ),
    Case(
        "relational",
        "smoke",
        "question.system.secret",
        {"numeric": "false", "examples": "7", "held_out": "5", "negligible": "0.2", "resamples": "99"},
        {"question.system": "given"},
    ),
    Case(
        "text",
        "smoke",
        "secret",
        {
            "pattern": "PIN {number}: {digits:5}.",
            "secrets": "7",
            "references": "599",
            "level": "0.06",
            "negligible": "0.2",
        },
        {"question": "planted"},
    ),
)
CHANGES = [(case, name, value) for case in CASES for name, value in case.changes.items()]


def pinned_config(spec: Spec) -> Any:
    (cell,) = pin_cells(resolve_cells(spec), {})
    return cell.config


def required_draw(case: Case, config: Any) -> Draw:
    draw = draw_of(case.audit, config)
    assert draw is not None
    return draw


def bound_settings(case: Case, commitment: str) -> dict[str, str]:
    prefix = case.secret.removesuffix("secret")
    return {f"{prefix}commitment": commitment, f"{prefix}nonce": NONCE}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.audit)
def test_commitment_is_sha256_of_published_configuration(case: Case) -> None:
    draw = required_draw(case, pinned_config(case.spec()))
    text = json.dumps(
        ["engram analysis 2", committed_configuration(draw), SECRET], sort_keys=True, separators=(",", ":")
    )
    assert commitment_of(draw) == hashlib.sha256(text.encode()).hexdigest()
    assert SECRET not in json.dumps(committed_configuration(draw))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.audit)
def test_nonce_leaves_commitment_unchanged(case: Case) -> None:
    commitment = commitment_of(required_draw(case, pinned_config(case.spec())))
    bound = pinned_config(case.spec(**bound_settings(case, commitment)))
    assert commitment_of(required_draw(case, bound)) == commitment
    assert binding_of(required_draw(case, bound)) == "analysis"


@pytest.mark.parametrize(("case", "name", "value"), CHANGES, ids=[f"{case.audit} {name}" for case, name, _ in CHANGES])
def test_any_other_analysis_is_refused(case: Case, name: str, value: str) -> None:
    commitment = commitment_of(required_draw(case, pinned_config(case.spec())))
    settings = bound_settings(case, commitment)
    changed = pinned_config(case.spec(**settings, **{name: value}))
    with pytest.raises(SpecError, match=f"commitment is {commitment}; with a nonce it must be that of these settings"):
        plan_of(Cell(case.audit, changed))


@pytest.mark.parametrize("case", CASES[:3], ids=lambda case: case.audit)
def test_commitment_of_earlier_version_binds_draw_alone(case: Case) -> None:
    pool = required_draw(case, pinned_config(case.spec())).pool_commitment
    bound = pinned_config(case.spec(**bound_settings(case, pool)))
    assert binding_of(required_draw(case, bound)) == "draw"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.audit)
def test_nonce_without_commitment_is_refused(case: Case) -> None:
    bound = pinned_config(case.spec(**bound_settings(case, "")))
    with pytest.raises(SpecError, match="commitment is empty; with a nonce"):
        plan_of(Cell(case.audit, bound))


def test_one_of_48_calibration_sets_is_admissible() -> None:
    case = CASES[0]
    commitment = commitment_of(required_draw(case, pinned_config(case.spec())))
    bound = pinned_config(case.spec(**bound_settings(case, commitment)))
    admissible = []
    for number in range(48):
        candidate = replace_fields(bound, {"calibration.first": str(700 + 10 * number), "calibration.examples": "200"})
        if number == 17:
            candidate = bound
        try:
            plan_of(Cell(case.audit, candidate))
        except SpecError:
            continue
        admissible.append(number)
    assert admissible == [17]
