"""Find the weights of a network in a checkpoint.

Weights are saved as `model_state_dict`, `model` or `net`, may be wrapped by a compiled or parallel module, and come
with optimizer state and moving averages. The mapping of tensors with the network's names and shapes is read, at any
depth. If two mappings fit, the checkpoint is refused as ambiguous.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

Shapes = Mapping[str, tuple[int, ...]]
# Name parts that wrappers add: torch.compile, FSDP and activation checkpoints, then data parallelism.
COMPILED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
WRAPPERS: tuple[tuple[str, ...], ...] = ((), COMPILED, (*COMPILED, "module"))
SHOWN = 8  # checkpoint entries listed in a message
OPTIMIZER = "param_groups"  # a key that every optimizer's state contains


@dataclass(frozen=True, eq=False)
class Weights:
    """A mapping of tensors in a checkpoint, and the keys that lead to it, joined by dots."""

    key_path: str
    tensors: Mapping[str, Any]
    is_auxiliary: bool = False  # in optimizer state or in a list, so not the purpose of the file
    is_alias: bool = False  # same object as an earlier mapping, under another key

    @property
    def shapes(self) -> Shapes:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}


def find_weights(contents: Any, is_tensor: Callable[[Any], bool]) -> list[Weights]:
    """Find every mapping from names to tensors in nested containers, outermost first.

    A mapping under two keys is found under both, the second time as an alias.
    """
    mappings: list[Weights] = []
    by_identity: dict[int, Weights] = {}
    waiting: list[tuple[tuple[str, ...], Any, bool]] = [((), contents, False)]
    visited: set[int] = set()
    while waiting:
        keys, value, is_parent_auxiliary = waiting.pop(0)
        if not isinstance(value, Mapping | list | tuple):
            continue
        if id(value) in visited:
            original = by_identity.get(id(value))
            if original is not None:
                mappings.append(replace(original, key_path=".".join(keys), is_alias=True))
            continue
        visited.add(id(value))
        if isinstance(value, Mapping):
            entries = list(value.items())
        else:
            entries = list(enumerate(value))
        tensors = {key: part for key, part in entries if isinstance(key, str) and is_tensor(part)}
        is_auxiliary = is_parent_auxiliary or (isinstance(value, Mapping) and OPTIMIZER in value)
        if tensors:
            mappings.append(Weights(".".join(keys), tensors, is_auxiliary))
            by_identity[id(value)] = mappings[-1]
        for key, part in entries:
            waiting.append(((*keys, str(key)), part, is_auxiliary or not isinstance(key, str)))
    return mappings


def describe_contents(contents: Any, is_tensor: Callable[[Any], bool]) -> str:
    """List the entries of a checkpoint and their classes, such as `epoch (int), args (argparse.Namespace)`."""
    if not isinstance(contents, Mapping):
        return _class_name(contents, is_tensor)
    entries = []
    for key, value in list(contents.items())[:SHOWN]:
        entries.append(f"{key} ({_class_name(value, is_tensor)})")
    more = len(contents) - len(entries)
    if entries:
        return ", ".join(entries) + (f" and {more} more" if more > 0 else "")
    return "an empty dictionary"


def _class_name(value: Any, is_tensor: Callable[[Any], bool]) -> str:
    if is_tensor(value):
        return "a tensor"
    if isinstance(value, Mapping):
        count = sum(map(is_tensor, value.values()))
        return f"{count} tensors" if count else "no tensors"
    return str(getattr(value, "class_name", type(value).__name__))


def check_choice(where: str, mappings: list[Weights], part: str) -> None:
    """Raise ValueError if the part contains no mapping, or if the two largest have the same names and shapes.

    The latter can be decided before the network exists, since either both mappings fit it or neither does.
    """
    _check_part(where, mappings, part)
    candidates = [weights for weights in _select_part(mappings, part) if not weights.is_auxiliary]
    largest = max((len(weights.tensors) for weights in candidates), default=0)
    twins: dict[frozenset[Any], list[Weights]] = {}
    for weights in candidates:
        if len(weights.tensors) == largest:
            key = frozenset(_bare_shapes(weights.shapes).items())
            twins.setdefault(key, []).append(weights)
    for alike in twins.values():
        if len(alike) > 1:
            raise ValueError(_ambiguous(where, [weights.key_path for weights in alike]))


def _bare_shapes(shapes: Shapes) -> Shapes:
    renamed = _without(shapes, WRAPPERS[-1])
    if renamed is None:
        return shapes
    prefixes = common_prefixes(renamed)
    if prefixes:
        return {name.removeprefix(prefixes[-1]): shape for name, shape in renamed.items()}
    return renamed


def choose_weights(
    where: str,
    network: Shapes,
    mappings: list[Weights],
    part: str = "",
    left_out: Callable[[str], bool] | None = None,
) -> Mapping[str, Any]:
    """Return the tensors of the network, keyed by the network's own names.

    `part` selects a mapping if several fit. Names that `left_out` selects, such as the classifier of a network that was
    created without one, are ignored. If there is only one mapping and it does not fit, it is returned anyway, and the
    caller reports the mismatch. Raises ValueError if several mappings fit, or if there are several and none fits.
    """
    _check_part(where, mappings, part)
    candidates = _select_part(mappings, part)
    fits = [fit for weights in candidates for fit in _fits(network, weights, left_out)]
    if part and any(key_path == part for key_path, _ in fits):
        fits = [(key_path, tensors) for key_path, tensors in fits if key_path == part]
    same_shapes = []
    for key_path, tensors in fits:
        if all(tuple(tensors[name].shape) == shape for name, shape in network.items()):
            same_shapes.append((key_path, tensors))
    best = same_shapes or fits
    if len(best) > 1:
        raise ValueError(_ambiguous(where, [key_path for key_path, _ in best]))
    if best:
        return best[0][1]
    intended = [weights for weights in candidates if not weights.is_auxiliary] or candidates
    if len(intended) == 1:
        tensors = intended[0].tensors
        result = {}
        for name, value in tensors.items():
            if left_out is None or not left_out(name):
                result[name] = value
        return result
    sizes = ", ".join(f"{weights.key_path or 'the top level'} ({len(weights.tensors)} tensors)" for weights in intended)
    missing_names = sorted(set(network) - {name for weights in intended for name in weights.tensors})
    lacking = f", such as {missing_names[0]}" if missing_names else ""
    raise ValueError(
        f"{where}: none of its sets of weights has the network's {len(network)} names{lacking}; it has {sizes}"
    )


def _check_part(where: str, mappings: list[Weights], part: str) -> None:
    if not part or _select_part(mappings, part):
        return
    key_paths = []
    for weights in mappings:
        if not weights.is_auxiliary:
            key_paths.extend(_selectable_parts(weights))
    key_paths = key_paths or [weights.key_path for weights in mappings if weights.key_path]
    listing = ", ".join(key_paths[:SHOWN]) or "one set, so leave out the name after the path"
    more = ""
    if len(key_paths) > SHOWN:
        more = f" and {len(key_paths) - SHOWN} more"
    raise ValueError(f"{where} has no weights in {part!r}; it has {listing}{more}")


def _selectable_parts(weights: Weights) -> list[str]:
    """Return the selectable parts of a mapping: the mapping itself, and networks that are prefixes of its names.

    Two such prefixes, such as a student and its teacher, have the same names below them. Repeated layers are not parts.
    """
    below: dict[str, set[str]] = {}
    for name in weights.tensors:
        first, _, rest = name.partition(".")
        below.setdefault(first, set()).add(rest)
    begins = f"{weights.key_path}." if weights.key_path else ""
    key_paths = [weights.key_path] if weights.key_path else []
    for first, names in below.items():
        is_network = any("." in name for name in names)
        if is_network and sum(names == sibling_names for sibling_names in below.values()) > 1:
            key_paths.append(f"{begins}{first}")
    return key_paths


def _select_part(mappings: list[Weights], part: str) -> list[Weights]:
    """Return the mappings at this path, below it, or with names that begin with it."""
    if not part:
        return [weights for weights in mappings if not weights.is_alias]
    selection: list[Weights] = []
    for weights in mappings:
        if weights.is_alias and any(weights.tensors is earlier.tensors for earlier in selection):
            continue
        begins = f"{weights.key_path}." if weights.key_path else ""
        holds_part = part.startswith(begins) and any(
            name.startswith(f"{part.removeprefix(begins)}.") for name in weights.tensors
        )
        if f"{weights.key_path}.".startswith(f"{part}."):
            selection.append(weights)
        elif holds_part:
            prefix = f"{part.removeprefix(begins)}."
            tensors = {name.removeprefix(prefix): t for name, t in weights.tensors.items() if name.startswith(prefix)}
            selection.append(Weights(part, tensors, weights.is_auxiliary))
    return selection


def _fits(
    network: Shapes, weights: Weights, left_out: Callable[[str], bool] | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each place in a mapping where the network's names occur, and its tensors by the network's names.

    Names are compared unchanged, then without the parts that compilers add, then without those that parallel modules
    add. The first comparison that fits is used.
    """
    for parts in WRAPPERS:
        network_names = _without({name: name for name in network}, parts)
        tensors = _without(weights.tensors, parts)
        if network_names is None or tensors is None:
            continue
        fits = []
        for prefix in _prefixes(tensors, len(network_names), exactly=left_out is None):
            bare = {}
            for name, value in tensors.items():
                if name.startswith(prefix):
                    bare[name.removeprefix(prefix)] = value
            compared_tensors = {}
            for name, value in bare.items():
                if left_out is None or not left_out(name):
                    compared_tensors[name] = value
            if compared_tensors.keys() == network_names.keys():
                key_path = ".".join(filter(None, (weights.key_path, prefix.rstrip("."))))
                is_entire_mapping = len(bare) == len(tensors)  # a prefix shared by all names is not a separate place
                fits.append(
                    (
                        weights.key_path if is_entire_mapping else key_path,
                        {network_names[name]: compared_tensors[name] for name in network_names},
                    )
                )
        if fits:
            yield from fits
            return


