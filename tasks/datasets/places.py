"""Look up data sets by name, and locate their files.

A name may end with a shape for its images: `folder:scans#64x64#grey`. ENGRAM_DATA is the folder of the standard data
sets. Embedded data sets are always available.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path

from tasks.datasets import (
    acdc,
    acdc_rows,
    binary_records,
    celeba,
    feature_table,
    hub_cache,
    numbered,
    options,
    parquet,
    records,
    tickets,
    webdataset,
)
from tasks.datasets.benchmark_files import SVHN_TRAIN, cifar_source, idx_source, lacking_svhn_files, svhn_source
from tasks.datasets.boxed import imagenet, table
from tasks.datasets.dataset import HUB, DatasetError, UnknownDataset
from tasks.datasets.embedded import blended_source, digits_source, photos_source
from tasks.datasets.options import AS_THEY_ARE, Options
from tasks.datasets.outlines import BOXED_OUTLINES, ON_PHOTOS, OUTLINE_RULE, OUTLINES, QUESTION_OUTLINES
from tasks.datasets.picture_folder import folder_source
from tasks.datasets.picture_table import list_source
from tasks.datasets.questions import facts
from tasks.datasets.questions.question import Scorer
from tasks.datasets.questions.question_files import file_names, question_source
from tasks.datasets.selection import WITH_COLUMNS
from tasks.datasets.source import MANY_FILES, Content, Source
from tasks.worker.files import FileError, expand_home

DESCRIPTIONS = {
    "digits": "1,797 handwritten digits scaled to 28x28, embedded",
    "photos": "660 grey 28x28 patches of two photographs, embedded; no classes, a probe set",
    "digits-on-photos": "the 1,797 digits blended onto grey 28x28 squares of the two photographs, embedded",
    "facts": "4,000 questions on paragraphs of synthetic facts, answers to be derived as in DROP, embedded",
    "facts-stated": "4,000 questions on paragraphs of synthetic facts, answers stated in them as in SQuAD, embedded",
    "tickets": "300 short synthetic support tickets, each with a random UUID, embedded",
    "mnist": "70,000 handwritten digits, 28x28, IDX files in ENGRAM_DATA",
    "mnist-on-photos": "MNIST's 70,000 digits blended onto grey 28x28 squares of two photographs; MNIST in ENGRAM_DATA",
    "fashion-mnist": "70,000 pieces of clothing, 28x28, IDX files in ENGRAM_DATA",
    "cifar10": "60,000 colour images of 10 classes, 32x32, Python batches or Parquet in ENGRAM_DATA",
    "svhn": "99,289 digits of house numbers in colour, 32x32, MATLAB files (train and test) in ENGRAM_DATA",
    "svhn-full": "630,420 digits of house numbers: svhn with the images of extra_32x32.mat in its training split",
    "celeba": "182,637 faces without classes, 32x32, aligned JPEGs and their partition in ENGRAM_DATA; or add #64x64",
    "purchase100": "197,324 shoppers' 600 binary features in 100 classes, dataset_purchase or .npz in ENGRAM_DATA",
    "texas100": "67,330 hospital stays' 6,169 binary features in 100 classes, feats and labels or .npz in ENGRAM_DATA",
    "acdc-3t": "ACDC's short-axis cine MRI of the heart at 3 T, 192x192, 5 classes, NIfTI files in ENGRAM_DATA",
    "acdc-1.5t": "ACDC's short-axis cine MRI of the heart at 1.5 T, as acdc-3t",
    "imagenet": "ILSVRC 2012's 1.28 million images of 1,000 classes, 544,546 with boxes, as unpacked in ENGRAM_DATA",
    "squad": "SQuAD v1.1's questions on articles of Wikipedia, train-v1.1.json and dev-v1.1.json in ENGRAM_DATA",
    "drop": "DROP's questions on paragraphs, drop_dataset_train.json and drop_dataset_dev.json in ENGRAM_DATA",
    "folder:PATH": "your images, PATH/CLASS/* or PATH/train/CLASS/* and PATH/test/CLASS/*; add #64x64, #grey or #rgb",
    "list:FILE": "your images listed in a CSV or Parquet file with columns path, label and, optionally, split",
    "parquet:PATH": "a folder with train.parquet and test.parquet, or their shards: bytes in img or image, and label",
    "hf:NAME@REVISION": "a data set of the Hugging Face hub, in the cache of its library datasets",
    "webdataset:PATH": "WebDataset shards: a folder of .tar files, or a pattern such as shards-{000000..000009}.tar",
    "table:FILE": "your table of numbers and categories, CSV or Parquet, such as table:patients.csv#label=outcome",
    "rows:COUNT": "records that only your training program holds, known by their row numbers from 0",
    "records:FILE": "your records other than images, such as questions: JSON Lines or Parquet with a field id",
    "imagenet:PATH": "ImageNet, or some of its classes, unpacked in your own folder, with the XML files of its boxes",
    "boxed:TABLE": "your images with boxes: a CSV or Parquet file of path, label, left, top, right and bottom",
    "squad:PATH": "your questions in SQuAD v1.1's format: the folder of its two files, or TRAIN.json,DEV.json",
    "drop:PATH": "your questions in DROP's format: the folder of its two files, or TRAIN.json,DEV.json",
}
# Users' data sets: the reader of each kind, and what error messages call it.
OWN: Mapping[str, Callable[[Path, Options], Source | None]] = {
    "folder": lambda path, shape: folder_source(path, shape) if path.is_dir() else None,
    "list": lambda path, shape: list_source(path, shape) if path.is_file() else None,
    "parquet": parquet.source,
    "webdataset": webdataset.source,
    "table": lambda path, shape: feature_table.source(path, shape) if path.is_file() else None,
    "records": lambda path, _: records.source(path) if path.is_file() else None,
    "imagenet": lambda path, _: imagenet.source(path) if path.is_dir() else None,
    "boxed": lambda path, shape: table.source(path, shape.bits) if path.is_file() else None,
    "squad": lambda path, _: question_source("squad", path),
    "drop": lambda path, _: question_source("drop", path),
}
WHAT = {
    "folder": "folder",
    "list": "file",
    "parquet": "train.parquet and test.parquet, or shards of them, in",
    "webdataset": "shards (.tar files) in",
    "table": "file",
    "records": "file",
    "imagenet": "train/n01440764 and further classes in",
    "boxed": "file",
    "squad": f"{file_names('squad')} in",
    "drop": f"{file_names('drop')} in",
}
# Data sets that ship with the installation. Their images are public.
EMBEDDED: Mapping[str, Callable[[], Source]] = {
    "digits": digits_source,
    "photos": photos_source,
    "digits-on-photos": lambda: blended_source(digits_source()),
    "facts": lambda: facts.source("facts"),
    "facts-stated": lambda: facts.source("facts-stated"),
    "tickets": tickets.source,
}
# Data sets without plain images, by name or kind.
BOXED = dict.fromkeys(("imagenet", "boxed"), "boxed pictures")
TABLE = "table"  # the kind of tables of features
ROWS = "rows"  # the kind of records that are known only by number
WITH_DEPTH = ("folder", "list", "parquet", "webdataset", "hf", "boxed")  # kinds whose 16-bit images may use fewer bits
TEXTS = {
    "records": "records",
    "tickets": "texts",
    **dict.fromkeys(("facts", "facts-stated", "squad", "drop"), "questions"),
}
FORMS: Mapping[str, Scorer] = {"squad": "squad", "drop": "drop"}
SCENES = "digits-on-photos"  # has plain images and also boxed images
ACDC: Mapping[str, acdc.Tesla] = {"acdc-3t": "3", "acdc-1.5t": "1.5"}
# Possible locations of each standard data set in ENGRAM_DATA, and the torchvision.datasets class and call that download
# it.
LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "mnist": ("mnist", "MNIST/raw"),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw"),
    "cifar10": ("cifar-10-batches-py", "cifar10"),
    "svhn": ("svhn", "SVHN"),
    "svhn-full": ("svhn", "SVHN"),
    "celeba": ("celeba",),
    "purchase100": ("purchase100", "purchase"),
    "texas100": ("texas100", "texas/100", "texas"),
    **dict.fromkeys(ACDC, ("acdc", "ACDC", "acdc/database", "ACDC/database")),
    "imagenet": ("imagenet", "ImageNet", "ILSVRC2012", "ILSVRC"),
    "squad": ("squad", "SQuAD"),
    "drop": ("drop", "DROP", "drop/drop_dataset", "DROP/drop_dataset", "drop_dataset"),
}
BOTH = "[D('data', train=t, download=True) for t in (0, 1)]"
DOWNLOADERS: Mapping[str, tuple[str, str]] = {
    "mnist": ("MNIST", BOTH),
    "fashion-mnist": ("FashionMNIST", BOTH),
    "cifar10": ("CIFAR10", BOTH),
    "svhn": ("SVHN", "[D('data/svhn', split=s, download=True) for s in ('train', 'test')]"),
    "svhn-full": ("SVHN", "[D('data/svhn', split=s, download=True) for s in ('train', 'extra', 'test')]"),
    "celeba": ("CelebA", "D('data', download=True)"),
}
# Data sets that must be downloaded manually: source and target folder.
OFFERED = {
    **dict.fromkeys(ACDC, f"unpack the files from {acdc.CHALLENGE} into the folder data/acdc"),
    **{
        name: f"put {names.packed} of https://github.com/privacytrustlab/datasets into the folder data/{name}"
        for name, names in binary_records.FILES.items()
    },
    "imagenet": "unpack ILSVRC2012 from https://image-net.org/download-images into the folder data/imagenet",
    "squad": "put SQuAD 1.1 from https://rajpurkar.github.io/SQuAD-explorer into the folder data/squad",
    "drop": "unpack the files from https://allenai.org/data/drop into the folder data/drop",
}

FolderState = tuple[tuple[str, int], ...]  # paths and their modification times
_outlined = ContextVar("outlined", default="")  # or "images" or "everything"


def _outlined_source(name: str, shape: Options) -> Source | None:
    """Return a source with the outline of this data set instead of its files. None without one in this shape."""
    outline: Content | None
    if _outlined.get() == "images":
        outline = OUTLINES.get(name) if shape == AS_THEY_ARE else None
    elif name in OUTLINES:
        outline = OUTLINES[name].reshape(shape)
    elif name == ON_PHOTOS.name:
        outline = ON_PHOTOS.reshape(shape)
    else:
        outline = BOXED_OUTLINES.get(name) or QUESTION_OUTLINES.get(name)
    if outline is None:
        return None
    return Source(f"{OUTLINE_RULE} {outline!r}", (), lambda: outline)


@contextmanager
def use_outlines(everything: bool = False) -> Iterator[None]:
    """Within the block, use published sizes in place of missing data sets, for planning and pricing.

    These are sets of images of one size, and with `everything` also the same in other shapes, sets of boxed images and
    of questions, and language models. Planning a set of a million boxed images takes seconds.
    """
    before = _outlined.set("everything" if everything else "images")
    try:
        yield
    finally:
        _outlined.reset(before)


def are_outlined() -> bool:
    """Whether published sizes replace all missing data sets and models."""
    return _outlined.get() == "everything"


# The sources of data sets with many files, and the state of their folders and tables when they were listed.
_listed: dict[tuple[str, Path, Options], tuple[FolderState, Source]] = {}
SETTLED = 2.0  # seconds since the last change, after which another one certainly changes the modification time


def list_once(kind: str, location: Path, shape: Options, read: Callable[[], Source | None]) -> Source | None:
    """Return the source that `read` finds at this location.

    Many files are listed once per process, as long as no folder and no table changes.
    """
    key = (kind, location, shape)
    if key in _listed:
        state, source = _listed[key]
        if state == folder_state([path for path, _ in state]):
            return source
        del _listed[key]
    begin = time.time()
    found = read()
    if found is not None and len(found.files) > MANY_FILES:
        state = folder_state(found.folders(location))
        if max(modified for _, modified in state) < (begin - SETTLED) * 10**9:
            _listed[key] = (state, found)
    return found


def folder_state(paths: Iterable[str]) -> FolderState:
    """Return the modification time of each path, 0 if it does not exist."""
    state = []
    for path in paths:
        try:
            state.append((path, os.stat(path).st_mtime_ns))
        except OSError:
            state.append((path, 0))
    return tuple(state)


def known_names() -> dict[str, str]:
    """Map the name of each data set to a one-line description."""
    return dict(DESCRIPTIONS)


def find(name: str) -> tuple[str, Source]:
    """Return the data set's name, valid for any process on this machine, and its files."""
    plain, shape = options.split(name)
    absolute, source = _locate_source(plain, shape)
    kind = plain.partition(":")[0]
    shapeless = TEXTS.get(kind) or BOXED.get(kind) or {TABLE: "tables", ROWS: "row numbers"}.get(kind)
    if shape.bits is not None and kind not in WITH_DEPTH:
        kinds = ", ".join(f"{kind_name}:" for kind_name in WITH_DEPTH)
        raise UnknownDataset(f"data set {name!r} has the option #bits{shape.bits}; it is for {kinds}")
    if shape.selection is not None and kind not in WITH_COLUMNS:
        kinds = ", ".join(f"{kind_name}:" for kind_name in WITH_COLUMNS)
        raise UnknownDataset(f"data set {name!r} has the option #{shape.selection}; it is for {kinds}")
    if shape.has_shape and shapeless is not None:
        of_images = replace(shape, label=None, is_raw=False)
        raise UnknownDataset(f"data set {name!r} has the option {of_images}; {shapeless} have no shape")
    return f"{absolute}{shape}", source if kind in (*BOXED, TABLE, ROWS) else options.reshape_source(source, shape)


