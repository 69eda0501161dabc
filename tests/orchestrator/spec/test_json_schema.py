"""The JSON Schema of specification files accepts what Engram runs, and refuses slips where an editor can show them."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from orchestrator.guide import document, fears_with, find_guide
from orchestrator.spec import audits
from orchestrator.spec.config_parts import flatten, plain
from orchestrator.spec.json_schema import describe_specification
from tasks.contract.situation import HAVE

SITUATIONS = [(have, fear) for have in HAVE for fear in fears_with(have)]


@functools.cache
def validator(audit: str) -> Draft202012Validator:
    schema = describe_specification(audit, audits.find(audit).audit)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("name", audits.names())
def test_schema_accepts_every_preset_nested_and_dotted(name: str) -> None:
    audit = audits.find(name).audit
    for preset in audit.presets:
        for cell in audit.cells(preset):
            form = plain(cell)
            for settings in (form, dict(flatten(form))):
                validator(name).validate({"audit": name, "preset": preset, "set": settings})


@pytest.mark.parametrize(("have", "fear"), SITUATIONS)
def test_schema_accepts_the_files_of_the_guide(have: str, fear: str) -> None:
    guide = find_guide(have, fear)
    answers = {}
    for question in guide.situation.asks:
        answers[question.field] = question.example or question.default
    text = document(guide, answers, "audit.yaml")
    assert text.splitlines()[0].endswith(f"/docs/schema/{guide.audit}.json")
    validator(guide.audit).validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"audit": "densty"}, "'density' was expected"),
        ({"preset": "quick"}, "'quick' is not one of"),
        ({"set": {"epoch": 1}}, "'epoch' does not match any of the regexes"),
        ({"set": {"epochs": "many"}}, "'many' is not of type 'integer'"),
        ({"set": {"epochs": 0}}, "0 is less than the minimum of 1"),
        ({"execution": {"adress": "none"}}, "'adress' was unexpected"),
    ],
)
def test_schema_refuses_slips(change: dict[str, Any], message: str) -> None:
    specification: dict[str, Any] = copy.deepcopy({"audit": "density", "set": {"epochs": 1, "scale": "tiny"}})
    validator("density").validate(specification)
    (error,) = validator("density").iter_errors(specification | change)
    assert message in error.message
