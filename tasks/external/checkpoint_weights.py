"""The weights of one network among all that a checkpoint holds.

People save weights as `model_state_dict`, `model` or `net`, wrapped by a compiled or parallel module, beside the state
of an optimizer and a moving average. The one mapping of tensors whose names and shapes are the network's is read,
wherever it lies; two that fit are refused, since nothing says which of them is meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

Shapes = Mapping[str, tuple[int, ...]]
# Parts of a name that wrappers add anywhere: torch.compile, FSDP and activation checkpoints, then data parallelism.
COMPILED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
WRAPPERS: tuple[tuple[str, ...], ...] = ((), COMPILED, (*COMPILED, "module"))
SHOWN = 8  # entries of a checkpoint that a message names
OPTIMIZER = "param_groups"  # a key of every optimizer's state


@dataclass(frozen=True, eq=False)
class Weights:
    """A mapping of tensors in a checkpoint, by its place: the keys that lead to it, joined by dots."""

    place: str
    tensors: Mapping[str, Any]
    is_beside_numbers: bool = False  # in an optimizer's state, or in a list: not what a file is saved for
    is_alias: bool = False  # the same object as a mapping found before, under another key

    @property
    def shapes(self) -> Shapes:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}


def find_weights(contents: Any, is_tensor: Callable[[Any], bool]) -> list[Weights]:
    """Every mapping from names to tensors in nested containers, outermost first; each container is visited once.

    A mapping that stands under two keys is found under both, the second time as an alias.
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
    """The entries of a checkpoint with their classes: `epoch (int), args (argparse.Namespace)`."""
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
    """Raise ValueError if no mapping is in the part, or the largest two have the same names and shapes.

    That much can be said before the network is made: whichever it is, two such mappings fit it or neither does.
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
    """The tensors of the network by its own names.

    `part` names the mapping that is meant, where several fit. Names that `left_out` picks, such as those of a
    classifier that the network was made without, do not count. If none fits, the only mapping there is, for the caller
    to say what is wrong with it. Raises ValueError if several fit, or none fits of several.
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
    sizes = ", ".join(f"{weights.place or 'the file itself'} ({len(weights.tensors)} tensors)" for weights in intended)
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
    shown = ", ".join(places[:SHOWN]) or "one set, which needs no name after the path"
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    raise ValueError(f"{where} has no weights in {part!r}; it has {shown}{more}")


def _places(weights: Weights) -> list[str]:
    """The parts that can be named of a mapping: itself, and networks that are beginnings of its names.

    Such beginnings, as of a student and its teacher, have equal names below; those of equal layers have no parts.
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
    """The mappings at the place, below it, or that hold it as the beginning of their names."""
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
    """Each place in a mapping where the names are the network's, with the tensors by the network's names.

    Names are compared as they are, then without what compilers, then without what parallel modules add; the first way
    that fits decides.
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
                whole = len(bare) == len(tensors)  # a beginning of all names is no place of its own
                fits.append((weights.place if whole else place, {wanted[name]: kept[name] for name in wanted}))
        if fits:
            yield from fits
            return


def _without(tensors: Mapping[str, Any], parts: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The mapping with these parts left out of its names; None if two names would become one."""
    if not parts:
        return tensors
    renamed = {
        ".".join(step for step in name.split(".") if step not in parts): value for name, value in tensors.items()
    }
    return renamed if len(renamed) == len(tensors) else None


def _prefixes(names: Iterable[str], count: int, *, exactly: bool) -> list[str]:
    """The beginnings of names, each part with its dot, that this number of names has, or more; the empty one first."""
    counts: Counter[str] = Counter()
    for name in names:
        counts[""] += 1
        for position, character in enumerate(name):
            if character == ".":
                counts[name[: position + 1]] += 1
    return sorted(prefix for prefix, number in counts.items() if number == count or (not exactly and number > count))


def common_prefixes(names: Iterable[str]) -> list[str]:
    """The beginnings that all dotted names share, each part with its dot, shortest first: `module.`, `module.net.`."""
    prefixes: list[str] = []
    for steps in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(steps)) > 1:
            break
        prefixes.append((prefixes[-1] if prefixes else "") + steps[0] + ".")
    return prefixes


def unwrapped_names(names: Iterable[str]) -> dict[str, str]:
    """Each name without what compilers add anywhere, and without the `module.` that all of them begin with."""
    given = list(names)
    bare = _without({name: name for name in given}, COMPILED) or {name: name for name in given}
    prefix = "module." if all(name.startswith("module.") for name in bare) else ""
    return {name: new.removeprefix(prefix) for new, name in bare.items()}


def _ambiguous(where: str, places: list[str]) -> str:
    named = [place or "the file itself" for place in places[:SHOWN]]
    example = next((place for place in places if place), "")
    return f"{where} holds several sets of weights that fit: {', '.join(named)}; name one after the path: #{example}"
