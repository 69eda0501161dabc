"""Labelled image files: digest, splits and refused files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tasks.datasets.catalog import is_embedded, load, pin
from tasks.datasets.dataset import Dataset, DatasetError, UnknownDataset
from tasks.datasets.labelled import RULE, Labelled, LabelledContent, labelled_source, read_labelled
from tasks.datasets.options import AS_THEY_ARE
from tasks.datasets.source import digest_of
from tasks.datasets.splits import spread
from tests.tasks.datasets import scans
from tests.tasks.datasets.scans import pixels, saved


def entries(folder: Path) -> tuple[Labelled, ...]:
    places = (("a", 1, "train"), ("b", 0, "test"), ("c", 0, "train"))
    return tuple(
        Labelled(saved(folder / f"{name}.png", pixels(label, number)), label, split)  # type: ignore[arg-type]
        for number, (name, label, split) in enumerate(places)
    )


def test_splits_keep_order_of_images_and_labels(tmp_path: Path) -> None:
    images = read_labelled(entries(tmp_path), ("cat", "dog"), AS_THEY_ARE).images()
    assert images.train_labels.tolist() == [1, 0]
    assert images.test_labels.tolist() == [0]
    assert [pixels(1, 0).tolist(), pixels(0, 2).tolist()] == images.train_images[..., 0].tolist()
    assert [pixels(0, 1).tolist()] == images.test_images[..., 0].tolist()
    assert images.classes == 2
    assert images.names == ("cat", "dog")
    assert images.train_labels.dtype == np.int64


def test_digest_covers_files_labels_splits_and_names(tmp_path: Path) -> None:
    files = entries(tmp_path)
    content = read_labelled(files, ("cat", "dog"), AS_THEY_ARE)
    description = []
    for file in files:
        description.append([hashlib.sha256(file.path.read_bytes()).hexdigest(), file.label, file.split])
    parts = [json.dumps(["cat", "dog"]).encode(), json.dumps(description).encode()]
    assert digest_of(RULE, parts) == content.digest()


@pytest.mark.parametrize("source", ["folder:scans", "folder:scans#6x5#grey", "list:list.csv"])
def test_copies_share_a_drawn_split(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["path,label"]
    for label in (0, 1):
        for number in range(12):
            image = pixels(label, number // 2)  # two consecutive copies of each image
            path = saved(tmp_path / "scans" / str(label) / f"{number:02}.png", image)
            lines.append(f"{path.relative_to(tmp_path)},{label}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    images = load(pin(Dataset(source)))
    train = {image.tobytes() for image in images.train_images}
    test = {image.tobytes() for image in images.test_images}
    assert not train & test
    assert len(images.train_images) + len(images.test_images) == 24
    if "grey" in source:
        assert scans.load_by_rows(pin(Dataset(source))).train.labels.tolist() == images.train_labels.tolist()


def test_class_of_only_copies_is_refused(tmp_path: Path) -> None:
    for label, count in ((0, 6), (1, 2)):
        for number in range(count):
            saved(tmp_path / "scans" / str(label) / f"{number}.png", pixels(label, number if label == 0 else 0))
    with pytest.raises(DatasetError, match=r"class '1' has no image in the train split.*copies of one image"):
        load(pin(Dataset(f"folder:{tmp_path / 'scans'}")))


def test_grey_image_among_coloured_becomes_rgb(tmp_path: Path) -> None:
    coloured = np.dstack([pixels(0, number) for number in (5, 6, 7)])
    grey, red = (saved(tmp_path / f"{number}.png", values) for number, values in enumerate((pixels(0, 0), coloured)))
    content = read_labelled((Labelled(grey, 0, "train"), Labelled(red, 0, "test")), ("cat",), AS_THEY_ARE)
    images = content.images()
    assert np.repeat(pixels(0, 0)[..., None], 3, axis=2).tolist() == images.train_images[0].tolist()
    assert coloured.tolist() == images.test_images[0].tolist()


def test_missing_and_invalid_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    for name, message in (("gone.png", "cannot be read: No such file"), ("text.png", "cannot be read as an image: ")):
        with pytest.raises(DatasetError) as caught:
            read_labelled((Labelled(tmp_path / name, 0, "train"),), ("cat",), AS_THEY_ARE)
        assert str(caught.value).startswith(f"{tmp_path / name} {message}")


def test_source_names_files_without_reading_them(tmp_path: Path) -> None:
    here = Labelled(tmp_path / "gone.png", 0, "train")
    gone = tmp_path / "list.csv"
    source = labelled_source([here], ("cat",), AS_THEY_ARE, (gone,))
    assert source.rule == RULE
    assert source.files == (gone, here.path)


def test_every_fifth_image_per_class_is_test() -> None:
    labels = [0, 1] * 6 + [0, 2]
    splits = list(spread(labels))
    of_class = {}
    for label in (0, 1, 2):
        of_class[label] = "".join(split[1] for row, split in enumerate(splits) if labels[row] == label)
    assert of_class == {0: "errrrer", 1: "errrre", 2: "e"}  # second letters of test and train


def test_content_keeps_its_images() -> None:
    picture = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    content = LabelledContent((Labelled(Path("a"), 0, "train"),), ("cat",), ("d",), (picture,))
    assert picture.tolist() == content.stack_split("train", 1)[0].tolist()
    assert content.stack_split("test", 1).shape == (0, 2, 3, 1)


def error_of(name: str) -> str:
    with pytest.raises(DatasetError) as caught:
        pin(Dataset(name))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_one_file_in_five_is_test(tmp_path: Path) -> None:
    images = load(pin(Dataset(f"folder:{scans.classes(tmp_path / 'scans')}")))
    assert images.names == ("cat", "dog")
    assert images.classes == 2
    assert images.shape == (6, 5, 1)
    test = [(0, 0), (0, 5), (1, 0), (1, 5)]
    train = [(label, number) for label in (0, 1) for number in range(1, 5)]
    for split, labels, expected in (
        (images.test_images, images.test_labels, test),
        (images.train_images, images.train_labels, train),
    ):
        pairs = sorted(zip(labels.tolist(), split[..., 0].tolist(), strict=True))
        assert pairs == sorted((label, pixels(label, number).tolist()) for label, number in expected)


def test_folders_train_and_test_are_the_splits(tmp_path: Path) -> None:
    scans.classes(tmp_path / "train", 3)
    scans.classes(tmp_path / "test", 2)
    images = load(pin(Dataset(f"folder:{tmp_path}")))
    assert sorted(images.train_labels) == [0, 0, 0, 1, 1, 1]
    assert sorted(images.test_labels) == [0, 0, 1, 1]
    assert pixels(1, 2).tolist() in images.train_images[images.train_labels == 1, ..., 0].tolist()


def test_digest_covers_content_labels_and_options(tmp_path: Path) -> None:
    folder = scans.classes(tmp_path / "scans")
    name = f"folder:{folder}"
    first = pin(Dataset(name))
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert first.digest == pin(Dataset(f"folder:{copy}")).digest
    options = []
    for option in ("#6x5", "#8x8", "#rgb", "#8x8#rgb"):
        options.append(pin(Dataset(name + option)).digest)
    assert len({first.digest, *options}) == 5
    assert options[3] == pin(Dataset(name + "#rgb#8x8")).digest
    (copy / "dog" / "03.png").rename(copy / "cat" / "03b.png")
    assert first.digest != pin(Dataset(f"folder:{copy}")).digest


def test_remembered_digest_is_reused_until_files_change(tmp_path: Path) -> None:
    name = f"folder:{scans.classes(tmp_path / 'scans')}"
    digests: dict[str, str] = {}
    pin(Dataset(name), digests)
    digests = dict.fromkeys(digests, "ab" * 32)
    assert pin(Dataset(name), digests).digest == "ab" * 32
    assert pin(Dataset(f"{name}#rgb"), digests).digest != "ab" * 32
    scans.saved(tmp_path / "scans" / "dog" / "06.png", pixels(1, 6))
    assert pin(Dataset(name), digests).digest != "ab" * 32


def test_images_of_any_size_are_resized(tmp_path: Path) -> None:
    folder = scans.classes(tmp_path / "scans")
    odd = scans.saved(folder / "dog" / "03.png", pixels(1, 3, 9, 7))
    message = error_of(f"folder:{folder}")
    assert (
        f"{odd} is 9 x 7, 00.png 6 x 5; all images must have one size: add #64x64, or another height x width" in message
    )
    images = load(pin(Dataset(f"folder:{folder}#8x10#rgb")))
    assert images.shape == (8, 10, 3)
    expected = Image.fromarray(pixels(1, 3, 9, 7)).resize((10, 8), Image.Resampling.BILINEAR)
    assert np.asarray(expected).tolist() in images.train_images[images.train_labels == 1, ..., 1].tolist()


@pytest.mark.parametrize("names", [("Train", "Val"), ("training", "validation"), ("train", "test")])
def test_splits_have_several_names(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        scans.classes(tmp_path / name, 2)
    images = load(pin(Dataset(f"folder:{tmp_path}")))
    assert sorted(images.train_labels) == [0, 0, 1, 1]
    assert sorted(images.test_labels) == [0, 0, 1, 1]


def test_two_folders_of_one_split_are_refused(tmp_path: Path) -> None:
    for name in ("train", "test", "testing"):
        scans.classes(tmp_path / name, 2)
    assert error_of(f"folder:{tmp_path}") == f"{tmp_path} has the folders 'test' and 'testing'; keep one of them"


def test_hidden_files_are_ignored(tmp_path: Path) -> None:
    folder = scans.classes(tmp_path / "scans")
    before = pin(Dataset(f"folder:{folder}")).digest
    for name in (".DS_Store", "dog/Thumbs.db", "cat/._00.png", "README.txt"):
        (folder / name).write_text("litter")
    assert before == pin(Dataset(f"folder:{folder}")).digest


def test_invalid_folder_names_the_file(tmp_path: Path) -> None:
    valid = scans.classes(tmp_path / "whole")

    def changed(name: str) -> Path:
        return Path(shutil.copytree(valid, tmp_path / name))

    assert error_of(f"folder:{tmp_path / 'gone'}") == f"no folder {tmp_path / 'gone'}"
    folder = changed("text")
    (folder / "dog" / "notes.txt").write_text("a dog")
    assert f"{folder}/dog/notes.txt is not an image; the folder of a class must contain" in error_of(f"folder:{folder}")
    folder = changed("broken")
    (folder / "dog" / "02.png").write_bytes((folder / "dog" / "02.png").read_bytes()[:60])
    assert f"{folder}/dog/02.png cannot be read as an image: " in error_of(f"folder:{folder}")
    folder = changed("empty")
    (folder / "bird").mkdir()
    assert error_of(f"folder:{folder}") == f"{folder}/bird is empty; a class must have images"
    folder = changed("single")
    scans.saved(folder / "bird" / "1.png", pixels(0, 0))
    message = (
        f"{folder}: class 'bird' has no image in the train split, and 1 in total; each class must be in both splits"
    )
    assert message == error_of(f"folder:{folder}")
    folder = changed("deep")
    (folder / "dog" / "more").mkdir()
    assert f"{folder}/dog/more is a folder inside a class" in error_of(f"folder:{folder}")
    folder = changed("pipe")
    os.mkfifo(folder / "dog" / "endless.png")
    assert f"{folder}/dog/endless.png is not a file" in error_of(f"folder:{folder}")
    folder = changed("loose")
    scans.saved(folder / "1.png", pixels(0, 0))
    assert f"{folder}/1.png belongs to no class" in error_of(f"folder:{folder}")
    (tmp_path / "bare").mkdir()
    assert "has no sub-folders; it must have one per class" in error_of(f"folder:{tmp_path / 'bare'}")


def test_class_must_be_in_both_splits(tmp_path: Path) -> None:
    scans.classes(tmp_path / "train")
    assert (
        error_of(f"folder:{tmp_path}") == f"{tmp_path} has a folder 'train', but no 'test'; it must have both or none"
    )
    scans.classes(tmp_path / "test")
    shutil.rmtree(tmp_path / "test" / "dog")
    assert "class 'dog' has no image in the test split, and 6 in total" in error_of(f"folder:{tmp_path}")


def test_options_apply_to_every_set() -> None:
    small = load(pin(Dataset("digits#14x14#rgb")))
    assert small.shape == (14, 14, 3)
    assert small.classes == 10
    assert is_embedded("digits#14x14")
    assert not is_embedded("folder:digits")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "digits#gray",
            "data set 'digits' has no option #gray; the options are #HEIGHTxWIDTH, #grey and #rgb, #bits9 to #bits16, "
            "and #inverted10, "
            "#mislabelled10 and #duplicated10 (or another number); did you mean #grey?",
        ),
        ("digits#0x5", "data set 'digits' has no option #0x5; the options are #HEIGHTxWIDTH, #grey and #rgb"),
        ("folder:nowhere#64", "data set 'folder:nowhere' has no option #64; the options are"),
        ("digits#5x5#6x6", "data set 'digits#5x5' has two sizes, #5x5 and #6x6; keep one"),
        ("digits#grey#rgb", "has two colours; keep one of #grey and #rgb"),
        ("folder:nowhere#bits8", "has the option #bits8; it must be #bits9 to #bits16"),
        ("folder:nowhere#bits12#bits10", "has two depths, #bits12 and #bits10; keep one"),
        ("digits#bits12", "has the option #bits12; it is for folder:, list:, parquet:, webdataset:, hf:, boxed:"),
        ("folder:", "data set 'folder:' has no path; write it as folder:PATH"),
        ("digit", "unknown data set 'digit'; did you mean 'digits'?"),
    ],
)
def test_invalid_names_are_user_errors(name: str, message: str) -> None:
    with pytest.raises(UnknownDataset) as caught:
        pin(Dataset(name))
    assert message in str(caught.value)


def test_path_may_contain_hash_and_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = scans.classes(tmp_path / "set#1@home")
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    pinned = pin(Dataset.parse("folder:set#1@home#8x8"))
    assert pinned.name == f"folder:{folder}#8x8"
    assert pinned == Dataset.parse(str(pinned))
    assert load(pinned).shape == (8, 8, 1)
