"""The cells of a specification: configs checked against their audit, data sets pinned to their content."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import EngramError, SpecError
from orchestrator.spec import audits
from orchestrator.spec.config_parts import differing_paths, plain, rebuild, walk
from orchestrator.spec.fields import field_types, nearest, replace_fields, text
from orchestrator.spec.short_names import find_paths
from orchestrator.spec.specification import Spec
from orchestrator.spec.tiny_data import fit_to_data
from tasks.contract.alternatives import tagged_members
from tasks.contract.audit import Stopping
from tasks.contract.pinnable import Pinnable, PinnedAs, Unavailable
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset, DatasetError, UnknownDataset
from tasks.datasets.notes import data_notes

# A setting of every audit in addition to the fields of its config: `tiny` reduces data, epochs and members to seconds.
SCALE = "scale"
SCALES = ("tiny", "full")
Setting = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One audit with one config; `setting` holds the varied fields of a sweep.

    `spec` is the specification of the cell; None if there is none. `stopping` is the early stopping of its audit; None
    for an audit that always completes its plan. `accepted` are the changes of the user's code that the user has
    accepted, and `stand_ins` the digests by which changed code enters keys (present -> earlier).
    """

    audit: str
    config: Any
    preset: str | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)
    spec: Spec | None = field(default=None, compare=False, repr=False)
    stopping: Stopping | None = field(default=None, compare=False, repr=False)
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    accepted: tuple[Mapping[str, Any], ...] = ()

    @property
    def spec_alone(self) -> Spec | None:
        """The specification of this cell alone."""
        spec = self.spec
        if spec is None:
            return None
        return replace(spec, set={**spec.set, **self.setting}, sweep={})


@dataclass(frozen=True)
class LeftOut:
    """A cell of a preset that does not run; `problem` names in one line the data missing on this machine."""

    setting: Mapping[str, Any]
    problem: str


def is_file(source: str) -> bool:
    """Whether this names a YAML file rather than an audit."""
    return Path(source).suffix in (".yaml", ".yml") or "/" in source


def read_spec(source: str, flags: Spec) -> Spec:
    """The specification from an audit's name or a YAML file, overridden by the flags of the command line."""
    if is_file(source):
        from orchestrator.spec.spec_file import read

        return _override(read(Path(source)), flags)
    return replace(flags, audit=source)


def _override(file: Spec, flags: Spec) -> Spec:
    """The specification of a file, overridden by the flags, even if both use different names of a field."""
    merged = file.override_with(flags)
    flag_fields = {**flags.set, **flags.sweep}
    if not flag_fields:
        return merged
    base = _preset(merged, audits.find(merged.audit).audit)[0]
    settings = {}
    for name, value in {**merged.set, **merged.sweep}.items():
        if name != SCALE:
            settings[name] = value
    paths, _ = find_paths(base, settings, flag_fields)
    replaced = {paths[name] for name in flag_fields if name != SCALE}
    set_fields = {}
    for name, value in file.set.items():
        if paths.get(name) not in replaced:
            set_fields[name] = value
    swept_fields = {}
    for name, values in file.sweep.items():
        if paths.get(name) not in replaced:
            swept_fields[name] = values
    return replace(file, set=set_fields, sweep=swept_fields).override_with(flags)


def resolve_cells(spec: Spec) -> list[Cell]:
    """The cells of a specification; data sets are not pinned yet.

    There is one for each config of the preset and combination of the swept values. Cells with equal configs, because
    a field is set or because of `scale=tiny`, become one run. The setting of a cell has the fields in which the
    preset's configs differ, then the swept fields.

    Raises SpecError for an unknown audit, preset or field, and for an invalid value.
    """
    from orchestrator.spec.audits import find

    audit = find(spec.audit).audit
    set_and_swept = sorted(set(spec.set) & set(spec.sweep))
    if set_and_swept:
        raise SpecError(f"{set_and_swept[0]} is both set and swept; give it once")
    bases = _preset(spec, audit)
    spec = _with_full_names(spec, audit.tiny(bases[0]) if spec.set.get(SCALE) == "tiny" else bases[0])
    grid = []
    for values in itertools.product(*spec.sweep.values()):
        grid.append(dict(zip(spec.sweep, values, strict=True)))
    configs = []
    for base in bases:
        settings = [_settings_of_base({**spec.set, **varied}, base, bases) for varied in grid]
        configs.append([build_config(audit, base, setting) for setting in settings])
    fields: dict[str, None] = {}
    for variants in zip(*configs, strict=True):  # for each combination of swept values, the configs of the preset
        fields |= dict.fromkeys(differing_paths([plain(config) for config in variants]))
    cells: list[Cell] = []
    for base_configs in configs:
        for config, varied in zip(base_configs, grid, strict=True):
            names = dict.fromkeys((*fields, *varied))
            setting = {}
            for name in names:
                setting[name] = (
                    varied[name] if name == SCALE else _setting_value(_field_value(config, name), varied.get(name))
                )
            if not any(cell.config == config and cell.setting == setting for cell in cells):  # 1 and 1.0 are one value
                cells.append(Cell(spec.audit, config, spec.preset, setting, spec, audit.stopping))
    return cells


