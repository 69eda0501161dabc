"""Data sets by name: finding and pinning them, loading them, and opening their pictures by rows.

The name may end with the shape that its images are brought to: `folder:scans#64x64#grey`.
ENGRAM_DATA names the folder in which the usual sets lie; the embedded ones are always there.
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa

from tasks import hardware
from tasks.datasets import acdc, celeba, options, outlines, parquet, records
from tasks.datasets.benchmark_files import SVHN_TRAIN, cifar_source, idx_source, lacking_svhn_files, svhn_source
from tasks.datasets.boxed import imagenet, scenes, table
from tasks.datasets.boxed.picture_files import BoxedFiles
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.datasets.dataset import Content, Dataset, DatasetError, Source, UnknownDataset
from tasks.datasets.embedded import Blended, Digits, blended_source, digits_source, photos_source
from tasks.datasets.images import Images, PictureSet
from tasks.datasets.labelled import LabelledContent, folder_source
from tasks.datasets.options import ALLOWED, AS_THEY_ARE, Options
from tasks.datasets.picture_cache import open_cache, path_of
from tasks.datasets.picture_table import list_source
from tasks.datasets.questions import facts
from tasks.datasets.questions.facts import Facts
from tasks.datasets.questions.question import RECORD_SCHEMA, QuestionSet, Scorer, questions_of_records
from tasks.datasets.questions.question_files import QuestionFiles, file_names, question_source
from tasks.datasets.records import RecordFile, Records
from tasks.files import FileError, expand_home

DESCRIPTIONS = {
    "digits": "1,797 handwritten digits scaled to 28x28, embedded",
    "photos": "660 grey 28x28 patches of two photographs, embedded; no classes, a probe set",
    "digits-on-photos": "the 1,797 digits blended onto grey 28x28 squares of the two photographs, embedded",
    "facts": "4,000 questions on paragraphs of made-up facts, answers to be derived as in DROP, embedded",
    "facts-stated": "4,000 questions on paragraphs of made-up facts, answers stated in them as in SQuAD, embedded",
    "mnist": "70,000 handwritten digits, 28x28, IDX files in ENGRAM_DATA",
    "mnist-on-photos": "MNIST's 70,000 digits blended onto grey 28x28 squares of two photographs; MNIST in ENGRAM_DATA",
    "fashion-mnist": "70,000 pieces of clothing, 28x28, IDX files in ENGRAM_DATA",
    "cifar10": "60,000 colour images of 10 classes, 32x32, Python batches or Parquet in ENGRAM_DATA",
    "svhn": "99,289 digits of house numbers in colour, 32x32, MATLAB files (train and test) in ENGRAM_DATA",
    "svhn-full": "630,420 digits of house numbers: svhn with the images of extra_32x32.mat in its training split",
    "celeba": "182,637 faces without classes, 32x32, aligned JPEGs and their partition in ENGRAM_DATA; or add #64x64",
    "acdc-3t": "ACDC's short-axis cine MRI of the heart at 3 T, 192x192, 5 classes, NIfTI files in ENGRAM_DATA",
    "acdc-1.5t": "ACDC's short-axis cine MRI of the heart at 1.5 T, as acdc-3t",
    "imagenet": "ILSVRC 2012's 1.28 million pictures of 1,000 classes, 544,546 with boxes, as unpacked in ENGRAM_DATA",
    "squad": "SQuAD v1.1's questions on articles of Wikipedia, train-v1.1.json and dev-v1.1.json in ENGRAM_DATA",
    "drop": "DROP's questions on paragraphs, drop_dataset_train.json and drop_dataset_dev.json in ENGRAM_DATA",
    "folder:PATH": "your pictures, PATH/CLASS/* or PATH/train/CLASS/* and PATH/test/CLASS/*; add #64x64, #grey or #rgb",
    "list:FILE": "your pictures named in a CSV or Parquet file with columns path, label and, if wished, split",
    "parquet:PATH": "a folder with train.parquet and test.parquet: picture bytes in img or image, and label",
    "records:FILE": "your records that are no pictures, such as questions: JSON Lines or Parquet with a field id",
    "imagenet:PATH": "ImageNet, or some of its classes, unpacked in a folder of yours, with the XML files of its boxes",
    "boxed:TABLE": "your pictures with boxes: a CSV or Parquet file of path, label, left, top, right and bottom",
    "squad:PATH": "your questions in SQuAD v1.1's format: the folder of its two files, or TRAIN.json,DEV.json",
    "drop:PATH": "your questions in DROP's format: the folder of its two files, or TRAIN.json,DEV.json",
}
# The user's own data sets: how each kind is read, and its name in an error message.
OWN: Mapping[str, Callable[[Path, Options], Source | None]] = {
    "folder": lambda path, shape: folder_source(path, shape) if path.is_dir() else None,
    "list": lambda path, shape: list_source(path, shape) if path.is_file() else None,
    "parquet": parquet.source,
    "records": lambda path, _: records.source(path) if path.is_file() else None,
    "imagenet": lambda path, _: imagenet.source(path) if path.is_dir() else None,
    "boxed": lambda path, _: table.source(path) if path.is_file() else None,
    "squad": lambda path, _: question_source("squad", path),
    "drop": lambda path, _: question_source("drop", path),
}
WHAT = {
    "folder": "folder",
    "list": "file",
    "parquet": "train.parquet and test.parquet in",
    "records": "file",
    "imagenet": "train/n01440764 and further classes in",
    "boxed": "file",
    "squad": f"{file_names('squad')} in",
    "drop": f"{file_names('drop')} in",
}
# The sets that come with the installation, whose images may be shown to anyone.
EMBEDDED: Mapping[str, Callable[[], Source]] = {
    "digits": digits_source,
    "photos": photos_source,
    "digits-on-photos": lambda: blended_source(digits_source()),
    "facts": lambda: facts.source("facts"),
    "facts-stated": lambda: facts.source("facts-stated"),
}
# The sets without images, by their names or kinds.
BOXED = dict.fromkeys(("imagenet", "boxed"), "boxed pictures")
TEXTS = {"records": "records", **dict.fromkeys(("facts", "facts-stated", "squad", "drop"), "questions")}
FORMS: Mapping[str, Scorer] = {"squad": "squad", "drop": "drop"}
SCENES = "digits-on-photos"  # which holds images and also boxed pictures
ACDC: Mapping[str, acdc.Tesla] = {"acdc-3t": "3", "acdc-1.5t": "1.5"}
# Where each usual set may lie inside ENGRAM_DATA, and its class in torchvision.datasets with the call that fetches it.
LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "mnist": ("mnist", "MNIST/raw"),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw"),
    "cifar10": ("cifar-10-batches-py", "cifar10"),
    "svhn": ("svhn", "SVHN"),
    "svhn-full": ("svhn", "SVHN"),
    "celeba": ("celeba",),
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
# Sets that have to be fetched by hand: from where, and into which folder.
OFFERED = {
    **dict.fromkeys(ACDC, f"unpack what {acdc.CHALLENGE} offers into the folder data/acdc"),
    "imagenet": "unpack what https://image-net.org/download-images offers as ILSVRC2012 into the folder data/imagenet",
    "squad": "put what https://rajpurkar.github.io/SQuAD-explorer offers as SQuAD 1.1 into the folder data/squad",
    "drop": "unpack what https://allenai.org/data/drop offers into the folder data/drop",
}

# Where a set that is read by rows has its pixels: in memory, in a cache on the disk, or in its own files.
Held = Literal["auto", "memory", "cache", "files"]
SHARE = 0.5  # of the available memory, that a loaded set may take

_loaded: dict[str, Images] = {}
_records: dict[tuple[str, str], Records] = {}  # by digest and schema
_questions: dict[str, QuestionSet] = {}
_boxed: dict[tuple[str, float], BoxedPictures] = {}  # by digest and correlation
_loading = threading.Lock()
_outlined = ContextVar("outlined", default=False)


@contextmanager
def use_outlines() -> Iterator[None]:
    """Meanwhile usual sets that are absent are known by their sizes alone (`outlines`): to plan and to price."""
    before = _outlined.set(True)
    try:
        yield
    finally:
        _outlined.reset(before)


def known_names() -> dict[str, str]:
    """Each data set's name with a description of one line."""
    return dict(DESCRIPTIONS)


