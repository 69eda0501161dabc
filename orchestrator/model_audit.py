"""The audit of one model with its members and non-members: from three arguments to a specification, or a recording.

    engram audit model.pt members/ others/
    engram.audit(model, (member_images, member_labels), (other_images, other_labels))

A model file and two data sets become a specification of `membership`: its loss (`question=loss`) or, with reference
models, its ranks among them (`question=given`). Objects in memory are scored here, and the run reads the recorded
scores.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
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
REFERENCES = 64  # reference models that the next step recommends


@dataclass(frozen=True)
class ModelAndFolders:
    """A model file and the names or paths of its members and of other data.

    `size` is the size of the images, HEIGHTxWIDTH. None: that of the images, or the one that the model takes. `label`
    is the column of the classes if both sets are tables of features.
    """

    model: str
    members: str
    others: str
    size: str | None = None
    label: str | None = None

    def file(self) -> ModelFile:
        """Return the model file. Raises SpecError if its name is invalid."""
        from tasks.external.model_file import ModelFile

        try:
            return ModelFile.parse(self.model)
        except ValueError as error:
            raise SpecError(str(error)) from None

    def datasets(self) -> tuple[str, str]:
        """Return the names of both data sets, with a size that the model takes. Raises SpecError if there is none."""
        from tasks.datasets.dataset import DatasetError
        from tasks.external.audit_inputs import name_dataset
        from tasks.external.input_shape import fit_dataset
        from tasks.external.model_file import Interface
        from tasks.worker.files import FileError

        file = self.file()
        names = []
        try:
            for path, role in ((self.members, "members"), (self.others, "others")):
                name = name_dataset(path, role, self.label)
                if self.size is not None:
                    name = f"{name}#{self.size}"
                names.append(fit_dataset(name, file, Interface()))
        except (DatasetError, FileError, ValueError) as error:
            raise SpecError(" ".join(str(error).split())) from None
        members, others = names
        return members, others


def file_spec(
    files: ModelAndFolders, fields: Mapping[str, Any], references: int | None = None, network: str | None = None
) -> Spec:
    """Return the specification of an audit of a model file. Raises SpecError if an argument is invalid.

    It has the loss of the model or, with `references`, ranks among this number of models of the `network`.
    """
    if references is None:
        question = {"question": "loss"}
        sets = "question.source"
    else:
        question = {"question": "given", "question.records": "sets", "question.models": str(references)}
        question["training.network"] = _reference_network(files.file(), network)
        sets = "question.records"
    members, others = files.datasets()
    question |= {"question.source": "file", "question.source.model": files.model}
    question |= {f"{sets}.members": members, f"{sets}.non_members": others}
    return Spec(AUDIT, None, {**question, **fields})


def _reference_network(model: ModelFile, network: str | None) -> str:
    """Return the network of the reference models: the given one, or that of the model's factory."""
    if network is not None:
        return network
    known = network_of(model)
    if known is None:
        raise SpecError(
            f"--references trains networks like that of {model.named().name}, whose file does not say how to build "
            "an untrained one; give it as --network package.module:function"
        )
    return known


def network_of(model: ModelFile) -> str | None:
    """Return the network that a model file names, as a network to train, or None if it names none."""
    return None if model.factory is None else str(model.factory)


def recording_spec(recording: Path) -> Spec:
    """Return the specification of an audit of recorded scores."""
    fields = {"question": "loss", "question.source": "recording", "question.source.recording": str(recording)}
    return Spec(AUDIT, None, fields)


def example_spec() -> Spec:
    """Return the specification of the example: a model that is trained on embedded data."""
    return Spec(AUDIT, EXAMPLE)


def describe_stronger(files: ModelAndFolders | None, time: str = "") -> str:
    """Return a line on stronger evidence, its command and its cost, if known. `files` is None for the example."""
    words = ["MODEL", "MEMBERS", "OTHERS"] if files is None else [files.model, files.members, files.others]
    network = ""
    if files is None or network_of(files.file()) is None:
        network = " --network package.module:function"
    cost = f" ({time} here)" if time else ""
    return (
        f"Stronger evidence: engram audit {shlex.join(words)} --references {REFERENCES}{network} trains "
        f"{REFERENCES} models like this one{cost} and gives each record an exact p-value."
    )


def record(
    model: Any, members: Any, non_members: Any, store: Store, *, batch: int, seed: int
) -> tuple[Path, tuple[str, ...]]:
    """Score objects in memory, and write the scores to a Parquet file (`tasks.external.split_audit.SCORES`).

    The file is in the store, or in a temporary folder if the store is remote. Its name is the digest of its content, so
    that equal scores are one file. Also returns notes on how the records were converted.

    Raises ValueError if the records cannot be read or the model cannot be evaluated.
    """
    from tasks.external.audit_inputs import read_sets
    from tasks.external.split_audit import score_sets

    inside, outside = read_sets(members, non_members)
    scores, notes = score_sets(inside, outside, model, batch, seed)
    return _write(scores, store), notes


def _write(scores: pa.Table, store: Store) -> Path:
    import tempfile

    import pyarrow as pa
    import pyarrow.parquet as pq

    from orchestrator.store import local_path
    from orchestrator.store.atomic_write import replace

    sink = pa.BufferOutputStream()
    pq.write_table(scores, sink)
    content = sink.getvalue().to_pybytes()
    location = local_path(store.location)
    if location is None:
        folder = Path(tempfile.mkdtemp(prefix="engram-"))
    else:
        folder = location / RECORDINGS
        folder.mkdir(exist_ok=True)
    path = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.parquet"
    replace(folder, path, content)
    return path