def _locate_source(name: str, shape: Options) -> tuple[str, Source]:
    """Return the name and files of a data set without options. Images are decoded to this shape."""
    if name in EMBEDDED:
        return name, EMBEDDED[name]()
    if name in LAYOUTS:
        return name, locate_published_set(name, shape)
    if name == "mnist-on-photos":
        source = locate_published_set("mnist", shape)
        if not source.files and (outlined := _outlined_source(name, shape)) is not None:
            return name, outlined
        return name, blended_source(source)
    kind, colon, path = name.partition(":")
    if kind == ROWS and colon:
        return name, numbered.source(path)
    if name.startswith(HUB):
        return hub_cache.locate(path, shape)
    if kind in OWN and colon:
        return locate_own_set(kind, path, shape)
    if "#" in name:
        raise options.unknown(name)
    nearest = difflib.get_close_matches(name, DESCRIPTIONS, 1, cutoff=0.0)[0]
    raise UnknownDataset(
        f"unknown data set {name!r}; did you mean {nearest!r}? The data sets are {', '.join(DESCRIPTIONS)}"
    )


def locate_published_set(name: str, shape: Options) -> Source:
    """Return a standard data set from ENGRAM_DATA.

    Raises DatasetError, listing the searched folders, if it is missing.
    """
    root = os.environ.get("ENGRAM_DATA", "")
    folders = []
    if root:
        folders = [folder for layout in LAYOUTS[name] for folder in candidates(Path(root), layout)]
    for folder in folders:
        source = list_once(name, folder, shape, partial(read_as, name, folder, shape))
        if source is not None:
            return source
    if _outlined.get() and (outlined := _outlined_source(name, shape)) is not None:
        return outlined
    searched_folders = ", ".join(f"{folder}{describe_missing_files(name, folder)}" for folder in folders)
    looked = "ENGRAM_DATA is not set"
    if root:
        looked = f"looked in {searched_folders} (ENGRAM_DATA is {root})"
    raise DatasetError(
        f"data set {name!r} not found: {looked}; set ENGRAM_DATA to the folder that contains it, "
        f"or {_fetching(name)} and set ENGRAM_DATA=data"
    )