def is_embedded(name: str) -> bool:
    """Whether the data set of this name comes with the installation; any other is the user's own."""
    return options.split(name)[0] in EMBEDDED


def pin(dataset: Dataset, known: MutableMapping[str, str] | None = None) -> Dataset:
    """The data set with the digest of its content; a user's path becomes absolute, so that any process finds it.

    `known` remembers digests by the files' paths, sizes and times of change; the caller keeps it between runs. Raises
    DatasetError where the set is unknown or absent, or its content does not have the digest given already.
    """
    name, source = find(dataset.name)
    known = {} if known is None else known
    stamp = source.stamp()
    if stamp not in known:
        content = source.by_rows() if source.by_rows is not None and is_large(source) else source.read()
        known[stamp] = content.digest()
    check(dataset, known[stamp])
    return Dataset(name, known[stamp])


def load(dataset: Dataset) -> Images:
    """The data set's images, read once per process. A DatasetError unless their digest is the pinned one."""
    with _loading:
        if dataset.digest not in _loaded:
            content = find(dataset.name)[1].read()
            digest = content.digest()
            check(dataset, digest)
            if digest in _loaded:  # the data set came without a digest
                return _loaded[digest]
            _loaded[digest] = content.images()
            return _loaded[digest]
        return _loaded[dataset.digest]


