"""A language model by name: a small one built from its config, one in a local folder, or one in the hub's cache.

| written                | what it is                                                                     |
|------------------------|--------------------------------------------------------------------------------|
| `tiny-t5#WIDTHxLAYERS` | a T5 begun at random, with a tokenizer trained on the texts it is fine-tuned on |
| `tiny-gpt#WIDTHxLAYERS` | a GPT-2 begun at random that reads bytes                                      |
| `folder:PATH`          | any Hugging Face sequence model and its tokenizer, by their `save_pretrained`  |
| `hub:NAME`             | one that the hub's cache on this machine holds, such as `hub:t5-small`         |
| `folder:PATH+ADAPTER`, `hub:NAME+ADAPTER` | the same with the LoRA adapter in the folder ADAPTER, merged into it |

Nothing is downloaded, and nothing that could run code is read: weights are read from safetensors alone, and of a folder
neither Python files nor pickles. Naming and pinning a model import no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import ClassVar

from tasks.contract.extras import PEFT, TRANSFORMERS, Extra
from tasks.contract.pinnable import PinnedName, Unavailable
from tasks.datasets.source import digest_of
from tasks.worker import files
from tasks.worker.files import File

RULE = "language model: safetensors, config and tokenizer, 1"
TINY_RULES = {"t5": "tiny t5, 2", "gpt": "tiny gpt, 1"}  # what is built from the sizes: another one changes this
TINY = re.compile(r"tiny-(t5|gpt)(?:#([1-9]\d{0,3})x([1-9]\d?))?")
WIDTH, LAYERS = 64, 2
HEAD = 16  # features of a head of a tiny model
# What bears on a model's answers beside its weights: its config and its tokenizer.
READ = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "spiece.model", "sentencepiece.bpe.model"),
    *("tokenizer.model", "tekken.json", "model.safetensors.index.json"),
)
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
TOKENIZERS = ("tokenizer.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "vocab.json", "vocab.txt")


class ModelError(Unavailable):
    """A language model is absent, cannot be read, or is not the one that was pinned: one line for the user."""


@dataclass(frozen=True)
class TinyModel:
    """The kind and sizes of a small model: `width` features, and so many layers, a T5's in encoder and decoder each."""

    kind: str  # t5 or gpt
    width: int
    layers: int


@dataclass(frozen=True)
class LanguageModel(PinnedName):
    """A language model by name, pinned once `digest` is set. Written `name` or `name@digest`.

    The digest of one that comes with weights is SHA-256 over those, its config and its tokenizer; a tiny one is built
    from its sizes and has none.
    """

    noun: ClassVar[str] = "model"

    def __post_init__(self) -> None:
        kind, colon, rest = self.name.partition(":")
        if colon and kind in ("folder", "hub") and rest:
            return
        tiny = TINY.fullmatch(self.name)
        if tiny is None:
            raise ValueError(
                f"model is {self.name!r}; it must be tiny-t5 or tiny-gpt, with #WIDTHxLAYERS or without, "
                "folder:PATH or hub:NAME, with +ADAPTER or without"
            )
        if tiny[2] and int(tiny[2]) % HEAD:
            raise ValueError(f"model is {self.name!r}; its width must be a multiple of {HEAD}")

    def named(self) -> LanguageModel:
        """The same without the folders that its folder lies in."""
        kind, _, path = self.name.partition(":")
        if self.tiny_sizes is not None:
            return self
        base, adapter = _split_adapter(path)
        named = PurePath(base).name if kind == "folder" else base
        return LanguageModel(f"{kind}:{named}{f'+{PurePath(adapter).name}' if adapter else ''}", self.digest)

    def identity(self) -> str:
        """What a key sees: the content, never the name or path; of a tiny one its sizes."""
        if self.tiny_sizes is not None:
            sizes = self.tiny_sizes
            return f"{TINY_RULES[sizes.kind]}: {sizes.width}x{sizes.layers}"
        return super().identity()

    def extras(self) -> tuple[Extra, ...]:
        return (TRANSFORMERS, PEFT) if self.tiny_sizes is None and _split_adapter(self.name)[1] else (TRANSFORMERS,)

    def pin(self, known: MutableMapping[str, str]) -> LanguageModel:
        """The same with the digest of its content, and a folder by its absolute path.

        ModelError where it is not there, cannot be read, or is not the one that was pinned; no digest of a tiny one.
        """
        if self.tiny_sizes is not None:
            return self
        digest = _content_digest(self, known)
        if self.digest and self.digest != digest:
            raise ModelError(
                f"model {self.name} is not the one that was pinned: its content has digest {digest}, not {self.digest}"
            )
        base, adapter = str(model_folder(self)), adapter_folder(self)
        base = f"folder:{base}" if self.name.startswith("folder:") else _split_adapter(self.name)[0]
        return replace(self, name=base if adapter is None else f"{base}+{adapter}", digest=digest)

    def paths(self) -> tuple[Path, ...]:
        return () if self.tiny_sizes is not None else tuple(all_files(self))

    @property
    def tiny_sizes(self) -> TinyModel | None:
        """The sizes of a tiny model; None for one that comes with weights."""
        found = TINY.fullmatch(self.name)
        return None if found is None else TinyModel(found[1], int(found[2] or WIDTH), int(found[3] or LAYERS))