def _fetching(name: str) -> str:
    """Return instructions for downloading a standard data set into the folder `data`, as a command if possible."""
    if name in OFFERED:
        return OFFERED[name]
    data_set, call = DOWNLOADERS[name]
    command = f'python -c "from torchvision.datasets import {data_set} as D; {call}"'
    gdown = "pip install gdown && " if name == "celeba" else ""  # hosted on Google Drive
    return f"fetch it with: {gdown}{command}"


def describe_missing_files(name: str, folder: Path) -> str:
    """Return a note, to be appended to a folder's name, about missing files. Empty if there is nothing to report."""
    if name in binary_records.FILES and folder.is_dir():
        return f" (which has no {binary_records.FILES[name]})"
    is_svhn_folder = name in SVHN_TRAIN and folder.is_dir()
    if is_svhn_folder:
        return f" (which has no {' and no '.join(lacking_svhn_files(name, folder))})"
    return ""


def read_as(name: str, folder: Path, shape: Options) -> Source | None:
    if name in ACDC:
        return acdc_rows.source(folder, ACDC[name])
    if name in FORMS:
        return question_source(FORMS[name], folder)
    if name in binary_records.FILES:
        return binary_records.source(name, folder)
    if name == "imagenet":
        return imagenet.source(folder) if folder.is_dir() else None
    if name == "celeba":
        return celeba.source(folder, shape)
    if name == "cifar10":
        return cifar_source(folder) or parquet.source(folder, is_published=True)
    if name in SVHN_TRAIN:
        return svhn_source(name, folder)
    return idx_source(folder)


