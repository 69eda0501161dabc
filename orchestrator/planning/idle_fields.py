"""Settings without effect: fields set by the user that no job of the plan depends on.

A field is idle if removing it leaves the plan's keys unchanged and no module that computes the audit's answer reads it.
No dependency list is needed, because a setting that enters no key cannot affect a result.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.errors import EngramError
from orchestrator.planning.plan import plan_of
from orchestrator.spec import audits
from orchestrator.spec.config_parts import parts, plain
from orchestrator.spec.resolve import SCALE, pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tasks.contract.audit import Audit
from tasks.contract.job import ANSWER_ONLY
from tasks.user_code import canonical
from tasks.user_code.imports import Import, read_imports

PLANNING = {"config", "measures", "presets", "trainings"}  # audit modules that build the plan


def find_idle_fields(spec: Spec, cached_digests: MutableMapping[str, str]) -> list[str]:
    """Return the names of set or swept fields that do not change the plan.

    Plans are compared at `scale=tiny` first, where planning is fast, and at full scale only if they are equal there. A
    field set to the preset's own value is not reported, because another value may have an effect. Neither is a field
    that says only how jobs run.
    """
    if not spec.set and not spec.sweep:
        return []
    audit = audits.find(spec.audit).audit
    left_out = {SCALE, *_stopping_fields(audit)}
    base = replace(spec, set={**spec.set, **_first_values(spec)}, sweep={})
    idle = []
    keys = _Keys(cached_digests)
    for name in (*spec.set, *spec.sweep):
        if name in left_out:
            continue
        pairs = list(_specs_apart(spec, base, name))
        if any(keys.differ(first_spec, second_spec, tiny=True) for first_spec, second_spec in pairs):
            continue
        # Configurations and the modules of the answer are only read now, because most settings change a key.
        if any(_is_same_field(name, field) for field in _answer_fields(audit, _configs(spec))):
            continue
        if name in spec.set and not _differ_in_configs(*pairs[0]):
            continue
        if pairs and not any(keys.differ(first_spec, second_spec) for first_spec, second_spec in pairs):
            idle.append(name)
    return idle


def describe_idle_fields(names: Sequence[str], spec: Spec) -> str:
    """Return one line that lists these fields, or an empty string if there are none."""
    if not names:
        return ""
    field_list = ", ".join(names[:-1]) + (f" and {names[-1]}" if len(names) > 1 else names[0])
    if len(names) > 1:
        change = "change"
        them = "them"
    else:
        change = "changes"
        them = "it"
    if spec.preset:
        preset = f" with preset {spec.preset}"
    else:
        preset = ""
    swept = [name for name in names if name in spec.sweep]
    equal = ""
    if swept:
        equal = f"; cells that differ only in {', '.join(swept)} are equal"
    return f"{field_list} {change} nothing: no job of {spec.audit}{preset} depends on {them}{equal}"


def _stopping_fields(audit: Audit) -> Sequence[str]:
    """Return the early stopping fields, which enter no key."""
    if audit.stopping is None:
        return ()
    return tuple(audit.stopping.settings(0.05, 1))


def _answer_fields(audit: Audit, configs: Sequence[Any]) -> frozenset[str]:
    """Return the dotted paths of all fields that affect the answer."""
    return fields_of_answer(audit).union(*(_answer_only_fields(config) for config in configs))


def fields_of_answer(audit: Audit) -> frozenset[str]:
    """Return the dotted paths of configuration fields that the verdict and certificate modules of an audit read.

    Such a field, for example a threshold, may enter no key and still determine the answer. Modules that these modules
    import from the audit's package are included unless they build the plan.
    """
    functions = (audit.verdict, audit.wording.certificate, audit.wording.names)
    return _fields_read_by(tuple(sorted({module for function in functions for module in _modules_behind(function)})))


def _modules_behind(value: Any) -> Iterator[str]:
    """Yield the module of a function. For a method, yield the modules of all functions in its object, recursively."""
    owner = getattr(value, "__self__", value)
    if dataclasses.is_dataclass(owner) and not isinstance(owner, type):
        for field in dataclasses.fields(owner):
            yield from _modules_behind(getattr(owner, field.name))
    elif isinstance(value, tuple):
        for element in value:
            yield from _modules_behind(element)
    elif callable(value) and getattr(value, "__module__", None):
        yield value.__module__


@functools.cache  # modules are imported once, so later changes to their files have no effect
def _fields_read_by(starts: tuple[str, ...]) -> frozenset[str]:
    """Return the configuration fields read by these modules and by modules that they import from their package."""
    fields: set[str] = set()
    waiting = list(starts)
    visited: set[str] = set()
    while waiting:
        name = waiting.pop()
        path = getattr(sys.modules.get(name), "__file__", None)
        if name in visited or path is None:
            continue
        visited.add(name)
        tree = canonical.parse(Path(path).read_bytes(), path)
        if any(_makes_jobs(node) for node in ast.walk(tree)) and name not in starts:
            continue
        fields |= {chain for node in ast.walk(tree) if (chain := _config_path(node))}
        package = name.rpartition(".")[0]
        imports = read_imports(tree, name, Path(path).name == "__init__.py")
        names = [imported.name for imported in imports if isinstance(imported, Import)]
        waiting += [
            imported for imported in names if _is_within(imported, package) and not set(imported.split(".")) & PLANNING
        ]
    return frozenset(fields)


def _makes_jobs(node: ast.AST) -> bool:
    """Return whether this node calls `task` or `Job`, as modules that build the plan do."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("task", "Job")


