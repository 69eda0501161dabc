"""Find the shards of a WebDataset, in a folder or by a pattern in braces, and the splits that their names define.

Shards in folders called train and test, or with these words in their names, form the splits (`tasks.datasets.splits`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.datasets.dataset import DatasetError, unreadable
from tasks.datasets.splits import SPLITS, Split, choose_splits, split_called

TAR = ".tar"
MOST_SHARDS = 100_000  # that a pattern may name
BRACES = re.compile(r"\{([^{}]*)\}")
RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})")


@dataclass(frozen=True)
class Shards:
    """The archives of a data set, in order, and the name of the split of each. None if no name defines a split."""

    where: str  # for messages
    paths: tuple[Path, ...]
    splits: tuple[str, ...] | None

    def by_split(self) -> Iterator[tuple[Split | None, list[Path]]]:
        """Yield the shards of the training split and those of the test split, or all shards without a split."""
        if self.splits is None:
            yield None, list(self.paths)
            return
        read_as = choose_splits(self.splits)
        for split in SPLITS:
            of_split = [path for path, name in zip(self.paths, self.splits, strict=True) if read_as.get(name) == split]
            yield split, of_split


def find_shards(path: Path) -> Shards | None:
    """Return the shards in a folder, of a pattern, or in one file. None if no file exists."""
    if "{" in str(path) and not path.exists():
        paths = [Path(name) for name in expand_braces(str(path))]
        existing = [shard for shard in paths if shard.is_file()]
        if not existing:
            return None
        for shard in paths:
            if not shard.is_file():
                raise DatasetError(f"there is no shard {shard}; {path} names {len(paths)}")
        base = Path(str(path).partition("{")[0] + "_").parent
        return _name_splits(path, base, paths, is_exact=True)
    if path.is_file():
        if path.suffix.lower() != TAR:
            raise DatasetError(f"{path} is not a shard; it must end in {TAR}")
        return Shards(str(path), (path,), None)
    if not path.is_dir():
        return None
    paths = []
    try:
        for folder in (path, *(entry for entry in sorted(path.iterdir()) if split_called(entry.name))):
            if folder.is_dir():
                paths += [entry for entry in folder.iterdir() if _is_shard(entry)]
    except OSError as error:
        raise unreadable(path, error) from None
    paths.sort(key=lambda shard: _natural_key(shard.relative_to(path).as_posix()))
    return _name_splits(path, path, paths, is_exact=False) if paths else None


def _is_shard(path: Path) -> bool:
    return path.suffix.lower() == TAR and not path.name.startswith(".") and path.is_file()


def _natural_key(name: str) -> list[str | int]:
    """Return a sort key by which 2.tar comes before 10.tar."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


def _name_splits(where: Path, base: Path, paths: Sequence[Path], is_exact: bool) -> Shards:
    """Return the shards with their splits. `is_exact` if the user has named every shard.

    Raises DatasetError if a name has the words of two splits, or if only some names have such a word.
    """
    names = []
    for path in paths:
        relative = path.relative_to(base).with_suffix("").as_posix()
        different = {split for word in re.findall(r"[a-z]+", relative.casefold()) if (split := split_called(word))}
        if len(different) > 1:
            raise DatasetError(
                f"{path} belongs to {' and '.join(sorted(different))} by its name; it must have one split"
            )
        names.append(min(different, default=""))
    occurring = sorted(set(names))
    if occurring == [""] or (is_exact and len(occurring) == 1):
        return Shards(str(where), tuple(paths), None)
    if "" in occurring:
        raise DatasetError(
            f"{where} has {_first_of(paths, names, '')}, whose name has no split, and "
            f"{_first_of(paths, names, occurring[1])}; put train or test in the name of every shard, or of none"
        )
    for absent in SPLITS:
        if absent not in choose_splits(occurring).values():
            raise DatasetError(
                f"{where} has {_first_of(paths, names, occurring[0])}, but no shard of {absent!r}; it must have both. "
                f"To draw a test split, name the shards, such as {occurring[0]}-{{000000..000009}}{TAR}"
            )
    return Shards(str(where), tuple(paths), tuple(names))


def _first_of(paths: Sequence[Path], names: Sequence[str], split: str) -> str:
    return paths[names.index(split)].name


def expand_braces(pattern: str) -> tuple[str, ...]:
    """Return the names of a pattern, in order: {0..9} is a range of numbers, and {a,b} a choice.

    Numbers with leading zeros all have the same number of digits. Raises DatasetError if there are too many names.
    """
    names = [pattern]
    while True:
        expanded: dict[str, None] = {}
        for name in names:
            group = BRACES.search(name)
            choices = [""] if group is None else list(_choices(pattern, group[1]))
            for choice in choices:
                expanded[name if group is None else name[: group.start()] + choice + name[group.end() :]] = None
            if len(expanded) > MOST_SHARDS:
                raise DatasetError(f"{pattern} names more than {MOST_SHARDS:,} shards")
        if list(expanded) == names:
            return tuple(names)
        names = list(expanded)


def _choices(pattern: str, text: str) -> Iterator[str]:
    number_range = RANGE.fullmatch(text)
    if number_range is None:
        yield from text.split(",")
        return
    first, last = number_range.groups()
    if int(last) < int(first) or int(last) - int(first) >= MOST_SHARDS:
        raise DatasetError(
            f"{pattern} has the range {{{text}}}; it must be {{FIRST..LAST}}, of at most {MOST_SHARDS:,}"
        )
    width = len(first) if first.startswith("0") else 0
    for number in range(int(first), int(last) + 1):
        yield f"{number:0{width}d}"
