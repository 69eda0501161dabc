"""Values are brought to their declared types, or refused in one line that helps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from orchestrator.errors import SpecError
from orchestrator.fields import coerce, plain, replaced
from tasks.datasets.dataset import Dataset


@dataclass(frozen=True)
class Inner:
    size: int = 5


@dataclass(frozen=True)
class Outer:
    rate: float = 0.1
    count: int = 3
    network: Literal["mlp1", "cnn1"] = "mlp1"
    data: Dataset = Dataset("digits")
    inner: Inner = field(default_factory=Inner)
    other: Inner | None = None
    rows: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count is {self.count}; it must be at least 1")


@pytest.mark.parametrize(
    ("value", "to", "expected"),
    [
        ("3", int, 3),
        (3.0, int, 3),
        (1, float, 1.0),
        ("1e-3", float, 1e-3),
        (-0.0, float, 0.0),
        ("no", bool, False),
        ("none", Inner | None, None),
        ("1,2", tuple[int, ...], (1, 2)),
        ([1.0, 2], tuple[int, ...], (1, 2)),
        ("digits@ab", Dataset, Dataset("digits", "ab")),
        ({"size": "7"}, Inner, Inner(7)),
    ],
)
def test_a_value_is_brought_to_its_declared_type(value: object, to: object, expected: object) -> None:
    actual = coerce(value, to, "field")
    assert (type(expected), repr(expected)) == (type(actual), repr(actual))


@pytest.mark.parametrize(
    ("value", "to", "says"),
    [
        ("three", int, "field is 'three'; it must be a whole number"),
        (1.5, int, "field is 1.5; it must be a whole number"),
        (True, int, "field is True; it must be a whole number"),
        ("nan", float, "field is 'nan'; it must be a finite number"),
        (2, bool, "field is 2; it must be true or false"),
        (3, str, "field is 3; it must be text"),
        ("mlp2", Literal["mlp1", "cnn1"], "field is 'mlp2'; allowed: mlp1, cnn1; did you mean 'mlp1'?"),
        ({"siz": 1}, Inner, "unknown field field.siz: it has size; did you mean 'size'?"),
    ],
)
def test_a_value_of_another_type_is_refused_in_words(value: object, to: object, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        coerce(value, to, "field")
    assert says == str(caught.value)


def test_a_field_is_replaced_by_its_dotted_path() -> None:
    expected = Outer(inner=Inner(7))
    assert expected == replaced(Outer(), "inner.size", "7")


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("ratee", 1, "unknown field 'ratee': Outer has rate, count, network, data, inner, other, rows; "),
        ("inner.siz", 1, "unknown field 'inner.siz': Inner has size; did you mean 'size'?"),
        ("rate.x", 1, "rate.x: 'rate' has no fields below it; set it as rate=VALUE"),
        ("count", 0, "count is 0; it must be at least 1"),
    ],
)
def test_an_unknown_or_refused_field_is_named(path: str, value: object, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        replaced(Outer(), path, value)
    assert str(caught.value).startswith(says)


def test_plain_values_come_back_as_they_were() -> None:
    config = Outer(rate=0.5, data=Dataset("mnist", "cd"), other=Inner(9), rows=(1, 2))
    assert config == coerce(plain(config), Outer, "config")
