"""The weights of one network in a checkpoint.

Weights are saved as `model_state_dict`, `model` or `net`, wrapped by a compiled or parallel module, along with the
state of an optimizer and a moving average. The only mapping of tensors with the names and shapes of the network is
read, at any depth. If two mappings fit, the checkpoint is refused as ambiguous.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

Shapes = Mapping[str, tuple[int, ...]]
# Parts of names added by wrappers: torch.compile, FSDP and activation checkpoints, then data parallelism.
COMPILED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
WRAPPERS: tuple[tuple[str, ...], ...] = ((), COMPILED, (*COMPILED, "module"))
SHOWN = 8  # entries of a checkpoint in a message
OPTIMIZER = "param_groups"  # a key in the state of every optimizer


@dataclass(frozen=True, eq=False)
class Weights:
    """A mapping of tensors in a checkpoint, with its place: the keys that lead to it, joined by dots."""

    place: str
    tensors: Mapping[str, Any]
    is_beside_numbers: bool = False  # in the state of an optimizer or in a list: not the purpose of the file
    is_alias: bool = False  # the same object as an earlier mapping, under another key

    @property
    def shapes(self) -> Shapes:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}


def find_weights(contents: Any, is_tensor: Callable[[Any], bool]) -> list[Weights]:
    """Find every mapping from names to tensors in nested containers, outermost first.

    A mapping under two keys is found under both, the second time as an alias.
    """
    found: list[Weights] = []
    by_identity: dict[int, Weights] = {}
    waiting: list[tuple[tuple[str, ...], Any, bool]] = [((), contents, False)]
    seen: set[int] = set()
    while waiting:
        keys, value, beside = waiting.pop(0)
        if not isinstance(value, Mapping | list | tuple):
            continue
        if id(value) in seen:
            original = by_identity.get(id(value))
            if original is not None:
                found.append(replace(original, place=".".join(keys), is_alias=True))
            continue
        seen.add(id(value))
        entries = list(value.items()) if isinstance(value, Mapping) else list(enumerate(value))
        tensors = {key: part for key, part in entries if isinstance(key, str) and is_tensor(part)}
        inside = beside or (isinstance(value, Mapping) and OPTIMIZER in value)
        if tensors:
            found.append(Weights(".".join(keys), tensors, inside))
            by_identity[id(value)] = found[-1]
        for key, part in entries:
            waiting.append(((*keys, str(key)), part, inside or not isinstance(key, str)))
    return found


def describe_contents(contents: Any, is_tensor: Callable[[Any], bool]) -> str:
    """List the entries of a checkpoint and their classes: `epoch (int), args (argparse.Namespace)`."""
    if not isinstance(contents, Mapping):
        return _class_name(contents, is_tensor)
    shown = [f"{key} ({_class_name(value, is_tensor)})" for key, value in list(contents.items())[:SHOWN]]
    more = len(contents) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "") if shown else "an empty dictionary"


def _class_name(value: Any, is_tensor: Callable[[Any], bool]) -> str:
    if is_tensor(value):
        return "a tensor"
    if isinstance(value, Mapping):
        count = sum(map(is_tensor, value.values()))
        return f"{count} tensors" if count else "no tensors"
    return str(getattr(value, "of", type(value).__name__))


def check_choice(where: str, found: list[Weights], part: str) -> None:
    """Raise ValueError if the part contains no mapping, or if the largest two have the same names and shapes.

    This can be decided before the network exists: either both mappings fit it or neither does.
    """
    _check_part(where, found, part)
    candidates = [weights for weights in _within(found, part) if not weights.is_beside_numbers]
    largest = max((len(weights.tensors) for weights in candidates), default=0)
    twins: dict[frozenset[Any], list[Weights]] = {}
    for weights in candidates:
        if len(weights.tensors) == largest:
            key = frozenset(_bare_shapes(weights.shapes).items())
            twins.setdefault(key, []).append(weights)
    for alike in twins.values():
        if len(alike) > 1:
            raise ValueError(_ambiguous(where, [weights.place for weights in alike]))


def _bare_shapes(shapes: Shapes) -> Shapes:
    renamed = _without(shapes, WRAPPERS[-1])
    if renamed is None:
        return shapes
    prefixes = common_prefixes(renamed)
    return {name.removeprefix(prefixes[-1]): shape for name, shape in renamed.items()} if prefixes else renamed


def choose_weights(
    where: str,
    network: Shapes,
    found: list[Weights],
    part: str = "",
    left_out: Callable[[str], bool] | None = None,
) -> Mapping[str, Any]:
    """Return the tensors of the network by its own names.

    `part` selects a mapping if several fit. Names that `left_out` selects, such as the classifier of a network that was
    made without one, are ignored. If the only mapping does not fit, it is returned nevertheless, and the caller reports
    the mismatch. Raises ValueError if several mappings fit, or if there are several and none fits.
    """
    _check_part(where, found, part)
    candidates = _within(found, part)
    fits = [fit for weights in candidates for fit in _fits(network, weights, left_out)]
    if part and any(place == part for place, _ in fits):
        fits = [(place, tensors) for place, tensors in fits if place == part]
    same_shapes = []
    for place, tensors in fits:
        if all(tuple(tensors[name].shape) == shape for name, shape in network.items()):
            same_shapes.append((place, tensors))
    best = same_shapes or fits
    if len(best) > 1:
        raise ValueError(_ambiguous(where, [place for place, _ in best]))
    if best:
        return best[0][1]
    intended = [weights for weights in candidates if not weights.is_beside_numbers] or candidates
    if len(intended) == 1:
        tensors = intended[0].tensors
        return {name: value for name, value in tensors.items() if left_out is None or not left_out(name)}
    sizes = ", ".join(f"{weights.place or 'the top level'} ({len(weights.tensors)} tensors)" for weights in intended)
    missing = sorted(set(network) - {name for weights in intended for name in weights.tensors})
    lacking = f", such as {missing[0]}" if missing else ""
    raise ValueError(
        f"{where}: none of its sets of weights has the network's {len(network)} names{lacking}; it has {sizes}"
    )


def _check_part(where: str, found: list[Weights], part: str) -> None:
    if not part or _within(found, part):
        return
    places = [place for weights in found if not weights.is_beside_numbers for place in _places(weights)]
    places = places or [weights.place for weights in found if weights.place]
    shown = ", ".join(places[:SHOWN]) or "one set, so leave out the name after the path"
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    raise ValueError(f"{where} has no weights in {part!r}; it has {shown}{more}")


def _places(weights: Weights) -> list[str]:
    """Return the parts of a mapping that can be selected: itself, and networks that are prefixes of its names.

    Two such prefixes, such as a student and its teacher, have equal names below them. Equal layers have no parts.
    """
    below: dict[str, set[str]] = {}
    for name in weights.tensors:
        first, _, rest = name.partition(".")
        below.setdefault(first, set()).add(rest)
    begins = f"{weights.place}." if weights.place else ""
    places = [weights.place] if weights.place else []
    for first, names in below.items():
        is_network = any("." in name for name in names)
        if is_network and sum(names == others for others in below.values()) > 1:
            places.append(f"{begins}{first}")
    return places


def _within(found: list[Weights], part: str) -> list[Weights]:
    """Return the mappings at this place, below it, or with names that begin with it."""
    if not part:
        return [weights for weights in found if not weights.is_alias]
    chosen: list[Weights] = []
    for weights in found:
        if weights.is_alias and any(weights.tensors is other.tensors for other in chosen):
            continue
        begins = f"{weights.place}." if weights.place else ""
        holds_part = part.startswith(begins) and any(
            name.startswith(f"{part.removeprefix(begins)}.") for name in weights.tensors
        )
        if f"{weights.place}.".startswith(f"{part}."):
            chosen.append(weights)
        elif holds_part:
            prefix = f"{part.removeprefix(begins)}."
            tensors = {name.removeprefix(prefix): t for name, t in weights.tensors.items() if name.startswith(prefix)}
            chosen.append(Weights(part, tensors, weights.is_beside_numbers))
    return chosen


def _fits(
    network: Shapes, weights: Weights, left_out: Callable[[str], bool] | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each place in a mapping with the names of the network, and its tensors by the network's names.

    Names are compared unchanged, then without the parts added by compilers, then without those added by parallel
    modules; the first way that fits decides.
    """
    for parts in WRAPPERS:
        wanted = _without({name: name for name in network}, parts)
        tensors = _without(weights.tensors, parts)
        if wanted is None or tensors is None:
            continue
        fits = []
        for prefix in _prefixes(tensors, len(wanted), exactly=left_out is None):
            bare = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
            kept = {name: value for name, value in bare.items() if left_out is None or not left_out(name)}
            if kept.keys() == wanted.keys():
                place = ".".join(filter(None, (weights.place, prefix.rstrip("."))))
                whole = len(bare) == len(tensors)  # a prefix of all names is not a separate place
                fits.append((weights.place if whole else place, {wanted[name]: kept[name] for name in wanted}))
        if fits:
            yield from fits
            return


