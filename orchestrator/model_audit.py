"""The audit of one model with its members and non-members: from three arguments to a specification, or a recording.

    engram audit model.pt members/ others/
    engram.audit(model, (member_images, member_labels), (other_images, other_labels))

A model file, or a table of its outputs, and two data sets become a specification of `membership` about its loss
(`question=loss`). Objects in memory are scored here, and the run reads the recorded scores.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from orchestrator.errors import SpecError
from orchestrator.spec.specification import Spec

if TYPE_CHECKING:
    import pyarrow as pa

    from orchestrator.store import Store
    from tasks.external.model_file import ModelFile

AUDIT = "membership"
EXAMPLE = "example"
RECORDINGS = "recordings"  # folder in a local store
NAME_DIGITS = 16  # first digits of the digest of a recording, which name its file
TABLES = (".csv", ".parquet")  # tables of outputs
REFERENCES = 16  # reference models that the next step recommends


@dataclass(frozen=True)
class ModelAndFolders:
    """A model file, or a table of its outputs, and the names or paths of its members and of other data.

    `size` is the size of the images, HEIGHTxWIDTH. None: that of the images, or the one that the model takes. `label`
    is the column of the classes if both sets are tables of features.
    """

    model: str
    members: str
    others: str
    size: str | None = None
    label: str | None = None

    @property
    def is_table(self) -> bool:
        """Whether the model is a table of its outputs."""
        return Path(self.model).suffix.lower() in TABLES

    @property
    def words(self) -> list[str]:
        """The arguments of `engram audit` that name them."""
        size = [] if self.size is None else ["--size", self.size]
        label = [] if self.label is None else ["--label", self.label]
        return [self.model, self.members, self.others, *size, *label]

    @cached_property
    def file(self) -> ModelFile:
        """The model file. Raises SpecError if its name is invalid."""
        from tasks.external.model_file import ModelFile

        try:
            return ModelFile.parse(self.model)
        except ValueError as error:
            raise SpecError(str(error)) from None

    @cached_property
    def datasets(self) -> tuple[str, str]:
        """The names of both data sets, with a size that the model takes. Raises SpecError if there is none."""
        from tasks.datasets.dataset import DatasetError
        from tasks.external.audit_inputs import name_dataset
        from tasks.external.input_shape import fit_dataset
        from tasks.external.model_file import Interface
        from tasks.worker.files import FileError

        names = []
        try:
            for path, role in ((self.members, "members"), (self.others, "others")):
                name = name_dataset(path, role, self.label)
                if self.size is not None:
                    name = f"{name}#{self.size}"
                if not self.is_table:
                    name = fit_dataset(name, self.file, Interface())
                names.append(name)
        except (DatasetError, FileError, ValueError) as error:
            raise SpecError(" ".join(str(error).split())) from None
        members, others = names
        return members, others


def file_spec(
    files: ModelAndFolders, fields: Mapping[str, Any], references: int | None = None, network: str | None = None
) -> Spec:
    """Return the specification of an audit of a model file or table. Raises SpecError if an argument is invalid.

    With `references`, the loss is compared with this number of reference models of the `network`.
    """
    compared = {}
    if references is not None:
        compared = reference_fields(references, network or network_of(files), files.model)
    members, others = files.datasets
    question = {"question": "loss"}
    if files.is_table:
        question |= {"question.source": "table", "question.source.outputs": files.model}
    else:
        question |= {"question.source": "file", "question.source.model": files.model}
    question |= {"question.source.members": members, "question.source.non_members": others}
    return Spec(AUDIT, None, {**question, **compared, **fields})


def reference_fields(references: int, network: str | None, model: str) -> dict[str, str]:
    """Return the fields that train reference models. Raises SpecError if the network is unknown."""
    if network is None:
        raise SpecError(
            f"--references trains networks for comparison, and {model} does not say how to build an untrained one; "
            "give it as --network package.module:function, or a built-in one such as --network cnn1"
        )
    return {"question.references": str(references), "training.network": network}


def network_of(files: ModelAndFolders) -> str | None:
    """Return the network that a model file names, as a network to train, or None if it names none."""
    if files.is_table or files.file.factory is None:
        return None
    return str(files.file.factory)


def recording_spec(recording: Recording, fields: Mapping[str, Any]) -> Spec:
    """Return the specification of an audit of recorded scores."""
    source = {"question.source": "recording", "question.source.recording": str(recording.scores)}
    if recording.images is not None:
        source["question.source.images"] = str(recording.images)
    return Spec(AUDIT, None, {"question": "loss", **source, **fields})


def example_spec() -> Spec:
    """Return the specification of the example: a model that is trained on embedded data."""
    return Spec(AUDIT, EXAMPLE)


def describe_stronger(files: ModelAndFolders | None, time: str = "") -> str:
    """Return a line on stronger evidence, its command and its cost, if known. `files` is None for the example."""
    words = ["MODEL", "MEMBERS", "OTHERS"] if files is None else files.words
    own = ""
    if files is None or network_of(files) is None:
        words = [*words, "--network", "cnn1" if files is None or files.label is None else "mlp1"]
        own = " Your own network (--network package.module:function) makes the attack stronger."
    cost = f" ({time} here)" if time else ""
    return (
        f"Stronger evidence: engram audit {shlex.join(words)} --references {REFERENCES} trains {REFERENCES} reference "
        f"models{cost} and gives each record an exact p-value.{own}"
    )


def describe_few_references(references: int) -> str:
    """Return a line on what more reference models would add to these."""
    return (
        f"With {references} reference models, hardly any single record can be recognised: use --references "
        f"{REFERENCES} or more."
    )


@dataclass(frozen=True)
class Recording:
    """The recorded scores of a model in memory, and the images of both sets if references are trained on them."""

    scores: Path
    images: Path | None
    notes: tuple[str, ...]  # on how the records were converted


@contextmanager
def record(
    model: Any, members: Any, non_members: Any, store: Store, *, batch: int, seed: int, has_references: bool
) -> Iterator[Recording]:
    """Score objects in memory, and write Parquet files of the scores and, for references, of the images.

    The files (`tasks.external.split_audit.SCORES` and `tasks.external.recorded_sets.RECORDED`) are in the
    store or, if it is remote, in a temporary folder that is removed at the end of the block. Names are digests of their
    contents, so that equal recordings are one file.

    Raises ValueError if the records cannot be read or the model cannot be evaluated.
    """
    from orchestrator.store import local_path
    from tasks.external.audit_inputs import read_sets
    from tasks.external.recorded_sets import record_images
    from tasks.external.split_audit import score_sets

    inside, outside = read_sets(members, non_members)
    scores, notes = score_sets(inside, outside, model, batch, seed)
    location = local_path(store.location)
    with ExitStack() as stack:
        if location is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="engram-")))
        else:
            folder = location / RECORDINGS
            folder.mkdir(exist_ok=True)
        images = _write(record_images(inside, outside), folder) if has_references else None
        yield Recording(_write(scores, folder), images, notes)


def _write(table: pa.Table, folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from orchestrator.store.atomic_write import replace

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content = sink.getvalue().to_pybytes()
    path = folder / f"{hashlib.sha256(content).hexdigest()[:NAME_DIGITS]}.parquet"
    replace(folder, path, content)
    return path
