"""Boxed pictures parted into the training sets A and B, the public set X, and what is left.

Of each class, in an order drawn from the seed and the class's name over its sorted ids,

- A and B have `per_class` pictures each. The class's boxed pictures go to A and B in turn, one each; where these are
  fewer, unboxed pictures fill both up, those of A from one end and those of B from the other, so that they share some
  only where both together need more than there are. Boxed pictures are never shared, and only they are attacked.
- X has as many pictures of each class as of any other, to within one, and where a class has fewer the others have more;
  unboxed pictures first. It comes from the end of the orders, so that it is the same whatever `per_class` is, as long
  as there is room.
- Other A and other B are two more sets of `per_class`, apart from all the others, boxed pictures before unboxed ones:
  models trained on these saw neither A nor B.

Where a table says what each picture was to somebody else's model, its parts are these, whatever their sizes: A was
trained on, B held out, X public, and both other A and other B are the pictures for references.

Exact copies, pictures with the same content whatever their labels and boxes, are one picture: the first of them is
drawn, the others join its part, and only the first is attacked. Pictures for validation that come with the data and are
copies of others are in no part. If a table gives copies several parts, all are in the first of trained, reference,
public and held out: an encoder that was trained on a picture has seen its copies. Without this rule a copy in X answers
for the encoder, and a copy in B was seen by the model of A.

A set without any box is parted as if all its pictures were boxed: corner crops need no boxes.

Meehan et al. 2023, "Do SSL models have déjà vu?", appendix A.2.1. There A and B are filled up with the same pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.numerics import seeds

PartName = Literal["A", "B", "other A", "other B", "X", "validation"]
PART_NAMES: tuple[PartName, ...] = get_args(PartName)
TRAINED: tuple[PartName, ...] = ("A", "B", "other A", "other B")
SIXTH = 6  # part of a class that each of four training sets takes at most, so that some pictures are left
VALIDATION_SHARE = 0.2  # of all pictures, which what is left over may be at most

GIVEN: Mapping[PartName, str] = {  # the words of a table
    "A": "trained",
    "B": "held out",
    "X": "public",
    "other A": "reference",
    "other B": "reference",
}

PRECEDENCE = ("trained", "reference", "public", "held out")  # the part of copies that a table gives several

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Partition(Ranged):
    """How pictures are parted: `per_class` pictures of each class in A and as many in B, `public` in X (0: all left).

    `attacked` of A and as many of B are attacked, equally per class to within one; 0: all boxed ones. With `largest` X
    leaves room for training sets of so many per class: then it is the same for all of at most that size (0: for sets of
    `per_class`). `validation` is the size of that part; 0: the pictures for validation that come with the data, all of
    them, else what is left of the others, at most a fifth of all. ValueError for a number below its least.
    """

    per_class: Annotated[int, AtLeast(1)] = 300
    public: Annotated[int, AtLeast(0)] = 500_000
    attacked: Annotated[int, AtLeast(0)] = 0
    validation: Annotated[int, AtLeast(0)] = 0
    largest: Annotated[int, AtLeast(0)] = 0
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Parts:
    """The rows of each part, ascending."""

    there: Mapping[PartName, Rows]
    to_attack: Mapping[PartName, Rows]
    missing: Mapping[PartName, str]  # why a part is not there

    def rows(self, part: PartName) -> Rows:
        """The part's rows; a DatasetError saying why where there are none."""
        if part not in PART_NAMES:
            raise ValueError(f"part is {part!r}; it must be one of {', '.join(PART_NAMES)}")
        if part in self.missing:
            raise DatasetError(self.missing[part])
        return self.there[part]

    def rows_to_attack(self, part: PartName) -> Rows:
        """The rows of A, or of another training set, that are attacked: boxed ones, which no other training set has."""
        if part not in TRAINED:
            raise ValueError(f"{part!r} is not attacked; {', '.join(TRAINED)} can be")
        self.rows(part)
        return self.to_attack[part]


