"""The space of a search is parsed, or refused with one line.

The settings of a search are checked before any training.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.errors import SpecError
from orchestrator.searches.definition import (
    Choice,
    Range,
    Search,
    Settings,
    build_search,
    domain,
    find_value,
    parse_domains,
    reopen_search,
    search_description,
    size,
    space,
)
from orchestrator.spec import audits
from orchestrator.spec.specification import Spec


@pytest.mark.parametrize(
    ("domain_value", "field_type", "expected"),
    [
        ("a,b,c", None, Choice(("a", "b", "c"))),
        ("[1,2],[3,4]", None, Choice(("[1,2]", "[3,4]"))),
        ([1, 2.5, True, None], None, Choice(("1", "2.5", "true", "null"))),
        ("true,false", None, Choice(("true", "false"))),
        ("1e-4..1e-2", float, Range(1e-4, 1e-2)),
        ("log(1e-4..1e-2)", float, Range(1e-4, 1e-2, log=True)),
        ("-1..1", float, Range(-1.0, 1.0)),
        ("0.1..0.5", float, Range(0.1, 0.5)),
        ("4..64", int, Range(4, 64, is_whole_number=True)),
        (" log( 4..64 ) ", int, Range(4, 64, log=True, is_whole_number=True)),
    ],
)
def test_domain_is_parsed(domain_value: object, field_type: type | None, expected: object) -> None:
    parsed = domain("field", domain_value, field_type)
    assert expected == parsed
    assert expected == domain("field", str(parsed), field_type)  # as the folder of a search stores it


@pytest.mark.parametrize(
    ("domain_value", "field_type", "message"),
    [
        ("1..2", None, "this field is not a number"),
        ("2..1", float, "the first end must be below the second"),
        ("1..1", float, "the first end must be below the second"),
        ("log(0..1)", float, "must be above 0"),
        ("1.5..3", int, "must be a whole number"),
        ("a..b", float, "must be a finite number"),
        ("3", float, "has only the value 3"),
        ("1,2,1", float, "has a value twice"),
        ("", float, "has no values"),
        ([], float, "has no values"),
        (3, float, "write it as a,b,c"),
    ],
)
def test_invalid_domain_is_refused(domain_value: object, field_type: type | None, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        domain("rate", domain_value, field_type)


def test_range_value_is_rounded_within_its_range() -> None:
    assert Range(1e-4, 1e-2).round_value(0.00034567891) == 0.000346
    assert Range(0.1243, 0.2).round_value(0.12431) == 0.1243  # not below its end
    assert Range(0.1, 0.1236).round_value(0.12359) == 0.1236
    assert Range(4, 64, is_whole_number=True).round_value(7) == 7


def test_grid_size_is_product_of_its_values() -> None:
    assert size(space({"a": "1,2,3", "b": "x,y"}, {})) == 6
    assert size(space({"a": "1,2,3", "b": "1..2"}, {"b": float})) is None


def test_field_is_given_once_and_at_least_one() -> None:
    assert parse_domains(["a=1,2"]) == {"a": "1,2"}
    with pytest.raises(SpecError, match="a is given twice"):
        parse_domains(["a=1,2", "a=3,4"])
    with pytest.raises(SpecError, match="needs a field to vary"):
        space({}, {})


def build_test_search(audit: str = "tunable", over: dict[str, Any] | None = None, **settings: Any) -> Search:
    preset = settings.pop("preset", None)
    fields = settings.pop("set", {})
    return build_search(Spec(audit, preset, fields), Settings(over=over or {"rate": "0.01,0.02"}, **settings))


def test_range_takes_the_type_of_its_field() -> None:
    over = {"learning_rate": "log(1e-4..1e-2)", "epochs": "2..8", "privacy.epsilon": "1..8", "dropout": "true,false"}
    space = build_search(
        Spec("density", "smoke"), Settings(over={k: v for k, v in over.items() if k != "dropout"})
    ).space
    assert space == {
        "learning_rate": Range(1e-4, 1e-2, log=True),
        "epochs": Range(2, 8, is_whole_number=True),
        "privacy.epsilon": Range(1.0, 8.0),
    }
    assert (
        Choice(("true", "false"))
        == build_search(Spec("unique_feature", "smoke"), Settings({"dropout": "true,false"})).space["dropout"]
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"audit": "forgetting"}, "forgetting cannot be searched.*searches exist for .*unique_feature"),
        ({"preset": "two"}, "preset two has 2 cells"),
        ({"over": {"rat": "1,2"}}, "unknown field 'rat'.*did you mean 'rate'"),
        ({"over": {"rate": "0.01,x"}}, "rate is 'x'; it must be a finite number"),
        ({"over": {"rate": "-1..2"}}, "rate is -1.0; it must be above 0"),
        ({"over": {"seed": "1,2"}}, "seed is varied"),
        ({"sampler": "optima"}, "sampler is 'optima'.*did you mean 'optuna'"),
        ({"sampler": "grid", "over": {"rate": "0.01..0.02"}}, "over rate is a range; a grid needs values"),
        ({"sampler": "grid", "trials": 5}, "trials is 5, but the grid has 2 points"),
        ({"trials": 0}, "trials is 0; it must be 1 or more"),
        ({"concurrent": 0}, "concurrent is 0; it must be 1 or more"),
        ({"keep_one_in": 1}, "keep-one-in is 1; it must be 2 or more"),
        ({"give_up": -0.1}, "give-up is -0.1; it must be 0 or more"),
        ({"rungs": (3,)}, "rungs is 3; it must be two or more numbers of epochs, ascending"),
        ({"rungs": (6, 3)}, "rungs is 6,3; it must be two or more"),
        ({"rungs": (2, 4), "over": {"epochs": "2,4"}}, "epochs are varied and rungs are given"),
    ],
)
def test_invalid_search_is_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        build_test_search(**settings)


def test_mutually_dependent_values_are_accepted() -> None:
    """Each is invalid with the start's other values, but valid in the space that contains its requirement."""
    over = {"wide": "true,false", "extra": "null,1.0"}
    assert set(over) == set(build_test_search(over=over).space)