def _without(tensors: Mapping[str, Any], parts: tuple[str, ...]) -> Mapping[str, Any] | None:
    """Remove these parts from the names of a mapping; None if two names would become equal."""
    if not parts:
        return tensors
    renamed = {
        ".".join(step for step in name.split(".") if step not in parts): value for name, value in tensors.items()
    }
    return renamed if len(renamed) == len(tensors) else None


def _prefixes(names: Iterable[str], count: int, *, exactly: bool) -> list[str]:
    """Return the prefixes, including their dots, of `count` names (or at least `count`), the empty one first."""
    counts: Counter[str] = Counter()
    for name in names:
        counts[""] += 1
        for position, character in enumerate(name):
            if character == ".":
                counts[name[: position + 1]] += 1
    return sorted(prefix for prefix, number in counts.items() if number == count or (not exactly and number > count))


def common_prefixes(names: Iterable[str]) -> list[str]:
    """Return the prefixes that all dotted names share, shortest first: `module.`, `module.net.`."""
    prefixes: list[str] = []
    for steps in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(steps)) > 1:
            break
        prefixes.append((prefixes[-1] if prefixes else "") + steps[0] + ".")
    return prefixes


def unwrapped_names(names: Iterable[str]) -> dict[str, str]:
    """Return each name without the parts added by compilers and without a common prefix `module.`."""
    given = list(names)
    bare = _without({name: name for name in given}, COMPILED) or {name: name for name in given}
    prefix = "module." if all(name.startswith("module.") for name in bare) else ""
    return {name: new.removeprefix(prefix) for new, name in bare.items()}


def _ambiguous(where: str, places: list[str]) -> str:
    named = [place or "the top level" for place in places[:SHOWN]]
    example = next((place for place in places if place), "")
    return f"{where} contains several sets of weights that fit: {', '.join(named)}; name one after the path: #{example}"
