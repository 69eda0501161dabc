"""Boxed pictures are parted by a seed: disjoint sets, equal per class, the same whatever order they are listed in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.datasets.boxed.partition import (
    PART_NAMES,
    TRAINED,
    Partition,
    PartName,
    Parts,
    TrainingImages,
    equal_shares,
    split_pictures,
)
from tasks.datasets.boxed.pictures import NO_BOXES, BoxedPictures
from tasks.datasets.boxed.scenes import PicturesInMemory
from tasks.datasets.dataset import Dataset, DatasetError

BOX = np.array([[0, 0, 1, 1]], np.int32)


def pictures(boxed: Sequence[int], unboxed: Sequence[int]) -> PicturesInMemory:
    """So many pictures of each class with a box, and so many without."""
    has_box = np.concatenate([np.arange(b + u) < b for b, u in zip(boxed, unboxed, strict=True)])
    labels = np.repeat(np.arange(len(boxed)), [b + u for b, u in zip(boxed, unboxed, strict=True)])
    mixed = np.random.default_rng(1).permutation(len(labels))
    return PicturesInMemory(
        tuple(f"id{at:05d}" for at in range(len(labels))),
        labels[mixed],
        tuple("abcdefgh"[: len(boxed)]),
        tuple(BOX if has else NO_BOXES for has in has_box[mixed]),
        distinct_images(len(labels)),
    )


def distinct_images(count: int) -> np.ndarray:
    return np.stack([np.arange(count) % 256, np.arange(count) // 256, np.zeros(count)], axis=1)[:, None, None].astype(
        np.uint8
    )


def listed_otherwise(of: PicturesInMemory) -> tuple[PicturesInMemory, np.ndarray]:
    order = np.random.default_rng(2).permutation(len(of.ids))
    return PicturesInMemory(
        tuple(of.ids[row] for row in order),
        of.labels[order],
        of.names,
        tuple(of.boxes[row] for row in order),
        of.images[order],
    ), order


def per_class(of: BoxedPictures, rows: np.ndarray) -> list[int]:
    return [int(count) for count in np.bincount(of.labels[rows], minlength=len(of.names))]


def test_every_part_is_disjoint_from_the_others_and_equal_per_class() -> None:
    of = pictures([23, 20, 31], [30, 40, 22])
    parts = split_pictures(of, Partition(per_class=8, public=24, validation=6))
    rows = [parts.rows(name) for name in PART_NAMES]
    assert len(np.concatenate(rows)) == len(np.unique(np.concatenate(rows)))
    assert [per_class(of, part) for part in rows] == [[8] * 3] * 4 + [[8] * 3, [2] * 3]
    assert all((np.diff(part) > 0).all() for part in rows)


def test_boxed_pictures_are_halved_and_only_they_are_attacked() -> None:
    of = pictures([8, 5], [30, 30])
    parts = split_pictures(of, Partition(per_class=6, public=20))
    has_box = np.array([len(boxes) > 0 for boxes in of.boxes])
    for name in ("A", "B"):
        assert per_class(of, parts.rows_to_attack(name)) == [4, 2]
        assert per_class(of, parts.rows(name)[~has_box[parts.rows(name)]]) == [2, 4]
        assert set(parts.rows_to_attack(name)) == set(parts.rows(name)[has_box[parts.rows(name)]])
    assert not has_box[parts.rows("X")].any()


def test_unboxed_pictures_are_shared_only_where_there_are_too_few_and_boxed_ones_never() -> None:
    of = pictures([8, 8], [12, 40])  # the second class gives X its pictures
    has_box = np.array([len(boxes) > 0 for boxes in of.boxes])
    for size, shared in ((9, 0), (10, 0), (12, 4), (16, 12)):
        parts = split_pictures(of, Partition(per_class=size, public=10, largest=16))
        a, b = (set(parts.rows(name)[of.labels[parts.rows(name)] == 0].tolist()) for name in ("A", "B"))
        assert (size, size, shared) == (len(a), len(b), len(a & b))
        assert not has_box[list(a & b)].any()
        assert not (a | b) & set(parts.rows("X").tolist())


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(0, 30),
    st.integers(0, 3),
)
def test_whatever_can_be_parted_is_parted_by_the_rules(
    classes: list[tuple[int, int]], size: int, public: int, seed: int
) -> None:
    of = pictures([boxed for boxed, _ in classes], [unboxed for _, unboxed in classes])
    try:
        parts = split_pictures(of, Partition(per_class=size, public=public, seed=seed))
    except DatasetError:
        has_any = any(boxed for boxed, _ in classes)
        most = [b // 2 + u if has_any else (b + u) // 2 for b, u in classes]
        needed = [2 * min(b // 2, size) + size - min(b // 2, size) if has_any else 2 * size for b, u in classes]
        left = sum(b + u for b, u in classes) - sum(needed)
        assert min(most) < size or left < max(public, 1)
        return
    a, b, x = (set(parts.rows(name).tolist()) for name in ("A", "B", "X"))
    assert not x & (a | b)
    assert not set(parts.rows_to_attack("A").tolist()) & b
    assert not set(parts.rows_to_attack("B").tolist()) & a
    for name in TRAINED:
        if name in parts.missing_reasons:
            continue
        assert [size] * len(classes) == per_class(of, parts.rows(name))
        if name.startswith("other"):
            assert not set(parts.rows(name).tolist()) & (a | b | x)
    assert public in (0, len(x))


def test_the_parts_are_the_same_whatever_order_the_pictures_are_listed_in() -> None:
    of = pictures([23, 20], [30, 40])
    other, order = listed_otherwise(of)
    first, second = (split_pictures(each, Partition(per_class=8, public=21)) for each in (of, other))
    for name in PART_NAMES:
        assert {of.ids[row] for row in first.rows(name)} == {other.ids[row] for row in second.rows(name)}
    assert order.tolist() != sorted(order)
    changed = split_pictures(of, Partition(per_class=8, public=21, seed=1))
    assert set(changed.rows("A").tolist()) != set(first.rows("A").tolist())


def test_x_is_the_same_whatever_the_size_of_the_training_sets() -> None:
    of = pictures([60, 50], [80, 45])
    sizes = [split_pictures(of, Partition(per_class=size, public=40)) for size in (5, 10, 30)]
    assert len({each.rows("X").tobytes() for each in sizes}) == 1
    assert set(sizes[0].rows("A").tolist()) < set(sizes[1].rows("A").tolist()) < set(sizes[2].rows("A").tolist())
    all_left = [split_pictures(of, Partition(per_class=size, public=0, largest=30)) for size in (5, 10, 30)]
    assert len({each.rows("X").tobytes() for each in all_left}) == 1
    assert len(all_left[0].rows("X")) == 80 + 45 - 5


def test_a_class_with_fewer_pictures_for_x_is_made_up_for_by_the_others() -> None:
    of = pictures([10, 10, 10], [3, 30, 30])
    assert per_class(of, split_pictures(of, Partition(per_class=5, public=40)).rows("X")) == [3, 19, 18]


def test_pictures_without_any_box_are_all_attacked() -> None:
    of = pictures([0, 0], [20, 20])
    parts = split_pictures(of, Partition(per_class=4, public=8))
    assert parts.rows("A").tolist() == parts.rows_to_attack("A").tolist()
    assert not set(parts.rows("A").tolist()) & set(parts.rows("B").tolist())


def test_the_attacked_are_as_many_of_each_class() -> None:
    of = pictures([40, 40, 6], [40, 40, 40])
    parts = split_pictures(of, Partition(per_class=20, public=9, attacked=11))
    assert per_class(of, parts.rows_to_attack("B")) == [4, 4, 3]
    assert set(parts.rows_to_attack("B").tolist()) < set(parts.rows("B").tolist())


def test_validation_is_what_is_left_over_at_most_a_fifth() -> None:
    of = pictures([10, 10], [40, 40])
    assert per_class(of, split_pictures(of, Partition(per_class=5, public=10)).rows("validation")) == [10, 10]
    left = split_pictures(of, Partition(per_class=5, public=56))
    assert per_class(of, left.rows("validation")) == [2, 2]
    none = split_pictures(of, Partition(per_class=5, public=0))
    with pytest.raises(DatasetError, match="no images remain for validation; use fewer in X"):
        none.rows("validation")
    assert per_class(of, split_pictures(of, Partition(per_class=5, public=0, validation=6)).rows("validation")) == [
        3,
        3,
    ]


@pytest.mark.parametrize(
    ("partition", "says"),
    [
        (Partition(per_class=18), "class 'b' has 4 boxed images and 15 others, too few for 18 in A and 18 in B; "),
        (Partition(per_class=5, public=99), r"X \(public\) is 99; with training sets of 5 per class, only 42 images"),
        (Partition(per_class=5, public=1, validation=44), "validation is 44; with training sets of 5 per class, only"),
    ],
)
def test_too_few_pictures_are_said_in_one_line(partition: Partition, says: str) -> None:
    with pytest.raises(DatasetError, match=says):
        split_pictures(
            pictures([10, 4], [30, 15]) if partition.per_class == 5 else pictures([50, 4], [9, 15]), partition
        )


def test_a_part_that_is_not_there_is_missed_when_it_is_asked_for() -> None:
    parts = split_pictures(pictures([20], [0]), Partition(per_class=7, public=3))
    with pytest.raises(DatasetError, match=r"too few images for other A of 7 per class next to A, B and X; use few"):
        parts.rows("other A")
    assert len(parts.rows("validation")) == 3  # what was too little for others
    with pytest.raises(ValueError, match="'X' cannot be attacked; expected one of A, B, other A, other B"):
        parts.rows_to_attack("X")
    with pytest.raises(ValueError, match="part is 'C'; it must be one of A, B, other A"):
        parts.rows("C")  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.data())
def test_equal_shares_are_equal_but_for_the_classes_that_have_less(sizes: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, sum(sizes)))
    shares = equal_shares(np.array(sizes), count)
    assert count == shares.sum()
    assert (shares <= sizes).all()
    assert all(share == size or share >= shares.max() - 1 for share, size in zip(shares, sizes, strict=True))


def test_bad_values_are_refused_on_construction() -> None:
    with pytest.raises(ValueError, match="per_class is 0; it must be at least 1"):
        Partition(per_class=0)
    with pytest.raises(ValueError, match="part is 'C'; it must be one of A, B"):
        TrainingImages(Dataset("imagenet"), 0.0, Partition(), "C")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="correlation is 2"):
        TrainingImages(Dataset("imagenet"), 2.0, Partition(), "A")


def given_as(of: PicturesInMemory, words: Sequence[str]) -> PicturesInMemory:
    return PicturesInMemory(of.ids, of.labels, of.names, of.boxes, of.images, tuple(words))


def test_the_parts_that_a_table_gives_are_the_parts_whatever_their_sizes() -> None:
    of = pictures([12, 9], [20, 30])
    words = np.resize(["trained", "held out", "public", "public", "reference"], len(of.ids))
    parts = split_pictures(given_as(of, words), Partition(per_class=300, public=1, seed=3))
    for name, word in (("A", "trained"), ("B", "held out"), ("X", "public"), ("other A", "reference")):
        assert np.flatnonzero(words == word).tolist() == parts.rows(name).tolist()  # type: ignore[arg-type]
    assert parts.rows("other A").tolist() == parts.rows("other B").tolist()
    has_box = np.array([len(boxes) > 0 for boxes in of.boxes])
    assert np.flatnonzero((words == "trained") & has_box).tolist() == parts.rows_to_attack("A").tolist()
    few = split_pictures(given_as(of, words), Partition(attacked=2)).rows_to_attack("B")
    assert per_class(of, few) == [1, 1]
    assert set(few) <= set(np.flatnonzero((words == "held out") & has_box))
    with pytest.raises(DatasetError, match="none is for validation"):
        parts.rows("validation")


def test_a_part_that_a_table_does_not_give_is_missed_when_it_is_asked_for() -> None:
    of = pictures([12, 9], [20, 30])
    parts = split_pictures(given_as(of, np.resize(["trained", "public"], len(of.ids))), Partition())
    assert len(parts.rows("A"))
    with pytest.raises(DatasetError, match="the data have no images of part 'held out', which B requires"):
        parts.rows("B")


def with_copies(of: PicturesInMemory, copies: Mapping[int, int], words: Sequence[str] | None = None) -> BoxedPictures:
    """The pictures with the content of each value's picture in the place of its key's."""
    images = of.images.copy()
    for copy, original in copies.items():
        images[copy] = images[original]
    return PicturesInMemory(of.ids, of.labels, of.names, of.boxes, images, None if words is None else tuple(words))


def parts_of_rows(of: BoxedPictures, parts: Parts) -> list[set[str]]:
    """The parts that each picture is in."""
    found: list[set[str]] = [set() for _ in of.ids]
    for name, rows in parts.there.items():
        for row in rows:
            found[row].add(name)
    return found


@given(st.integers(0, 9), st.lists(st.integers(0, 99), min_size=2, max_size=12, unique=True))
def test_copies_are_in_one_part(seed: int, rows: list[int]) -> None:
    plain = pictures([30, 30], [40, 40])
    of = with_copies(plain, dict.fromkeys(rows[1:], rows[0]))
    parts = split_pictures(of, Partition(per_class=12, public=20, validation=4, seed=seed))
    found = parts_of_rows(of, parts)
    assert all(found[row] == found[rows[0]] for row in rows)
    assert len(found[rows[0]]) <= 1
    attacked = np.concatenate([parts.rows_to_attack(name) for name in TRAINED])
    assert np.isin(rows, attacked).sum() <= 1


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("trained", "held out"), "A"),
        (("public", "trained"), "A"),
        (("reference", "trained"), "A"),
        (("reference", "held out"), "other A"),
        (("held out", "public"), "X"),
    ],
)
def test_copies_have_the_first_part_that_a_table_gives(words: tuple[str, str], part: PartName) -> None:
    plain = pictures([12, 9], [20, 30])
    given_words = np.resize(["trained", "held out", "public", "public", "reference"], len(plain.ids))
    given_words[[10, 11]] = words
    of = with_copies(plain, {11: 10}, given_words.tolist())
    found = parts_of_rows(of, split_pictures(of, Partition()))
    assert found[10] == found[11] == ({"other A", "other B"} if part == "other A" else {part})


# The SHA-256 of the parts before copies were looked for.
UNCHANGED = "1762ba8efab0f0d9dcd9cbc570905ea38e83e97dde86c6a598a39a2a33ddc858"


def test_parts_without_copies_are_unchanged() -> None:
    parts = split_pictures(pictures([23, 20, 31], [30, 40, 22]), Partition(per_class=8, public=24, validation=6))
    listed = [parts.rows(name).tolist() for name in PART_NAMES]
    listed += [parts.rows_to_attack(name).tolist() for name in TRAINED]
    assert hashlib.sha256(json.dumps(listed).encode()).hexdigest() == UNCHANGED
