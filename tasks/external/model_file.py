"""An external model: its file, and the interface through which it is evaluated. Naming a model imports no code.

| written                             | file                                                                    |
|-------------------------------------|-------------------------------------------------------------------------|
| `model.pt`                          | TorchScript: `torch.jit.script(model).save("model.pt")`, or `.trace`    |
| `model.pt2`                         | `torch.export.save(torch.export.export(model, ...), "model.pt2")`       |
| `model.onnx`                        | ONNX in one file, weights included                                      |
| `package.module:factory+weights.pt` | a state dict, `torch.save(model.state_dict(), "weights.pt")`, `.npz`    |
|                                     | or `.safetensors`, or a Lightning checkpoint, `.ckpt`                   |
| `timm:resnet50+weights.pt`          | the same for timm's network of that name                                |
| `transformers:FOLDER`               | an image classifier: `model.save_pretrained("FOLDER")`                  |

The factory creates one of the user's networks (`tasks.models.custom`). timm provides only the network; no weights are
downloaded.

Security. A model is a program, and only ONNX and weights are read purely as data.

- No file is unpickled: a whole module (`torch.save(model)`) is refused when it is pinned, since reading it would run
  its code. State dicts are read with `weights_only=True`, `.npz` with `allow_pickle=False`; `.safetensors` contain only
  numbers.
- torch.export's reader falls back to pickle, evaluates text and loads compiled code. An archive that requires any of
  these is refused before it is read (`tasks.external.archives`). Its graph may only use torch's operators.
- TorchScript cannot be read safely: PyTorch advises to treat it "the same way as locally executable code from an
  unknown source" (its SECURITY.md). It contains no Python objects, but its program may use memory, time and files.
- onnxruntime reads ONNX without third-party operators and without opening other files.
- Only JSON and numbers are read from a transformers folder, never its Python files.
- A factory is Python code, which is imported.

None of this is a sandbox: evaluate an untrusted model in a container, or ask its owner to evaluate it and to return a
table (`tasks.external.outputs`).
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, BinaryIO, ClassVar, Literal

from tasks.contract import extras
from tasks.contract.extras import ONNXRUNTIME, Extra
from tasks.contract.pinnable import PinnedName
from tasks.contract.ranges import AtLeast, Ranged
from tasks.datasets.source import digest_of
from tasks.external.file_contents import (
    check_contents,
    digest_of_files,
    digest_of_folder,
    file_names,
    needs_network,
    read_folder,
    sha256_of,
)
from tasks.models import custom
from tasks.models.custom import Factory
from tasks.user_code.acceptance import digest_in_keys
from tasks.worker import confined, files, size_limits
from tasks.worker.files import File

RULE = "given model: factory and weights, 1"
TIMM_RULE = "given model: timm network and weights, 1"
PART_RULE = "given model: part of a checkpoint, 1"
Kind = Literal["torchscript", "export", "onnx", "factory", "timm", "transformers"]
Gives = Literal["logits", "probabilities", "log-probabilities"]
Layout = Literal["nchw", "nhwc"]
EXPECTED = (
    "expected model.pt (TorchScript), model.pt2 (torch.export), model.onnx, package.module:factory+weights.pt, "
    "timm:name+weights.pt, or transformers:FOLDER"
)
KINDS: dict[str, Kind] = {".pt": "torchscript", ".pth": "torchscript", ".pt2": "export", ".onnx": "onnx"}
WEIGHTS = (".pt", ".pth", ".ckpt", ".npz", ".safetensors")
PICKLES = (".pkl", ".pickle", ".joblib", ".skops")
WEIGHTS_ALONE = (".ckpt", ".npz", ".safetensors")  # never a whole model
# A factory's name ends at the first plus sign, since it cannot contain one.
FACTORY = re.compile(r"([\w.]+:\w+)\+(.+)", re.DOTALL)
TIMM = re.compile(r"timm:([\w.-]+)\+(.+)", re.DOTALL)
TRANSFORMERS = re.compile(r"transformers:(.+)", re.DOTALL)
# A part of a checkpoint, which follows the path of a weight file with one of these suffixes.
PART = re.compile(r"(.+\.(?:pt|pth|ckpt|npz|safetensors))#([^#/]+)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class ModelFile(PinnedName):
    """A model as a file, pinned once `digest` is set. Written `path`, `package.module:factory+path` or `...@digest`.

    A weight file may be followed by a part of a checkpoint: `factory+checkpoint.pt#model_ema`. The digest is the
    SHA-256 of the file's bytes. With a factory, it covers the factory's function, its source and the file; with timm,
    the network's name and the file; for a folder, the names and contents of the model's files.
    """

    noun: ClassVar[str] = "model"

    def __post_init__(self) -> None:
        if self.is_folder:
            return
        suffix = PurePath(self.path).suffix.lower()
        if self.is_weights and suffix not in WEIGHTS:
            network_source = "a factory" if self.factory is not None else "timm"
            raise ValueError(
                f"model is {self.name!r}; expected weights for {network_source} in one of {', '.join(WEIGHTS)}"
            )
        if suffix in PICKLES:
            raise ValueError(
                f"model is {self.name!r}, a pickle, which is refused: reading it would run its code; {EXPECTED}. Pass "
                "an estimator to engram.audit in Python, or save it as ONNX (skl2onnx, with zipmap=False) and set "
                "interface.output=probabilities interface.gives=probabilities"
            )
        if not self.is_weights and suffix in WEIGHTS_ALONE:
            raise ValueError(f"model is {self.name!r}, a file of weights, which {needs_network(self.path)}")
        if not self.is_weights and suffix not in KINDS:
            raise ValueError(f"model is {self.name!r}; {EXPECTED}")

    @classmethod
    def parse(cls, text: str) -> ModelFile:
        file = File.parse(text)  # a path may contain an @
        return cls(file.path, file.digest)

    def named(self) -> ModelFile:
        """Return the model with only the last component of its path."""
        return ModelFile(self._name_with(PurePath(self.path).name), self.digest)

    def pin(self, known_digests: MutableMapping[str, str]) -> ModelFile:  # noqa: ARG002 - the digest may not be that of a file
        """Return the model with its digest.

        Raises FileError for an invalid file and ValueError for an invalid factory.
        """
        return pin(self)

    def identity(self) -> str:
        """Return what identifies the content, never the name or path.

        See `acceptance` for a factory whose source has changed.
        """
        return digest_in_keys(super().identity())

    def digest_with_source(self, source: str) -> str:
        """Return the digest that the model has if its factory's source has this digest."""
        assert self.factory is not None
        with _open(self) as file:
            return _digest_with_source(self, source, sha256_of(file))

    def paths(self) -> tuple[Path, ...]:
        """Return the model's files, including the Python files of a factory."""
        source = () if self.factory is None else tuple(custom.sources(self.factory).values())
        if self.is_folder:
            return tuple(files.expand_home(self.path) / file for file in file_names(self.name, self.path))
        return (files.expand_home(self.path), *source)

    def extras(self) -> tuple[Extra, ...]:
        extra_by_kind = {"timm": extras.TIMM, "onnx": ONNXRUNTIME, "transformers": extras.TRANSFORMERS}
        if self.kind in extra_by_kind:
            return (extra_by_kind[self.kind],)
        return ()

    @property
    def path(self) -> str:
        """The path of the model or its weights, or of the transformers folder."""
        folder = TRANSFORMERS.fullmatch(self.name)
        if folder:
            return folder[1]
        weights = self._weights_and_part
        part = PART.fullmatch(weights)
        return part[1] if part else weights or self.name

    @property
    def part(self) -> str:
        """The selected part of a checkpoint, such as `model_ema`. Empty if the network determines it."""
        part = PART.fullmatch(self._weights_and_part)
        return part[2] if part else ""

    @property
    def _weights_and_part(self) -> str:
        """The part of the name after the network and the plus sign. Empty without a plus sign."""
        match = TIMM.fullmatch(self.name) or FACTORY.fullmatch(self.name)
        return match[2] if match and not self.is_folder else ""

    def _name_with(self, path: str) -> str:
        """Return the name with a different path."""
        end = len(self.name) - (len(self.part) + 1 if self.part else 0)
        return self.name[: end - len(self.path)] + path + self.name[end:]

    @property
    def factory(self) -> Factory | None:
        """The factory of the network, or None if the network comes from timm or the file."""
        match = FACTORY.fullmatch(self.name)
        if match and self.timm is None and not self.is_folder:
            return Factory.parse(match[1])
        return None

    @property
    def timm(self) -> str | None:
        """The name of timm's network, or None for other networks."""
        match = TIMM.fullmatch(self.name)
        return match[1] if match else None

    @property
    def is_weights(self) -> bool:
        """Whether the file contains only weights."""
        return self.factory is not None or self.timm is not None

    @property
    def is_one_file(self) -> bool:
        """Whether the file is the whole model, so that its digest is that of its bytes."""
        return not (self.is_weights or self.is_folder)

    @property
    def is_folder(self) -> bool:
        """Whether the model is a transformers folder."""
        return TRANSFORMERS.fullmatch(self.name) is not None

    @property
    def kind(self) -> Kind:
        if self.is_folder:
            return "transformers"
        if self.is_weights:
            return "factory" if self.factory is not None else "timm"
        return KINDS[PurePath(self.path).suffix.lower()]


