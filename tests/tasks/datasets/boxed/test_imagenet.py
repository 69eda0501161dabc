"""ImageNet as it is unpacked: the usual layouts give the same pictures, and what is wrong is said in one line."""

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


def given(folder: Path) -> PictureFiles:
    pictures = load_with_boxes(pin(Dataset(f"imagenet:{folder}")))
    assert isinstance(pictures, PictureFiles)
    return pictures


def test_pictures_labels_boxes_and_sizes_are_those_of_the_files(folder: Path) -> None:
    saved(folder / "Annotation" / FISH / f"{FISH}_999.xml", xml(FISH, [box(1)], (50, 50)))  # without a picture
    pictures = given(folder)
    assert (pictures.names, len(pictures.ids), pictures.given_parts) == ((FISH, SHARK), 22, None)
    assert list(pictures.ids) == sorted(pictures.ids)
    assert not pictures.is_validation.any()
    for row, name in enumerate(pictures.ids):
        label, number = name.split("_")
        assert label == pictures.names[pictures.labels[row]]
        assert list(picture(int(number)).shape[:2]) == pictures.sizes[row].tolist()
        left, top, last, lowest = box(int(number))
        boxed = int(number) in trees.TRAIN[label][1]
        assert ([[left, top, last + 1, lowest + 1]] if boxed else []) == pictures.boxes[row].tolist()
        difference = pictures.picture(row).astype(int) - picture(int(number))
        assert np.abs(difference).mean() < 3
    assert [len(of) for of in pictures.boxes] == [len(pictures.boxes[row]) for row in range(22)]


LAYOUTS = [
    ("train", "Annotation/{0}"),
    ("train", "Annotation/{0}/Annotation/{0}"),
    ("train", "ILSVRC2012_bbox_train_v2/{0}"),
    ("ILSVRC2012_img_train", "Annotations/{0}"),
    ("Data/CLS-LOC/train", "Annotations/CLS-LOC/train/{0}"),
    ("ILSVRC/Data/CLS-LOC/train", "ILSVRC/Annotations/CLS-LOC/train/{0}"),
]


def test_the_usual_layouts_are_the_same_data_set(tmp_path: Path) -> None:
    digests = {
        pin(Dataset(f"imagenet:{trees.imagenet(tmp_path / str(at), *layout)}")).digest
        for at, layout in enumerate(LAYOUTS)
    }
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
    place = folder / "ILSVRC2012_devkit_t12" / "data"
    saved(place / "ILSVRC2012_validation_ground_truth.txt", "1\n2\n1\n2\n")
    savemat(place / "meta.mat", {"synsets": synsets})


@pytest.mark.parametrize("told", [solution, annotated, development_kit, None])
def test_pictures_for_validation_are_told_apart(folder: Path, told: Callable[[Path], None] | None) -> None:
    trees.validation(folder, "val" if told else "val/{0}")
    if told:
        told(folder)
    pictures = given(folder)
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
        given(folder)


def test_the_release_in_engram_data_has_its_own_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DatasetError, match=r"data set 'imagenet' not found: ENGRAM_DATA is not set; .*or unpack ILSVRC2012 from h"
    ):
        pin(Dataset("imagenet"))
    monkeypatch.setenv("ENGRAM_DATA", str(folder.parent))
    assert pin(Dataset("imagenet")).digest == pin(Dataset(f"imagenet:{folder}")).digest
    assert len(load_with_boxes(pin(Dataset("imagenet"))).ids) == 22
    assert pin(Dataset("imagenet:ILSVRC2012")).name == f"imagenet:{folder}"


def test_what_is_cmyk_grey_or_a_png_in_a_file_called_jpeg_is_shown_in_rgb(folder: Path) -> None:
    there = folder / "train" / FISH
    saved(there / f"{FISH}_0.JPEG", jpeg(picture(0), "CMYK"))
    saved(there / f"{FISH}_1.JPEG", jpeg(picture(1), kind="PNG"))
    saved(there / f"{FISH}_2.JPEG", jpeg(picture(2), "L"))
    pictures = given(folder)
    for number, off in ((0, 4), (1, 0)):
        shown = pictures.picture(number)
        assert np.abs(shown.astype(int) - picture(number)).mean() <= off
    grey = pictures.picture(2)
    assert (*picture(2).shape[:2], 3) == grey.shape
    assert (grey == grey[..., :1]).all()


def test_pixels_are_taken_as_they_are_stored_whatever_their_exif_tag_says(folder: Path) -> None:
    from PIL import Image

    exif = Image.Exif()
    exif[picture_files.ORIENTATION] = 6
    saved(folder / "train" / FISH / f"{FISH}_0.JPEG", jpeg(picture(0), exif=exif.tobytes()))
    pictures = given(folder)
    assert picture(0).shape == pictures.picture(0).shape == (*pictures.sizes[0], 3)


