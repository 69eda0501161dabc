"""Walking, changing and flattening configs. Unchanged parts stay the same objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.spec.config_parts import flatten, parts, rebuild, walk
from tasks.datasets.dataset import Dataset
from tests.orchestrator.spec.test_fields import Inner, Outer


@dataclass(frozen=True)
class Wide:
    outer: Outer = field(default_factory=Outer)
    data: tuple[Dataset, ...] = (Dataset("a"), Dataset("b"))
    inners: tuple[Inner, ...] = (Inner(1), Inner(2))
    hidden: str = field(default="word", metadata={"hide": True})


def test_parts_of_a_config_are_its_fields() -> None:
    assert parts(Inner()) == {"size": 5}
    assert parts(Dataset("digits")) is None
    assert parts((Inner(),)) is None
    assert parts({"size": 5}) is None
    assert parts(Inner) is None


def test_walk_yields_every_part_with_its_path() -> None:
    every = list(walk(Wide()))
    assert every[0] == ("", Wide())
    assert [(path, part) for path, part in every if isinstance(part, Dataset)] == [
        ("outer.data", Dataset("digits")),
        ("data", Dataset("a")),
        ("data", Dataset("b")),
    ]
    assert [(path, part) for path, part in every if path.startswith("inners") and not isinstance(part, tuple)] == [
        ("inners", Inner(1)),
        ("inners.size", 1),
        ("inners", Inner(2)),
        ("inners.size", 2),
    ]


def test_configs_and_mappings_are_flattened_by_path() -> None:
    expected = {"rate": 0.1, "count": 3, "network": "mlp1", "data": Dataset("digits"), "inner.size": 5}
    assert expected | {"other": None, "rows": ()} == dict(flatten(Outer()))
    assert dict(flatten({"a": {"b": 1, "c": Inner()}, "d": (Inner(),)})) == {"a.b": 1, "a.c.size": 5, "d": (Inner(),)}


def test_config_is_rebuilt_only_if_changed() -> None:
    def louder(part: Any, metadata: Mapping[Any, Any]) -> Any:
        return part.upper() if metadata.get("hide") else rebuild(part, louder)

    def bigger(part: Any, _: Mapping[Any, Any]) -> Any:
        return Inner(part.size + 1) if isinstance(part, Inner) else rebuild(part, bigger)

    wide = Wide()
    assert Wide(hidden="WORD") == rebuild(wide, louder)
    grown = rebuild(wide, bigger)
    assert Wide(outer=Outer(inner=Inner(6)), inners=(Inner(2), Inner(3))) == grown
    assert grown.data is wide.data
    assert rebuild(wide, lambda part, _: part) is wide
