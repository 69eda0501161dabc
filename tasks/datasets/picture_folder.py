"""Images in a folder with one sub-folder per class, named after the class.

Images are in FOLDER/train/CLASS/* and FOLDER/test/CLASS/*, or in FOLDER/CLASS/*. Without train and test, the first,
sixth, eleventh, ... of the sorted files of each class form the test split. Hidden files are ignored, and so are files
next to the sub-folders that are not images. Any other file in a class folder is an error, so that no image is silently
omitted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tasks.datasets.classes import number_classes
from tasks.datasets.dataset import DatasetError, unreadable
from tasks.datasets.labelled import Labelled, check_classes, labelled_source
from tasks.datasets.options import AS_THEY_ARE, Options
from tasks.datasets.pictures import SUFFIXES
from tasks.datasets.source import Source
from tasks.datasets.splits import SPLITS, VALIDATION, Split, choose_splits, split_called, spread, unread_note

LITTER = {"thumbs.db", "desktop.ini", "__macosx"}  # files that operating systems create in folders


def folder_source(folder: Path, options: Options = AS_THEY_ARE) -> Source:
    """Return the folder's images. Raises DatasetError, naming the folder or file, if one is invalid."""
    split_folders = _find_splits(folder)
    notes = []
    class_paths: list[tuple[Path, Split | None]] = []
    if split_folders:
        splits = choose_splits(split_folders)
        for absent in SPLITS:
            if absent not in splits.values():
                present = next(iter(split_folders.values())).name
                raise DatasetError(f"{folder} has a folder {present!r}, but no {absent!r}; it must have both or none")
        for name, split in splits.items():
            class_paths += ((path, split) for path in class_folders(split_folders[name]))
        if len(split_folders) > len(splits):
            unread = sum(len(_class_pictures(path)) for path in class_folders(split_folders[VALIDATION]))
            notes.append(unread_note(unread))
    else:
        class_paths += ((path, None) for path in class_folders(folder))
    entries, names = _list_pictures(class_paths)
    check_classes(entries, names, folder)
    return labelled_source(entries, names, options, notes=tuple(notes))


def _find_splits(folder: Path) -> dict[str, Path]:
    """Return the split folders, if train or test exists. Raises DatasetError if a split has two folders."""
    split_folders: dict[str, Path] = {}
    for path in visible(folder):
        name = split_called(path.name)
        if name is None or not path.is_dir():
            continue
        if name in split_folders:
            raise DatasetError(
                f"{folder} has the folders {split_folders[name].name!r} and {path.name!r}; keep one of them"
            )
        split_folders[name] = path
    return split_folders if set(SPLITS) & set(split_folders) else {}


def _list_pictures(class_paths: Sequence[tuple[Path, Split | None]]) -> tuple[list[Labelled], tuple[str, ...]]:
    """List the images of these folders, ordered by split and class, and the class names.

    The images of a folder without a split are spread over both splits.
    """
    classes = number_classes([path.name for path, _ in class_paths])
    labelled = [(split, label, path) for (path, split), label in zip(class_paths, classes.labels.tolist(), strict=True)]
    labelled.sort(key=lambda entry: (SPLITS.index(entry[0] or "train"), entry[1]))
    files: list[tuple[Path, int, Split | None]] = []
    for split, label, path in labelled:
        files += ((file, label, split) for file in _class_pictures(path))
    spread_splits = spread([label for _, label, _ in files])
    entries = [
        Labelled(file, label, split or spread_split, is_drawn=split is None)
        for (file, label, split), spread_split in zip(files, spread_splits, strict=True)
    ]
    return entries, classes.names


def class_folders(folder: Path) -> list[Path]:
    """Return the sub-folders, one per class, sorted by name."""
    entries = visible(folder)
    folders = [path for path in entries if path.is_dir()]
    loose = [path for path in entries if path.suffix.lower() in SUFFIXES and path.is_file()]
    if loose:
        raise DatasetError(f"{loose[0]} belongs to no class; move it to a sub-folder of {folder} named after its class")
    if not folders:
        raise DatasetError(f"{folder} has no sub-folders; it must have one per class, with its images")
    return folders


def _class_pictures(folder: Path) -> list[Path]:
    """Return the images of a class, sorted by name."""
    files = []
    for entry in _visible_entries(folder):
        path = folder / entry.name
        files.append(path)
        if entry.name.lower().endswith(SUFFIXES) and _is_file(entry):
            continue
        if path.is_dir():
            raise DatasetError(
                f"{path} is a folder inside a class; images must be directly in the folder of their class"
            )
        if not path.is_file():
            raise DatasetError(f"{path} is not a file; the folder of a class must contain only images")
        allowed = ", ".join(suffix.lstrip(".") for suffix in SUFFIXES)
        raise DatasetError(f"{path} is not an image; the folder of a class must contain only images ({allowed})")
    if not files:
        raise DatasetError(f"{folder} is empty; a class must have images")
    return files


def visible(folder: Path) -> list[Path]:
    """Return the folder's entries, sorted by name, without hidden files and files created by operating systems."""
    return [folder / entry.name for entry in _visible_entries(folder)]


def _visible_entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise unreadable(folder, error) from None
    return [entry for entry in entries if not entry.name.startswith(".") and entry.name.lower() not in LITTER]


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Return whether this is a file or a link to one. Only links require a system call."""
    try:
        return entry.is_file()
    except OSError:  # a circular link
        return False
