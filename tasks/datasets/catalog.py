"""Pin and load data sets: images, in memory or read by rows, records, questions and boxed images."""

from __future__ import annotations

import threading
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tasks.datasets import options
from tasks.datasets.boxed import scenes
from tasks.datasets.boxed.picture_files import BoxedFiles
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.embedded import Blended, Digits
from tasks.datasets.images import PictureSet
from tasks.datasets.labelled import Labelled, LabelledContent, LabelledFiles, split_places
from tasks.datasets.large_images import LARGE, LargeImages, open_large
from tasks.datasets.outlines import BoxedOutline, OutlinedPictures, QuestionOutline
from tasks.datasets.picture_index import remember_digest, remembered_digest
from tasks.datasets.places import EMBEDDED, SCENES, find
from tasks.datasets.questions.facts import Facts
from tasks.datasets.questions.question import RECORD_SCHEMA, QuestionSet, questions_of_records
from tasks.datasets.questions.question_files import QuestionFiles
from tasks.datasets.records import RecordFile, Records
from tasks.datasets.source import MANY_FILES, ByRows, Content, Renewed, Source
from tasks.datasets.splits import SPLITS, Split
from tasks.datasets.tickets import Tickets

_loaded: dict[str, PictureSet] = {}
TEXT_SCHEMA = pa.schema([("id", pa.string()), pa.field("text", pa.string(), nullable=False)])
_records: dict[tuple[str, str], Records] = {}  # by digest and schema
_questions: dict[str, QuestionSet] = {}
_boxed: dict[tuple[str, float], BoxedPictures] = {}  # by digest and correlation
_loading = threading.Lock()


def is_embedded(name: str) -> bool:
    """Return whether the data set with this name ships with the installation."""
    return options.split(name)[0] in EMBEDDED


def pin(dataset: Dataset, known_digests: MutableMapping[str, str] | None = None) -> Dataset:
    """Return the data set with an absolute path and the digest of its content.

    `known_digests` caches digests by the paths, sizes and modification times of the files; the caller keeps it between
    runs. Raises DatasetError if the data set is unknown or missing, or if its content differs from a given digest.
    """
    name, source = find(dataset.name)
    known_digests = {} if known_digests is None else known_digests
    stamp = source.stamp()
    if stamp not in known_digests:
        known_digests[stamp] = _digest_at(source, stamp)
    check(dataset, known_digests[stamp])
    return Dataset(name, known_digests[stamp])


def _digest_at(source: Source, stamp: str) -> str:
    """Return the digest of the files in this state. That of many files is kept in the cache folder."""
    has_many_files = len(source.files) > MANY_FILES
    digest = remembered_digest(stamp) if has_many_files else None
    if digest is None:
        digest = (large_content(source) or source.read()).digest()
        if has_many_files:
            remember_digest(stamp, digest)
    return digest


def read_again(dataset: Dataset, known_digests: MutableMapping[str, str]) -> Renewed:
    """Read all files of a data set, whatever is known about them, and renew what is known.

    Raises DatasetError if the data set is missing or damaged.
    """
    source = find(dataset.name)[1]
    stamp = source.stamp()
    if source.by_rows is not None:
        renewed = source.by_rows().renew()
    else:
        renewed = Renewed(source.read().digest())
    if known_digests.get(stamp) != renewed.digest:
        known_digests[stamp] = renewed.digest
    if len(source.files) > MANY_FILES:
        remember_digest(stamp, renewed.digest)
    return renewed


def load(dataset: Dataset) -> PictureSet:
    """Return the data set's images, opened once per process: in memory, or read by rows if they exceed LARGE bytes.

    Raises DatasetError if the digest does not match.
    """
    with _loading:
        if dataset.digest not in _loaded:
            source = find(dataset.name)[1]
            large = large_content(source)
            if large is not None:
                dataset = replace(dataset, digest=_checked_digest(dataset, large))
                if dataset.digest not in _loaded:  # the data set may have been passed without a digest
                    _loaded[dataset.digest] = open_by_rows(large)
            else:
                content = source.read()
                dataset = replace(dataset, digest=_checked_digest(dataset, content))
                if dataset.digest not in _loaded:
                    _loaded[dataset.digest] = content.images()
        return _loaded[dataset.digest]


def open_by_rows(content: ByRows) -> LargeImages:
    """Return images that are read by rows. The file of their pixels does not contain planted observations."""
    if isinstance(content, options.ShapedByRows) and content.options.planting is not None:
        return content.options.planting.plant_by_rows(open_by_rows(content.without_planting()))
    return open_large(content.digest(), content.open_rows())


def _checked_digest(dataset: Dataset, content: Content | ByRows) -> str:
    digest = content.digest()
    check(dataset, digest)
    return digest


def large_content(source: Source) -> ByRows | None:
    """Return the source's images for reading by rows if they exceed LARGE bytes of pixels, otherwise None."""
    content = None if source.by_rows is None else source.by_rows()
    return content if content is not None and content.extent().size > LARGE else None


def large_files(dataset: Dataset) -> LabelledFiles | None:
    """Return the images of a user's data set if they are read by rows, without planted observations."""
    content = large_content(find(dataset.name)[1])
    if isinstance(content, options.ShapedByRows):
        content = content.content
    return content if isinstance(content, LabelledFiles) else None


