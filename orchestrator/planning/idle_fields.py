"""Settings without effect: fields set by the user that no job of the plan depends on.

A field is idle if the plan has the same keys without it, and no module behind the audit's answer reads it. No list of
dependencies is needed: a setting that enters no key cannot affect a result.
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
from orchestrator.spec.config_parts import parts
from orchestrator.spec.resolve import SCALE, pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tasks.contract.audit import Audit
from tasks.contract.job import ANSWER_ONLY
from tasks.user_code import canonical
from tasks.user_code.imports import Import, read_imports

PLANNING = {"config", "measures", "presets", "trainings"}  # modules of an audit that make its plan


def find_idle_fields(spec: Spec, known: MutableMapping[str, str]) -> list[str]:
    """The names of the fields that were set or swept and do not change the plan.

    Plans are compared at `scale=tiny` first, because planning is fast there, and at full scale only if they are equal.
    A field set to the preset's value is omitted, since another value may have an effect.
    """
    if not spec.set and not spec.sweep:
        return []
    audit = audits.find(spec.audit).audit
    left_out = {SCALE, *_stopping_fields(audit)}
    answered = fields_of_answer(audit) | {path for config in _configs(spec) for path in _answer_only_fields(config)}
    idle = []
    keys = _Keys(known)
    base = replace(spec, set={**spec.set, **_first_values(spec)}, sweep={})
    for name in (*spec.set, *spec.sweep):
        if name in left_out or any(_is_same_field(name, field) for field in answered):
            continue
        pairs = list(_specs_apart(spec, base, name))
        if any(keys.differ(one, other, tiny=True) for one, other in pairs):
            continue
        if pairs and not any(keys.differ(one, other) for one, other in pairs):
            idle.append(name)
    return idle


def describe_idle_fields(names: Sequence[str], spec: Spec) -> str:
    """One line that names these fields; empty if there are none."""
    if not names:
        return ""
    listed = ", ".join(names[:-1]) + (f" and {names[-1]}" if len(names) > 1 else names[0])
    change, them = ("change", "them") if len(names) > 1 else ("changes", "it")
    preset = f" with preset {spec.preset}" if spec.preset else ""
    swept = [name for name in names if name in spec.sweep]
    equal = f"; cells that differ only in {', '.join(swept)} are equal" if swept else ""
    return f"{listed} {change} nothing: no job of {spec.audit}{preset} depends on {them}{equal}"


def _stopping_fields(audit: Audit) -> Sequence[str]:
    """The fields of early stopping, which are in no key."""
    return () if audit.stopping is None else tuple(audit.stopping.settings(0.05, 1))


def fields_of_answer(audit: Audit) -> frozenset[str]:
    """The fields, by dotted paths, that the modules of an audit's verdict and certificate read from its config.

    Such a field, for example a threshold, may be in no key and still decide the answer. Modules of the audit's package
    that these modules import are included, unless they make the plan.
    """
    functions = (audit.verdict, audit.wording.certificate, audit.wording.names)
    return _fields_read_by(tuple(sorted({module for function in functions for module in _modules_behind(function)})))


def _modules_behind(value: Any) -> Iterator[str]:
    """The modules of a function; for a method, the modules of all functions in its object, recursively."""
    owner = getattr(value, "__self__", value)
    if dataclasses.is_dataclass(owner) and not isinstance(owner, type):
        for field in dataclasses.fields(owner):
            yield from _modules_behind(getattr(owner, field.name))
    elif isinstance(value, tuple):
        for element in value:
            yield from _modules_behind(element)
    elif callable(value) and getattr(value, "__module__", None):
        yield value.__module__


@functools.cache  # modules are imported once, so that later changes of their files do not matter
def _fields_read_by(starts: tuple[str, ...]) -> frozenset[str]:
    """The fields of a config that these modules read, including modules of their package that they import."""
    found: set[str] = set()
    waiting = list(starts)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        path = getattr(sys.modules.get(name), "__file__", None)
        if name in seen or path is None:
            continue
        seen.add(name)
        tree = canonical.parse(Path(path).read_bytes(), path)
        if any(_makes_jobs(node) for node in ast.walk(tree)) and name not in starts:
            continue
        found |= {chain for node in ast.walk(tree) if (chain := _config_path(node))}
        package = name.rpartition(".")[0]
        imports = read_imports(tree, name, Path(path).name == "__init__.py")
        names = [each.name for each in imports if isinstance(each, Import)]
        waiting += [each for each in names if _is_within(each, package) and not set(each.split(".")) & PLANNING]
    return frozenset(found)


def _makes_jobs(node: ast.AST) -> bool:
    """Whether this is a call of `task` or `Job`, as in modules that make the plan."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("task", "Job")


def _config_path(node: ast.AST) -> str:
    """`given.controls` of the expression `config.given.controls`; empty for any other."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    is_config = isinstance(node, ast.Name) and node.id == "config"
    return ".".join(reversed(names)) if is_config else ""


def _answer_only_fields(config: Any, above: str = "") -> Iterator[str]:
    """The dotted paths of the fields that only the answer reads."""
    for field in dataclasses.fields(config):
        path, value = f"{above}{field.name}", getattr(config, field.name)
        if field.metadata.get(ANSWER_ONLY):
            yield path
        elif parts(value) is not None:
            yield from _answer_only_fields(value, f"{path}.")


def _is_same_field(name: str, path: str) -> bool:
    """Whether a name, possibly short, refers to the field at this path, or to one above or below it."""
    return _is_within(name, path) or _is_within(path, name) or path.endswith(f".{name}")


def _is_within(path: str, above: str) -> bool:
    return bool(above) and (path == above or path.startswith(f"{above}."))


def _specs_apart(spec: Spec, base: Spec, name: str) -> Iterator[tuple[Spec, Spec]]:
    """Pairs of specifications that differ only in this field; `base` has the first value of every swept field."""
    if name in spec.sweep:
        first, *others = spec.sweep[name]
        for value in others:
            yield _with(base, name, first), _with(base, name, value)
        return
    without = replace(base, set={field: value for field, value in base.set.items() if field != name})
    try:
        if _configs(base) != _configs(without):
            yield base, without
    except EngramError:  # the other fields need it
        return


def _first_values(spec: Spec) -> dict[str, Any]:
    return {field: values[0] for field, values in spec.sweep.items()}


def _with(spec: Spec, name: str, value: Any) -> Spec:
    return replace(spec, set={**spec.set, name: value})


def _configs(spec: Spec) -> list[Any]:
    return [cell.config for cell in resolve_cells(spec)]


class _Keys:
    """The keys of the plans of specifications; the keys of the reference specification are cached."""

    def __init__(self, known: MutableMapping[str, str]) -> None:
        self._known = known
        self._latest: dict[bool, tuple[Spec, list[list[str]]]] = {}  # by scale

    def differ(self, one: Spec, other: Spec, tiny: bool = False) -> bool:
        """Whether the plans of two specifications differ; true if one cannot be planned, except at `tiny`."""
        try:
            if tiny not in self._latest or self._latest[tiny][0] is not one:
                self._latest[tiny] = one, self._compute(one, tiny)
            return self._latest[tiny][1] != self._compute(other, tiny)
        except EngramError:
            return not tiny

    def _compute(self, spec: Spec, tiny: bool) -> list[list[str]]:
        cells = resolve_cells(_with(spec, SCALE, "tiny") if tiny else spec)
        return [sorted(plan_of(cell).jobs) for cell in pin_cells(cells, self._known)]
