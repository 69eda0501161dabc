"""The cells of a specification: configurations checked against their audit, and data sets pinned to their content."""

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
from tasks.datasets.cache_need import CachedImages, cache_notes, check_cache, files_of
from tasks.datasets.dataset import ROWS, Dataset, DatasetError, UnknownDataset, is_numbered, is_table
from tasks.datasets.hub_cache import allow_downloads
from tasks.datasets.notes import data_notes

# Accepted by every audit in addition to its configuration fields: `tiny` cuts data, epochs and members for runs that
# take seconds.
SCALE = "scale"
RECORDS = "records"  # number of records that only a user's program holds
SCALES = ("tiny", "full")
Setting = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One audit with one configuration.

    `setting` contains the varied fields of a sweep. `spec` is the specification that the cell comes from, if any.
    `stopping` is the early stopping rule of the audit, or None for an audit that always completes its plan. `accepted`
    lists the changes to user code that the user has accepted, and `stand_ins` maps the present digest of changed code
    to the earlier digest that enters keys.
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
    """A preset cell that does not run. `problem` is one line that names the data missing on this machine."""

    setting: Mapping[str, Any]
    problem: str


def is_file(source: str) -> bool:
    """Return whether the source is the path of a YAML file rather than the name of an audit."""
    return Path(source).suffix in (".yaml", ".yml") or "/" in source


def read_spec(source: str, flags: Spec) -> Spec:
    """Read the specification from an audit name or a YAML file, overridden by the command-line flags."""
    if is_file(source):
        from orchestrator.spec.spec_file import read

        return _override(read(Path(source)), flags)
    return replace(flags, audit=source)


def _override(file: Spec, flags: Spec) -> Spec:
    """Override a file's specification by the flags, even if the two use different names for the same field."""
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
    """Return the cells of a specification, before data sets are pinned.

    There is one cell per configuration of the preset and combination of swept values. Cells whose configurations are
    equal, because a field is set explicitly or because of `scale=tiny`, are merged into one run. The setting of a cell
    lists the fields in which the preset's configurations differ, then the swept fields.

    Raises SpecError for an unknown audit, preset or field, and for an invalid value.
    """
    from orchestrator.spec.audits import find

    audit = find(spec.audit).audit
    if audit.rows_field:
        spec = _name_row_data(spec, (audit.rows_field, *audit.further_rows_fields))
    set_and_swept = sorted(set(spec.set) & set(spec.sweep))
    if set_and_swept:
        raise SpecError(f"{set_and_swept[0]} is both set and swept; specify it only once")
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
    for variants in zip(*configs, strict=True):  # one iteration per combination of swept values
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
            if not any(cell.config == config and cell.setting == setting for cell in cells):  # 1 and 1.0 are equal
                cells.append(Cell(spec.audit, config, spec.preset, setting, spec, audit.stopping))
    return cells


def _name_row_data(spec: Spec, fields: Sequence[str]) -> Spec:
    """Replace `records=COUNT`, the records that only a user's program holds, by the data set `rows:COUNT`."""
    count = spec.set.get(RECORDS)
    if not str(count).isdigit():
        return spec
    for name in fields:
        if name in spec.set:
            raise SpecError(f"records is {count} and {name} is {spec.set[name]}; give only one of them")
    others = {name: value for name, value in spec.set.items() if name != RECORDS}
    return replace(spec, set={**dict.fromkeys(fields, f"{ROWS}{count}"), **others})


def _settings_of_base(settings: Setting, base: Any, bases: Sequence[Any]) -> Setting:
    """Drop settings for fields that exist only in alternatives used by other configurations of the preset."""
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
    """Return whether a configuration has the field at this path, given the alternatives selected by the settings."""
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
    """Replace the short names of set and swept fields by their full paths."""
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
    """Return the configuration with these fields set, reduced first if `scale=tiny`."""
    scale = settings.get(SCALE, "full")
    if scale not in SCALES:
        raise SpecError(f"{SCALE} is {scale!r}; allowed: {', '.join(SCALES)}{nearest(str(scale), SCALES)}")
    fields = {name: value for name, value in settings.items() if name != SCALE}
    if scale == "tiny":
        base = audit.tiny(replace_fields(base, _below_alternatives(base, fields)))
    return replace_fields(base, fields)