def read_content(dataset: Dataset) -> tuple[Content, Dataset]:
    """Return the data set's content, and the data set with its digest.

    Raises DatasetError if the digest does not match.
    """
    content = find(dataset.name)[1].read()
    return content, replace(dataset, digest=_checked_digest(dataset, content))


def files(dataset: Dataset) -> tuple[Path, ...]:
    """Return the file of each training image, in row order. Empty if the images are not in separate files."""
    entries = _list_entries(dataset, ("train",))
    return tuple(entry.path for entry in entries if entry.row is None)


def image_names(dataset: Dataset) -> tuple[str, ...]:
    """Return the name of each image, of the training split first and then of the test split.

    A name is a path with slashes, `PATH:ROW` in a Parquet file, or `PATH:MEMBER` in an archive. Empty if the images are
    not in a user's files.
    """
    names = []
    for entry in _list_entries(dataset, SPLITS):
        path = entry.path.as_posix()
        names.append(path if entry.row is None else f"{path}:{entry.member or entry.row}")
    return tuple(names)


def _list_entries(dataset: Dataset, splits: Sequence[Split]) -> list[Labelled]:
    """Return the entries of these splits, in row order. Empty for data sets other than a user's labelled images."""
    content = large_content(find(dataset.name)[1]) or read_content(dataset)[0]
    if isinstance(content, options.Shaped | options.ShapedByRows):
        content = content.content
    if isinstance(content, LabelledFiles):
        listed = content.joined_entries
    elif isinstance(content, LabelledContent):
        listed = content.entries
    else:
        return []
    entries = []
    for split in splits:
        entries += [listed[position] for position in split_places(listed, split)]
    return entries


def load_records(dataset: Dataset, schema: pa.Schema) -> Records:
    """Return the data set's records with the fields of the schema (which include `id`), read once per process.

    Raises DatasetError if the digest does not match, or if a record lacks a field.
    """
    with _loading:
        if (dataset.digest, str(schema)) not in _records:
            content, dataset = read_content(dataset)
            if not isinstance(content, RecordFile):
                raise DatasetError(f"data set {dataset.name!r} contains images, not records; use records:FILE")
            _records[dataset.digest, str(schema)] = content.records(schema)
        return _records[dataset.digest, str(schema)]


def load_questions(dataset: Dataset) -> QuestionSet:
    """Return the data set's questions with their gold answers, read once per process.

    Raises DatasetError if the digest does not match, if a file is damaged, or if there are no questions.
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
    if isinstance(content, QuestionOutline):
        return content.read_questions()
    if isinstance(content, RecordFile):
        return questions_of_records(content.records(RECORD_SCHEMA), str(content.path))
    raise DatasetError(
        f"data set {dataset.name!r} contains images, not questions; use facts, facts-stated, squad, drop, squad:PATH, "
        "drop:PATH or records:FILE"
    )


def load_texts(dataset: Dataset, count: int = 0) -> tuple[str, ...]:
    """Return the first `count` texts of the data set (0: all).

    Texts are tickets, the `text` field of records, or the distinct contexts of questions. Raises DatasetError if there
    are fewer texts or none, or if the digest does not match.
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
    """Return the data set's images with the boxes around their objects, indexed once per process.

    For digits-on-photos, these are the scenes of `tasks.datasets.boxed.scenes`, whose backgrounds and digits have this
    correlation, from 0 to 1. Raises ValueError if the correlation is above 0 for any other data set. Raises
    DatasetError if the digest does not match, if a file is damaged, or if the data set has no boxed images.
    """
    if not 0 <= correlation <= 1:
        raise ValueError(f"correlation is {correlation}; it must be a share from 0 to 1")
    if correlation and dataset.name != SCENES:
        raise ValueError(
            f"correlation is {correlation} with data set {dataset.name!r}; it must be 0, since only {SCENES} has one"
        )
    with _loading:
        if dataset.digest and (dataset.digest, correlation) in _boxed:
            return _boxed[dataset.digest, correlation]
        content = find(dataset.name)[1].read()
        if isinstance(content, BoxedFiles):  # hundreds of gigabytes, read once per machine
            pictures = content.pictures(dataset.digest)
            check(dataset, pictures.digest)
            return _boxed.setdefault((pictures.digest, correlation), pictures)
        digest = content.digest()
        check(dataset, digest)
        if isinstance(content, BoxedOutline):
            return _boxed.setdefault((digest, correlation), OutlinedPictures(content))
        if (digest, correlation) not in _boxed:  # the data set may have been passed without a digest
            _boxed[digest, correlation] = _scenes_of(dataset, content, correlation)
        return _boxed[digest, correlation]


def _scenes_of(dataset: Dataset, content: Content, correlation: float) -> BoxedPictures:
    if dataset.name == SCENES and isinstance(content, Blended) and isinstance(content.digits, Digits):
        return scenes.scenes(content.digits.text, content.encoded, correlation)
    holding = f"{SCENES}, imagenet, imagenet:PATH or boxed:TABLE"
    raise DatasetError(f"data set {dataset.name!r} contains no boxed images; use {holding}")


def check(dataset: Dataset, digest: str) -> None:
    if dataset.digest and dataset.digest != digest:
        raise DatasetError(
            f"data set {dataset.name!r} is not the one that was pinned: its content has digest {digest}, "
            f"not {dataset.digest}"
        )