@dataclass(frozen=True, eq=False)
class Drawn:
    """One class's rows in the drawn order."""

    name: str
    boxed: Rows
    unboxed: Rows

    def most(self) -> int:
        """The largest training sets that it has pictures for."""
        return len(self.boxed) // 2 + len(self.unboxed)

    def beyond(self, per_class: int) -> Rows:
        """What training sets of this size do not need: unboxed pictures first, from the end of the orders."""
        halves = min(len(self.boxed) // 2, per_class)
        fill = per_class - halves
        return np.concatenate([self.unboxed[fill:][::-1], self.boxed[2 * halves :][::-1]])

    def exclude(self, taken: NDArray[np.bool_]) -> Drawn:
        """The class without the rows that are taken, (n,) for all rows of the set."""
        return Drawn(self.name, *(own[~taken[own]] for own in (self.boxed, self.unboxed)))


def split_pictures(pictures: BoxedPictures, partition: Partition) -> Parts:
    """The parts of the pictures: the same whatever order these are listed in.

    A DatasetError where a class has too few pictures for A and B, or the classes for X; the parts that need not be
    there are only missed when they are asked for.
    """
    if pictures.given_parts is not None:
        return _as_given(pictures, partition, pictures.given_parts)
    classes = _draw_classes(pictures, partition.seed)
    size = max(partition.per_class, partition.largest)
    check(classes, size)
    spare = [of.beyond(size) for of in classes]
    validation, spare = _validation_of(pictures, spare, partition)
    public, _ = _take_equally(spare, partition.public, "X (public)", size)
    if not sum(map(len, public)):
        raise DatasetError(f"no pictures are left for X beside training sets of {size} per class; take fewer per class")
    out = _row_mask([*public, *validation], len(pictures.ids))
    kept = [of.exclude(out) for of in classes]
    sets = [_split_class(of, partition.per_class) for of in kept]
    there: dict[PartName, Rows] = {"X": _join_rows(public)}
    for at, name in enumerate(TRAINED):
        there[name] = _join_rows([of[at] for of in sets])
    has_box = _boxed_rows(pictures)
    to_attack = {
        name: _take_in_turn([of[at][has_box[of[at]]] for of in sets], partition.attacked)
        for at, name in enumerate(TRAINED)
    }
    there["validation"] = _join_rows(validation) if any(map(len, validation)) else _own_validation(pictures, partition)
    missing: dict[PartName, str] = {}
    if any(len(of[at]) < partition.per_class for of in sets for at in (2, 3)):
        most = min(len(of.boxed) + len(of.unboxed) for of in kept) // 4
        for name in TRAINED[2:]:
            del there[name]
            missing[name] = (
                f"there are too few pictures for {name} of {partition.per_class} per class beside A, B and X; take "
                f"fewer per class (with this X about {most}) or fewer in X (public)"
            )
    if not len(there["validation"]):
        there["validation"] = left_over(classes, [*there.values()], len(pictures.ids))
    if not len(there["validation"]):
        missing["validation"] = "no pictures are left for validation; take fewer in X (public), or give validation"
    chosen = _chosen_copies(pictures)
    return Parts({name: _add_copies(pictures, chosen, rows) for name, rows in there.items()}, to_attack, missing)


def _chosen_copies(pictures: BoxedPictures) -> Rows:
    """(n,): the picture that is drawn for each, which is its first exact copy; its own row if it has none.

    Pictures that are not for validation come before others, then those with boxes, then those with smaller ids.
    """
    rows = np.arange(len(pictures.ids))
    if np.array_equal(pictures.first_copies, rows):
        return rows
    by_id = np.empty_like(rows)
    by_id[_sorted_rows(pictures)] = rows
    order = np.lexsort((by_id, ~_boxed_rows(pictures), pictures.is_validation))
    rank = np.empty_like(order)
    rank[order] = rows
    best = np.full(len(rows), len(rows))
    np.minimum.at(best, pictures.first_copies, rank)
    chosen: Rows = order[best[pictures.first_copies]]
    return chosen


def _drawn_rows(pictures: BoxedPictures) -> NDArray[np.bool_]:
    """(n,): whether each picture is drawn, and not a copy of one that is."""
    is_drawn: NDArray[np.bool_] = _chosen_copies(pictures) == np.arange(len(pictures.ids))
    return is_drawn


def _add_copies(pictures: BoxedPictures, chosen: Rows, rows: Rows) -> Rows:
    """These rows and their copies, ascending; without copies that are for validation where the row is not."""
    joins = _row_mask([rows], len(chosen))[chosen] & (pictures.is_validation == pictures.is_validation[chosen])
    return np.flatnonzero(joins)


def _join_given_parts(pictures: BoxedPictures, given: Sequence[str]) -> NDArray[np.str_]:
    """(n,): what each picture was to a third-party model; exact copies have the first part of PRECEDENCE."""
    words = np.array(given)
    rank = np.full(len(words), len(PRECEDENCE))
    for at, word in enumerate(PRECEDENCE):
        rank[words == word] = at
    best = np.full(len(words), len(PRECEDENCE))
    np.minimum.at(best, pictures.first_copies, rank)
    joined: NDArray[np.str_] = np.array([*PRECEDENCE, ""])[best[pictures.first_copies]]
    return joined


def _as_given(pictures: BoxedPictures, partition: Partition, given: Sequence[str]) -> Parts:
    """The parts that a table gives; only which pictures are attacked is drawn."""
    words = _join_given_parts(pictures, given)
    there: dict[PartName, Rows] = {name: np.flatnonzero(words == word) for name, word in GIVEN.items()}
    there["validation"] = np.zeros(0, np.int64)
    missing: dict[PartName, str] = {
        name: f"no pictures of the data are of part {word!r}, which {name} is"
        for name, word in GIVEN.items()
        if not len(there[name])
    }
    missing["validation"] = "the data says what its pictures were to a model, and none is for validation"
    to_attack = {}
    for name in TRAINED:
        outside = words != GIVEN[name]
        of_class = [of.exclude(outside).boxed for of in _draw_classes(pictures, partition.seed)]
        to_attack[name] = _take_in_turn(of_class, partition.attacked)
    return Parts(there, to_attack, missing)


def smallest_parts(pictures: BoxedPictures, partition: Partition) -> tuple[int, int]:
    """A size per class for four training sets that is at most the partition's, and the pictures left beside them."""
    classes = _draw_classes(pictures, partition.seed)
    fewest = min(len(of.boxed) + len(of.unboxed) for of in classes)
    per_class = min(partition.per_class, max(1, fewest // SIXTH))
    total = sum(len(of.boxed) + len(of.unboxed) for of in classes)
    return per_class, max(0, total - len(TRAINED) * per_class * len(classes))


def _draw_classes(pictures: BoxedPictures, seed: int) -> list[Drawn]:
    """Each class's rows, without those for validation and without copies of others."""
    order = _sorted_rows(pictures)
    order = order[(~pictures.is_validation & _drawn_rows(pictures))[order]]
    by_class = np.argsort(pictures.labels[order], kind="stable")
    ends = np.cumsum(np.bincount(pictures.labels[order], minlength=len(pictures.names)))
    has_box = _boxed_rows(pictures)
    classes = []
    for name, rows in zip(pictures.names, np.split(order[by_class], ends[:-1]), strict=True):
        shuffled = rows[seeds.generator(seed, "parts", name).permutation(len(rows))]
        classes.append(Drawn(name, shuffled[has_box[shuffled]], shuffled[~has_box[shuffled]]))
    return classes


def _sorted_rows(pictures: BoxedPictures) -> Rows:
    """(n,): the rows in the order of their ids."""
    return np.array(sorted(range(len(pictures.ids)), key=pictures.ids.__getitem__), np.int64)


def _boxed_rows(pictures: BoxedPictures) -> NDArray[np.bool_]:
    """(n,): whether each picture counts as boxed, which all do where none is."""
    has_box = np.fromiter((len(of) > 0 for of in pictures.boxes), np.bool_, len(pictures.ids))
    return has_box if has_box.any() else np.ones_like(has_box)


def check(classes: Sequence[Drawn], size: int) -> None:
    fewest = min(classes, key=Drawn.most)
    if fewest.most() < size:
        raise DatasetError(
            f"class {fewest.name!r} has {len(fewest.boxed)} boxed pictures and {len(fewest.unboxed)} others, too few "
            f"for {size} in A and {size} in B; per_class may be at most {fewest.most()}"
        )


def _validation_of(pictures: BoxedPictures, spare: list[Rows], partition: Partition) -> tuple[list[Rows], list[Rows]]:
    """Of each class the pictures for validation that are drawn, and what remains."""
    if not partition.validation or pictures.is_validation.any():
        return [rows[:0] for rows in spare], spare
    return _take_equally(spare, partition.validation, "validation", max(partition.per_class, partition.largest))


def _take_equally(spare: Sequence[Rows], count: int, what: str, size: int) -> tuple[list[Rows], list[Rows]]:
    """So many pictures (0: all), as equally as the classes can give them, and what remains of each class."""
    sizes = np.array([len(rows) for rows in spare])
    if count > sizes.sum():
        raise DatasetError(
            f"{what} is {count}; beside training sets of {size} per class only {sizes.sum()} pictures are left for it"
        )
    shares = equal_shares(sizes, count) if count else sizes
    given = [rows[:share] for rows, share in zip(spare, shares, strict=True)]
    return given, [rows[share:] for rows, share in zip(spare, shares, strict=True)]


def equal_shares(sizes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """How many of `count` each class gives: as many as any other or all it has; what is over, one each of the first.

    `count` is at most the sum of the sizes.
    """
    level = 0
    while np.minimum(sizes, level + 1).sum() <= count and level < sizes.max(initial=0):
        # As many more as every class that still has some could give, at least one.
        able = int((sizes > level).sum())
        level += max(1, int(count - np.minimum(sizes, level).sum()) // able)
    shares: NDArray[np.int64] = np.minimum(sizes, level)
    shares[np.flatnonzero(sizes > level)[: count - int(shares.sum())]] += 1
    return shares


def _split_class(rows: Drawn, per_class: int) -> tuple[Rows, Rows, Rows, Rows]:
    """One class's pictures in A, B, other A and other B; the last two may be fewer."""
    halves = min(len(rows.boxed) // 2, per_class)
    fill = per_class - halves
    unboxed = rows.unboxed
    first = np.concatenate([rows.boxed[0 : 2 * halves : 2], unboxed[:fill]])
    second = np.concatenate([rows.boxed[1 : 2 * halves : 2], unboxed[len(unboxed) - fill :]])
    rest = np.concatenate([rows.boxed[2 * halves :], unboxed[fill : max(fill, len(unboxed) - fill)]])
    return first, second, rest[0::2][:per_class], rest[1::2][:per_class]


def _take_in_turn(classes: Sequence[Rows], count: int) -> Rows:
    """The first so many rows (0: all) when each class gives its first, then each its second, and so on."""
    rows = np.concatenate(classes)
    turn = np.concatenate([np.arange(len(of)) for of in classes])
    chosen = rows[np.argsort(turn, kind="stable")]
    return np.sort(chosen[:count] if count else chosen)


def _own_validation(pictures: BoxedPictures, partition: Partition) -> Rows:
    """Of the pictures for validation that come with the data `validation`, drawn equally per class, or all."""
    rows = np.flatnonzero(pictures.is_validation & _drawn_rows(pictures))
    if not partition.validation or not len(rows):
        return rows
    if partition.validation > len(rows):
        raise DatasetError(f"validation is {partition.validation}; only {len(rows)} pictures for it come with the data")
    rows = rows[np.argsort(np.array(pictures.ids, object)[rows], kind="stable")]
    rows = rows[seeds.generator(partition.seed, "validation").permutation(len(rows))]
    classes = [rows[pictures.labels[rows] == label] for label in range(len(pictures.names))]
    return _join_rows(_take_equally(classes, partition.validation, "validation", 0)[0])


def left_over(classes: Sequence[Drawn], parts: Sequence[Rows], pictures: int) -> Rows:
    """What is in none of these parts, equally per class, at most a fifth of all."""
    taken_already = _row_mask(parts, pictures)
    rest = [of.exclude(taken_already) for of in classes]
    rows = [np.concatenate([of.unboxed[::-1], of.boxed[::-1]]) for of in rest]
    count = min(sum(map(len, rows)), int(VALIDATION_SHARE * pictures))
    return _join_rows(_take_equally(rows, count, "validation", 0)[0]) if count else _join_rows([])


def _row_mask(rows: Sequence[Rows], pictures: int) -> NDArray[np.bool_]:
    """(pictures,): whether each is among these rows."""
    mask = np.zeros(pictures, np.bool_)
    mask[_join_rows(rows)] = True
    return mask


def _join_rows(rows: Sequence[Rows]) -> Rows:
    return np.sort(np.concatenate([*rows, np.zeros(0, np.int64)]))


@dataclass(frozen=True)
class TrainingImages(Ranged):
    """A part of the data's pictures, which `catalog.load_with_boxes(data, correlation)` gives.

    `correlation` is that of digits-on-photos, in [0, 1]: how often a scene's background tells its digit's class.
    """

    data: Dataset
    correlation: Annotated[float, Share()]
    partition: Partition
    part: PartName
