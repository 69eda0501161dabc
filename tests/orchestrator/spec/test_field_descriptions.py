"""What a user is told of an audit's fields."""

from __future__ import annotations

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec import audits
from orchestrator.spec.field_descriptions import describe_fields, find_fields
from tasks.contract.audit import Audit, Wording

OWN = ["deja_vu", "density", "forgetting", "membership", "relational", "unique_feature"]


@pytest.mark.parametrize("name", OWN)
def test_no_field_of_any_audit_lacks_a_meaning(name: str) -> None:
    fields = describe_fields(audits.find(name).audit)
    assert [path for path, field in fields.items() if not field.meaning.endswith(".")] == []
    assert [path for path, field in fields.items() if field.published == {} and not field.below] == []


@pytest.mark.parametrize("name", OWN)
def test_no_preset_of_any_audit_lacks_what_it_repeats(name: str) -> None:
    audit = audits.find(name).audit
    assert list(audit.presets) == list(audit.wording.repeats)


def test_a_field_has_its_type_default_range_and_published_values() -> None:
    fields = describe_fields(audits.find("unique_feature").audit)
    canaries = fields["question.canaries"]
    assert (canaries.type, canaries.default, canaries.of) == ("whole number", "100", "pairs, course, latents")
    assert canaries.allowed.startswith("at least 1; question=panel evaluates models")
    assert set(canaries.published or {}) == {"100", "30", "1"}
    assert "figure3a" in (canaries.published or {})["30"]
    assert (
        fields["question.training.network"].allowed
        == "one of mlp1, cnn1, cnn2, densenet100, resnet18, PACKAGE.MODULE:FACTORY"
    )
    assert fields["seed"].published is None


def test_fields_below_others_are_there_by_their_dotted_paths() -> None:
    fields = describe_fields(audits.find("forgetting").audit)
    assert fields["query.control.images.data"].default == "required"
    assert fields["query.control.images.held_back"].allowed == "between 0 and 1"
    controlled = [path for path in fields["query"].below if "control" in path]
    assert controlled[:2] == ["query.control", "query.control.images"]
    assert describe_fields(audits.find("unique_feature").audit)["feature.words"].of == "words"


def test_an_unknown_field_is_refused_with_the_nearest_also_of_those_below() -> None:
    fields = describe_fields(audits.find("unique_feature").audit)
    for wrong, near in (
        ("canarys", "question.canaries"),
        ("count", "question.family.count"),
        ("family.cuont", "question.family.count"),
    ):
        with pytest.raises(SpecError, match=f"no field or preset '{wrong}'; did you mean '{near}'"):
            find_fields(fields, wrong, "unique_feature")


def test_an_audit_that_says_what_a_preset_repeats_must_have_that_preset() -> None:
    with pytest.raises(ValueError, match="repeats has 'b'; it must be one of the presets: a"):
        Audit(
            config=int,
            plan=lambda config: {},
            presets={"a": 1},
            tiny=lambda config: config,
            wording=Wording(repeats={"b": "ours: x"}),
        )
