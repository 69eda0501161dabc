"""Partition boxed images into training sets A and B, a public set X, and the remaining images.

Within each class, the sorted ids are shuffled with a random stream derived from the seed and the class name:

- A and B have `per_class` images each. The boxed images of the class alternate between A and B. If there are too few, A
  and B are filled up with unboxed images from opposite ends of the order, so that they overlap only if they need more
  images than there are. A and B never share a boxed image, and only boxed images are attacked.
- X has the same number of images per class, to within one. If a class has too few, the others contribute more. Unboxed
  images come first. X is taken from the end of each order, so it does not depend on `per_class` as long as there are
  enough images.
- Other A and other B are two more sets with `per_class` images per class, disjoint from all others, with boxed images
  first. Models trained on them never saw A or B.

If a table states each image's role for a third-party model, the parts follow the table, regardless of their sizes: A
was trained on, B was held out, X is public, and both other A and other B are the images for reference models.

Exact copies (images with the same content, regardless of labels and boxes) count as one image: the first copy is drawn,
the others join its part, and only the first is attacked. Validation images that are copies of other images belong to no
part. If a table assigns copies to several parts, all copies go to the first of trained, reference, public and held out,
since an encoder that was trained on an image has seen its copies. Without this rule, a copy in X would reveal the
answer without the encoder, and the model trained on A could have seen an image of B.

A data set without boxes is partitioned as if all images were boxed, since corner crops need no boxes.

Meehan et al. 2023, "Do SSL models have déjà vu?", appendix A.2.1. There A and B are filled with the same images.
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
SIXTH = 6  # each of the four training sets takes at most this fraction of a class, so that some images remain
VALIDATION_SHARE = 0.2  # of all images; upper limit on the remaining images used for validation

GIVEN: Mapping[PartName, str] = {  # words used in tables
    "A": "trained",
    "B": "held out",
    "X": "public",
    "other A": "reference",
    "other B": "reference",
}

PRECEDENCE = ("trained", "reference", "public", "held out")  # for copies that a table puts in several parts

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Partition(Ranged):
    """Partition with `per_class` images of each class in A, as many in B, and `public` images in X (0: all remaining).

    `attacked` images of A and the same number of B are attacked, equally per class to within one (0: all boxed images).
    `largest` reserves images for training sets of that size per class, so that X is the same for all sizes up to it (0:
    for `per_class`). `validation` is the size of the validation part (0: all validation images of the data, or else the
    remaining images, at most a fifth of all). Raises ValueError for a number below its minimum.
    """

    per_class: Annotated[int, AtLeast(1)] = 300
    public: Annotated[int, AtLeast(0)] = 500_000
    attacked: Annotated[int, AtLeast(0)] = 0
    validation: Annotated[int, AtLeast(0)] = 0
    largest: Annotated[int, AtLeast(0)] = 0
    seed: int = 0


@dataclass(frozen=True)
class PartSizes:
    """The number of images in a training set, in X and in the validation part, and of classes."""

    trained: int
    public: int
    validation: int
    classes: int


def expect_sizes(pictures: BoxedPictures, partition: Partition) -> PartSizes:
    """Return the sizes of the parts without drawing them, as if no class had too few images.

    Sets of at most a thousandth of the data may differ, because copies count once. For planning only.
    """
    classes = len(pictures.names)
    images = len(pictures.labels)
    trained = classes * partition.per_class
    reserved = 2 * classes * max(partition.per_class, partition.largest)
    public = max(1, min(partition.public or images, images - reserved))
    own_validation = int(np.count_nonzero(pictures.is_validation)) or int(VALIDATION_SHARE * images)
    return PartSizes(trained, public, partition.validation or own_validation, classes)


@dataclass(frozen=True, eq=False)
class Parts:
    """The rows of each part, in ascending order."""

    rows_by_part: Mapping[PartName, Rows]
    to_attack: Mapping[PartName, Rows]
    missing_reasons: Mapping[PartName, str]  # why each missing part is missing

    def rows(self, part: PartName) -> Rows:
        """Return the part's rows. If the part is missing, raises DatasetError with the reason."""
        if part not in PART_NAMES:
            raise ValueError(f"part is {part!r}; it must be one of {', '.join(PART_NAMES)}")
        if part in self.missing_reasons:
            raise DatasetError(self.missing_reasons[part])
        return self.rows_by_part[part]

    def rows_to_attack(self, part: PartName) -> Rows:
        """Return the attacked rows of a training set: its boxed images that are in no other training set."""
        if part not in TRAINED:
            raise ValueError(f"{part!r} cannot be attacked; expected one of {', '.join(TRAINED)}")
        self.rows(part)
        return self.to_attack[part]