def _without(tensors: Mapping[str, Any], parts: tuple[str, ...]) -> Mapping[str, Any] | None:
    """Remove these parts from the names of a mapping. Returns None if two names would become equal."""
    if not parts:
        return tensors
    renamed = {}
    for name, value in tensors.items():
        renamed[".".join(step for step in name.split(".") if step not in parts)] = value
    return renamed if len(renamed) == len(tensors) else None


def _prefixes(names: Iterable[str], count: int, *, exactly: bool) -> list[str]:
    """Return the prefixes, with trailing dots, shared by `count` names (or at least `count`), empty prefix first."""
    counts: Counter[str] = Counter()
    for name in names:
        counts[""] += 1
        for position, character in enumerate(name):
            if character == ".":
                counts[name[: position + 1]] += 1
    return sorted(prefix for prefix, number in counts.items() if number == count or (not exactly and number > count))


def common_prefixes(names: Iterable[str]) -> list[str]:
    """Return the prefixes that all dotted names share, shortest first, such as `module.`, `module.net.`."""
    prefixes: list[str] = []
    for steps in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(steps)) > 1:
            break
        prefixes.append((prefixes[-1] if prefixes else "") + steps[0] + ".")
    return prefixes


def unwrapped_names(names: Iterable[str]) -> dict[str, str]:
    """Map each name to itself without the parts that compilers add and without a common prefix `module.`."""
    wrapped_names = list(names)
    bare = _without({name: name for name in wrapped_names}, COMPILED) or {name: name for name in wrapped_names}
    prefix = ""
    if all(name.startswith("module.") for name in bare):
        prefix = "module."
    return {name: new.removeprefix(prefix) for new, name in bare.items()}


def _ambiguous(where: str, key_paths: list[str]) -> str:
    descriptions = [key_path or "the top level" for key_path in key_paths[:SHOWN]]
    example = next((key_path for key_path in key_paths if key_path), "")
    return (
        f"{where} contains several sets of weights that fit: {', '.join(descriptions)}; name one after the path: "
        f"#{example}"
    )