def _below_alternatives(base: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that select alternatives, and the settings of fields nested in these alternatives.

    They are applied first so that `scale=tiny` reduces the selected alternative, not the one in the preset.
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


def pin_cells(
    cells: Iterable[Cell],
    cached_digests: MutableMapping[str, str],
    pinned_values: dict[Dataset | Pinnable, Any] | None = None,
) -> list[Cell]:
    """Pin all data sets, files, networks and other pinnable values in the configurations to their content.

    `cached_digests` caches file digests by path, size and modification time. `pinned_values` are the values that the
    caller has already pinned, and receives those pinned here. Raises SpecError for an unknown data set, and EngramError
    if files are missing or differ from the expected ones.
    """
    if pinned_values is None:
        pinned_values = {}

    def pin(thing: Dataset | Pinnable) -> Any:
        if thing not in pinned_values:
            pinned_values[thing] = pin_one(thing, cached_digests)
        return pinned_values[thing]

    pinned = []
    for cell in cells:
        _check_tables(cell)
        pinned.append(_fit(replace(cell, config=_pin_parts(cell.config, pin))))
    return pinned


def _check_tables(cell: Cell) -> None:
    """Raise SpecError if the configuration names a table of features and the audit reads only other data."""
    datasets = [part for _, part in walk(cell.config) if isinstance(part, Dataset)]
    numbered = [part.name for part in datasets if is_numbered(part)]
    if numbered and not audits.find(cell.audit).audit.rows_field:
        raise SpecError(f"{cell.audit} runs no training programs of your own, which {numbered[0]} needs")
    tables = [part.name for part in datasets if is_table(part)]
    if not tables or audits.find(cell.audit).audit.reads_tables:
        return
    readers = []
    for name in audits.names():
        registered = audits.find_installed(name)
        if registered is not None and registered.audit.reads_tables:
            readers.append(name)
    raise SpecError(f"{cell.audit} reads no tables, such as {tables[0]}; tables are read by {', '.join(readers)}")


def _fit(cell: Cell) -> Cell:
    """Limit a pinned cell with `scale=tiny` to the number of examples in its data set."""
    settings = {**(cell.spec.set if cell.spec else {}), **cell.setting}
    if settings.get(SCALE) != "tiny":
        return cell
    return replace(cell, config=fit_to_data(cell.config, settings, audits.find(cell.audit).audit.limits))


def pin_available(
    cells: Sequence[Cell], cached_digests: MutableMapping[str, str]
) -> tuple[list[Cell], tuple[LeftOut, ...]]:
    """Return the pinned cells whose data and models are available on this machine, and the skipped cells.

    Cells are skipped only if the preset has several and at least one can run. Raises the errors of `pin_cells`, and
    SpecError if a cell would be skipped but the specification requires all cells.
    """
    spec = cells[0].spec
    with allow_downloads(spec is not None and spec.download):
        return _pin_available(cells, cached_digests)


def _pin_available(
    cells: Sequence[Cell], cached_digests: MutableMapping[str, str]
) -> tuple[list[Cell], tuple[LeftOut, ...]]:
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
    """Return whether the specification starts from a preset with several cells."""
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
    """Pin a value. Raises SpecError for user errors, and EngramError for data missing on this machine."""
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
    """Return a swept value as shown in settings.

    A value with several fields keeps its original text, if it was text.
    """
    plain_value = plain(value)
    if isinstance(plain_value, Mapping) and isinstance(original, str):
        return original
    return plain_value


def _pin_parts(value: Any, pin: Callable[[Dataset | Pinnable], Any]) -> Any:
    """Pin all pinnable parts of a value, recursively."""
    if isinstance(value, str | int | float | None):
        return value  # most parts; the check for the protocol takes longer
    if isinstance(value, Dataset | Pinnable):
        return pin(value)
    if isinstance(value, PinnedAs):
        value = value.to_pin()
    return rebuild(value, lambda part, _: _pin_parts(part, pin))


def pinned_data(configs: Iterable[Any]) -> list[Dataset | Pinnable]:
    """Return the distinct pinned data sets, files and other values in these configurations."""
    values = {part: None for config in configs for _, part in walk(config) if isinstance(part, Dataset | Pinnable)}
    return [part for part in values if getattr(part, "digest", "")]


def pinned_datasets(cells: Iterable[Cell]) -> list[Dataset]:
    """Return the distinct pinned data sets of these cells."""
    return [value for value in pinned_data(cell.config for cell in cells) if isinstance(value, Dataset)]


def check_image_cache(cells: Iterable[Cell], memory: int) -> None:
    """Raise EngramError, before work begins, if the image cache has no room for the images of these cells.

    `memory` is the memory of a job's device, in bytes.
    """
    try:
        check_cache(_cached_images(cells), memory)
    except Unavailable as error:
        raise EngramError(str(error)) from None


def _cached_images(cells: Iterable[Cell]) -> list[CachedImages]:
    """Return the files of images that the jobs of these cells may write to the cache."""
    cells = list(cells)
    files = list(files_of(pinned_datasets(cells)))
    for cell in cells:
        audit = audits.find(cell.audit).audit
        if audit.cached_images is not None:
            files += audit.cached_images(cell.config)
    return files


def describe_data(cells: Sequence[Cell], cached_digests: MutableMapping[str, str], memory: int) -> list[str]:
    """Return notes about the pinned data sets of these cells, one line each.

    Notes about single data sets (`tasks.datasets.notes`) come first, then the image cache that they need, then audit
    notes that concern several. `memory` is the memory of a job's device, in bytes.
    """
    notes: dict[str, None] = {}
    datasets = pinned_datasets(cells)
    for dataset in datasets:
        notes |= dict.fromkeys(data_notes(dataset, cached_digests))
    notes |= dict.fromkeys(cache_notes(_cached_images(cells), memory))
    for cell in cells:
        audit = audits.find(cell.audit).audit
        if audit.notes is not None:
            notes |= dict.fromkeys(audit.notes(cell.config))
    return list(notes)


def distinguishing_fields(settings: Sequence[Setting]) -> list[str]:
    """Return a minimal list of fields that distinguishes these settings.

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
    """Return the label of a cell made from these fields, such as `data=mnist, network=mlp1`."""
    return ", ".join(f"{name}={text(setting[name])}" for name in fields if name in setting)


def left_out_as_json(cells: Sequence[Cell], left_out: Sequence[LeftOut]) -> list[dict[str, Any]]:
    """Return each skipped cell as JSON: its setting, the problem, and a line that states both."""
    lines = describe_left_out(cells, left_out)
    result = []
    for cell, line in zip(left_out, lines, strict=True):
        result.append({"setting": dict(cell.setting), "problem": cell.problem, "line": line})
    return result


def describe_left_out(cells: Sequence[Cell], left_out: Sequence[LeftOut]) -> list[str]:
    """Return one line per skipped cell: the fields that distinguish it from all other cells, and the problem."""
    fields = distinguishing_fields([cell.setting for cell in cells] + [cell.setting for cell in left_out])
    result = []
    for cell in left_out:
        result.append(f"skipped: {label(cell.setting, fields)}: {cell.problem}")
    return result