def _settings_of_base(settings: Setting, base: Any, bases: Sequence[Any]) -> Setting:
    """The settings without the fields that only alternatives of other configs of the preset have."""
    if len(bases) == 1:
        return settings
    result = {}
    for name, value in settings.items():
        if _has_field(base, name, settings) or not any(
            _has_field(preset_config, name, settings) for preset_config in bases
        ):
            result[name] = value
    return result


def _has_field(config: Any, path: str, settings: Setting) -> bool:
    """Whether a config has the field of this path, with the alternatives that the settings select."""
    parent_path = ""
    for name in path.split("."):
        if not dataclasses.is_dataclass(config) or parent_path in settings:
            return True
        if not hasattr(config, name):
            return False
        if parent_path:
            parent_path = f"{parent_path}.{name}"
        else:
            parent_path = name
        config = getattr(config, name)
    return True


def _with_full_names(spec: Spec, base: Any) -> Spec:
    """The specification with the full paths of the fields that it sets and sweeps by short names."""
    settings = {}
    for name, value in {**spec.set, **spec.sweep}.items():
        if name != SCALE:
            settings[name] = value
    paths, selected = find_paths(base, settings)
    set_fields = {paths.get(name, name): value for name, value in spec.set.items()}
    swept_fields = {}
    for name, values in spec.sweep.items():
        swept_fields[paths.get(name, name)] = values
    return replace(spec, set={**selected, **set_fields}, sweep=swept_fields)


def build_config(audit: Any, base: Any, settings: Mapping[str, Any]) -> Any:
    """The config with these fields set, after `scale=tiny` has reduced it."""
    scale = settings.get(SCALE, "full")
    if scale not in SCALES:
        raise SpecError(f"{SCALE} is {scale!r}; allowed: {', '.join(SCALES)}{nearest(str(scale), SCALES)}")
    fields = {name: value for name, value in settings.items() if name != SCALE}
    if scale == "tiny":
        base = audit.tiny(replace_fields(base, _below_alternatives(base, fields)))
    return replace_fields(base, fields)