@pytest.mark.parametrize(
    ("name", "content", "says"),
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
def test_what_is_wrong_is_said_in_one_line(folder: Path, name: str, content: bytes | str, says: str) -> None:
    saved(folder / name, content)
    with pytest.raises(DatasetError, match=says) as error:
        given(folder)
    assert "\n" not in str(error.value)


def test_a_class_without_pictures_is_refused(folder: Path) -> None:
    (folder / "train" / "n02000000").mkdir()
    with pytest.raises(DatasetError, match="n02000000 has no images"):
        given(folder)


def test_a_folder_that_is_no_imagenet_is_said_so(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no train/n01440764 and further classes in "):
        pin(Dataset(f"imagenet:{tmp_path}"))
    with pytest.raises(UnknownDataset, match="did you mean 'imagenet'"):
        pin(Dataset("imagnet"))
    with pytest.raises(UnknownDataset, match="has the option #8x8; boxed pictures have no shape"):
        pin(Dataset(f"imagenet:{folder}#8x8"))


def test_boxed_pictures_are_no_images(folder: Path) -> None:
    with pytest.raises(
        DatasetError, match="contains boxed images of different sizes; for images of one size, use folder"
    ):
        load(pin(Dataset(f"imagenet:{folder}")))


def test_files_are_read_through_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pin(Dataset(f"imagenet:{folder}"))
    expected = [boxes.tolist() for boxes in given(folder).boxes]
    monkeypatch.setattr(catalog, "_boxed", {})
    saved(folder / "Annotation" / FISH / f"{FISH}_1.xml", "damaged, but nobody reads it")
    pictures = load_with_boxes(data)
    assert expected == [boxes.tolist() for boxes in pictures.boxes]
    path = picture_files.index_path(data.digest)
    path.write_bytes(path.read_bytes()[:-100])
    monkeypatch.setattr(catalog, "_boxed", {})
    with pytest.raises(DatasetError, match="is not an annotation of boxes"):
        load_with_boxes(data)


def test_however_many_files_are_read_at_a_time_the_digest_is_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pin(Dataset(f"imagenet:{folder}"))
    monkeypatch.setattr(picture_files, "BATCH", 5)
    monkeypatch.setattr(pictures, "TOGETHER", 3)
    assert whole == pin(Dataset(f"imagenet:{folder}"))


def test_a_cache_that_cannot_be_written_costs_only_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "file" / "below"))
    assert len(given(folder).ids) == 22


def test_a_picture_that_has_changed_is_noticed(folder: Path) -> None:
    data = pin(Dataset(f"imagenet:{folder}"))
    pictures = load_with_boxes(data)
    saved(folder / "train" / FISH / f"{FISH}_1.JPEG", jpeg(picture(2)))
    with pytest.raises(DatasetError, match=r"_1\.JPEG has changed since the data set was opened; start the run again"):
        pictures.picture(1)


def test_a_remembered_digest_is_not_taken_for_a_folder_with_other_files(folder: Path) -> None:
    known: dict[str, str] = {}
    first = pin(Dataset(f"imagenet:{folder}"), known)
    assert (first, 1) == (pin(Dataset(f"imagenet:{folder}"), known), len(known))
    saved(folder / "Annotation" / SHARK / f"{SHARK}_100.xml", xml(SHARK, [box(2)], picture(100).shape[:2]))
    second = pin(Dataset(f"imagenet:{folder}"), known)
    saved(folder / "train" / SHARK / f"{SHARK}_200.JPEG", jpeg(picture(200)))
    assert len({first, second, pin(Dataset(f"imagenet:{folder}"), known)}) == 3


def test_a_box_that_is_changed_in_its_file_is_noticed(folder: Path) -> None:
    known: dict[str, str] = {}
    first = pin(Dataset(f"imagenet:{folder}"), known)
    path = folder / "Annotation" / FISH / f"{FISH}_1.xml"
    with path.open("r+") as file:  # in place, which no folder shows
        file.write(path.read_text().replace("<xmin>", "<xmin> "))
    assert first == pin(Dataset(f"imagenet:{folder}"), known)
    assert len(known) == 2  # read again, and the same


def test_the_same_pictures_in_another_layout_are_found_where_they_are(tmp_path: Path) -> None:
    first, second = (
        pin(Dataset(f"imagenet:{trees.imagenet(tmp_path / str(at), *layout)}"))
        for at, layout in ((0, LAYOUTS[0]), (1, LAYOUTS[-1]))
    )
    assert first.digest == second.digest
    for each in (first, second, first):
        assert load_with_boxes(each).picture(0).shape[2] == 3
        catalog._boxed.clear()


def test_a_digest_is_of_pictures_boxes_and_labels(folder: Path) -> None:
    first = pin(Dataset(f"imagenet:{folder}")).digest
    path = folder / "Annotation" / FISH / f"{FISH}_1.xml"
    kept = path.read_text()
    saved(path, xml(FISH, [box(2)], picture(1).shape[:2]))
    assert first != pin(Dataset(f"imagenet:{folder}")).digest
    saved(path, kept)
    assert first == pin(Dataset(f"imagenet:{folder}")).digest
    with pytest.raises(DatasetError, match="is not the one that was pinned"):
        load_with_boxes(Dataset(f"imagenet:{folder}", "abc"))


def test_the_way_to_a_crop_of_a_picture(folder: Path) -> None:
    pictures = given(folder)
    parts = split_pictures(pictures, Partition(per_class=3, public=4))
    rows = np.concatenate([parts.rows_to_attack("A"), parts.rows_to_attack("B")])
    assert len(rows) == 10
    found, serves = windows(pictures, rows, "periphery", 10)
    assert serves.all()
    assert evaluation_pictures(pictures, rows, 16, found).shape == (10, 16, 16, 3)