def files(dataset: Dataset) -> tuple[Path, ...]:
    """The file of each training image, by rows; none where images have no files of their own."""
    content = find(dataset.name)[1].read()
    if not isinstance(content, LabelledContent):
        return ()
    check(dataset, content.digest())
    return tuple(entry.path for entry in content.entries if entry.split == "train")


def load_records(dataset: Dataset, schema: pa.Schema) -> Records:
    """The data set's records with the fields of the schema (one is `id`), read once per process.

    Raises DatasetError where their digest is not the pinned one, or where a record lacks a field.
    """
    with _loading:
        key = (dataset.digest, str(schema))
        if dataset.digest and key in _records:
            return _records[key]
        content = find(dataset.name)[1].read()
        if not isinstance(content, RecordFile):
            raise DatasetError(f"data set {dataset.name!r} holds images and no records; those are records:FILE")
        check(dataset, content.digest())
        selected = content.records(schema)
        if dataset.digest:
            _records[key] = selected
        return selected


def load_questions(dataset: Dataset) -> QuestionSet:
    """The data set's questions with their gold answers, read once per process.

    Raises DatasetError where their digest is not the pinned one, or where a file is damaged or holds none.
    """
    with _loading:
        if dataset.digest not in _questions:
            content = find(dataset.name)[1].read()
            digest = content.digest()
            check(dataset, digest)
            if digest not in _questions:  # the data set may have come without a digest
                _questions[digest] = questions_of(dataset, content)
            return _questions[digest]
        return _questions[dataset.digest]


def questions_of(dataset: Dataset, content: Content) -> QuestionSet:
    if isinstance(content, Facts | QuestionFiles):
        return content.questions()
    if isinstance(content, RecordFile):
        return questions_of_records(content.records(RECORD_SCHEMA), str(content.path))
    raise DatasetError(
        f"data set {dataset.name!r} holds images and no questions; facts, facts-stated, squad, drop, squad:PATH, "
        "drop:PATH and records:FILE hold them"
    )


def load_with_boxes(dataset: Dataset, correlation: float = 0.0) -> BoxedPictures:
    """The data set's pictures with the boxes around their objects, found once per process.

    Of digits-on-photos the scenes of `tasks.datasets.boxed.scenes`, whose backgrounds tell their digits with this
    correlation, from 0 to 1; ValueError for one above 0 with any other set. DatasetError where the digest is not the
    pinned one, a file is damaged, or the set has no boxed pictures.
    """
    if not 0 <= correlation <= 1:
        raise ValueError(f"correlation is {correlation}; it must be a share from 0 to 1")
    if correlation and dataset.name != SCENES:
        raise ValueError(
            f"correlation is {correlation} with data set {dataset.name!r}; it must be 0, for only {SCENES} has one"
        )
    with _loading:
        if dataset.digest and (dataset.digest, correlation) in _boxed:
            return _boxed[dataset.digest, correlation]
        content = find(dataset.name)[1].read()
        if isinstance(content, BoxedFiles):  # hundreds of gigabytes, which are read through once per machine
            pictures = content.pictures(dataset.digest)
            check(dataset, pictures.digest)
            return _boxed.setdefault((pictures.digest, correlation), pictures)
        digest = content.digest()
        check(dataset, digest)
        if (digest, correlation) not in _boxed:  # the data set may have come without a digest
            _boxed[digest, correlation] = scenes_of(dataset, content, correlation)
        return _boxed[digest, correlation]