def _config_path(node: ast.AST) -> str:
    """Return `given.controls` for the expression `config.given.controls`, and an empty string for any other."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    is_config = isinstance(node, ast.Name) and node.id == "config"
    if is_config:
        return ".".join(reversed(names))
    return ""


def _answer_only_fields(config: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths of the fields that are read only to compute the answer."""
    for field in dataclasses.fields(config):
        path = f"{prefix}{field.name}"
        value = getattr(config, field.name)
        if field.metadata.get(ANSWER_ONLY):
            yield path
        elif parts(value) is not None:
            yield from _answer_only_fields(value, f"{path}.")


def _is_same_field(name: str, path: str) -> bool:
    """Return whether a name, possibly short, refers to the field at this path, its parent or one of its children."""
    return _is_within(name, path) or _is_within(path, name) or path.endswith(f".{name}")


def _is_within(path: str, parent_path: str) -> bool:
    return bool(parent_path) and (path == parent_path or path.startswith(f"{parent_path}."))


def _specs_apart(spec: Spec, base: Spec, name: str) -> Iterator[tuple[Spec, Spec]]:
    """Yield pairs of specifications that differ only in this field. `base` has the first value of every swept field."""
    if name in spec.sweep:
        first, *other_values = spec.sweep[name]
        for value in other_values:
            yield _with(base, name, first), _with(base, name, value)
        return
    yield base, replace(base, set={field: value for field, value in base.set.items() if field != name})


def _differ_in_configs(base: Spec, spec_without_field: Spec) -> bool:
    """Return whether the configurations of two specifications differ in a field that could affect results.

    False if the second is invalid, because other fields require the one that it lacks.
    """
    base_configs = [plain(config, has_execution=False) for config in _configs(base)]
    try:
        return base_configs != [plain(config, has_execution=False) for config in _configs(spec_without_field)]
    except EngramError:
        return False


def _first_values(spec: Spec) -> dict[str, Any]:
    return {field: values[0] for field, values in spec.sweep.items()}


def _with(spec: Spec, name: str, value: Any) -> Spec:
    return replace(spec, set={**spec.set, name: value})


def _configs(spec: Spec) -> list[Any]:
    return [cell.config for cell in resolve_cells(spec)]


class _Keys:
    """Computes the plan keys of specifications and caches those of the reference specification."""

    def __init__(self, cached_digests: MutableMapping[str, str]) -> None:
        self._cached_digests = cached_digests
        self._pinned_values: dict[Any, Any] = {}
        self._latest: dict[bool, tuple[Spec, list[list[str]]]] = {}  # by scale

    def differ(self, reference: Spec, changed: Spec, tiny: bool = False) -> bool:
        """Return whether the plans of two specifications differ.

        If a plan cannot be made, returns True, or False at `tiny` scale.
        """
        try:
            if tiny not in self._latest or self._latest[tiny][0] is not reference:
                self._latest[tiny] = reference, self._compute(reference, tiny)
            return self._latest[tiny][1] != self._compute(changed, tiny)
        except EngramError:
            return not tiny

    def _compute(self, spec: Spec, tiny: bool) -> list[list[str]]:
        cells = resolve_cells(_with(spec, SCALE, "tiny") if tiny else spec)
        result = []
        for cell in pin_cells(cells, self._cached_digests, self._pinned_values):
            result.append(sorted(plan_of(cell).jobs))
        return result
