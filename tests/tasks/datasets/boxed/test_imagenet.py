"""Unpacked ImageNet: the usual layouts give the same images, and errors have one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tasks.datasets import catalog, pictures
from tasks.datasets.boxed import picture_files
from tasks.datasets.boxed.crops import evaluation_pictures, windows
from tasks.datasets.boxed.partition import Partition, split_pictures
from tasks.datasets.boxed.picture_files import PictureFiles
from tasks.datasets.catalog import load, load_with_boxes, pin
from tasks.datasets.dataset import Dataset, DatasetError, UnknownDataset
from tests.tasks.datasets.boxed import trees
from tests.tasks.datasets.boxed.trees import FISH, SHARK, VAL, box, jpeg, picture, saved, xml


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_boxed", {})
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ENGRAM_DATA", raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return trees.imagenet(tmp_path / "ILSVRC2012")


def opened_images(folder: Path) -> PictureFiles:
    pictures = load_with_boxes(pin(Dataset(f"imagenet:{folder}")))
    assert isinstance(pictures, PictureFiles)
    return pictures


def test_images_labels_boxes_and_sizes_match_the_files(folder: Path) -> None:
    saved(folder / "Annotation" / FISH / f"{FISH}_999.xml", xml(FISH, [box(1)], (50, 50)))  # without an image
    pictures = opened_images(folder)
    assert pictures.names == (FISH, SHARK)
    assert len(pictures.ids) == 22
    assert pictures.given_parts is None
    assert list(pictures.ids) == sorted(pictures.ids)
    assert not pictures.is_validation.any()
    for row, name in enumerate(pictures.ids):
        label, number = name.split("_")
        assert label == pictures.names[pictures.labels[row]]
        assert list(picture(int(number)).shape[:2]) == pictures.sizes[row].tolist()
        x_start, top, last, lowest = box(int(number))
        boxed = int(number) in trees.TRAIN[label][1]
        assert ([[x_start, top, last + 1, lowest + 1]] if boxed else []) == pictures.boxes[row].tolist()
        difference = pictures.picture(row).astype(int) - picture(int(number))
        assert np.abs(difference).mean() < 3
    assert [len(boxes) for boxes in pictures.boxes] == [len(pictures.boxes[row]) for row in range(22)]


LAYOUTS = [
    ("train", "Annotation/{0}"),
    ("train", "Annotation/{0}/Annotation/{0}"),
    ("train", "ILSVRC2012_bbox_train_v2/{0}"),
    ("ILSVRC2012_img_train", "Annotations/{0}"),
    ("Data/CLS-LOC/train", "Annotations/CLS-LOC/train/{0}"),
    ("ILSVRC/Data/CLS-LOC/train", "ILSVRC/Annotations/CLS-LOC/train/{0}"),
]


def test_usual_layouts_are_the_same_data_set(tmp_path: Path) -> None:
    digests = set()
    for number, layout in enumerate(LAYOUTS):
        digests.add(pin(Dataset(f"imagenet:{trees.imagenet(tmp_path / str(number), *layout)}")).digest)
    assert len(digests) == 1


def solution(folder: Path) -> None:
    rows = "".join(f"ILSVRC2012_val_{number:08d},{name} 1 2 3 4\n" for number, name in VAL.items())
    saved(folder / "LOC_val_solution.csv", "ImageId,PredictionString\n" + rows)


def annotated(folder: Path) -> None:
    for number, name in VAL.items():
        path = folder / "Annotations" / "CLS-LOC" / "val" / f"ILSVRC2012_val_{number:08d}.xml"
        saved(path, xml(name, [box(3)], picture(number).shape[:2]))


def development_kit(folder: Path) -> None:
    from scipy.io import savemat

    kinds = [("ILSVRC2012_ID", "f8"), ("WNID", object), ("words", object), ("num_children", "f8")]
    rows = [(1, SHARK, "shark", 0), (2, FISH, "fish", 0), (1001, "n01483522", "both", 2)]
    synsets = np.array([tuple(row) for row in rows], kinds)[:, None]
    data_folder = folder / "ILSVRC2012_devkit_t12" / "data"
    saved(data_folder / "ILSVRC2012_validation_ground_truth.txt", "1\n2\n1\n2\n")
    savemat(data_folder / "meta.mat", {"synsets": synsets})


@pytest.mark.parametrize("add_classes", [solution, annotated, development_kit, None])
def test_validation_images_are_marked(folder: Path, add_classes: Callable[[Path], None] | None) -> None:
    trees.validation(folder, "val" if add_classes else "val/{0}")
    if add_classes:
        add_classes(folder)
    pictures = opened_images(folder)
    rows = np.flatnonzero(pictures.is_validation)
    assert [f"ILSVRC2012_val_{number:08d}" for number in VAL] == [pictures.ids[row] for row in rows]
    assert list(VAL.values()) == [pictures.names[label] for label in pictures.labels[rows]]
    parts = split_pictures(pictures, Partition(per_class=3, public=6))
    assert rows.tolist() == parts.rows("validation").tolist()
    halved = split_pictures(pictures, Partition(per_class=3, public=6, validation=2)).rows("validation")
    assert np.bincount(pictures.labels[halved]).tolist() == [1, 1]
    assert set(halved.tolist()) < set(rows.tolist())


def test_validation_without_classes_is_refused(folder: Path) -> None:
    trees.validation(folder, "val")
    with pytest.raises(DatasetError, match=r"00000001\.JPEG is not in LOC_val_solution\.csv, its annotations or ILSV"):
        opened_images(folder)


def test_release_in_engram_data_has_own_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DatasetError, match=r"data set 'imagenet' not found: ENGRAM_DATA is not set; .*or unpack ILSVRC2012 from h"
    ):
        pin(Dataset("imagenet"))
    monkeypatch.setenv("ENGRAM_DATA", str(folder.parent))
    assert pin(Dataset("imagenet")).digest == pin(Dataset(f"imagenet:{folder}")).digest
    assert len(load_with_boxes(pin(Dataset("imagenet"))).ids) == 22
    assert pin(Dataset("imagenet:ILSVRC2012")).name == f"imagenet:{folder}"


def test_cmyk_grey_and_png_files_become_rgb(folder: Path) -> None:
    images_folder = folder / "train" / FISH
    saved(images_folder / f"{FISH}_0.JPEG", jpeg(picture(0), "CMYK"))
    saved(images_folder / f"{FISH}_1.JPEG", jpeg(picture(1), kind="PNG"))
    saved(images_folder / f"{FISH}_2.JPEG", jpeg(picture(2), "L"))
    pictures = opened_images(folder)
    for number, off in ((0, 4), (1, 0)):
        image = pictures.picture(number)
        assert np.abs(image.astype(int) - picture(number)).mean() <= off
    grey = pictures.picture(2)
    assert grey.shape == (*picture(2).shape[:2], 3)
    assert (grey == grey[..., :1]).all()


def test_exif_orientation_is_ignored(folder: Path) -> None:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    saved(folder / "train" / FISH / f"{FISH}_0.JPEG", jpeg(picture(0), exif=exif.tobytes()))
    pictures = opened_images(folder)
    assert picture(0).shape == pictures.picture(0).shape == (*pictures.sizes[0], 3)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (f"train/{FISH}/{FISH}_0.JPEG", "text", f"{FISH}_0.JPEG cannot be read as an image: cannot identify image"),
        (
            f"Annotation/{FISH}/{FISH}_0.xml",
            "<annotation>",
            f"{FISH}_0.xml is not an annotation of boxes: no element found",
        ),
        (
            f"Annotation/{FISH}/{FISH}_0.xml",
            '<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>',
            f"{FISH}_0.xml is not an annotation of boxes: it declares a document type",
        ),
        (f"train/{FISH}/notes.txt", "", r"notes.txt is unexpected; .* must contain only .jpeg, .jpg, .png"),
        (
            "train/cats/1.JPEG",
            "",
            r"cats is not a class of ImageNet; .*train must contain only folders such as n01440764",
        ),
        (f"train/{SHARK}/{FISH}_1.JPEG", jpeg(picture(3)), f"has two images named {FISH}_1: train/{FISH}"),
    ],
)
def test_invalid_files_are_refused(folder: Path, name: str, content: bytes | str, message: str) -> None:
    saved(folder / name, content)
    with pytest.raises(DatasetError, match=message) as error:
        opened_images(folder)
    assert "\n" not in str(error.value)


def test_class_without_images_is_refused(folder: Path) -> None:
    (folder / "train" / "n02000000").mkdir()
    with pytest.raises(DatasetError, match="n02000000 has no images"):
        opened_images(folder)


def test_folder_without_imagenet_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no train/n01440764 and further classes in "):
        pin(Dataset(f"imagenet:{tmp_path}"))
    with pytest.raises(UnknownDataset, match="did you mean 'imagenet'"):
        pin(Dataset("imagnet"))
    with pytest.raises(UnknownDataset, match="has the option #8x8; boxed pictures have no shape"):
        pin(Dataset(f"imagenet:{folder}#8x8"))


def test_boxed_images_cannot_be_loaded_as_images(folder: Path) -> None:
    with pytest.raises(
        DatasetError, match="contains boxed images of different sizes; for images of one size, use folder"
    ):
        load(pin(Dataset(f"imagenet:{folder}")))


def test_files_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pin(Dataset(f"imagenet:{folder}"))
    expected = [boxes.tolist() for boxes in opened_images(folder).boxes]
    monkeypatch.setattr(catalog, "_boxed", {})
    saved(folder / "Annotation" / FISH / f"{FISH}_1.xml", "damaged, but nobody reads it")
    pictures = load_with_boxes(data)
    assert expected == [boxes.tolist() for boxes in pictures.boxes]
    path = picture_files.index_path(data.digest)
    path.write_bytes(path.read_bytes()[:-100])
    monkeypatch.setattr(catalog, "_boxed", {})
    with pytest.raises(DatasetError, match="is not an annotation of boxes"):
        load_with_boxes(data)


def test_digest_is_independent_of_batch_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_dataset = pin(Dataset(f"imagenet:{folder}"))
    monkeypatch.setattr(picture_files, "BATCH", 5)
    monkeypatch.setattr(pictures, "TOGETHER", 3)
    assert full_dataset == pin(Dataset(f"imagenet:{folder}"))


def test_unwritable_cache_costs_only_time(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "file" / "below"))
    assert len(opened_images(folder).ids) == 22


def test_changed_image_is_detected(folder: Path) -> None:
    data = pin(Dataset(f"imagenet:{folder}"))
    pictures = load_with_boxes(data)
    saved(folder / "train" / FISH / f"{FISH}_1.JPEG", jpeg(picture(2)))
    with pytest.raises(DatasetError, match=r"_1\.JPEG has changed since the data set was opened; start the run again"):
        pictures.picture(1)


def test_remembered_digest_does_not_hide_new_files(folder: Path) -> None:
    digests: dict[str, str] = {}
    first = pin(Dataset(f"imagenet:{folder}"), digests)
    assert pin(Dataset(f"imagenet:{folder}"), digests) == first
    assert len(digests) == 1
    saved(folder / "Annotation" / SHARK / f"{SHARK}_100.xml", xml(SHARK, [box(2)], picture(100).shape[:2]))
    second = pin(Dataset(f"imagenet:{folder}"), digests)
    saved(folder / "train" / SHARK / f"{SHARK}_200.JPEG", jpeg(picture(200)))
    assert len({first, second, pin(Dataset(f"imagenet:{folder}"), digests)}) == 3


def test_changed_box_is_detected(folder: Path) -> None:
    digests: dict[str, str] = {}
    first = pin(Dataset(f"imagenet:{folder}"), digests)
    path = folder / "Annotation" / FISH / f"{FISH}_1.xml"
    with path.open("r+") as file:  # in place, so that the folder's time stays
        file.write(path.read_text().replace("<xmin>", "<xmin> "))
    assert first == pin(Dataset(f"imagenet:{folder}"), digests)
    assert len(digests) == 2  # read again, and the same


def test_same_images_are_found_in_another_layout(tmp_path: Path) -> None:
    first, second = (
        pin(Dataset(f"imagenet:{trees.imagenet(tmp_path / str(number), *layout)}"))
        for number, layout in ((0, LAYOUTS[0]), (1, LAYOUTS[-1]))
    )
    assert first.digest == second.digest
    for dataset in (first, second, first):
        assert load_with_boxes(dataset).picture(0).shape[2] == 3
        catalog._boxed.clear()


def test_digest_covers_images_boxes_and_labels(folder: Path) -> None:
    first = pin(Dataset(f"imagenet:{folder}")).digest
    path = folder / "Annotation" / FISH / f"{FISH}_1.xml"
    original = path.read_text()
    saved(path, xml(FISH, [box(2)], picture(1).shape[:2]))
    assert first != pin(Dataset(f"imagenet:{folder}")).digest
    saved(path, original)
    assert first == pin(Dataset(f"imagenet:{folder}")).digest
    with pytest.raises(DatasetError, match="is not the one that was pinned"):
        load_with_boxes(Dataset(f"imagenet:{folder}", "abc"))


def test_periphery_crops_of_partitioned_images(folder: Path) -> None:
    pictures = opened_images(folder)
    parts = split_pictures(pictures, Partition(per_class=3, public=4))
    rows = np.concatenate([parts.rows_to_attack("A"), parts.rows_to_attack("B")])
    assert len(rows) == 10
    bounds, serves = windows(pictures, rows, "periphery", 10)
    assert serves.all()
    assert evaluation_pictures(pictures, rows, 16, bounds).shape == (10, 16, 16, 3)