def _below_alternatives(base: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that select alternatives of the config, and the settings of the fields below them.

    `scale=tiny` reduces the selected alternative, not the one of the preset.
    """
    kind: Any = type(base)
    selected = set()
    for name, declared_type in field_types(kind).items():
        if name in settings and tagged_members(declared_type):
            selected.add(name)
    alternatives = {}
    for name, value in settings.items():
        if name.partition(".")[0] in selected:
            alternatives[name] = value
    return alternatives


def pin_cells(cells: Iterable[Cell], cached_digests: MutableMapping[str, str]) -> list[Cell]:
    """The cells with all data sets, files, networks and other pinnable values of their configs pinned to their content.

    `cached_digests` caches digests of files by path, size and time. Raises SpecError for an unknown data set, and
    EngramError if files are missing or differ from the expected ones.
    """
    pinned_values: dict[Dataset | Pinnable, Any] = {}

    def pin(thing: Dataset | Pinnable) -> Any:
        if thing not in pinned_values:
            pinned_values[thing] = pin_one(thing, cached_digests)
        return pinned_values[thing]

    return [_fit(replace(cell, config=_pin_parts(cell.config, pin))) for cell in cells]


def _fit(cell: Cell) -> Cell:
    """The pinned cell; with `scale=tiny` it uses at most as many examples as its data set has."""
    settings = {**(cell.spec.set if cell.spec else {}), **cell.setting}
    if settings.get(SCALE) != "tiny":
        return cell
    return replace(cell, config=fit_to_data(cell.config, settings, audits.find(cell.audit).audit.limits))


def pin_available(
    cells: Sequence[Cell], cached_digests: MutableMapping[str, str]
) -> tuple[list[Cell], tuple[LeftOut, ...]]:
    """The pinned cells whose data and models are on this machine, and the cells that are skipped.

    Cells are skipped only if the preset has several and at least one can run. Raises the errors of `pin_cells`, and
    SpecError if a cell would be skipped and the specification requires all cells.
    """
    spec = cells[0].spec
    if spec is None or not _has_several(spec):
        return pin_cells(cells, cached_digests), ()
    available: list[Cell] = []
    left_out: list[LeftOut] = []
    for cell in cells:
        try:
            available += pin_cells([cell], cached_digests)
        except SpecError:
            raise
        except EngramError as error:
            left_out.append(LeftOut(cell.setting, str(error)))
    if left_out and spec.all_cells:
        raise SpecError(
            f"all cells are required, but {len(left_out)} of {len(cells)} cannot run: {left_out[0].problem}"
        )
    if not available:
        raise EngramError(left_out[0].problem)
    return available, tuple(left_out)


def _has_several(spec: Spec) -> bool:
    """Whether a specification starts from a preset with several cells."""
    from orchestrator.spec.audits import find

    return spec.preset is not None and len(_preset(spec, find(spec.audit).audit)) > 1


def _preset(spec: Spec, audit: Any) -> tuple[Any, ...]:
    if spec.preset is None:
        try:
            return (audit.config(),)  # the published setting
        except (TypeError, ValueError):
            raise SpecError(f"{spec.audit} needs a --preset: {', '.join(audit.presets)}") from None
    if spec.preset not in audit.presets:
        allowed = ", ".join(audit.presets)
        hint = nearest(spec.preset, audit.presets)
        raise SpecError(f"unknown preset {spec.preset!r} of {spec.audit}; it has {allowed}{hint}")
    return tuple(audit.cells(spec.preset))


def pin_one(value: Dataset | Pinnable, cached_digests: MutableMapping[str, str]) -> Dataset | Pinnable:
    """The pinned value. Raises SpecError for a user's mistake, and EngramError for data that this machine lacks."""
    try:
        if isinstance(value, Dataset):
            return _pin_data(value, cached_digests)
        return value.pin(cached_digests)
    except UnknownDataset as error:
        raise SpecError(str(error)) from None
    except Unavailable as error:
        raise EngramError(str(error)) from None
    except ValueError as error:
        raise SpecError(str(error)) from None


def _pin_data(dataset: Dataset, cached_digests: MutableMapping[str, str]) -> Dataset:
    try:
        return catalog.pin(dataset, cached_digests)
    except OSError as error:
        raise DatasetError(f"data set {dataset.name!r} cannot be read: {error}") from None


def _field_value(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config


def _setting_value(value: Any, original: Any) -> Any:
    """A swept value as shown in settings; one with several fields as its original text, if it was given as text."""
    plain_value = plain(value)
    if isinstance(plain_value, Mapping) and isinstance(original, str):
        return original
    return plain_value


def _pin_parts(value: Any, pin: Callable[[Dataset | Pinnable], Any]) -> Any:
    """The value with all pinnable parts pinned, recursively."""
    if isinstance(value, Dataset | Pinnable):
        return pin(value)
    if isinstance(value, PinnedAs):
        value = value.to_pin()
    return rebuild(value, lambda part, _: _pin_parts(part, pin))


def pinned_data(configs: Iterable[Any]) -> list[Dataset | Pinnable]:
    """The data sets, files and other pinned values of these configs, each once."""
    values = {part: None for config in configs for _, part in walk(config) if isinstance(part, Dataset | Pinnable)}
    return [part for part in values if getattr(part, "digest", "")]


def describe_data(cells: Sequence[Cell], cached_digests: MutableMapping[str, str]) -> list[str]:
    """The notes about the pinned data sets of these cells, one line each.

    Notes about a single data set (`tasks.datasets.notes`) come first, then the notes of audits about several.
    """
    notes: dict[str, None] = {}
    for pinned_value in pinned_data(cell.config for cell in cells):
        if isinstance(pinned_value, Dataset):
            notes |= dict.fromkeys(data_notes(pinned_value, cached_digests))
    for cell in cells:
        audit = audits.find(cell.audit).audit
        if audit.notes is not None:
            notes |= dict.fromkeys(audit.notes(cell.config))
    return list(notes)


def distinguishing_fields(settings: Sequence[Setting]) -> list[str]:
    """A minimal list of fields that distinguish these settings.

    If fields vary together, such as a network and its batch size, the first one is kept.
    """
    names = list(dict.fromkeys(name for setting in settings for name in setting))
    words = []
    for setting in settings:
        words.append({name: json.dumps(setting.get(name), sort_keys=True, default=str) for name in names})

    def apart(fields: Sequence[str]) -> int:
        return len({tuple(texts[name] for name in fields) for texts in words})

    remaining_names = names
    for name in reversed(names):
        fewer_names = [field for field in remaining_names if field != name]
        if apart(fewer_names) == apart(names):
            remaining_names = fewer_names
    return remaining_names


def label(setting: Setting, fields: Iterable[str]) -> str:
    """The label of a cell from these fields: `data=mnist, network=mlp1`."""
    return ", ".join(f"{name}={text(setting[name])}" for name in fields if name in setting)


def left_out_as_json(cells: Sequence[Cell], left_out: Sequence[LeftOut]) -> list[dict[str, Any]]:
    """Each skipped cell: its setting, the problem, and both as one line."""
    lines = describe_left_out(cells, left_out)
    result = []
    for cell, line in zip(left_out, lines, strict=True):
        result.append({"setting": dict(cell.setting), "problem": cell.problem, "line": line})
    return result


def describe_left_out(cells: Sequence[Cell], left_out: Sequence[LeftOut]) -> list[str]:
    """A line for each skipped cell: the fields that distinguish it from all other cells, and the problem."""
    fields = distinguishing_fields([cell.setting for cell in cells] + [cell.setting for cell in left_out])
    result = []
    for cell in left_out:
        result.append(f"skipped: {label(cell.setting, fields)}: {cell.problem}")
    return result
