"""The unpacked ILSVRC 2012 classification and localisation release of ImageNet, with all or some of its classes.

Training images, in the folder or its subfolder ILSVRC:
    train/n01440764/n01440764_10026.JPEG, Data/CLS-LOC/train/... or ILSVRC2012_img_train/...
Boxes, for the images that have such files:
    Annotation/n01440764/n01440764_10040.xml, Annotation/n01440764/Annotation/n01440764/*.xml,
    Annotations/CLS-LOC/train/n01440764/*.xml, or in Annotations, Annotations/train, ILSVRC2012_bbox_train_v2,
    bbox_train_v2 or bbox
Validation images next to `train`, if any:
    val/n01440764/ILSVRC2012_val_00000293.JPEG, or val/ILSVRC2012_val_00000001.JPEG and so on, whose classes are in
    LOC_val_solution.csv, else in Annotations/CLS-LOC/val/*.xml, else in ILSVRC2012_devkit_t12/data

An image's id is its file name without the suffix. The release contains annotations without an image, which are ignored.
Pixels are used as stored, without rotation, as in the annotations and the published loader. CMYK and grey images, and
PNG images in files named JPEG, are decoded to RGB. Annotated coordinates refer to the first and last pixel, as in the
development kit, so the right and bottom of a box are one more than in the file.

The key of a cached digest covers the class folders and their modification times, but not the more than one million
images, and the annotations as `tasks.datasets.source` describes. If an image is changed in place, this is detected when
it is decoded.

Russakovsky et al. 2015, "ImageNet large scale visual recognition challenge".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tasks.datasets.boxed import annotation
from tasks.datasets.boxed.picture_files import BoxedFiles, Listed, Listing
from tasks.datasets.classes import number_classes
from tasks.datasets.dataset import DatasetError, file_bytes, unreadable
from tasks.datasets.picture_folder import visible
from tasks.datasets.source import Source
from tasks.worker.delimited_text import DelimitedTextError, read_delimited

RULE = "imagenet 1"
WNID = re.compile(r"n\d{8}")
ROOTS = (".", "ILSVRC")
TRAIN = ("train", "Data/CLS-LOC/train", "ILSVRC2012_img_train")
VAL = ("val", "validation", "ILSVRC2012_img_val")
BOXES = (
    *("Annotation", "Annotations/CLS-LOC/train", "Annotations/train", "Annotations"),
    *("ILSVRC2012_bbox_train_v2", "bbox_train_v2", "bbox"),
)
VAL_BOXES = ("Annotations/CLS-LOC/val", "Annotations/val", "Annotation/val", "ILSVRC2012_bbox_val_v3", "bbox_val_v3")
SOLUTION = "LOC_val_solution.csv"
KITS = ("ILSVRC2012_devkit_t12/data", "ILSVRC2012_devkit_t12", "devkit/data", "data")
TRUTH = "ILSVRC2012_validation_ground_truth.txt"
CLASSES = "meta.mat"
SUFFIXES = (".jpeg", ".jpg", ".png")


@dataclass(frozen=True)
class Layout:
    """Locations of the parts of the release. None for missing parts."""

    folder: Path
    root: Path  # the folder, or its subfolder ILSVRC
    train: Path
    val: Path | None
    boxes: Mapping[str, Path]  # by class, for classes with an annotation folder
    val_boxes: Path | None
    labels: tuple[Path, ...]  # files with the classes of the validation images

    @property
    def classes(self) -> list[str]:
        return [path.name for path in class_folders(self.train)]


def source(folder: Path) -> Source | None:
    """Return the folder's ImageNet, or None if it has no folder of training images."""
    dataset_layout = layout(folder)
    if dataset_layout is None:
        return None
    folders = [*class_folders(dataset_layout.train), *dataset_layout.boxes.values()]
    if dataset_layout.val is not None:
        folders += [
            dataset_layout.val,
            *(Path(entry.path) for entry in os.scandir(dataset_layout.val) if entry.is_dir()),
        ]
    folders += [path for path in (dataset_layout.val_boxes, *dataset_layout.labels) if path is not None]
    # Changing a box in a file does not change the modification time of its folder.
    annotations = [inside / name for inside in dataset_layout.boxes.values() for name in files(inside, (".xml",))]
    content = BoxedFiles(RULE, folder, lambda: listing(dataset_layout), turned=False)
    return Source(RULE, (*sorted(folders), *annotations), lambda: content, tables=len(folders))


