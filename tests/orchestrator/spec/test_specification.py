"""A specification yields the cells that it names, or a one-line error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import toys

from orchestrator.errors import SpecError
from orchestrator.spec import config_parts, resolve, specification
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution, Spec
from tasks.contract.audit import Audit
from tasks.datasets.dataset import Dataset

EXAMPLES = Path(__file__).parents[3] / "examples"


@dataclass(frozen=True)
class Inner:
    probe: Dataset = Dataset("photos")


@dataclass(frozen=True)
class Outer:
    data: Dataset = Dataset("digits")
    inner: Inner = Inner()
    more: tuple[Dataset, ...] = (Dataset("digits"),)
    number: int = 1


def configs(spec: Spec) -> list[Any]:
    return [cell.config for cell in resolve.resolve_cells(spec)]


def write(folder: Path, text: str | bytes) -> str:
    path = folder / "audit.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_audit_starts_from_preset_or_published_settings() -> None:
    assert [toys.Config(parts=300)] == configs(Spec("toys", "many"))
    assert [toys.Config()] == configs(Spec("toys"))


def test_fields_override_preset_and_are_converted() -> None:
    assert [toys.Config(parts=9, seconds=2.0)] == configs(Spec("toys", "many", {"parts": "9", "seconds": "2"}))


def test_tiny_shrinks_the_preset_before_fields_are_set() -> None:
    assert [toys.Config(parts=2)] == configs(Spec("toys", "many", {"scale": "tiny"}))
    assert [toys.Config(parts=5)] == configs(Spec("toys", "many", {"parts": 5, "scale": "tiny"}))
    assert [toys.Config(parts=300)] == configs(Spec("toys", "many", {"scale": "full"}))


def test_sweep_is_a_grid_with_settings_per_cell() -> None:
    cells = resolve.resolve_cells(Spec("toys", "few", {"label": "x"}, {"parts": ("2", "3"), "first": ("0", "1")}))
    assert [
        Cell("toys", toys.Config(parts=parts, first=first, label="x"), "few", {"parts": parts, "first": first})
        for parts in (2, 3)
        for first in (0, 1)
    ] == cells


def test_equal_cells_of_a_sweep_are_one() -> None:
    assert [toys.Config(seconds=1.0)] == configs(Spec("toys", sweep={"seconds": ("1", "1.0", "1e0")}))


def test_sweep_can_vary_the_scale() -> None:
    cells = resolve.resolve_cells(Spec("toys", "few", sweep={"scale": ("tiny", "full")}))
    assert [(cell.config.parts, cell.setting) for cell in cells] == [(2, {"scale": "tiny"}), (6, {"scale": "full"})]


def test_preset_with_several_configs_has_several_cells() -> None:
    presets_and_settings = []
    for cell in resolve.resolve_cells(Spec("toys", "three")):
        presets_and_settings.append((cell.preset, cell.setting))
    assert presets_and_settings == [
        ("three", {"parts": 2, "first": 0, "label": ""}),
        ("three", {"parts": 3, "first": 1, "label": "b"}),
        ("three", {"parts": 3, "first": 1, "label": "c"}),
    ]


def test_set_field_applies_to_all_cells() -> None:
    cells = resolve.resolve_cells(Spec("toys", "three", {"label": "x", "seconds": "2"}))
    assert [
        Cell("toys", toys.Config(2, seconds=2.0, label="x"), "three", {"parts": 2, "first": 0}),
        Cell("toys", toys.Config(3, 1, seconds=2.0, label="x"), "three", {"parts": 3, "first": 1}),
    ] == cells
    tiny = resolve.resolve_cells(Spec("toys", "three", {"scale": "tiny"}))
    assert [cell.setting for cell in tiny] == [
        {"first": 0, "label": ""},
        {"first": 1, "label": "b"},
        {"first": 1, "label": "c"},
    ]


def test_preset_reduced_to_one_config_is_plain_run() -> None:
    cells = resolve.resolve_cells(Spec("toys", "three", {"label": "x", "first": "0", "scale": "tiny"}))
    assert [Cell("toys", toys.Config(parts=2, label="x"), "three")] == cells


def test_sweep_varies_every_config_of_a_preset() -> None:
    cells = resolve.resolve_cells(Spec("toys", "three", {"label": "x"}, {"at": ("1", "2")}))
    assert [
        {"parts": parts, "first": first, "at": part_number}
        for parts, first in ((2, 0), (3, 1))
        for part_number in (1, 2)
    ] == [cell.setting for cell in cells]
    over = resolve.resolve_cells(Spec("toys", "three", {"first": "0"}, {"label": ("x", "y")}))
    assert [{"parts": parts, "label": label} for parts in (2, 3) for label in "xy"] == [
        swept_cell.setting for swept_cell in over
    ]


def test_configs_of_different_kinds_differ_as_one_part() -> None:
    plain = [{"a": {"b": 1, "c": 2}, "d": None}, {"a": {"b": 1, "c": 3}, "d": {"e": 1}}]
    assert list(config_parts.differing_paths(plain)) == ["a.c", "d"]


def test_preset_without_a_config_is_refused() -> None:
    with pytest.raises(ValueError, match="preset 'none' is an empty tuple"):
        Audit(toys.Config, toys.plan, {"none": ()}, toys.tiny)


def test_jointly_checked_fields_are_set_together(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Ordered:
        low: int = 0
        high: int = 1

        def __post_init__(self) -> None:
            if self.low >= self.high:
                raise ValueError(f"low is {self.low}; it must be below high, {self.high}")

    base = Audit(Ordered, lambda config: {}, {}, lambda config: config)
    assert Ordered(5, 6) == resolve.build_config(base, Ordered(), {"low": 5, "high": 6})
    assert Ordered(5, 6) == resolve.build_config(base, Ordered(), {"high": 6, "low": 5})
    with pytest.raises(SpecError, match="low is 5; it must be below high, 1"):
        resolve.build_config(base, Ordered(), {"low": 5})


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (Spec("toyz"), "toys, trainings, tunable, unique_feature; did you mean 'toys'?"),
        (
            Spec("toys", "fwe"),
            "unknown preset 'fwe' of toys; it has few, many, three, partly, absent; did you mean 'few'?",
        ),
        (Spec("toys", set={"part": 1}), "unknown field 'part': Config has parts, first, seconds"),
        (Spec("toys", set={"parts": "many"}), "parts is 'many'; it must be a whole number"),
        (Spec("toys", set={"parts": 0}), "parts is 0; it must be at least 1"),
        (Spec("toys", set={"seconds": "nan"}), "seconds is 'nan'; it must be a finite number"),
        (Spec("toys", set={"parts.x": 1}), "parts.x: 'parts' has no fields below it; set it as parts=VALUE"),
        (Spec("toys", set={"scale": "tyni"}), "scale is 'tyni'; allowed: tiny, full; did you mean 'tiny'?"),
        (Spec("toys", set={"parts": 1}, sweep={"parts": (1, 2)}), "parts is both set and swept; specify it only once"),
        (Spec("toys", sweep={"parts": ("1", "x")}), "parts is 'x'; it must be a whole number"),
        (Spec("unique_feature", set={"feature.txt": "A"}), "unknown field 'feature.txt'"),
    ],
)
def test_invalid_specification_is_refused_in_one_line(spec: Spec, problem: str) -> None:
    with pytest.raises(SpecError) as raised:
        resolve.resolve_cells(spec)
    assert problem in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_every_data_set_in_a_config_is_pinned() -> None:
    digests: dict[str, str] = {}
    (cell,) = resolve.pin_cells([Cell("x", Outer())], digests)
    assert 64 == len(cell.config.data.digest) == len(cell.config.inner.probe.digest)
    assert cell.config.data == cell.config.more[0]
    assert cell.config.number == 1
    assert set(digests.values()) == {cell.config.data.digest, cell.config.inner.probe.digest}


def test_known_digest_is_not_recomputed() -> None:
    digests: dict[str, str] = {}
    resolve.pin_cells([Cell("x", Dataset("digits"))], digests)
    (stamp,) = digests
    (cell,) = resolve.pin_cells([Cell("x", Dataset("digits"))], {stamp: "f" * 64})
    assert cell.config.digest == "f" * 64


def test_commas_inside_brackets_belong_to_a_swept_value() -> None:
    assert specification.sweeps(["a=1,2", "b.c=[1,2],(3,4)"]) == {"a": ["1", "2"], "b.c": ["[1,2]", "(3,4)"]}


@pytest.mark.parametrize("texts", [["parts"], ["=3"], ["parts=1", "parts=2"]])
def test_malformed_or_repeated_setting_is_refused(texts: list[str]) -> None:
    with pytest.raises(SpecError, match=r"field=value|twice"):
        specification.settings(texts)


@pytest.mark.parametrize("texts", [["parts"], ["parts="], ["parts=1,,2"], ["parts=1", "parts=2"]])
def test_empty_or_repeated_sweep_is_refused(texts: list[str]) -> None:
    with pytest.raises(SpecError, match=r"field=value|empty|twice"):
        specification.sweeps(texts)


def test_file_can_state_everything_of_command_line(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "audit: toys\npreset: few\nset: {parts: 3, seconds: 1e-3}\nsweep: {first: [1, 2]}\n"
        "execution: {address: none, gpus: none, together: 4, tolerate: 1, fail_fast: true, stop_after: 3h50m, "
        "timeout: 10m, store: s, way: stack}\n",
    )
    spec = resolve.read_spec(path, Spec(""))
    assert [toys.Config(parts=3, seconds=0.001, first=1), toys.Config(parts=3, seconds=0.001, first=2)] == configs(spec)
    expected = Execution(
        address="none",
        gpus="none",
        together=4,
        tolerate=1,
        fail_fast=True,
        stop_after=13_800.0,
        timeout=600.0,
        way="stack",
    )
    assert expected == specification.execution(spec)
    assert spec.store == "s"


def test_waiting_for_a_gpu_requires_a_cluster() -> None:
    with pytest.raises(SpecError, match="gpus=wait requires the --address of a cluster"):
        specification.execution(Spec("toys", execution={"gpus": "wait"}))
    with pytest.raises(SpecError, match="gpus is 'some'; it must be one of auto, none, wait"):
        specification.execution(Spec("toys", execution={"gpus": "some"}))


def test_command_line_overrides_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "audit: toys\npreset: few\nset: {parts: 3, first: 1}\nsweep: {label: [a, b]}\n"
        "execution: {address: none, together: 4, store: s}\n",
    )
    flags = Spec("", "many", {"label": "c"}, {"first": ("5", "6")}, {"together": None}, "t")
    spec = resolve.read_spec(path, flags)
    assert [toys.Config(3, first=5, label="c"), toys.Config(3, first=6, label="c")] == configs(spec)
    assert spec.preset == "many"
    assert spec.store == "t"
    assert Execution("none") == specification.execution(spec)


def test_nested_mapping_sets_part_of_nested_config(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "audit: unique_feature\npreset: smoke\nset: {feature: {text: X}, canaries: 1, training: {epochs: 2}}\n",
    )
    (config,) = configs(resolve.read_spec(path, Spec("")))
    question = config.question
    assert config.feature.text == "X"
    assert config.feature.size == 5
    assert question.canaries == 1
    assert question.training.epochs == 2


@pytest.mark.parametrize("name", ["nowhere.yaml", "./nowhere", "."])
def test_unreadable_file_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(SpecError, match=r"does not exist|cannot be read|unknown audit"):
        resolve.resolve_cells(resolve.read_spec(name, Spec("")))


@pytest.mark.parametrize(
    ("execution", "problem"),
    [
        ({"together": 0}, "together is 0"),
        ({"tolerate": -1}, "tolerate is -1"),
        ({"way": "fast"}, "way is 'fast'"),
        ({"keep": "states"}, "keep is 'states'; it must be one of none, state; did you mean 'state'?"),
    ],
)
def test_invalid_execution_setting_is_refused(execution: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        specification.execution(Spec("toys", execution=execution))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_specifies_its_audit(path: Path) -> None:
    spec = resolve.read_spec(str(path), Spec("", set={"scale": "tiny"}))
    assert path.stem == ("search" if spec.search else spec.audit)
    assert resolve.resolve_cells(spec)
