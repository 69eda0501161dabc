"""A folder of pictures, one sub-folder per class: FOLDER/train/CLASS/* and FOLDER/test/CLASS/*, or FOLDER/CLASS/*.

The classes are the sub-folders' names, sorted. Where there is no train and test, of every class's files in sorted order
the first, the sixth, the eleventh ... are the test split. Hidden files, and loose ones beside sub-folders that are no
pictures, are passed over; any other file in a class is refused, so that nothing is left out unseen.
"""

from __future__ import annotations

from pathlib import Path

from tasks.datasets import labelled
from tasks.datasets.content import Source
from tasks.datasets.dataset import DatasetError
from tasks.datasets.labelled import SPLITS, Labelled, check_classes, spread
from tasks.datasets.options import AS_THEY_ARE, Options
from tasks.datasets.pictures import SUFFIXES

LITTER = {"thumbs.db", "desktop.ini", "__macosx"}  # files that operating systems leave in folders


def source(folder: Path, options: Options = AS_THEY_ARE) -> Source:
    """The folder's pictures; the DatasetError names the folder or file that is not as it should be."""
    split = [name for name in SPLITS if (folder / name).is_dir()]
    if len(split) == 1:
        missing = SPLITS[1 - SPLITS.index(split[0])]
        raise DatasetError(
            f"{folder} has a folder {split[0]!r}, but no {missing!r} beside it; it must have both or none"
        )
    entries, names = list_splits(folder) if split else list_classes(folder)
    check_classes(entries, names, folder)
    return labelled.source(entries, names, options)


def list_splits(folder: Path) -> tuple[list[Labelled], tuple[str, ...]]:
    folders = {split: classes(folder / split) for split in SPLITS}
    names = tuple(sorted({path.name for paths in folders.values() for path in paths}))
    entries = [
        Labelled(file, names.index(path.name), split)
        for split in SPLITS
        for path in folders[split]
        for file in pictures(path)
    ]
    return entries, names


def list_classes(folder: Path) -> tuple[list[Labelled], tuple[str, ...]]:
    paths = classes(folder)
    files = [(file, label) for label, path in enumerate(paths) for file in pictures(path)]
    splits = spread([label for _, label in files])
    entries = [Labelled(file, label, split) for (file, label), split in zip(files, splits, strict=True)]
    return entries, tuple(path.name for path in paths)


def classes(folder: Path) -> list[Path]:
    """The folder's sub-folders, sorted by name."""
    entries = visible(folder)
    folders = [path for path in entries if path.is_dir()]
    loose = [path for path in entries if path.suffix.lower() in SUFFIXES and path.is_file()]
    if loose:
        raise DatasetError(f"{loose[0]} belongs to no class; put it into a sub-folder of {folder} named for its class")
    if not folders:
        raise DatasetError(f"{folder} has no sub-folders; it must have one for each class, with its pictures")
    return folders


def pictures(folder: Path) -> list[Path]:
    """A class's pictures, sorted by name."""
    files = visible(folder)
    for path in files:
        if path.is_dir():
            raise DatasetError(f"{path} is a folder inside a class; pictures must lie in their class's folder itself")
        if not path.is_file():
            raise DatasetError(f"{path} is no file; a class's folder must hold nothing but pictures")
        if path.suffix.lower() not in SUFFIXES:
            allowed = ", ".join(suffix.lstrip(".") for suffix in SUFFIXES)
            raise DatasetError(f"{path} is no picture; a class's folder must hold nothing but pictures ({allowed})")
    if not files:
        raise DatasetError(f"{folder} is empty; a class must have pictures")
    return files


def visible(folder: Path) -> list[Path]:
    """The folder's entries, sorted by name, without hidden files and litter."""
    try:
        entries = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError as error:
        raise DatasetError(f"{folder} cannot be read: {error.strerror or error}") from None
    return [path for path in entries if not path.name.startswith(".") and path.name.lower() not in LITTER]