def _split_adapter(name: str) -> tuple[str, str]:
    """What stands before and after the last + of a name; all of it, where a folder is called so, and nothing."""
    base, plus, adapter = name.rpartition("+")
    path = name.removeprefix("folder:")
    return (base, adapter) if plus and not files.expand_home(path).is_dir() else (name, "")


def model_folder(model: LanguageModel) -> Path:
    """The folder of a model that comes with weights; ModelError, in one line, where there is none."""
    kind, _, rest = _split_adapter(model.name)[0].partition(":")
    return _cached_folder(rest) if kind == "hub" else _local_folder(rest)


def adapter_folder(model: LanguageModel) -> Path | None:
    """The folder of the adapter on the model; None where it has none, ModelError where it is not there."""
    adapter = _split_adapter(model.name)[1]
    return _local_folder(adapter) if adapter else None


def _local_folder(path: str) -> Path:
    place = files.expand_home(path).absolute()
    if not place.is_dir():
        raise ModelError(f"there is no folder {place}")
    return place


def _cached_folder(name: str) -> Path:
    """The folder of a model in the hub's cache; ModelError, in one line, where the cache does not have it."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ModelError(f"model hub:{name} needs {TRANSFORMERS.advice}") from None
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):  # absent, or no name that the hub has
        raise ModelError(
            f"the hub's cache has no model {name}, and nothing is downloaded here; fetch it with: hf download {name}"
        ) from None


def _content_digest(model: LanguageModel, known: MutableMapping[str, str]) -> str:
    """SHA-256 over weights, config and tokenizer, and over the adapter; `known` remembers each file's.

    ModelError, in one line, where a folder has no such model or adapter.
    """
    parts: list[bytes] = []
    for path in all_files(model):
        parts += (path.name.encode(), files.pin(File(str(path)), known).digest.encode())
    return digest_of(RULE, parts)


def all_files(model: LanguageModel) -> Iterator[Path]:
    """The files that make the model, and then those of its adapter."""
    yield from _content_files(model_folder(model))
    adapter = adapter_folder(model)
    if adapter is not None:
        yield from _adapter_files(adapter)


def _adapter_files(place: Path) -> tuple[Path, ...]:
    """The files that make an adapter; ModelError where the folder lacks one."""
    there = {path.name: path for path in _files_in(place)}
    for name in ADAPTER:
        if name not in there:
            raise ModelError(f"{place} has no {name}; save the adapter there with peft's model.save_pretrained(...)")
    return tuple(there[name] for name in ADAPTER)


def _files_in(place: Path) -> list[Path]:
    try:
        return sorted(place.iterdir())
    except OSError as error:
        raise ModelError(f"{place} cannot be read: {error.strerror or error}") from None


def _content_files(place: Path) -> Iterator[Path]:
    """The files that make a model, by name; ModelError where the folder has none."""
    there = _files_in(place)
    names = {path.name for path in there}
    if ADAPTER[0] in names:
        raise ModelError(f"{place} holds an adapter; name its model, too: folder:MODEL+{place}")
    if "config.json" not in names:
        raise ModelError(f"{place} has no config.json; save the model there with model.save_pretrained(...)")
    if not any(path.suffix == ".safetensors" for path in there):
        raise ModelError(f"{place} has no weights *.safetensors; save the model there with model.save_pretrained(...)")
    if not names.intersection(TOKENIZERS):
        raise ModelError(f"{place} has no tokenizer; save it there with tokenizer.save_pretrained(...)")
    return (path for path in there if path.suffix == ".safetensors" or path.name in READ)