def layout(folder: Path) -> Layout | None:
    for root in (folder / name for name in ROOTS):
        for train in (root / name for name in TRAIN):
            if train.is_dir() and any(WNID.fullmatch(path.name) for path in visible(train)):
                val = _first_folder(train.parent, VAL) or _first_folder(root, VAL)
                names = [path.name for path in class_folders(train)]
                files = [path for path in (root / SOLUTION, folder / SOLUTION) if path.is_file()][:1]
                kit = next((root / name for name in KITS if (root / name / TRUTH).is_file()), None)
                if not files and kit is not None:
                    files = [path for path in (kit / TRUTH, kit / CLASSES) if path.is_file()]
                return Layout(
                    folder, root, train, val, _boxes_of(root, names), _first_folder(root, VAL_BOXES), tuple(files)
                )
    return None


def _first_folder(root: Path, names: tuple[str, ...]) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


def _boxes_of(root: Path, names: list[str]) -> dict[str, Path]:
    """Return each class's annotation folder, from the first location that has any."""
    for location in BOXES:
        folders = {}
        for name in names:
            for inside in (root / location / name / "Annotation" / name, root / location / name):
                if inside.is_dir():
                    folders[name] = inside
                    break
        if folders:
            return folders
    return {}


def class_folders(folder: Path) -> list[Path]:
    """Return the class folders, sorted.

    Raises DatasetError for folders with other names and for images outside the class folders.
    """
    entries = visible(folder)
    for path in entries:
        if not (WNID.fullmatch(path.name) and path.is_dir()):
            raise DatasetError(
                f"{path} is not a class of ImageNet; {folder} must contain only folders such as n01440764"
            )
    return entries


def listing(dataset_layout: Layout) -> Listing:
    names = number_classes(dataset_layout.classes).names
    labels = {name: label for label, name in enumerate(names)}
    entries = [entry for name in names for entry in _training_pictures(dataset_layout, name, labels[name])]
    if dataset_layout.val is not None:
        entries += validation(dataset_layout, dataset_layout.val, labels)
    entries.sort(key=lambda entry: entry.id)
    for first, second in pairwise(entries):
        if first.id == second.id:
            raise DatasetError(
                f"{dataset_layout.folder} has two images named {first.id}: {first.path} and {second.path}"
            )
    return Listing(names, tuple(entries))


def _training_pictures(dataset_layout: Layout, name: str, label: int) -> Iterator[Listed]:
    """Yield the training images of a class, with their annotations if there are any."""
    boxes = dataset_layout.boxes.get(name)
    annotated = set()
    if boxes is not None:
        annotated = set(files(boxes, (".xml",)))
    file_names = files(dataset_layout.train / name, SUFFIXES)
    if not file_names:
        raise DatasetError(f"{dataset_layout.train / name} has no images")
    for file in file_names:
        stem = Path(file).stem
        xml = f"{stem}.xml"
        path = ""
        if boxes is not None and xml in annotated:
            path = relative(dataset_layout, boxes / xml)
        yield Listed(stem, relative(dataset_layout, dataset_layout.train / name / file), label, path)


def relative(dataset_layout: Layout, path: Path) -> str:
    return os.path.relpath(path, dataset_layout.folder)