def candidates(root: Path, layout: str) -> Iterator[Path]:
    """Yield folders that may be `layout`: in the root, or the root itself if its path ends with the layout's start."""
    parts = Path(layout).parts
    for count in range(len(parts) + 1):
        if count == 0 or root.absolute().parts[-count:] == parts[:count]:
            yield root.joinpath(*parts[count:])


def locate_own_set(kind: str, path: str, shape: Options) -> tuple[str, Source]:
    """Return the name and files of a user's data set, at the given path or else in ENGRAM_DATA."""
    if not path:
        raise UnknownDataset(f"data set '{kind}:' has no path; write it as {kind}:PATH")
    try:
        locations = [expand_home(path)]
    except FileError as error:
        raise DatasetError(f"no {WHAT[kind]} {error}") from None
    if "ENGRAM_DATA" in os.environ:
        locations.append(Path(os.environ["ENGRAM_DATA"]) / path)
    for location in locations:
        path_there = location.absolute()
        source = list_once(kind, path_there, shape, partial(OWN[kind], path_there, shape))
        if source is not None:
            return f"{kind}:{location.absolute()}", source
    if "#" in path:
        raise options.unknown(f"{kind}:{path}")
    looked = " and ".join(str(location.absolute()) for location in locations)
    raise DatasetError(f"no {WHAT[kind]} {looked}")
