"""The definition of a search: its starting point, its space, and the rules for proposing and stopping trials."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.planning.identity import KEY_FORMAT, canonical
from orchestrator.quantities import jsonable
from orchestrator.spec import audits, specification
from orchestrator.spec.fields import alternatives, coerce, field_types, nearest, split_list, text
from orchestrator.spec.options import SAMPLERS, SearchOptions
from orchestrator.spec.resolve import Cell, resolve_cells
from orchestrator.spec.short_names import find_paths
from orchestrator.spec.specification import Spec
from tasks.contract.audit import Stopping
from tasks.contract.extras import OPTUNA, Extra
from tasks.contract.objectives import Objectives

SPAN = re.compile(r"(?P<log>log\()?\s*(?P<low>[^\s.,()][^\s,()]*?)\.\.(?P<high>[^\s,()]+?)\s*(?(log)\))")
SYNTAX = "write it as a,b,c, as low..high or as log(low..high)"
DIGITS = 3  # significant digits of a value drawn from a range; more make no difference to a training
TRIALS = 24
# fields shared by all audits that train
EPOCHS = "epochs"
SEED = "seed"
LINK = "link"


@dataclass(frozen=True)
class Choice:
    """A choice between values, written in the syntax of a specification."""

    values: tuple[str, ...]

    def __str__(self) -> str:
        return ",".join(self.values)


@dataclass(frozen=True)
class Range:
    """A number from a closed range.

    If `log` is true, it is uniform in its logarithm. If `is_whole_number` is true, it is an integer.
    """

    low: float
    high: float
    log: bool = False
    is_whole_number: bool = False

    def __str__(self) -> str:
        if self.is_whole_number:
            low = f"{int(self.low)}"
            high = f"{int(self.high)}"
        else:
            low = f"{self.low:g}"
            high = f"{self.high:g}"
        if self.log:
            return f"log({low}..{high})"
        return f"{low}..{high}"

    def round_value(self, value: float) -> float | int:
        """Round a value drawn from the range to DIGITS."""
        if self.is_whole_number:
            return int(value)
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


Domain = Choice | Range
Space = Mapping[str, Domain]


def parse_domains(texts: Iterable[str]) -> dict[str, str]:
    """Parse the domains in `--over FIELD=DOMAIN` to text by field. Raises SpecError if a field is given twice."""
    return specification.settings(texts)


def space(domains: Mapping[str, Any], types: Mapping[str, type | None]) -> dict[str, Domain]:
    """Build the space from the domain of each field, given as text or as a list of values from a YAML file.

    `types` contains the type of each numeric field. Raises SpecError for an invalid domain.
    """
    if not domains:
        raise SpecError("a search needs a field to vary: --over FIELD=A,B,C, or over: in the file")
    result = {}
    for name, value in domains.items():
        result[name] = domain(name, value, types.get(name))
    return result


def domain(name: str, value: Any, number_type: type | None = None) -> Domain:
    """Parse the domain of a field. `number_type` is the type of a numeric field and None for any other field."""
    if isinstance(value, str) and (match := SPAN.fullmatch(value.strip())):
        return _parse_range(name, value, match, number_type)
    values = _values(name, value)
    if len(values) < 2:
        raise SpecError(f"over {name} has only the value {text(values[0]):.80}; {SYNTAX}")
    if len(set(values)) < len(values):
        raise SpecError(f"over {name} has a value twice: {', '.join(values)}")
    return Choice(values)


def size(search_space: Space) -> int | None:
    """Return the number of points in a space, or None if it contains a range."""
    counts = []
    for domain in search_space.values():
        counts.append(len(domain.values) if isinstance(domain, Choice) else None)
    if None in counts:
        return None
    return math.prod(count for count in counts if count is not None)


def _parse_range(name: str, value: str, match: re.Match[str], number_type: type | None) -> Range:
    if number_type not in (int, float):
        raise SpecError(f"over {name} is {value}; this field is not a number, so it cannot have a range: {SYNTAX}")
    low = coerce(match["low"], number_type, f"over {name}")
    high = coerce(match["high"], number_type, f"over {name}")
    if not low < high:
        raise SpecError(f"over {name} is {value}; the first end must be below the second")
    if match["log"] and low <= 0:
        raise SpecError(f"over {name} is {value}; the ends of a logarithmic range must be above 0")
    try:
        return Range(float(low), float(high), bool(match["log"]), number_type is int)
    except OverflowError:
        raise SpecError(f"over {name} is {value:.40}...; its ends must be below 1e308") from None


def _values(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        values = [text(part) for part in value]
    elif isinstance(value, str):
        values = split_list(f"[{value}]")
    else:
        raise SpecError(f"over {name} is {value!r}; {SYNTAX}")
    if not values:
        raise SpecError(f"over {name} has no values; {SYNTAX}")
    return tuple(values)


@dataclass(frozen=True)
class Settings(SearchOptions):
    """The settings of a search. `over` maps fields to domains as text. The names are the keys used in the file."""

    over: Mapping[str, Any] = field(default_factory=dict)

    def extras(self) -> tuple[Extra, ...]:
        if self.sampler == "optuna":
            return (OPTUNA,)
        return ()


@dataclass(frozen=True)
class Search:
    """A valid search: a specification that resolves to one cell, and the space around this cell."""

    spec: Spec
    start: Cell
    space: Space
    settings: Settings

    @property
    def objectives(self) -> Objectives:
        """The two objectives of the search."""
        objectives = audits.find(self.start.audit).audit.objectives
        assert objectives is not None
        return objectives

    @property
    def allowance(self) -> float:
        """The acceptable loss of utility, in units of the utility."""
        configured_loss = self.settings.give_up
        if configured_loss is None:
            return self.objectives.allowance
        return configured_loss

    @property
    def trials(self) -> int:
        """The number of trials. For a grid, this is the number of points."""
        points = None
        if self.settings.sampler == "grid":
            points = size(self.space)
        return points or self.settings.trials or TRIALS

    @property
    def name(self) -> str:
        """The name of the search folder, once the start is pinned.

        More trials or more time continue the same search.
        """
        space = {name: str(domain) for name, domain in self.space.items()}
        sampling = (
            self.settings.sampler,
            self.settings.sampler_seed,
            list(self.settings.rungs),
            self.settings.keep_one_in,
        )
        content = [KEY_FORMAT, canonical(self.start.config), space, sampling, self.settings.concurrent > 1]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return f"{self.start.audit}-search-{digest[:8]}"

    def cell(self, choices: Mapping[str, Any], epochs: int | None = None, seed: int | None = None) -> Cell:
        """Return the cell of a trial: the start with these fields and, if given, another `epochs` and `seed`.

        Raises SpecError if the fields are inconsistent.
        """
        setting = dict(choices)
        if epochs is not None:
            setting[EPOCHS] = epochs
        if seed is not None:
            setting[SEED] = seed
        # Each rung continues the trainings of the previous one, so a link must end at every rung.
        is_linked = bool(find_value(self.start.config, LINK))
        link = {}
        if epochs is not None and not is_linked:
            link = {LINK: math.gcd(*self.settings.rungs)}
        set_fields = {}
        for name, value in self.spec.set.items():
            if name not in setting:
                set_fields[name] = value
        (cell,) = resolve_cells(replace(self.spec, set={**set_fields, **link, **setting}))
        return replace(cell, setting=setting)


def build_search(spec: Spec, settings: Settings) -> Search:
    """Build and check the search defined by a specification and settings. Raises SpecError if it is invalid."""
    audit = audits.find(spec.audit).audit
    if audit.objectives is None:
        searchable_audits = [name for name in audits.names() if audits.find(name).audit.objectives is not None]
        raise SpecError(
            f"{spec.audit} cannot be searched, because it has no training settings to vary; "
            f"searches exist for {', '.join(searchable_audits)}"
        )
    if spec.sweep:
        raise SpecError(f"{next(iter(spec.sweep))} is swept; a search starts from one config: give it with --over")
    cells = resolve_cells(spec)
    if len(cells) > 1:
        raise SpecError(f"preset {spec.preset} has {len(cells)} cells; a search starts from one config")
    _check(settings)
    _check_fields(cells[0].config, settings, audit.stopping)
    types = {name: _number(audit.config, _find_path(cells[0].config, name)) for name in settings.over}
    search_space = space(settings.over, types)
    search = Search(spec, cells[0], search_space, settings)
    if settings.sampler == "grid":
        _check_grid(search)
    for name, domain in search_space.items():  # wrong names and values are reported before any training
        ends = (
            domain.values if isinstance(domain, Choice) else tuple(map(domain.round_value, (domain.low, domain.high)))
        )
        for value in ends:
            _check_value(search, name, value)
    return search


def search_from_spec(spec: Spec, over: Mapping[str, Any], settings: Mapping[str, Any]) -> Search:
    """Build the search in a specification, overridden by these domains and settings. Raises SpecError."""
    domains = {**spec.search.get("over", {}), **over}
    return build_search(replace(spec, search={}), Settings(**{**spec.search, **settings, "over": domains}))


def search_description(search: Search) -> dict[str, Any]:
    """Return a description of the search to store in its folder, with everything needed to continue it."""
    settings = search.settings
    return {
        "over": {name: str(domain) for name, domain in search.space.items()},
        "sampler": settings.sampler,
        "sampler_seed": settings.sampler_seed,
        "trials": search.trials,
        "rungs": list(settings.rungs),
        "keep_one_in": settings.keep_one_in,
        "give_up": search.allowance,
        "concurrent": settings.concurrent,
        "set": jsonable(search.spec.set),
        "preset": search.spec.preset,
    }


def reopen_search(audit: str, description: Mapping[str, Any], settings: Mapping[str, Any]) -> Search:
    """Rebuild the search from its `search_description`, with changed `settings` such as more trials."""
    names = ("over", "sampler", "sampler_seed", "trials", "keep_one_in", "give_up", "concurrent")
    stored_settings = {name: description[name] for name in names} | {"rungs": tuple(description["rungs"])}
    spec = Spec(audit, description.get("preset"), dict(description.get("set", {})))
    return build_search(spec, Settings(**{**stored_settings, **settings}))


def _check(settings: Settings) -> None:
    if settings.sampler not in SAMPLERS:
        hint = nearest(settings.sampler, SAMPLERS)
        raise SpecError(f"sampler is {settings.sampler!r}; it must be one of {', '.join(SAMPLERS)}{hint}")
    minima = {"trials": 1, "sampler_seed": 0, "concurrent": 1, "keep_one_in": 2}
    for name, minimum in minima.items():
        value = getattr(settings, name)
        if value is not None and value < minimum:
            raise SpecError(f"{name.replace('_', '-')} is {value}; it must be {minimum} or more")
    if settings.give_up is not None and not (math.isfinite(settings.give_up) and settings.give_up >= 0):
        raise SpecError(f"give-up is {settings.give_up}; it must be 0 or more")
    rungs = settings.rungs
    if rungs and (len(rungs) < 2 or rungs[0] < 1 or list(rungs) != sorted(set(rungs))):
        raise SpecError(f"rungs is {','.join(map(str, rungs))}; it must be two or more numbers of epochs, ascending")


def _check_fields(config: Any, settings: Settings, stopping: Stopping | None) -> None:
    if stopping is not None and stopping.is_asked(config):
        raise SpecError(
            f"{stopping.level} is given; it must be 0 in a search, which compares trials by all of their pairs"
        )
    if SEED in settings.over:
        raise SpecError("seed is varied; remove it from --over, since a lucky seed is not a better training")
    if settings.rungs and EPOCHS in settings.over:
        raise SpecError("epochs are varied and rungs are given; remove one, since rungs set the epochs of every trial")
    if settings.rungs and find_value(config, LINK) is None:
        raise SpecError("rungs are given; remove them, since a training of this audit cannot be continued")


def _check_grid(search: Search) -> None:
    ranges = []
    for name, domain in search.space.items():
        if not isinstance(domain, Choice):
            ranges.append(name)
    if ranges:
        raise SpecError(f"over {ranges[0]} is a range; a grid needs values, such as {ranges[0]}=a,b,c")
    points = size(search.space)
    trials = search.settings.trials
    if trials is not None and trials != points:
        raise SpecError(f"trials is {trials}, but the grid has {points} points; leave out --trials")


def _check_value(search: Search, name: str, value: Any) -> None:
    """Raise SpecError unless the field accepts the value, alone or together with values of the other fields."""
    try:
        search.cell({name: value})
    except SpecError as error:
        other_values = {}
        for other_name, domain in search.space.items():
            if other_name != name:
                other_values[other_name] = (
                    domain.values[-1] if isinstance(domain, Choice) else domain.round_value(domain.high)
                )
        if not other_values:
            raise
        try:
            search.cell({**other_values, name: value})
        except SpecError:
            raise error from None


def _find_path(config: Any, name: str) -> list[str]:
    """Return the full path of the field with this full or short name."""
    paths, _ = find_paths(config, {name: None})
    return paths[name].split(".")


def find_value(config: Any, name: str) -> Any:
    """Return the value of the field with this name, or None if the configuration has no such field."""
    for step in _find_path(config, name):
        config = getattr(config, step, None)
    return config


def _number(kind: Any, path: Sequence[str]) -> type | None:
    """Return int or float if the field at this path is numeric, otherwise None."""
    first, *nested_path = path
    types = alternatives(field_types(kind).get(first))
    if nested_path:
        kinds: list[Any] = [field_type for field_type in types if is_dataclass(field_type)]
        inside = []
        for field_type in kinds:
            if nested_path[0] in field_types(field_type):
                inside.append(field_type)
        if inside:
            return _number(inside[0], nested_path)
        return None
    return next((field_type for field_type in (float, int) if field_type in types), None)