class Inputs(Ranged):
    """How images are prepared for a model. Raises ValueError for impossible settings."""

    in_full: ClassVar[bool] = True  # written interface.batch, since plain batch belongs to a training

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def conflicts(self) -> Iterator[str]:
        mean, std = self.mean, self.std
        if len(mean) != len(std) or len(mean) not in (0, 1, 3):
            yield f"mean has {len(mean)} numbers and std {len(std)}; expected none, one, or one per channel in each"
        if not all(math.isfinite(value) for value in mean):
            yield f"mean is {mean}; expected finite numbers"
        if not all(math.isfinite(value) and value > 0 for value in std):
            yield f"std is {std}; expected numbers above 0"


@dataclass(frozen=True)
class Interface(Inputs):
    """The inputs and outputs of a model, which takes float32 images with values in [0, 1]."""

    gives: Gives = "logits"
    """Kind of outputs, one column per class: logits, probabilities, or their natural logarithms; a single column is
    that of the second of two classes."""
    layout: Layout = "nchw"
    """Order of the image axes: nchw (rows, channels, height, width) or nhwc."""
    mean: tuple[float, ...] = ()
    """Mean to subtract from images in [0, 1]: one number per channel, or one for all; empty to subtract nothing."""
    std: tuple[float, ...] = ()
    """Divisor of images after the subtraction; mean 0 and std 1/255 yield [0, 255]."""
    output: str = ""
    """Name of the output if there are several; for unnamed outputs, its index from 0."""
    batch: Annotated[int, AtLeast(1)] = 256
    """Images per batch, unless the file has a fixed batch size."""