def scenes_of(dataset: Dataset, content: Content, correlation: float) -> BoxedPictures:
    if dataset.name == SCENES and isinstance(content, Blended) and isinstance(content.digits, Digits):
        return scenes.scenes(content.digits.text, content.encoded, correlation)
    holding = f"{SCENES}, imagenet, imagenet:PATH and boxed:TABLE"
    raise DatasetError(f"data set {dataset.name!r} holds no boxed pictures; {holding} hold them")


def open_pictures(dataset: Dataset, held: Held = "auto") -> PictureSet:
    """The data set's pictures by rows, however many there are. A DatasetError unless their digest is the pinned one.

    `memory` is what `load` gives. `cache` is an Arrow file in the cache folder (`tasks.datasets.picture_cache`), which
    is made where it is not there; then the set's own files are not read any more. `files` decodes each picture
    whenever it is asked for, which takes reading all files once for the digest. `auto` is the first, and `cache` for
    pictures that would take more than half of the memory that can be had: folders and lists, with their shape in the
    name (`folder:PATH#224x224#rgb`). ValueError for another word.
    """
    if held not in get_args(Held):
        raise ValueError(f"held is {held!r}; it must be one of {', '.join(get_args(Held))}")
    if held == "memory" or (held == "auto" and dataset.digest in _loaded):
        return load(dataset)
    if held == "files":
        return decode_by_rows(dataset, find(dataset.name)[1])
    if held == "auto" and not is_large_in_cache(dataset) and not is_large(find(dataset.name)[1]):
        return load(dataset)
    dataset = dataset if dataset.digest else pin(dataset)
    return open_cache(dataset.digest, lambda: open_files(dataset))


def open_files(dataset: Dataset) -> PictureSet:
    """The pictures in their files where they can be decoded by rows, else in memory."""
    source = find(dataset.name)[1]
    return load(dataset) if source.by_rows is None else decode_by_rows(dataset, source)


def is_large(source: Source) -> bool:
    """Whether the source's images are known to take more memory than may be loaded."""
    return source.by_rows is not None and source.by_rows().size() > SHARE * hardware.available_memory()


def is_large_in_cache(dataset: Dataset) -> bool:
    """`is_large` for a set that has been written into the cache, without reading its own files."""
    path = path_of(dataset.digest)
    return path.is_file() and path.stat().st_size > SHARE * hardware.available_memory()


def decode_by_rows(dataset: Dataset, source: Source) -> PictureSet:
    """The images, decoded from their files by rows; DatasetError where they can only be read all together."""
    if source.by_rows is None:
        raise DatasetError(
            f"data set {dataset.name!r} cannot be decoded by rows; folder:PATH and list:FILE can, with both a size and "
            f"a colour in the name ({ALLOWED})"
        )
    content = source.by_rows()
    check(dataset, content.digest())
    return content.open_rows()


def check(dataset: Dataset, digest: str) -> None:
    if dataset.digest and dataset.digest != digest:
        raise DatasetError(
            f"data set {dataset.name!r} is not the one that was pinned: its content has digest {digest}, "
            f"not {dataset.digest}"
        )


def find(name: str) -> tuple[str, Source]:
    """The name under which any process on this machine finds the data set, and its files."""
    plain, shape = options.split(name)
    absolute, source = locate_source(plain, shape)
    kind = plain.partition(":")[0]
    shapeless = TEXTS.get(kind) or BOXED.get(kind)
    if shape != AS_THEY_ARE and shapeless is not None:
        raise UnknownDataset(f"data set {name!r} has the option {shape}; {shapeless} have no shape")
    return f"{absolute}{shape}", options.reshape_source(source, shape)


