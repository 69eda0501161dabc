"""A language model by name: a small built-in one, one in a local folder, or one in the local Hugging Face cache.

| name                   | model                                                                           |
|------------------------|---------------------------------------------------------------------------------|
| `tiny-t5#WIDTHxLAYERS` | a T5 with random weights, and a tokenizer that is trained on its training texts |
| `tiny-gpt#WIDTHxLAYERS` | a GPT-2 with random weights that reads bytes                                   |
| `folder:PATH`          | a Hugging Face sequence model and its tokenizer, from their `save_pretrained`   |
| `hub:NAME`             | a model in the hub's cache on this machine, such as `hub:t5-small`              |
| `folder:PATH+ADAPTER`, `hub:NAME+ADAPTER` | the model, merged with the LoRA adapter in a folder |

This module never downloads a model, and never reads files that could run code: weights come from safetensors only, and
Python files and pickles are ignored. Naming and pinning a model does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import ClassVar

from tasks.contract.extras import PEFT, TRANSFORMERS, Extra
from tasks.contract.pinnable import PinnedName, Unavailable
from tasks.datasets.outlines import OUTLINE_RULE
from tasks.datasets.places import are_outlined
from tasks.datasets.source import digest_of
from tasks.worker import files
from tasks.worker.files import File

RULE = "language model: safetensors, config and tokenizer, 1"
TINY_RULES = {"t5": "tiny t5, 2", "gpt": "tiny gpt, 1"}  # versions of how tiny models are built
TINY = re.compile(r"tiny-(t5|gpt)(?:#([1-9]\d{0,3})x([1-9]\d?))?")
WIDTH = 64
LAYERS = 2
HEAD = 16  # features per attention head of a tiny model
# Files other than weights that affect a model's output: config and tokenizer.
READ = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "spiece.model", "sentencepiece.bpe.model"),
    *("tokenizer.model", "tekken.json", "model.safetensors.index.json"),
)
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
TOKENIZERS = ("tokenizer.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "vocab.json", "vocab.txt")


class ModelError(Unavailable):
    """A language model is absent, unreadable, or different from the pinned one."""


@dataclass(frozen=True)
class TinyModel:
    """The kind and size of a tiny model. A T5 has `layers` layers in both encoder and decoder."""

    kind: str  # t5 or gpt
    width: int
    layers: int


@dataclass(frozen=True)
class LanguageModel(PinnedName):
    """A language model by name, pinned once `digest` is set. Written `name` or `name@digest`.

    The digest is the SHA-256 of weights, config and tokenizer. A tiny model is built from its sizes and has no digest.
    """

    noun: ClassVar[str] = "model"

    def __post_init__(self) -> None:
        kind, colon, rest = self.name.partition(":")
        if colon and kind in ("folder", "hub") and rest:
            return
        tiny = TINY.fullmatch(self.name)
        if tiny is None:
            raise ValueError(
                f"model: expected tiny-t5, tiny-gpt, folder:PATH or hub:NAME, got {self.name!r}. #WIDTHxLAYERS may "
                "follow a tiny model, and +ADAPTER a folder or a name."
            )
        if tiny[2] and int(tiny[2]) % HEAD:
            raise ValueError(
                f"model: expected a width that is a multiple of {HEAD}, got {self.name!r}. Change the width."
            )

    def named(self) -> LanguageModel:
        """Return the model with only the name of its folder instead of the path."""
        kind, _, path = self.name.partition(":")
        if self.tiny_sizes is not None:
            return self
        base, adapter = _split_adapter(path)
        folder_name = PurePath(base).name if kind == "folder" else base
        return LanguageModel(f"{kind}:{folder_name}{f'+{PurePath(adapter).name}' if adapter else ''}", self.digest)

    def identity(self) -> str:
        """Return what identifies the model in a key: its content, not its name or path.

        For a tiny model, this is its sizes.
        """
        if self.tiny_sizes is not None:
            sizes = self.tiny_sizes
            return f"{TINY_RULES[sizes.kind]}: {sizes.width}x{sizes.layers}"
        return super().identity()

    def extras(self) -> tuple[Extra, ...]:
        if self.tiny_sizes is None and _split_adapter(self.name)[1]:
            return (TRANSFORMERS, PEFT)
        return (TRANSFORMERS,)

    def pin(self, digests: MutableMapping[str, str]) -> LanguageModel:
        """Return the model with the digest of its content and the absolute path of its folder.

        A tiny model is unchanged. Raises ModelError if the model is absent, unreadable, or different from the pinned
        one.
        """
        if self.tiny_sizes is not None:
            return self
        if are_outlined() and not _has_files(self):
            return replace(self, digest=digest_of(OUTLINE_RULE, [self.name.encode()]))
        digest = _content_digest(self, digests)
        if self.digest and self.digest != digest:
            raise ModelError(
                f"model {self.name} is not the one that was pinned: expected digest {self.digest}, got {digest}. "
                "Restore the pinned content."
            )
        base = str(model_folder(self))
        adapter = adapter_folder(self)
        if self.name.startswith("folder:"):
            base = f"folder:{base}"
        else:
            base = _split_adapter(self.name)[0]
        return replace(self, name=base if adapter is None else f"{base}+{adapter}", digest=digest)

    def paths(self) -> tuple[Path, ...]:
        return () if self.tiny_sizes is not None else tuple(all_files(self))

    @property
    def tiny_sizes(self) -> TinyModel | None:
        """The sizes of a tiny model, or None for a model with stored weights."""
        match = TINY.fullmatch(self.name)
        if match is None:
            return None
        return TinyModel(match[1], int(match[2] or WIDTH), int(match[3] or LAYERS))


def _split_adapter(name: str) -> tuple[str, str]:
    """Split a name at its last +, unless there is a folder with the whole name."""
    base, plus, adapter = name.rpartition("+")
    path = name.removeprefix("folder:")
    if plus and not files.expand_home(path).is_dir():
        return (base, adapter)
    return (name, "")


def model_folder(model: LanguageModel) -> Path:
    """Return the folder of a model with stored weights. Raises ModelError if there is none."""
    kind, _, rest = _split_adapter(model.name)[0].partition(":")
    return _cached_folder(rest) if kind == "hub" else _local_folder(rest)


def adapter_folder(model: LanguageModel) -> Path | None:
    """Return the adapter's folder, or None without an adapter. Raises ModelError if it does not exist."""
    adapter = _split_adapter(model.name)[1]
    return _local_folder(adapter) if adapter else None


