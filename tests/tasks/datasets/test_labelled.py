"""Picture files with labels: their digest, their splits, and what is refused of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from tasks.datasets.content import digest_of
from tasks.datasets.dataset import DatasetError
from tasks.datasets.labelled import Labelled, LabelledContent, check_classes, read, source, spread
from tasks.datasets.options import AS_THEY_ARE, Options
from tests.tasks.datasets.scans import pixels, saved


def entries(folder: Path) -> tuple[Labelled, ...]:
    places = (("a", 1, "train"), ("b", 0, "test"), ("c", 0, "train"))
    return tuple(
        Labelled(saved(folder / f"{name}.png", pixels(label, at)), label, split)  # type: ignore[arg-type]
        for at, (name, label, split) in enumerate(places)
    )


def test_the_splits_have_their_pictures_and_labels_in_the_order_given(tmp_path: Path) -> None:
    images = read(entries(tmp_path), ("cat", "dog"), AS_THEY_ARE).images()
    assert ([1, 0], [0]) == (images.train_labels.tolist(), images.test_labels.tolist())
    assert [pixels(1, 0).tolist(), pixels(0, 2).tolist()] == images.train_images[..., 0].tolist()
    assert [pixels(0, 1).tolist()] == images.test_images[..., 0].tolist()
    assert (2, ("cat", "dog"), np.int64) == (images.classes, images.names, images.train_labels.dtype)


def test_the_digest_is_of_files_labels_splits_and_names(tmp_path: Path) -> None:
    chosen = entries(tmp_path)
    content = read(chosen, ("cat", "dog"), AS_THEY_ARE)
    told = [[hashlib.sha256(each.path.read_bytes()).hexdigest(), each.label, each.split] for each in chosen]
    parts = [json.dumps(["cat", "dog"]).encode(), json.dumps(told).encode()]
    assert digest_of("labelled pictures 1", parts) == content.digest()


def test_grey_among_coloured_pictures_is_repeated(tmp_path: Path) -> None:
    coloured = np.dstack([pixels(0, at) for at in (5, 6, 7)])
    grey, red = (saved(tmp_path / f"{at}.png", each) for at, each in enumerate((pixels(0, 0), coloured)))
    content = read((Labelled(grey, 0, "train"), Labelled(red, 0, "test")), ("cat",), AS_THEY_ARE)
    images = content.images()
    assert np.repeat(pixels(0, 0)[..., None], 3, axis=2).tolist() == images.train_images[0].tolist()
    assert coloured.tolist() == images.test_images[0].tolist()


def test_pictures_of_two_sizes_are_refused_by_name_unless_a_size_is_asked_for(tmp_path: Path) -> None:
    sizes = ((6, 5), (6, 5), (7, 4))
    paths = [saved(tmp_path / f"{at}.png", pixels(0, at, *size)) for at, size in enumerate(sizes)]
    chosen = tuple(Labelled(path, 0, "train") for path in paths)
    with pytest.raises(DatasetError) as caught:
        read(chosen, ("cat",), AS_THEY_ARE)
    assert str(caught.value).startswith(f"{paths[2]} is 7 x 4, 0.png 6 x 5; all must be of one size: add #64x64")
    assert {(4, 4, 1)} == {picture.shape for picture in read(chosen, ("cat",), Options((4, 4))).pictures}


def test_a_file_that_has_gone_or_is_no_picture_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    for name, says in (("gone.png", "cannot be read: No such file"), ("text.png", "cannot be read as a picture: ")):
        with pytest.raises(DatasetError) as caught:
            read((Labelled(tmp_path / name, 0, "train"),), ("cat",), AS_THEY_ARE)
        assert str(caught.value).startswith(f"{tmp_path / name} {says}")


def test_a_source_names_all_files_and_reads_none_of_them(tmp_path: Path) -> None:
    here, gone = Labelled(tmp_path / "gone.png", 0, "train"), tmp_path / "list.csv"
    found = source([here], ("cat",), AS_THEY_ARE, (gone,))
    assert ("labelled pictures 1", (gone, here.path)) == (found.rule, found.files)


def test_of_every_class_the_first_the_sixth_and_the_eleventh_are_for_testing() -> None:
    labels = [0, 1] * 6 + [0, 2]
    found = list(spread(labels))
    of_class = {label: "".join(each[1] for at, each in enumerate(found) if labels[at] == label) for label in (0, 1, 2)}
    assert {0: "errrrer", 1: "errrre", 2: "e"} == of_class  # test and train by their second letters


def test_a_class_without_a_picture_in_a_split_is_named_with_how_many_it_has(tmp_path: Path) -> None:
    def lists(*splits: str) -> list[Labelled]:
        return [Labelled(tmp_path, 1, split) for split in splits]  # type: ignore[arg-type]

    whole = [Labelled(tmp_path, 0, "train"), Labelled(tmp_path, 0, "test")]
    check_classes([*whole, *lists("train", "test")], ("cat", "dog"), tmp_path)
    for splits, missing in ((("train", "train"), "test"), (("test",), "train"), ((), "train")):
        with pytest.raises(DatasetError) as caught:
            check_classes([*whole, *lists(*splits)], ("cat", "dog"), tmp_path)
        says = f"{tmp_path}: class 'dog' has no picture in the {missing} split, and {len(splits)} in all"
        assert str(caught.value).startswith(says)


def test_content_is_what_was_given() -> None:
    picture = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    content = LabelledContent((Labelled(Path("a"), 0, "train"),), ("cat",), ("d",), (picture,))
    assert picture.tolist() == content.stack_split("train", 1)[0].tolist()
    assert (0, 2, 3, 1) == content.stack_split("test", 1).shape
