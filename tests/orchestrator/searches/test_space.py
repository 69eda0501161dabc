"""The space of a search is read as it is written, and what is none is refused in a line."""

from __future__ import annotations

import pytest

from orchestrator.errors import SpecError
from orchestrator.searches.definition import Choice, Range, domain, parse_domains, size, space


@pytest.mark.parametrize(
    ("written", "of", "read"),
    [
        ("a,b,c", None, Choice(("a", "b", "c"))),
        ("[1,2],[3,4]", None, Choice(("[1,2]", "[3,4]"))),
        ([1, 2.5, True, None], None, Choice(("1", "2.5", "true", "null"))),
        ("true,false", None, Choice(("true", "false"))),
        ("1e-4..1e-2", float, Range(1e-4, 1e-2)),
        ("log(1e-4..1e-2)", float, Range(1e-4, 1e-2, log=True)),
        ("-1..1", float, Range(-1.0, 1.0)),
        ("0.1..0.5", float, Range(0.1, 0.5)),
        ("4..64", int, Range(4, 64, whole=True)),
        (" log( 4..64 ) ", int, Range(4, 64, log=True, whole=True)),
    ],
)
def test_a_domain_is_read(written: object, of: type | None, read: object) -> None:
    found = domain("field", written, of)
    assert read == found
    assert read == domain("field", str(found), of)  # as it is told in the folder of a search


@pytest.mark.parametrize(
    ("written", "of", "said"),
    [
        ("1..2", None, "a range is for numbers"),
        ("2..1", float, "its first end must be below its second"),
        ("1..1", float, "its first end must be below its second"),
        ("log(0..1)", float, "must be above 0"),
        ("1.5..3", int, "must be a whole number"),
        ("a..b", float, "must be a finite number"),
        ("3", float, "has the one value 3"),
        ("1,2,1", float, "has a value twice"),
        ("", float, "has no values"),
        ([], float, "has no values"),
        (3, float, "write it as a,b,c"),
    ],
)
def test_what_is_no_domain_is_refused(written: object, of: type | None, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        domain("rate", written, of)


def test_a_value_from_a_range_has_as_many_digits_as_matter_and_stays_inside() -> None:
    assert 0.000346 == Range(1e-4, 1e-2).round_value(0.00034567891)
    assert 0.1243 == Range(0.1243, 0.2).round_value(0.12431)  # not below its end
    assert 0.1236 == Range(0.1, 0.1236).round_value(0.12359)
    assert 7 == Range(4, 64, whole=True).round_value(7)


def test_a_grid_has_as_many_points_as_its_values_make() -> None:
    assert 6 == size(space({"a": "1,2,3", "b": "x,y"}, {}))
    assert size(space({"a": "1,2,3", "b": "1..2"}, {"b": float})) is None


def test_a_field_is_given_once_and_at_least_one() -> None:
    assert {"a": "1,2"} == parse_domains(["a=1,2"])
    with pytest.raises(SpecError, match="a is given twice"):
        parse_domains(["a=1,2", "a=3,4"])
    with pytest.raises(SpecError, match="needs a field to vary"):
        space({}, {})