@dataclass(frozen=True, eq=False)
class ClassRows:
    """The rows of one class, in random order."""

    name: str
    boxed: Rows
    unboxed: Rows

    def largest_size(self) -> int:
        """Return the largest possible size per training set for this class."""
        return len(self.boxed) // 2 + len(self.unboxed)

    def surplus_rows(self, per_class: int) -> Rows:
        """Return the rows that training sets of this size do not need, from the end of each order, unboxed first."""
        halves = min(len(self.boxed) // 2, per_class)
        fill = per_class - halves
        return np.concatenate([self.unboxed[fill:][::-1], self.boxed[2 * halves :][::-1]])

    def exclude(self, is_excluded: NDArray[np.bool_]) -> ClassRows:
        """Return the class without the excluded rows. The mask has shape (n,), one entry per row of the data set."""
        return ClassRows(self.name, *(rows[~is_excluded[rows]] for rows in (self.boxed, self.unboxed)))


def split_pictures(pictures: BoxedPictures, partition: Partition) -> Parts:
    """Partition the images, independently of the order in which they are listed.

    Raises DatasetError if a class has too few images for A and B, or if all classes together have too few for X. A
    missing optional part raises an error only when it is requested.
    """
    if pictures.given_parts is not None:
        return _parts_of_table(pictures, partition, pictures.given_parts)
    classes = _draw_classes(pictures, partition.seed)
    size = max(partition.per_class, partition.largest)
    check(classes, size)
    spare = [class_rows.surplus_rows(size) for class_rows in classes]
    validation, spare = _validation_of(pictures, spare, partition)
    public, _ = _take_equally(spare, partition.public, "X (public)", size)
    if not sum(map(len, public)):
        raise DatasetError(f"no images remain for X with training sets of {size} per class; use fewer per class")
    out = _row_mask([*public, *validation], len(pictures.ids))
    remaining_classes = [class_rows.exclude(out) for class_rows in classes]
    sets = [_split_class(class_rows, partition.per_class) for class_rows in remaining_classes]
    part_rows: dict[PartName, Rows] = {"X": _join_rows(public)}
    for index, name in enumerate(TRAINED):
        part_rows[name] = _join_rows([class_rows[index] for class_rows in sets])
    has_box = _boxed_rows(pictures)
    to_attack = {}
    for index, name in enumerate(TRAINED):
        boxed_rows = [class_rows[index][has_box[class_rows[index]]] for class_rows in sets]
        to_attack[name] = _take_in_turn(boxed_rows, partition.attacked)
    if any(map(len, validation)):
        part_rows["validation"] = _join_rows(validation)
    else:
        part_rows["validation"] = _own_validation(pictures, partition)
    missing_reasons: dict[PartName, str] = {}
    if any(len(class_rows[index]) < partition.per_class for class_rows in sets for index in (2, 3)):
        feasible_size = min(len(class_rows.boxed) + len(class_rows.unboxed) for class_rows in remaining_classes) // 4
        for name in TRAINED[2:]:
            del part_rows[name]
            missing_reasons[name] = (
                f"there are too few images for {name} of {partition.per_class} per class next to A, B and X; use "
                f"fewer per class (about {feasible_size} with this X) or fewer in X (public)"
            )
    if not len(part_rows["validation"]):
        part_rows["validation"] = remaining_rows(classes, [*part_rows.values()], len(pictures.ids))
    if not len(part_rows["validation"]):
        missing_reasons["validation"] = "no images remain for validation; use fewer in X (public), or set validation"
    representatives = _representatives(pictures)
    return Parts(
        {name: _add_copies(pictures, representatives, rows) for name, rows in part_rows.items()},
        to_attack,
        missing_reasons,
    )


def _representatives(pictures: BoxedPictures) -> Rows:
    """Return, for each image (n,), the image that is drawn on its behalf: its first exact copy.

    Images outside the validation set come first, then images with boxes, then smaller ids.
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
    representatives: Rows = order[best[pictures.first_copies]]
    return representatives


def _drawn_rows(pictures: BoxedPictures) -> NDArray[np.bool_]:
    """Return whether each image (n,) is drawn, rather than being a copy of a drawn one."""
    is_drawn: NDArray[np.bool_] = _representatives(pictures) == np.arange(len(pictures.ids))
    return is_drawn


def _add_copies(pictures: BoxedPictures, representatives: Rows, rows: Rows) -> Rows:
    """Return these rows and their copies, ascending, without validation images that copy other images."""
    joins = _row_mask([rows], len(representatives))[representatives] & (
        pictures.is_validation == pictures.is_validation[representatives]
    )
    return np.flatnonzero(joins)


def _join_given_parts(pictures: BoxedPictures, part_names: Sequence[str]) -> NDArray[np.str_]:
    """Return each image's role (n,) for a third-party model.

    Exact copies get the role that comes first in PRECEDENCE.
    """
    words = np.array(part_names)
    rank = np.full(len(words), len(PRECEDENCE))
    for precedence, word in enumerate(PRECEDENCE):
        rank[words == word] = precedence
    best = np.full(len(words), len(PRECEDENCE))
    np.minimum.at(best, pictures.first_copies, rank)
    joined: NDArray[np.str_] = np.array([*PRECEDENCE, ""])[best[pictures.first_copies]]
    return joined


def _parts_of_table(pictures: BoxedPictures, partition: Partition, part_names: Sequence[str]) -> Parts:
    """Return the parts that a table defines. Only the attacked images are drawn at random."""
    words = _join_given_parts(pictures, part_names)
    part_rows: dict[PartName, Rows] = {name: np.flatnonzero(words == word) for name, word in GIVEN.items()}
    part_rows["validation"] = np.zeros(0, np.int64)
    missing_reasons: dict[PartName, str] = {
        name: f"the data have no images of part {word!r}, which {name} requires"
        for name, word in GIVEN.items()
        if not len(part_rows[name])
    }
    missing_reasons["validation"] = "the data define the role of each image for a model, and none is for validation"
    to_attack = {}
    for name in TRAINED:
        outside = words != GIVEN[name]
        of_class = []
        for class_rows in _draw_classes(pictures, partition.seed):
            of_class.append(class_rows.exclude(outside).boxed)
        to_attack[name] = _take_in_turn(of_class, partition.attacked)
    return Parts(part_rows, to_attack, missing_reasons)


def smallest_parts(pictures: BoxedPictures, partition: Partition) -> tuple[int, int]:
    """Return a size per class for four training sets (at most the partition's) and the number of images left over."""
    classes = _draw_classes(pictures, partition.seed)
    fewest = min(len(class_rows.boxed) + len(class_rows.unboxed) for class_rows in classes)
    per_class = min(partition.per_class, max(1, fewest // SIXTH))
    total = sum(len(class_rows.boxed) + len(class_rows.unboxed) for class_rows in classes)
    return per_class, max(0, total - len(TRAINED) * per_class * len(classes))


def _draw_classes(pictures: BoxedPictures, seed: int) -> list[ClassRows]:
    """Return each class's rows, excluding validation images and copies."""
    order = _sorted_rows(pictures)
    order = order[(~pictures.is_validation & _drawn_rows(pictures))[order]]
    by_class = np.argsort(pictures.labels[order], kind="stable")
    ends = np.cumsum(np.bincount(pictures.labels[order], minlength=len(pictures.names)))
    has_box = _boxed_rows(pictures)
    classes = []
    for name, rows in zip(pictures.names, np.split(order[by_class], ends[:-1]), strict=True):
        shuffled = rows[seeds.generator(seed, "parts", name).permutation(len(rows))]
        classes.append(ClassRows(name, shuffled[has_box[shuffled]], shuffled[~has_box[shuffled]]))
    return classes


def _sorted_rows(pictures: BoxedPictures) -> Rows:
    """Return the rows (n,) in the order of their ids."""
    return np.array(sorted(range(len(pictures.ids)), key=pictures.ids.__getitem__), np.int64)


def _boxed_rows(pictures: BoxedPictures) -> NDArray[np.bool_]:
    """Return whether each image (n,) counts as boxed. If no image has a box, all do."""
    has_box = np.fromiter((len(boxes) > 0 for boxes in pictures.boxes), np.bool_, len(pictures.ids))
    return has_box if has_box.any() else np.ones_like(has_box)


def check(classes: Sequence[ClassRows], size: int) -> None:
    fewest = min(classes, key=ClassRows.largest_size)
    if fewest.largest_size() < size:
        raise DatasetError(
            f"class {fewest.name!r} has {len(fewest.boxed)} boxed images and {len(fewest.unboxed)} others, too few "
            f"for {size} in A and {size} in B; per_class may be at most {fewest.largest_size()}"
        )


def _validation_of(pictures: BoxedPictures, spare: list[Rows], partition: Partition) -> tuple[list[Rows], list[Rows]]:
    """Draw each class's validation images. Returns them and the remaining images."""
    if not partition.validation or pictures.is_validation.any():
        return [rows[:0] for rows in spare], spare
    return _take_equally(spare, partition.validation, "validation", max(partition.per_class, partition.largest))


def _take_equally(spare: Sequence[Rows], count: int, setting: str, size: int) -> tuple[list[Rows], list[Rows]]:
    """Take `count` images (0: all) as equally per class as possible. Returns them and the rest of each class."""
    sizes = np.array([len(rows) for rows in spare])
    if count > sizes.sum():
        raise DatasetError(
            f"{setting} is {count}; with training sets of {size} per class, only {sizes.sum()} images remain for it"
        )
    shares = equal_shares(sizes, count) if count else sizes
    taken_rows = [rows[:share] for rows, share in zip(spare, shares, strict=True)]
    return taken_rows, [rows[share:] for rows, share in zip(spare, shares, strict=True)]


def equal_shares(sizes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Distribute `count` equally over classes of these sizes. The first classes take one more if there is a remainder.

    `count` is at most the sum of the sizes.
    """
    level = 0
    while np.minimum(sizes, level + 1).sum() <= count and level < sizes.max(initial=0):
        # The largest equal addition, at least one, for every class that has images left.
        able = int((sizes > level).sum())
        level += max(1, int(count - np.minimum(sizes, level).sum()) // able)
    shares: NDArray[np.int64] = np.minimum(sizes, level)
    shares[np.flatnonzero(sizes > level)[: count - int(shares.sum())]] += 1
    return shares


def _split_class(rows: ClassRows, per_class: int) -> tuple[Rows, Rows, Rows, Rows]:
    """Return the images of one class in A, B, other A and other B. The last two may have fewer."""
    halves = min(len(rows.boxed) // 2, per_class)
    fill = per_class - halves
    unboxed = rows.unboxed
    first = np.concatenate([rows.boxed[0 : 2 * halves : 2], unboxed[:fill]])
    second = np.concatenate([rows.boxed[1 : 2 * halves : 2], unboxed[len(unboxed) - fill :]])
    rest = np.concatenate([rows.boxed[2 * halves :], unboxed[fill : max(fill, len(unboxed) - fill)]])
    return first, second, rest[0::2][:per_class], rest[1::2][:per_class]


def _take_in_turn(classes: Sequence[Rows], count: int) -> Rows:
    """Take `count` rows (0: all) from the classes in turn: the first of each, then the second of each, and so on."""
    rows = np.concatenate(classes)
    turn = np.concatenate([np.arange(len(class_rows)) for class_rows in classes])
    ordered_rows = rows[np.argsort(turn, kind="stable")]
    return np.sort(ordered_rows[:count] if count else ordered_rows)


def _own_validation(pictures: BoxedPictures, partition: Partition) -> Rows:
    """Return `validation` of the data set's own validation images, drawn equally per class (0: all of them)."""
    rows = np.flatnonzero(pictures.is_validation & _drawn_rows(pictures))
    if not partition.validation or not len(rows):
        return rows
    if partition.validation > len(rows):
        raise DatasetError(f"validation is {partition.validation}; the data have only {len(rows)} validation images")
    rows = rows[np.argsort(np.array(pictures.ids, object)[rows], kind="stable")]
    rows = rows[seeds.generator(partition.seed, "validation").permutation(len(rows))]
    classes = [rows[pictures.labels[rows] == label] for label in range(len(pictures.names))]
    return _join_rows(_take_equally(classes, partition.validation, "validation", 0)[0])


def remaining_rows(classes: Sequence[ClassRows], parts: Sequence[Rows], pictures: int) -> Rows:
    """Return the rows that are in none of these parts, equally per class, at most a fifth of all."""
    taken_already = _row_mask(parts, pictures)
    rest = [class_rows.exclude(taken_already) for class_rows in classes]
    rows = []
    for class_rows in rest:
        rows.append(np.concatenate([class_rows.unboxed[::-1], class_rows.boxed[::-1]]))
    count = min(sum(map(len, rows)), int(VALIDATION_SHARE * pictures))
    if count:
        return _join_rows(_take_equally(rows, count, "validation", 0)[0])
    return _join_rows([])


def _row_mask(rows: Sequence[Rows], pictures: int) -> NDArray[np.bool_]:
    """Return a mask (pictures,) that selects these rows."""
    mask = np.zeros(pictures, np.bool_)
    mask[_join_rows(rows)] = True
    return mask


def _join_rows(rows: Sequence[Rows]) -> Rows:
    return np.sort(np.concatenate([*rows, np.zeros(0, np.int64)]))


@dataclass(frozen=True)
class TrainingImages(Ranged):
    """One part of the images of `catalog.load_with_boxes(data, correlation)`.

    `correlation`, in [0, 1], is the share of digits-on-photos scenes whose background determines the class of the
    digit.
    """

    data: Dataset
    correlation: Annotated[float, Share()]
    partition: Partition
    part: PartName
