"""Descriptions of an audit's fields for users."""

from __future__ import annotations

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec import audits
from orchestrator.spec.field_descriptions import describe_fields, find_fields
from tasks.contract.audit import Audit, Wording

AUDITS = ["deja_vu", "density", "forgetting", "membership", "relational", "unique_feature"]


@pytest.mark.parametrize("name", AUDITS)
def test_every_field_has_a_description(name: str) -> None:
    fields = describe_fields(audits.find(name).audit)
    assert [path for path, field in fields.items() if not field.meaning.endswith(".")] == []
    assert [path for path, field in fields.items() if field.published == {} and not field.below] == []


@pytest.mark.parametrize("name", AUDITS)
def test_every_preset_states_its_source(name: str) -> None:
    audit = audits.find(name).audit
    assert list(audit.presets) == list(audit.wording.repeats)


def test_field_has_type_default_range_and_published_values() -> None:
    fields = describe_fields(audits.find("unique_feature").audit)
    canaries = fields["question.canaries"]
    assert canaries.type == "whole number"
    assert canaries.default == "100"
    assert canaries.of == "pairs, course, latents"
    assert canaries.allowed.startswith("at least 1; question=panel evaluates models")
    assert set(canaries.published or {}) == {"100", "30", "1"}
    assert "figure3a" in (canaries.published or {})["30"]
    assert (
        fields["question.training.network"].allowed
        == "one of mlp1, cnn1, cnn2, densenet100, resnet18, airbench, PACKAGE.MODULE:FACTORY"
    )
    assert fields["seed"].published is None


def test_nested_fields_have_dotted_paths() -> None:
    fields = describe_fields(audits.find("forgetting").audit)
    assert fields["query.control.images.data"].default == "required"
    assert fields["query.control.images.held_back"].allowed == "between 0 and 1"
    controlled = [path for path in fields["query"].below if "control" in path]
    assert controlled[:2] == ["query.control", "query.control.images"]
    assert describe_fields(audits.find("unique_feature").audit)["feature.words"].of == "words"


def test_unknown_field_is_refused_with_nearest_name() -> None:
    fields = describe_fields(audits.find("unique_feature").audit)
    for misspelled, near in (
        ("canarys", "question.canaries"),
        ("count", "question.family.count"),
        ("family.cuont", "question.family.count"),
    ):
        with pytest.raises(SpecError, match=f"no field or preset '{misspelled}'; did you mean '{near}'"):
            find_fields(fields, misspelled, "unique_feature")


def test_repeats_must_name_existing_presets() -> None:
    with pytest.raises(ValueError, match="repeats has 'b'; it must be one of the presets: a"):
        Audit(
            config=int,
            plan=lambda config: {},
            presets={"a": 1},
            tiny=lambda config: config,
            wording=Wording(repeats={"b": "ours: x"}),
        )