def test_name_depends_on_question_not_on_length() -> None:
    name = build_test_search(trials=4).name
    assert name.startswith("tunable-search-")
    assert name == build_test_search(trials=40, budget=60.0, give_up=0.5).name
    other_searches = [
        build_test_search(sampler_seed=1),
        build_test_search(over={"rate": "0.01,0.03"}),
        build_test_search(rungs=(2, 4)),
        build_test_search(set={"epochs": 4}),
        build_test_search(sampler="optuna"),
    ]
    assert len({name, *(search.name for search in other_searches)}) == 6


def test_reopened_search_is_equal_and_can_be_extended() -> None:
    first = build_test_search(
        over={"rate": "log(0.001..0.1)", "wide": "true,false"}, trials=4, set={"epochs": 4}, rungs=(2, 4)
    )
    description = search_description(first)
    reopened = reopen_search("tunable", description, {})
    assert reopened.name == first.name
    assert reopened.trials == 4
    assert reopened.allowance == first.allowance
    longer = reopen_search("tunable", description, {"trials": 9})
    assert longer.name == first.name
    assert longer.trials == 9


def test_trial_changes_fields_epochs_and_seed() -> None:
    rungs = build_test_search(rungs=(2, 4, 8))
    cell = rungs.cell({"rate": "0.02"}, epochs=4, seed=7)
    assert cell.config.rate == 0.02
    assert cell.config.epochs == 4
    assert cell.config.seed == 7
    assert cell.config.link == 2
    assert cell.setting == {"rate": "0.02", "epochs": 4, "seed": 7}
    assert replace(rungs.start.config, rate=0.02) == rungs.cell({"rate": 0.02}).config
    assert (set_ := build_test_search(set={"rate": 0.5})).start.config.rate == 0.5
    assert set_.cell({"rate": 0.02}).config.rate == 0.02


@pytest.mark.parametrize("audit", [name for name in audits.names() if audits.find(name).audit.objectives is not None])
def test_every_searchable_audit_has_required_fields(audit: str) -> None:
    config = next(iter(audits.find(audit).audit.cells("smoke" if audit != "tunable" else "few")))
    assert all(find_value(config, name) is not None for name in ("epochs", "seed"))
    assert find_value(config, "link") is not None or audit == "text"  # of which no rungs are searched