@dataclass(frozen=True)
class EncoderInterface(Inputs):
    """The inputs of an encoder, and the output that contains its embeddings. The fields are as in `Interface`.

    Embeddings are floats (rows, d) for any d. Further axes are flattened.
    """

    layout: Layout = "nchw"
    """Order of the image axes: nchw (rows, channels, height, width) or nhwc."""
    mean: tuple[float, ...] = ()
    """Mean to subtract from images in [0, 1]: one number per channel, or one for all; empty to subtract nothing."""
    std: tuple[float, ...] = ()
    """Divisor of images after the subtraction; mean 0 and std 1/255 yield [0, 255]."""
    output: str = ""
    """Name of the output if there are several; for unnamed outputs, its index from 0."""
    batch: Annotated[int, AtLeast(1)] = 256
    """Images per batch, unless the file has a fixed batch size."""


def pin(model: ModelFile) -> ModelFile:
    """Return the model with its absolute path and the digest of its current content.

    Raises ValueError if the file or factory does not exist or differs from the pinned one, or if it has unsupported
    contents, such as a whole pickled module (`tasks.external.file_contents`).
    """
    path = str(files.expand_home(model.path).absolute())
    name = model._name_with(path)
    new = ModelFile(name, model.digest)
    if new.is_folder:
        digest = digest_of_files(new.name, new.path)
        _check_digest(new, digest)
        return ModelFile(name, digest)
    with _open(new) as file:
        return ModelFile(name, _checked_digest(new, file))


def content(model: ModelFile) -> bytes:
    """Read the model's file. Raises ValueError if the bytes differ from the pinned ones."""
    with _open(model) as file:
        try:
            model_bytes = file.read()
        except MemoryError:
            raise ValueError(f"model {model.name} cannot be read: not enough memory") from None
    _checked_digest(model, io.BytesIO(model_bytes))
    return model_bytes


@contextmanager
def _open(model: ModelFile) -> Iterator[BinaryIO]:
    """Open the model's file. Raises ValueError if it does not exist or exceeds the memory limit."""
    path = files.expand_home(model.path)
    try:
        size = files.check_regular(path).st_size
        confined.check_file_size(size)
        with path.open("rb") as file:
            yield file
    except size_limits.TooLarge as error:
        raise ValueError(f"model {model.name} cannot be read: {error}") from None
    except OSError as error:
        raise files.unreadable(path, error) from None


def folder_content(model: ModelFile) -> dict[str, bytes]:
    """Read the files of a transformers model. Raises ValueError in the same cases as `content`."""
    return _digest_and_folder(model)[1]


def _digest_and_folder(model: ModelFile) -> tuple[str, dict[str, bytes]]:
    contents = read_folder(model.name, model.path)
    digest = digest_of_folder(contents)
    _check_digest(model, digest)
    return digest, contents


def _checked_digest(model: ModelFile, file: BinaryIO) -> str:
    """Check the content of a model and return its digest. Only directories and headers are kept in memory."""
    try:
        size_limits.check_archive(file)
    except size_limits.TooLarge as error:
        raise ValueError(f"model {model.name} cannot be read: {error}") from None
    check_contents(model.name, model.path, model.kind, file, model.part)
    if model.factory is None:
        source = ""
    else:
        source = custom.source_digest(model.factory)
    digest = _digest_with_source(model, source, sha256_of(file))
    _check_digest(model, digest)
    return digest


def _digest_with_source(model: ModelFile, source: str, digest: str) -> str:
    """Compute a model's digest from the digests of its factory's source (empty without a factory) and of its file."""
    if model.factory is not None:
        digest = digest_of(RULE, (model.factory.function.encode(), source.encode(), digest.encode()))
    if model.timm is not None:
        digest = digest_of(TIMM_RULE, (model.timm.encode(), digest.encode()))
    if model.part:
        digest = digest_of(PART_RULE, (model.part.encode(), digest.encode()))
    return digest


def _check_digest(model: ModelFile, digest: str) -> None:
    if model.digest and digest_in_keys(model.digest) != digest_in_keys(digest):
        raise ValueError(
            f"model {model.name} is not the one that was pinned: its content has digest {digest}, not {model.digest}"
        )