def _local_folder(path: str) -> Path:
    folder = files.expand_home(path).absolute()
    if not folder.is_dir():
        raise ModelError(f"there is no folder {folder}; check the path of the model")
    return folder


def _cached_folder(name: str) -> Path:
    """Return a model's folder in the hub's cache. Raises ModelError if it is absent."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ModelError(f"model hub:{name} needs {TRANSFORMERS.advice}") from None
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):  # absent, or invalid name
        raise ModelError(
            f"model: {name} is not in the cache of the hub, and this tool downloads nothing. Run: hf download {name}"
        ) from None


def _has_files(model: LanguageModel) -> bool:
    try:
        return any(_content_files(model_folder(model)))
    except ModelError:
        return False


def _content_digest(model: LanguageModel, digests: MutableMapping[str, str]) -> str:
    """Return the SHA-256 of weights, config, tokenizer and adapter. `digests` caches the digest of each file.

    Raises ModelError if a folder contains no model or adapter.
    """
    parts: list[bytes] = []
    for path in all_files(model):
        parts += (path.name.encode(), files.pin(File(str(path)), digests).digest.encode())
    return digest_of(RULE, parts)


def all_files(model: LanguageModel) -> Iterator[Path]:
    """Yield the files of the model, then those of its adapter."""
    yield from _content_files(model_folder(model))
    adapter = adapter_folder(model)
    if adapter is not None:
        yield from _adapter_files(adapter)


def _adapter_files(folder: Path) -> tuple[Path, ...]:
    """Return the files of an adapter. Raises ModelError if one is missing."""
    paths_by_name = {path.name: path for path in _files_in(folder)}
    for name in ADAPTER:
        if name not in paths_by_name:
            raise ModelError(
                f"{folder}: expected {name}. Save the adapter there with model.save_pretrained(...) of peft."
            )
    return tuple(paths_by_name[name] for name in ADAPTER)


def _files_in(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise ModelError(f"{folder}: cannot be read: {error.strerror or error}. Check its permissions.") from None


def _content_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a model, by name. Raises ModelError if a part is missing."""
    paths = _files_in(folder)
    names = {path.name for path in paths}
    if ADAPTER[0] in names:
        raise ModelError(f"{folder}: expected a model, got an adapter. Give its model as well: folder:MODEL+{folder}")
    if "config.json" not in names:
        raise ModelError(f"{folder}: expected config.json. Save the model there with model.save_pretrained(...).")
    if not any(path.suffix == ".safetensors" for path in paths):
        raise ModelError(
            f"{folder}: expected weights *.safetensors. Save the model there with model.save_pretrained(...)."
        )
    if not names.intersection(TOKENIZERS):
        raise ModelError(f"{folder}: expected a tokenizer. Save it there with tokenizer.save_pretrained(...).")
    return (path for path in paths if path.suffix == ".safetensors" or path.name in READ)
