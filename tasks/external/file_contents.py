"""What a model's file holds, as its directory, its header or its pickle's opcodes say; nothing is unpickled.

Planning refuses by it what a run would refuse, and loads neither torch nor transformers. What passes may still be
refused when it is read.

Hugging Face's folders of image classifiers, written `transformers:FOLDER`, hold `config.json` and `model.safetensors`,
as `save_pretrained` writes them; large models' weights lie in several files (shards), which
`model.safetensors.index.json` names.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickletools
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from tasks.datasets.source import digest_of
from tasks.external.checkpoint_weights import (
    Weights,
    check_choice,
    describe_contents,
    find_weights,
    unwrapped_names,
)
from tasks.external.inert_pickle import Foreign, StoredTensor, Unreadable, open_saved
from tasks.worker import files
from tasks.worker.confined import check_file_size
from tasks.worker.files import File, FileError
from tasks.worker.size_limits import TooLarge

INSTEAD = "save it with torch.export.save or torch.jit.script(model).save"
PICKLE = b"\x80"  # the first byte of a pickle, and of what torch.save wrote before torch 1.6
LEGACY_PICKLES = 4  # of such a file: a magic number, a version, sizes, and what was saved; numbers follow
LONGEST_HEADER = 10**8  # bytes of it, as the library itself takes at most
LENGTH = 8  # bytes of a .safetensors file that say how long its header is
# What a pickle may import beside torch's tensors, as torch.load(weights_only=True) has it; Python 2 has other modules.
PLAIN = {
    "collections": ("OrderedDict", "Counter"),
    "builtins": ("set", "bytearray", "complex"),
    "__builtin__": ("set", "bytearray", "complex"),
    "_codecs": ("encode",),
}
CODE = ("torch.nn.modules", "torch.jit", "torch.fx", "torch.optim")  # modules of torch that hold no tensors
# Opcodes that import by other ways, and which torch.load(weights_only=True) does not know.
FOREIGN = ("STACK_GLOBAL", "INST", "OBJ", "EXT1", "EXT2", "EXT4", "NEWOBJ_EX")


def check_contents(name: str, path: str, kind: str, held: bytes | BinaryIO, part: str = "") -> None:
    """ValueError, in one line, for a file without weights that can be read, or with weights alone for a whole model.

    `name` is the model's as it is written, `path` its file's, `kind` as `ModelFile.kind` has it, `held` the bytes or
    the open file, of which no more than directories and headers are read, and `part` the mapping of weights that is
    meant.
    """
    file = io.BytesIO(held) if isinstance(held, bytes) else held
    suffix = PurePath(path).suffix.lower()
    if kind == "torchscript":
        _check_torchscript(name, path, file)
    elif kind == "export":
        _check_exported(name, file)
    elif kind in ("factory", "timm") and suffix == ".safetensors":
        _check_safetensors(name, path, file)
    elif kind in ("factory", "timm") and suffix == ".npz":
        if not zipfile.is_zipfile(file):
            raise ValueError(f"model {name}: {path} is no .npz: it is no archive; save the weights with numpy.savez")
    elif kind in ("factory", "timm"):
        _check_saved(name, path, file, part)


def _check_torchscript(name: str, path: str, held: BinaryIO) -> None:
    if not zipfile.is_zipfile(held):
        raise ValueError(f"model {name} is no TorchScript: it is no archive; {INSTEAD}(path)")
    names = _files(held)
    if "constants.pkl" in names:
        return
    if "data.pkl" not in names:
        raise ValueError(f"model {name} is no TorchScript: its archive holds no program; {INSTEAD}(path)")
    if not holds_tensors_alone(held) and not _saved_weights(held)[0]:
        raise ValueError(
            f"model {name} is no TorchScript: torch.save wrote it, and what it holds, such as a whole module, would "
            f"have to be unpickled, which runs its code; {INSTEAD}(path)"
        )
    raise ValueError(f"model {name} is no TorchScript: it is a state dict, which {needs_network(path)}")


def _check_exported(name: str, held: BinaryIO) -> None:
    if "archive_format" not in _files(held):
        raise ValueError(
            f"model {name} is no archive of torch.export.save as of torch 2.8; save the model with that again"
        )


def _check_safetensors(name: str, path: str, held: BinaryIO) -> None:
    held.seek(0)
    size = int.from_bytes(held.read(LENGTH), "little")
    try:
        header = held.read(size) if size <= LONGEST_HEADER else b""
        if len(header) < size or not isinstance(json.loads(header), dict):
            raise ValueError("it has no header")
    except (ValueError, RecursionError):
        raise ValueError(f"model {name}: {path} is no .safetensors: its header cannot be read") from None


def _check_saved(name: str, path: str, held: BinaryIO, part: str) -> None:
    """ValueError, in one line, unless torch.save wrote the file, and it holds weights that one can choose."""
    names = _files(held)
    if "constants.pkl" in names:
        raise ValueError(f"model {name}: {path} is TorchScript, which has its network: give {path} alone")
    if not (_begins_as_pickle(held) or "data.pkl" in names):
        raise ValueError(f"model {name}: {path} is no file of torch.save; write torch.save(model.state_dict(), path)")
    weights, contents = _saved_weights(held)
    if contents is None:  # its end is missing, or its pickle is none: the reader says which
        return
    if not weights and holds_tensors_alone(held) and find_weights(contents, _is_other_tensor):
        return  # sparse or quantised ones, which torch reads
    if not weights:
        raise ValueError(no_weights(name, path, contents))
    check_choice(f"model {name}: {path}", weights, part)


def _begins_as_pickle(held: BinaryIO) -> bool:
    held.seek(0)
    begins = held.read(len(PICKLE)) == PICKLE
    held.seek(0)
    return begins


def _saved_weights(held: BinaryIO) -> tuple[list[Weights], Any]:
    """The mappings of weights in a file of torch.save, and all its contents; None if they cannot be read."""
    try:
        contents = open_saved(held).contents
    except Unreadable:
        return [], None
    return find_weights(contents, is_stored_tensor), contents


def is_stored_tensor(value: Any) -> bool:
    return isinstance(value, StoredTensor)


def _is_other_tensor(value: Any) -> bool:
    """Whether a value is a tensor that is not dense."""
    return isinstance(value, Foreign) and value.of.startswith("torch._utils._rebuild_")


def needs_network(path: str) -> str:
    """The end of a sentence about weights that are given without their network."""
    return f"needs its network: write package.module:factory+{os.path.basename(path)}"


def no_weights(name: str, path: str, contents: Any) -> str:
    """The refusal of a file of torch.save in which no mapping of tensors was found."""
    shown = describe_contents(contents, is_stored_tensor)
    return (
        f"model {name}: {path} holds no weights by name: {shown}; a pickled object, such as a whole module, is not "
        "unpickled, which would run its code; save its weights: torch.save(model.state_dict(), path)"
    )


def holds_tensors_alone(held: bytes | BinaryIO) -> bool:
    """Whether the pickle that torch.save wrote imports nothing but tensors and plain containers.

    True also where there is no pickle that can be read to its end: the reader says what is wrong with that.
    """
    for pickled, most in _pickles(io.BytesIO(held) if isinstance(held, bytes) else held):
        for _ in range(most):
            try:
                for opcode, argument, _position in pickletools.genops(pickled):
                    if opcode.name in FOREIGN or (opcode.name == "GLOBAL" and not _is_plain(str(argument))):
                        return False
            except (ValueError, UnicodeDecodeError):
                break
    return True


def _is_plain(imported: str) -> bool:
    """Whether a pickle may import this, `module name`, and still be tensors and containers alone."""
    module, _, name = imported.partition(" ")
    if module == "torch" or module.startswith("torch."):
        return not any(module == code or module.startswith(f"{code}.") for code in CODE)
    return name in PLAIN.get(module, ())


def _pickles(held: BinaryIO) -> Iterator[tuple[BinaryIO, int]]:
    """Each stream of pickles, and how many it has at most."""
    if _begins_as_pickle(held):
        yield held, LEGACY_PICKLES
        return
    try:
        with zipfile.ZipFile(held) as archive:
            for name in archive.namelist():
                if name.partition("/")[2] == "data.pkl":
                    yield io.BytesIO(archive.read(name)), 1
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, RuntimeError):
        return


def _files(held: BinaryIO) -> set[str]:
    """The files of an archive, without the folder that they all lie in; none of what is no archive."""
    try:
        with zipfile.ZipFile(held) as archive:
            return {name.partition("/")[2] for name in archive.namelist()}
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError):
        return set()


FOLDER_RULE = "given model: transformers folder, 1"
CONFIG, PREPROCESSOR = "config.json", "preprocessor_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = re.compile(r"[\w-][\w.-]*\.safetensors")  # a file beside the index: nothing of it is a folder
CLASSIFIER = "ForImageClassification"  # in the names of transformers' classes that tell classes apart
METADATA = "__metadata__"  # an entry of a .safetensors header that is no tensor
BYTE = 255


def file_names(name: str, folder: str) -> tuple[str, ...]:
    """The files of the folder that make the model: its config, its weights and, where it has one, its preprocessor.

    ValueError, in one line, where weights in several files are named by no index that can be read.
    """
    root = files.expand_home(folder)
    sharded = not (root / WEIGHTS).exists() and (root / INDEX).exists()
    weights = (INDEX, *_shards(name, files.read(File(str(root / INDEX))))) if sharded else (WEIGHTS,)
    return (CONFIG, *weights, *((PREPROCESSOR,) if (root / PREPROCESSOR).exists() else ()))


def _shards(name: str, index: bytes) -> list[str]:
    """The files that an index says the weights lie in, which are beside it."""
    shards = _parse_json(name, INDEX, {INDEX: index}).get("weight_map")
    named = sorted(set(map(str, shards.values()))) if isinstance(shards, dict) else []
    if not named or not all(map(SHARD.fullmatch, named)):
        raise ValueError(f"model {name}: its {INDEX} does not say which files of the folder hold the weights")
    return named


def read_folder(name: str, folder: str) -> dict[str, bytes]:
    """The bytes of each file that makes the model.

    FileError, in one line, where a file is absent; ValueError where the model is no image classifier, or its files are
    larger than the memory that they may take.
    """
    root = _check_folder(name, folder)
    return {file: files.read(File(str(root / file))) for file in file_names(name, folder)}


def digest_of_files(name: str, folder: str) -> str:
    """The digest of the files that make the model, as of `digest_of_folder`, with none of them in memory as a whole."""
    root = _check_folder(name, folder)
    sha = hashlib.sha256()
    _add_part(sha, io.BytesIO(FOLDER_RULE.encode()))
    for file in file_names(name, folder):
        _add_part(sha, io.BytesIO(file.encode()))
        with (root / file).open("rb") as opened:
            _add_part(sha, opened)
    return sha.hexdigest()


def _check_folder(name: str, folder: str) -> Path:
    """The folder; errors as of `read_folder`."""
    root = files.expand_home(folder)
    if not root.is_dir():
        raise FileError(f"there is no folder {root}")
    held = {CONFIG: files.read(File(str(root / CONFIG)))}
    classes = _parse_json(name, CONFIG, held).get("architectures") or []
    if not any(CLASSIFIER in str(each) for each in (classes if isinstance(classes, list) else [classes])):
        shown = ", ".join(map(str, classes)) if isinstance(classes, list) and classes else "none"
        raise ValueError(
            f"model {name}: the architectures in its {CONFIG} are {shown}; one must be an image classifier of "
            f"transformers (...{CLASSIFIER})"
        )
    size = 0
    for file in file_names(name, folder):
        path = root / file
        try:
            size += files.check_regular(path).st_size
            if file.endswith(".safetensors"):
                with path.open("rb") as opened:
                    check_contents(name, str(path), "factory", opened)
        except OSError as error:
            raise files.unreadable(path, error) from None
    try:
        check_file_size(size)
    except TooLarge as error:
        raise ValueError(f"model {name} cannot be read: {error}") from None
    return root


CHUNK = 1 << 20  # bytes of a file that are hashed at once


def sha256_of(file: BinaryIO) -> str:
    file.seek(0)
    sha = hashlib.sha256()
    while chunk := file.read(CHUNK):
        sha.update(chunk)
    return sha.hexdigest()


def _add_part(sha: hashlib._Hash, file: BinaryIO) -> None:
    """Hash a part as `tasks.datasets.source.digest_of` does: its length, then its bytes."""
    sha.update(file.seek(0, io.SEEK_END).to_bytes(8, "little"))
    file.seek(0)
    while chunk := file.read(CHUNK):
        sha.update(chunk)


def digest_of_folder(held: Mapping[str, bytes]) -> str:
    return digest_of(FOLDER_RULE, tuple(part for file, content in held.items() for part in (file.encode(), content)))


def drop_wrappers(file: str, content: bytes) -> bytes:
    """A file of the folder, with its weights named as those of the model that was compiled or run in parallel.

    Only the header of a .safetensors file and the names in an index are written again; anything else is unchanged.
    """
    if file == INDEX:
        index = json.loads(content)
        names = unwrapped_names(index["weight_map"])
        index["weight_map"] = {names[name]: shard for name, shard in index["weight_map"].items()}
        return json.dumps(index).encode()
    if not file.endswith(".safetensors"):
        return content
    end = LENGTH + int.from_bytes(content[:LENGTH], "little")
    header = json.loads(content[LENGTH:end])
    names = unwrapped_names(header.keys() - {METADATA}) | {METADATA: METADATA}
    renamed = json.dumps({names[name]: entry for name, entry in header.items()}).encode()
    return len(renamed).to_bytes(LENGTH, "little") + renamed + content[end:]


def folder_normalisation(name: str, held: Mapping[str, bytes]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and deviation, of images in [0, 1], that the folder's preprocessor takes; both empty for none.

    The preprocessor multiplies images in [0, 255] by `rescale_factor` and normalises them by `image_mean` and
    `image_std`. ValueError, in one line, where it does something else, or its numbers are none.
    """
    if PREPROCESSOR not in held:
        return (), ()
    told = _parse_json(name, PREPROCESSOR, held)
    try:
        factor = float(told.get("rescale_factor") or 1 / BYTE) if told.get("do_rescale", True) else 1.0
        scale = BYTE * factor
        normalises = told.get("do_normalize", "image_mean" in told)
        mean = _numbers(told["image_mean"]) if normalises else (0.0,)
        std = _numbers(told["image_std"]) if normalises else (1.0,)
        if told.get("rescale_offset") or len(mean) != len(std) or scale <= 0 or min(std) <= 0:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"model {name}: its {PREPROCESSOR} prepares images in a way that is not read here; give the interface's "
            "mean and std"
        ) from None
    if abs(scale - 1) < 1e-6:
        return (mean, std) if normalises else ((), ())
    return tuple(number / scale for number in mean), tuple(number / scale for number in std)


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(float(number) for number in value) if isinstance(value, list) else (float(value),)


def _parse_json(name: str, file: str, held: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        told = json.loads(held[file])
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise ValueError(f"model {name}: its {file} is no JSON object")
    return told
