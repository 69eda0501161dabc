"""Values are converted to their declared types, or refused with a helpful line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.config_parts import plain
from orchestrator.spec.fields import coerce, replace_fields
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Feature, Glyph, Picture, Words
from tasks.worker.files import File


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
        ("[[5,0.1], [9,0.01]]", tuple[tuple[int, float], ...], ((5, 0.1), (9, 0.01))),
        ("(5,0.1),(9,0.01)", tuple[tuple[int, float], ...], ((5, 0.1), (9, 0.01))),
        ("[{size: 1},{size: 2}]", tuple[Inner, ...], (Inner(1), Inner(2))),
        ('[{"size": 1}]', tuple[Inner, ...], (Inner(1),)),
        ("{size: 7}", Inner, Inner(7)),
        ("a[1,b", tuple[str, ...], ("a[1", "b")),
        ([1.0, 2], tuple[int, ...], (1, 2)),
        ("digits@ab", Dataset, Dataset("digits", "ab")),
        ({"size": "7"}, Inner, Inner(7)),
    ],
)
def test_value_is_converted_to_its_declared_type(value: object, to: object, expected: object) -> None:
    actual = coerce(value, to, "field")
    assert type(actual) is type(expected)
    assert repr(actual) == repr(expected)


@pytest.mark.parametrize(
    ("value", "to", "message"),
    [
        ("three", int, "field is 'three'; it must be a whole number"),
        (1.5, int, "field is 1.5; it must be a whole number"),
        (True, int, "field is True; it must be a whole number"),
        ("nan", float, "field is 'nan'; it must be a finite number"),
        (2, bool, "field is 2; it must be true or false"),
        (3, str, "field is 3; it must be text"),
        ("mlp2", Literal["mlp1", "cnn1"], "field is 'mlp2'; allowed: mlp1, cnn1; did you mean 'mlp1'?"),
        ("{size: ", Inner, "field is '{size: '; write it as {name: value, ...}"),
        ({"siz": 1}, Inner, "unknown field field.siz: field has size; did you mean 'size'?"),
    ],
)
def test_value_of_another_type_is_refused(value: object, to: object, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        coerce(value, to, "field")
    assert message == str(caught.value)


def test_field_is_replaced_by_its_dotted_path() -> None:
    expected = Outer(inner=Inner(7))
    assert expected == replace_fields(Outer(), {"inner.size": "7"})


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("ratee", 1, "unknown field 'ratee': Outer has rate, count, network, data, inner, other, rows; "),
        ("inner.siz", 1, "unknown field 'inner.siz': Inner has size; did you mean 'size'?"),
        ("rate.x", 1, "rate.x: 'rate' has no fields below it; set it as rate=VALUE"),
        ("count", 0, "count is 0; it must be at least 1"),
    ],
)
def test_unknown_or_refused_field_is_named(path: str, value: object, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        replace_fields(Outer(), {path: value})
    assert str(caught.value).startswith(message)


def test_plain_values_are_read_back_unchanged() -> None:
    config = Outer(rate=0.5, data=Dataset("mnist", "cd"), other=Inner(9), rows=(1, 2))
    assert config == coerce(plain(config), Outer, "config")


@dataclass(frozen=True)
class FeatureFields:
    feature: Feature = Glyph()
    burnt: Feature | None = None


STAMP = Picture(File("stamp.png"), top=3)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"feature": "B"}, FeatureFields(Glyph(text="B"))),
        ({"feature": "words:JANE DOE", "feature.size": "9"}, FeatureFields(Words("JANE DOE", size=9))),
        ({"feature.size": "9", "feature": "words:JANE DOE"}, FeatureFields(Words("JANE DOE", size=9))),
        ({"feature": {"words": "JANE DOE", "size": 9}}, FeatureFields(Words("JANE DOE", size=9))),
        ({"feature.words": "JANE DOE", "feature.size": 9}, FeatureFields(Words("JANE DOE", size=9))),  # a YAML file's
        ({"feature": "picture:stamp.png", "feature.top": "3"}, FeatureFields(STAMP)),
        ({"feature.image": "stamp.png", "feature.top": "3"}, FeatureFields(STAMP)),
        ({"burnt": "words:JANE"}, FeatureFields(burnt=Words("JANE"))),
        ({"burnt.kind": "random", "burnt.seed": "1"}, FeatureFields(burnt=Glyph("random", seed=1))),
        ({"burnt.image": "stamp.png", "burnt.top": "3"}, FeatureFields(burnt=STAMP)),
        ({"burnt": "none"}, FeatureFields()),
    ],
)
def test_alternative_is_read_from_text_or_fields(changes: dict[str, object], expected: FeatureFields) -> None:
    replaced = replace_fields(FeatureFields(), changes)
    assert expected == replaced == coerce(plain(replaced), FeatureFields, "config")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"feature": "AB"},
            "feature is 'AB': text is 'AB'; it must be one letter from A to Z, or begin with words:",
        ),
        ({"feature": "word:AB"}, "letter from A to Z, or begin with words: or picture:; did you mean 'words:'?"),
        ({"feature": "words:"}, "feature is 'words:': words is ''; it must be one line, without spaces at its ends"),
        ({"feature": "picture:"}, "feature is 'picture:': the path of a file is empty"),
        (
            {"feature": {"words": "AB", "siz": 3}},
            "unknown field feature.siz: feature has words, font, size, top, left, ink",
        ),
        ({"feature": {"words": "AB", "size": 3}}, "feature: size is 3; it must be at least 4"),
        ({"feature": {"font": "a.ttf"}}, "feature.words is missing; only font is given"),
        ({"feature": {"size": 7}}, "feature: size is 7; it must be a multiple of 5"),
        ({"feature.font": "a.ttf"}, "unknown field 'feature.font': Glyph has kind, text, size, top, left, seed"),
        (
            {"feature": "words:AB", "feature.kind": "random"},
            "unknown field 'feature.kind': Words has words, font",
        ),
        ({"feature": "words:AB", "feature.image": "a"}, "unknown field 'feature.image': Words has words, font"),
    ],
)
def test_error_names_the_intended_alternative(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        replace_fields(FeatureFields(), changes)
    assert message in str(caught.value)


def test_union_order_decides_the_type() -> None:
    assert coerce("3", int | str, "field") == 3
    assert coerce("3", str | int, "field") == "3"
    assert coerce("3", int | str, "field") == 3
    assert coerce(3, float | int, "field") == 3.0
    assert coerce(3, int | float, "field") == 3


def test_valid_value_is_kept_and_checked() -> None:
    outer = Outer(rows=(1, 2), other=Inner(7))
    assert coerce(outer, Outer, "field") is outer
    assert Inner(7) == coerce(Inner(7.0), Inner, "field")  # type: ignore[arg-type]
    assert isinstance(coerce(Inner(7.0), Inner, "field").size, int)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"field\.inner\.size is 1\.5; it must be a whole number"):
        coerce(Outer(inner=Inner(1.5)), Outer, "field")  # type: ignore[arg-type]


# Walking over configs