def files(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Return the names of the files in the folder. Raises DatasetError if a visible file has another suffix."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    except OSError as error:
        raise unreadable(folder, error) from None
    for name in names:
        if not name.lower().endswith(suffixes):
            raise DatasetError(f"{folder / name} is unexpected; {folder} must contain only {', '.join(suffixes)}")
    return names


def validation(dataset_layout: Layout, val: Path, labels: Mapping[str, int]) -> Iterator[Listed]:
    """Yield the validation images whose classes have training images."""
    folders = [path for path in visible(val) if path.is_dir()]
    folder_names = {file: path.name for path in folders for file in files(path, SUFFIXES)}
    loose = {} if folders else dict.fromkeys(files(val, SUFFIXES), "")
    annotated = set()
    if dataset_layout.val_boxes is not None:
        annotated = set(files(dataset_layout.val_boxes, (".xml",)))
    classes = truth(dataset_layout, annotated, labels) if loose else {}
    for file, name in sorted({**folder_names, **loose}.items()):
        stem = Path(file).stem
        class_name = name or classes.get(stem)
        if class_name is None:
            raise DatasetError(
                f"{val / file} is not in {SOLUTION}, its annotations or {TRUTH}; add its class to one of these"
            )
        if class_name in labels:
            xml = f"{stem}.xml"
            box = ""
            if dataset_layout.val_boxes and xml in annotated:
                box = relative(dataset_layout, dataset_layout.val_boxes / xml)
            path = relative(dataset_layout, val / name / file if name else val / file)
            yield Listed(stem, path, labels[class_name], box, is_validation=True)


def truth(dataset_layout: Layout, annotated: set[str], labels: Mapping[str, int]) -> dict[str, str]:
    """Map the id of each validation image to its class."""
    if dataset_layout.labels and dataset_layout.labels[0].name == SOLUTION:
        return solution(dataset_layout.labels[0])
    if annotated and dataset_layout.val_boxes is not None:
        paths = {Path(xml).stem: dataset_layout.val_boxes / xml for xml in annotated}
        result = {}
        for stem, path in paths.items():
            result[stem] = annotation.only_name(annotation.read(path), tuple(labels), path)
        return result
    if len(dataset_layout.labels) == 2:
        return _ground_truth(*dataset_layout.labels)
    return {}


def solution(path: Path) -> dict[str, str]:
    """Read the classes from a file with rows `ImageId,PredictionString`, e.g.

    ILSVRC2012_val_00000001,n01751748 1 2 3 4.
    """
    classes = {}
    try:
        for line, row in read_delimited(file_bytes(path)).rows():
            name = row[1].split()[0] if len(row) == 2 and row[1].split() else ""
            if not WNID.fullmatch(name):
                raise DatasetError(f"{path}, line {line} is {','.join(row)!r:.80}; it must be an id and n01440764")
            classes[row[0]] = name
    except DelimitedTextError as error:
        raise DatasetError(error.describe(path)) from None
    return classes


def _ground_truth(path: Path, meta: Path) -> dict[str, str]:
    """Read the classes from the development kit, which lists a class number per image and the class of each number."""
    names = _classes_by_number(meta)
    try:
        lines = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from None
    classes = {}
    for number, word in enumerate(lines, 1):
        if word not in names:
            raise DatasetError(
                f"{path}, line {number} is {word!r:.40}; it must be the number of a class in {meta.name}"
            )
        classes[f"ILSVRC2012_val_{number:08d}"] = names[word]
    return classes


def _classes_by_number(meta: Path) -> dict[str, str]:
    """Map class numbers, as text, to classes, for classes without subclasses."""
    from scipy.io import loadmat

    try:
        rows = loadmat(meta, squeeze_me=True, appendmat=False)["synsets"]
        class_names = {}
        for row in rows:
            if not int(row["num_children"]):
                class_names[str(int(row["ILSVRC2012_ID"]))] = str(row["WNID"])
    except Exception as error:  # the reader can raise nearly any error for broken bytes
        message = " ".join(str(error).split()) or type(error).__name__
        raise DatasetError(f"{meta} is not the development kit's table of classes: {message}") from error
    return class_names
