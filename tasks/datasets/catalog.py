"""Data sets pinned and loaded: images, records, questions and boxed pictures, and pictures opened by rows."""

from __future__ import annotations

import threading
from collections.abc import MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa

from tasks.datasets import options
from tasks.datasets.boxed import scenes
from tasks.datasets.boxed.picture_files import BoxedFiles
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.embedded import Blended, Digits
from tasks.datasets.images import Images, PictureSet
from tasks.datasets.labelled import LabelledContent, split_places
from tasks.datasets.options import ALLOWED
from tasks.datasets.picture_cache import open_cache, path_of
from tasks.datasets.places import EMBEDDED, SCENES, find
from tasks.datasets.questions.facts import Facts
from tasks.datasets.questions.question import RECORD_SCHEMA, QuestionSet, questions_of_records
from tasks.datasets.questions.question_files import QuestionFiles
from tasks.datasets.records import RecordFile, Records
from tasks.datasets.source import Content, Source
from tasks.datasets.tickets import Tickets
from tasks.worker import hardware

# Where a set that is read by rows has its pixels: in memory, in a cache on the disk, or in its own files.
Held = Literal["auto", "memory", "cache", "files"]
SHARE = 0.5  # of the available memory, that a loaded set may take

_loaded: dict[str, Images] = {}
TEXT_SCHEMA = pa.schema([("id", pa.string()), pa.field("text", pa.string(), nullable=False)])
_records: dict[tuple[str, str], Records] = {}  # by digest and schema
_questions: dict[str, QuestionSet] = {}
_boxed: dict[tuple[str, float], BoxedPictures] = {}  # by digest and correlation
_loading = threading.Lock()


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
            content, dataset = read_content(dataset)
            if dataset.digest not in _loaded:  # the data set may have come without a digest
                _loaded[dataset.digest] = content.images()
        return _loaded[dataset.digest]


def read_content(dataset: Dataset) -> tuple[Content, Dataset]:
    """The data set's content, and the data set with its digest; DatasetError unless that is the pinned one."""
    content = find(dataset.name)[1].read()
    digest = content.digest()
    check(dataset, digest)
    return content, replace(dataset, digest=digest)


def files(dataset: Dataset) -> tuple[Path, ...]:
    """The file of each training image, by rows; none where images have no files of their own."""
    content = read_content(dataset)[0]
    if isinstance(content, options.Shaped):
        content = content.content
    if not isinstance(content, LabelledContent):
        return ()
    places = split_places(content.entries, "train")
    return tuple(content.entries[place].path for place in places if content.entries[place].row is None)


def load_records(dataset: Dataset, schema: pa.Schema) -> Records:
    """The data set's records with the fields of the schema (one is `id`), read once per process.

    Raises DatasetError where their digest is not the pinned one, or where a record lacks a field.
    """
    with _loading:
        if (dataset.digest, str(schema)) not in _records:
            content, dataset = read_content(dataset)
            if not isinstance(content, RecordFile):
                raise DatasetError(f"data set {dataset.name!r} holds images and no records; those are records:FILE")
            _records[dataset.digest, str(schema)] = content.records(schema)
        return _records[dataset.digest, str(schema)]


def load_questions(dataset: Dataset) -> QuestionSet:
    """The data set's questions with their gold answers, read once per process.

    Raises DatasetError where their digest is not the pinned one, or where a file is damaged or holds none.
    """
    with _loading:
        if dataset.digest not in _questions:
            content, dataset = read_content(dataset)
            if dataset.digest not in _questions:
                _questions[dataset.digest] = _questions_of(dataset, content)
        return _questions[dataset.digest]


def _questions_of(dataset: Dataset, content: Content) -> QuestionSet:
    if isinstance(content, Facts | QuestionFiles):
        return content.questions()
    if isinstance(content, RecordFile):
        return questions_of_records(content.records(RECORD_SCHEMA), str(content.path))
    raise DatasetError(
        f"data set {dataset.name!r} holds images and no questions; facts, facts-stated, squad, drop, squad:PATH, "
        "drop:PATH and records:FILE hold them"
    )


def load_texts(dataset: Dataset, count: int = 0) -> tuple[str, ...]:
    """The data set's texts: tickets, the field `text` of its records, or the contexts of its training questions, once.

    The first `count` of them; 0: all. Raises DatasetError where there are fewer, where their digest is not the pinned
    one, or where the data set holds none.
    """
    texts = _all_texts(dataset)
    if count > len(texts):
        raise DatasetError(f"examples is {count}; {dataset.name} has {len(texts)} texts")
    return texts[: count or None]


def _all_texts(dataset: Dataset) -> tuple[str, ...]:
    if dataset.name == "tickets":
        content, _ = read_content(dataset)
        assert isinstance(content, Tickets)
        return content.texts()
    if dataset.name.startswith("records:"):
        return tuple(load_records(dataset, TEXT_SCHEMA).table["text"].to_pylist())
    return tuple(dict.fromkeys(question.context for question in load_questions(dataset).train))


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
            _boxed[digest, correlation] = _scenes_of(dataset, content, correlation)
        return _boxed[digest, correlation]


def _scenes_of(dataset: Dataset, content: Content, correlation: float) -> BoxedPictures:
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
    if held == "auto" and not _is_large_in_cache(dataset) and not is_large(find(dataset.name)[1]):
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


def _is_large_in_cache(dataset: Dataset) -> bool:
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
