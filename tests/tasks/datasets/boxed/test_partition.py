"""A seed partitions boxed images into disjoint sets, equal per class and independent of the listing order."""

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
    """Images of each class: `boxed` with a box and `unboxed` without."""
    has_box = np.concatenate([np.arange(b + u) < b for b, u in zip(boxed, unboxed, strict=True)])
    labels = np.repeat(np.arange(len(boxed)), [b + u for b, u in zip(boxed, unboxed, strict=True)])
    mixed = np.random.default_rng(1).permutation(len(labels))
    return PicturesInMemory(
        tuple(f"id{row:05d}" for row in range(len(labels))),
        labels[mixed],
        tuple("abcdefgh"[: len(boxed)]),
        tuple(BOX if has else NO_BOXES for has in has_box[mixed]),
        distinct_images(len(labels)),
    )


def distinct_images(count: int) -> np.ndarray:
    return np.stack([np.arange(count) % 256, np.arange(count) // 256, np.zeros(count)], axis=1)[:, None, None].astype(
        np.uint8
    )


def shuffle_rows(images: PicturesInMemory) -> tuple[PicturesInMemory, np.ndarray]:
    order = np.random.default_rng(2).permutation(len(images.ids))
    return PicturesInMemory(
        tuple(images.ids[row] for row in order),
        images.labels[order],
        images.names,
        tuple(images.boxes[row] for row in order),
        images.images[order],
    ), order


def per_class(images: BoxedPictures, rows: np.ndarray) -> list[int]:
    result = []
    for count in np.bincount(images.labels[rows], minlength=len(images.names)):
        result.append(int(count))
    return result


def test_parts_are_disjoint_and_equal_per_class() -> None:
    images = pictures([23, 20, 31], [30, 40, 22])
    parts = split_pictures(images, Partition(per_class=8, public=24, validation=6))
    rows = [parts.rows(name) for name in PART_NAMES]
    assert len(np.concatenate(rows)) == len(np.unique(np.concatenate(rows)))
    assert [per_class(images, part) for part in rows] == [[8] * 3] * 4 + [[8] * 3, [2] * 3]
    assert all((np.diff(part) > 0).all() for part in rows)


def test_boxed_images_are_halved_and_attacked() -> None:
    images = pictures([8, 5], [30, 30])
    parts = split_pictures(images, Partition(per_class=6, public=20))
    has_box = np.array([len(boxes) > 0 for boxes in images.boxes])
    for name in ("A", "B"):
        assert per_class(images, parts.rows_to_attack(name)) == [4, 2]
        assert per_class(images, parts.rows(name)[~has_box[parts.rows(name)]]) == [2, 4]
        assert set(parts.rows_to_attack(name)) == set(parts.rows(name)[has_box[parts.rows(name)]])
    assert not has_box[parts.rows("X")].any()


def test_only_unboxed_images_are_shared_if_few() -> None:
    images = pictures([8, 8], [12, 40])  # the second class supplies the images of X
    has_box = np.array([len(boxes) > 0 for boxes in images.boxes])
    for size, shared in ((9, 0), (10, 0), (12, 4), (16, 12)):
        parts = split_pictures(images, Partition(per_class=size, public=10, largest=16))
        a = set(parts.rows("A")[images.labels[parts.rows("A")] == 0].tolist())
        b = set(parts.rows("B")[images.labels[parts.rows("B")] == 0].tolist())
        assert size == len(a)
        assert size == len(b)
        assert shared == len(a & b)
        assert not has_box[list(a & b)].any()
        assert not (a | b) & set(parts.rows("X").tolist())


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(0, 30),
    st.integers(0, 3),
)
def test_every_partition_follows_the_rules(classes: list[tuple[int, int]], size: int, public: int, seed: int) -> None:
    images = pictures([boxed for boxed, _ in classes], [unboxed for _, unboxed in classes])
    try:
        parts = split_pictures(images, Partition(per_class=size, public=public, seed=seed))
    except DatasetError:
        has_any = any(boxed for boxed, _ in classes)
        available = [b // 2 + u if has_any else (b + u) // 2 for b, u in classes]
        required = [2 * min(b // 2, size) + size - min(b // 2, size) if has_any else 2 * size for b, u in classes]
        spare = sum(b + u for b, u in classes) - sum(required)
        assert min(available) < size or spare < max(public, 1)
        return
    a = set(parts.rows("A").tolist())
    b = set(parts.rows("B").tolist())
    x = set(parts.rows("X").tolist())
    assert not x & (a | b)
    assert not set(parts.rows_to_attack("A").tolist()) & b
    assert not set(parts.rows_to_attack("B").tolist()) & a
    for name in TRAINED:
        if name in parts.missing_reasons:
            continue
        assert [size] * len(classes) == per_class(images, parts.rows(name))
        if name.startswith("other"):
            assert not set(parts.rows(name).tolist()) & (a | b | x)
    assert public in (0, len(x))


def test_parts_are_independent_of_listing_order() -> None:
    images = pictures([23, 20], [30, 40])
    shuffled, order = shuffle_rows(images)
    first = split_pictures(images, Partition(per_class=8, public=21))
    second = split_pictures(shuffled, Partition(per_class=8, public=21))
    for name in PART_NAMES:
        assert {images.ids[row] for row in first.rows(name)} == {shuffled.ids[row] for row in second.rows(name)}
    assert order.tolist() != sorted(order)
    changed = split_pictures(images, Partition(per_class=8, public=21, seed=1))
    assert set(changed.rows("A").tolist()) != set(first.rows("A").tolist())


def test_x_is_independent_of_training_set_size() -> None:
    images = pictures([60, 50], [80, 45])
    sizes = []
    for size in (5, 10, 30):
        sizes.append(split_pictures(images, Partition(per_class=size, public=40)))
    assert len({parts.rows("X").tobytes() for parts in sizes}) == 1
    assert set(sizes[0].rows("A").tolist()) < set(sizes[1].rows("A").tolist()) < set(sizes[2].rows("A").tolist())
    all_left = []
    for size in (5, 10, 30):
        all_left.append(split_pictures(images, Partition(per_class=size, public=0, largest=30)))
    assert len({parts.rows("X").tobytes() for parts in all_left}) == 1
    assert len(all_left[0].rows("X")) == 80 + 45 - 5


def test_other_classes_fill_up_x() -> None:
    images = pictures([10, 10, 10], [3, 30, 30])
    assert per_class(images, split_pictures(images, Partition(per_class=5, public=40)).rows("X")) == [3, 19, 18]


def test_images_without_boxes_are_all_attacked() -> None:
    images = pictures([0, 0], [20, 20])
    parts = split_pictures(images, Partition(per_class=4, public=8))
    assert parts.rows("A").tolist() == parts.rows_to_attack("A").tolist()
    assert not set(parts.rows("A").tolist()) & set(parts.rows("B").tolist())


def test_attacked_images_are_balanced_by_class() -> None:
    images = pictures([40, 40, 6], [40, 40, 40])
    parts = split_pictures(images, Partition(per_class=20, public=9, attacked=11))
    assert per_class(images, parts.rows_to_attack("B")) == [4, 4, 3]
    assert set(parts.rows_to_attack("B").tolist()) < set(parts.rows("B").tolist())


def test_validation_is_at_most_a_fifth_of_rest() -> None:
    images = pictures([10, 10], [40, 40])
    assert per_class(images, split_pictures(images, Partition(per_class=5, public=10)).rows("validation")) == [10, 10]
    large_x = split_pictures(images, Partition(per_class=5, public=56))
    assert per_class(images, large_x.rows("validation")) == [2, 2]
    none = split_pictures(images, Partition(per_class=5, public=0))
    with pytest.raises(DatasetError, match="no images remain for validation; use fewer in X"):
        none.rows("validation")
    assert per_class(
        images, split_pictures(images, Partition(per_class=5, public=0, validation=6)).rows("validation")
    ) == [
        3,
        3,
    ]


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (Partition(per_class=18), "class 'b' has 4 boxed images and 15 others, too few for 18 in A and 18 in B; "),
        (Partition(per_class=5, public=99), r"X \(public\) is 99; with training sets of 5 per class, only 42 images"),
        (Partition(per_class=5, public=1, validation=44), "validation is 44; with training sets of 5 per class, only"),
    ],
)
def test_too_few_images_are_refused(partition: Partition, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        split_pictures(
            pictures([10, 4], [30, 15]) if partition.per_class == 5 else pictures([50, 4], [9, 15]), partition
        )


def test_missing_part_is_refused_when_requested() -> None:
    parts = split_pictures(pictures([20], [0]), Partition(per_class=7, public=3))
    with pytest.raises(DatasetError, match=r"too few images for other A of 7 per class next to A, B and X; use few"):
        parts.rows("other A")
    assert len(parts.rows("validation")) == 3  # too few for the other parts
    with pytest.raises(ValueError, match="'X' cannot be attacked; expected one of A, B, other A, other B"):
        parts.rows_to_attack("X")
    with pytest.raises(ValueError, match="part is 'C'; it must be one of A, B, other A"):
        parts.rows("C")  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.data())
def test_equal_shares_fill_small_classes_first(sizes: list[int], data: st.DataObject) -> None:
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


def with_parts(images: PicturesInMemory, part_names: Sequence[str]) -> PicturesInMemory:
    return PicturesInMemory(images.ids, images.labels, images.names, images.boxes, images.images, tuple(part_names))


def test_tables_parts_are_kept() -> None:
    images = pictures([12, 9], [20, 30])
    words = np.resize(["trained", "held out", "public", "public", "reference"], len(images.ids))
    parts = split_pictures(with_parts(images, words), Partition(per_class=300, public=1, seed=3))
    for name, word in (("A", "trained"), ("B", "held out"), ("X", "public"), ("other A", "reference")):
        assert np.flatnonzero(words == word).tolist() == parts.rows(name).tolist()  # type: ignore[arg-type]
    assert parts.rows("other A").tolist() == parts.rows("other B").tolist()
    has_box = np.array([len(boxes) > 0 for boxes in images.boxes])
    assert np.flatnonzero((words == "trained") & has_box).tolist() == parts.rows_to_attack("A").tolist()
    few = split_pictures(with_parts(images, words), Partition(attacked=2)).rows_to_attack("B")
    assert per_class(images, few) == [1, 1]
    assert set(few) <= set(np.flatnonzero((words == "held out") & has_box))
    with pytest.raises(DatasetError, match="none is for validation"):
        parts.rows("validation")


def test_part_missing_in_table_is_refused_when_requested() -> None:
    images = pictures([12, 9], [20, 30])
    parts = split_pictures(with_parts(images, np.resize(["trained", "public"], len(images.ids))), Partition())
    assert len(parts.rows("A"))
    with pytest.raises(DatasetError, match="the data have no images of part 'held out', which B requires"):
        parts.rows("B")


def with_copies(
    original_set: PicturesInMemory, copies: Mapping[int, int], part_names: Sequence[str] | None = None
) -> BoxedPictures:
    """The images after each image `copy` received the pixels of its `original`."""
    images = original_set.images.copy()
    for copy, original in copies.items():
        images[copy] = images[original]
    return PicturesInMemory(
        original_set.ids,
        original_set.labels,
        original_set.names,
        original_set.boxes,
        images,
        None if part_names is None else tuple(part_names),
    )


def parts_of_rows(images: BoxedPictures, parts: Parts) -> list[set[str]]:
    """The parts that contain each image."""
    row_parts: list[set[str]] = [set() for _ in images.ids]
    for name, rows in parts.rows_by_part.items():
        for row in rows:
            row_parts[row].add(name)
    return row_parts


@given(st.integers(0, 9), st.lists(st.integers(0, 99), min_size=2, max_size=12, unique=True))
def test_copies_are_in_one_part(seed: int, rows: list[int]) -> None:
    plain = pictures([30, 30], [40, 40])
    images = with_copies(plain, dict.fromkeys(rows[1:], rows[0]))
    parts = split_pictures(images, Partition(per_class=12, public=20, validation=4, seed=seed))
    row_parts = parts_of_rows(images, parts)
    assert all(row_parts[row] == row_parts[rows[0]] for row in rows)
    assert len(row_parts[rows[0]]) <= 1
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
def test_copies_have_first_part_of_table(words: tuple[str, str], part: PartName) -> None:
    plain = pictures([12, 9], [20, 30])
    given_words = np.resize(["trained", "held out", "public", "public", "reference"], len(plain.ids))
    given_words[[10, 11]] = words
    images = with_copies(plain, {11: 10}, given_words.tolist())
    row_parts = parts_of_rows(images, split_pictures(images, Partition()))
    assert row_parts[10] == row_parts[11] == ({"other A", "other B"} if part == "other A" else {part})


# The SHA-256 of the parts before the code looked for copies.
UNCHANGED = "1762ba8efab0f0d9dcd9cbc570905ea38e83e97dde86c6a598a39a2a33ddc858"


def test_parts_without_copies_are_unchanged() -> None:
    parts = split_pictures(pictures([23, 20, 31], [30, 40, 22]), Partition(per_class=8, public=24, validation=6))
    part_rows = [parts.rows(name).tolist() for name in PART_NAMES]
    part_rows += [parts.rows_to_attack(name).tolist() for name in TRAINED]
    assert hashlib.sha256(json.dumps(part_rows).encode()).hexdigest() == UNCHANGED