def locate_source(name: str, shape: Options) -> tuple[str, Source]:
    """The name and files of a data set, given without options; pictures of any size are decoded in this shape."""
    if name in EMBEDDED:
        return name, EMBEDDED[name]()
    if name in LAYOUTS:
        return name, usual(name, shape)
    if name == "mnist-on-photos":
        return name, blended_source(usual("mnist", shape))
    kind, colon, path = name.partition(":")
    if kind in OWN and colon:
        return own(kind, path, shape)
    if "#" in name:
        raise options.unknown(name)
    nearest = difflib.get_close_matches(name, DESCRIPTIONS, 1, cutoff=0.0)[0]
    raise UnknownDataset(
        f"unknown data set {name!r}; did you mean {nearest!r}? The data sets are {', '.join(DESCRIPTIONS)}"
    )


def usual(name: str, shape: Options) -> Source:
    """One of the usual sets inside ENGRAM_DATA; DatasetError, with the folders searched, where it is absent."""
    root = os.environ.get("ENGRAM_DATA", "")
    folders = [place for layout in LAYOUTS[name] for place in candidates(Path(root), layout)] if root else []
    for place in folders:
        source = read_as(name, place, shape)
        if source is not None:
            return source
    if _outlined.get() and shape == AS_THEY_ARE and name in outlines.SIZES:
        return outlines.source(name)
    places = ", ".join(f"{place}{missing(name, place)}" for place in folders)
    looked = f"looked in {places} (ENGRAM_DATA is {root})" if root else "ENGRAM_DATA is not set"
    raise DatasetError(
        f"data set {name!r} not found: {looked}; set ENGRAM_DATA to the folder that holds it, "
        f"or {fetching(name)} and set ENGRAM_DATA=data"
    )


def fetching(name: str) -> str:
    """How to fetch a usual set into the folder `data`, with a command where there is one."""
    if name in OFFERED:
        return OFFERED[name]
    data_set, call = DOWNLOADERS[name]
    command = f'python -c "from torchvision.datasets import {data_set} as D; {call}"'
    gdown = "pip install gdown && " if name == "celeba" else ""  # it lies on a drive of Google's
    return f"fetch it with: {gdown}{command}"


def missing(name: str, folder: Path) -> str:
    """The note about an existing folder that lacks some of the set's files, appended to its name; empty for others."""
    there = name in SVHN_TRAIN and folder.is_dir()
    return f" (which has no {' and no '.join(lacking_svhn_files(name, folder))})" if there else ""


def read_as(name: str, folder: Path, shape: Options) -> Source | None:
    if name in ACDC:
        return acdc.source(folder, ACDC[name])
    if name in FORMS:
        return question_source(FORMS[name], folder)
    if name == "imagenet":
        return imagenet.source(folder) if folder.is_dir() else None
    if name == "celeba":
        return celeba.source(folder, shape)
    if name == "cifar10":
        return cifar_source(folder) or parquet.source(folder)
    return svhn_source(name, folder) if name in SVHN_TRAIN else idx_source(folder)


def candidates(root: Path, layout: str) -> Iterator[Path]:
    """Folders that may be `layout`: inside the root, or the root itself where its path ends as the layout begins."""
    parts = Path(layout).parts
    for count in range(len(parts) + 1):
        if count == 0 or root.absolute().parts[-count:] == parts[:count]:
            yield root.joinpath(*parts[count:])


def own(kind: str, path: str, shape: Options) -> tuple[str, Source]:
    """The name and files of a user's data set: at the path as given, else inside ENGRAM_DATA."""
    if not path:
        raise UnknownDataset(f"data set '{kind}:' has no path; write it as {kind}:PATH")
    try:
        places = [expand_home(path)]
    except FileError as error:
        raise DatasetError(f"no {WHAT[kind]} {error}") from None
    if "ENGRAM_DATA" in os.environ:
        places.append(Path(os.environ["ENGRAM_DATA"]) / path)
    for place in places:
        source = OWN[kind](place.absolute(), shape)
        if source is not None:
            return f"{kind}:{place.absolute()}", source
    if "#" in path:
        raise options.unknown(f"{kind}:{path}")
    looked = " and ".join(str(place.absolute()) for place in places)
    raise DatasetError(f"no {WHAT[kind]} {looked}")
