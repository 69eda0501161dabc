"""Read the contents of a model file from its directory, header or pickle opcodes, without unpickling.

Planning uses this module to reject files that a run would reject, without importing torch or transformers. A file that
passes may still be rejected when it is loaded.

Hugging Face folders with image classifiers, written `transformers:FOLDER`, contain `config.json` and
`model.safetensors`, as saved by `save_pretrained`. The weights of large models are in several files (shards), listed in
`model.safetensors.index.json`.
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
PICKLE = b"\x80"  # first byte of a pickle, and of torch.save files before torch 1.6
LEGACY_PICKLES = 4  # in such a file: a magic number, a version, sizes and the contents; numbers follow
LONGEST_HEADER = 10**8  # bytes; the limit of the safetensors library
LENGTH = 8  # bytes at the start of a .safetensors file that hold the length of its header
# Imports that a pickle may contain besides torch's tensors, as in torch.load(weights_only=True), including Python 2.
PLAIN = {
    "collections": ("OrderedDict", "Counter"),
    "builtins": ("set", "bytearray", "complex"),
    "__builtin__": ("set", "bytearray", "complex"),
    "_codecs": ("encode",),
}
CODE = ("torch.nn.modules", "torch.jit", "torch.fx", "torch.optim")  # torch modules without tensors
# Opcodes that import in other ways and that torch.load(weights_only=True) does not support.
FOREIGN = ("STACK_GLOBAL", "INST", "OBJ", "EXT1", "EXT2", "EXT4", "NEWOBJ_EX")


def check_contents(name: str, path: str, kind: str, source: bytes | BinaryIO, part: str = "") -> None:
    """Raise ValueError for a file without readable weights, or with only weights if a whole model is needed.

    `name` is the model as written, `path` its file, `kind` its `ModelFile.kind`, `source` the bytes or the open file
    (only directories and headers are read), and `part` the selected mapping of weights.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    suffix = PurePath(path).suffix.lower()
    if kind == "torchscript":
        _check_torchscript(name, path, file)
    elif kind == "export":
        _check_exported(name, file)
    elif kind in ("factory", "timm") and suffix == ".safetensors":
        _check_safetensors(name, path, file)
    elif kind in ("factory", "timm") and suffix == ".npz":
        if not zipfile.is_zipfile(file):
            raise ValueError(f"model {name}: {path} is not a valid .npz archive; save the weights with numpy.savez")
    elif kind in ("factory", "timm"):
        _check_saved(name, path, file, part)


def _check_torchscript(name: str, path: str, file: BinaryIO) -> None:
    if not zipfile.is_zipfile(file):
        raise ValueError(f"model {name} is not TorchScript: it is not an archive; {INSTEAD}(path)")
    names = _files(file)
    if "constants.pkl" in names:
        return
    if "data.pkl" not in names:
        raise ValueError(f"model {name} is not TorchScript: its archive contains no program; {INSTEAD}(path)")
    if not holds_tensors_alone(file) and not _saved_weights(file)[0]:
        raise ValueError(
            f"model {name} is not TorchScript: torch.save wrote it, and its contents, such as a whole module, would "
            f"have to be unpickled, which runs code; {INSTEAD}(path)"
        )
    raise ValueError(f"model {name} is not TorchScript: it is a state dict, which {needs_network(path)}")


def _check_exported(name: str, file: BinaryIO) -> None:
    if "archive_format" not in _files(file):
        raise ValueError(
            f"model {name} is not an archive of torch.export.save in torch 2.8 or later; save it again with torch 2.8"
        )


def _check_safetensors(name: str, path: str, file: BinaryIO) -> None:
    file.seek(0)
    size = int.from_bytes(file.read(LENGTH), "little")
    try:
        header = file.read(size) if size <= LONGEST_HEADER else b""
        if len(header) < size or not isinstance(json.loads(header), dict):
            raise ValueError("it has no header")
    except (ValueError, RecursionError):
        raise ValueError(f"model {name}: {path} is not a valid .safetensors: its header cannot be read") from None


def _check_saved(name: str, path: str, file: BinaryIO, part: str) -> None:
    """Raise ValueError unless torch.save wrote the file and it contains weights that can be selected."""
    names = _files(file)
    if "constants.pkl" in names:
        raise ValueError(f"model {name}: {path} is TorchScript, which contains its network: pass only {path}")
    if not (_begins_as_pickle(file) or "data.pkl" in names):
        raise ValueError(f"model {name}: {path} is not a file of torch.save; use torch.save(model.state_dict(), path)")
    weights, contents = _saved_weights(file)
    if contents is None:  # truncated or invalid; the reader reports which
        return
    if not weights and holds_tensors_alone(file) and find_weights(contents, _is_other_tensor):
        return  # sparse or quantised tensors, which torch can read
    if not weights:
        raise ValueError(no_weights(name, path, contents))
    check_choice(f"model {name}: {path}", weights, part)


def _begins_as_pickle(file: BinaryIO) -> bool:
    file.seek(0)
    begins = file.read(len(PICKLE)) == PICKLE
    file.seek(0)
    return begins


def _saved_weights(file: BinaryIO) -> tuple[list[Weights], Any]:
    """Return the weight mappings in a torch.save file and all its contents, which are None if they cannot be read."""
    try:
        contents = open_saved(file).contents
    except Unreadable:
        return [], None
    return find_weights(contents, is_stored_tensor), contents


def is_stored_tensor(value: Any) -> bool:
    return isinstance(value, StoredTensor)


def _is_other_tensor(value: Any) -> bool:
    """Return whether a value is a tensor that is not dense."""
    return isinstance(value, Foreign) and value.class_name.startswith("torch._utils._rebuild_")


def needs_network(path: str) -> str:
    """Return the end of a sentence about weights that lack their network."""
    return f"needs its network: write package.module:factory+{os.path.basename(path)}"


def no_weights(name: str, path: str, contents: Any) -> str:
    """Return the error message for a torch.save file without a mapping of tensors."""
    description = describe_contents(contents, is_stored_tensor)
    return (
        f"model {name}: {path} contains no weights by name: {description}; pickled objects, such as a whole module, "
        "are not unpickled, since this would run code; save the weights: torch.save(model.state_dict(), path)"
    )


def holds_tensors_alone(source: bytes | BinaryIO) -> bool:
    """Return whether the pickle in a torch.save file imports only tensors and plain containers.

    Also True if no pickle can be read to its end; the reader reports that error.
    """
    for pickled, limit in _pickles(io.BytesIO(source) if isinstance(source, bytes) else source):
        for _ in range(limit):
            try:
                for opcode, argument, _position in pickletools.genops(pickled):
                    if opcode.name in FOREIGN or (opcode.name == "GLOBAL" and not _is_plain(str(argument))):
                        return False
            except (ValueError, UnicodeDecodeError):
                break
    return True


def _is_plain(imported: str) -> bool:
    """Return whether `module name` imports tensors or plain containers."""
    module, _, name = imported.partition(" ")
    if module == "torch" or module.startswith("torch."):
        return not any(module == code or module.startswith(f"{code}.") for code in CODE)
    return name in PLAIN.get(module, ())


def _pickles(file: BinaryIO) -> Iterator[tuple[BinaryIO, int]]:
    """Yield each pickle stream and the maximum number of pickles in it."""
    if _begins_as_pickle(file):
        yield file, LEGACY_PICKLES
        return
    try:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if name.partition("/")[2] == "data.pkl":
                    yield io.BytesIO(archive.read(name)), 1
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, RuntimeError):
        return


def _files(file: BinaryIO) -> set[str]:
    """Return the files in an archive, without their common folder. Empty if the file is not an archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            return {name.partition("/")[2] for name in archive.namelist()}
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError):
        return set()


FOLDER_RULE = "given model: transformers folder, 1"
CONFIG = "config.json"
PREPROCESSOR = "preprocessor_config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"[\w-][\w.-]*\.safetensors")  # a file in the same folder as the index, without directories
CLASSIFIER = "ForImageClassification"  # part of the names of transformers' image classifiers
METADATA = "__metadata__"  # an entry in a .safetensors header that is not a tensor
BYTE = 255


def file_names(name: str, folder: str) -> tuple[str, ...]:
    """Return the files of a model: its config, its weights and, if present, its preprocessor.

    Raises ValueError if the weights are in several files and their index cannot be read.
    """
    root = files.expand_home(folder)
    sharded = not (root / WEIGHTS).exists() and (root / INDEX).exists()
    if sharded:
        weights = (INDEX, *_shards(name, files.read(File(str(root / INDEX)))))
    else:
        weights = (WEIGHTS,)
    return (CONFIG, *weights, *((PREPROCESSOR,) if (root / PREPROCESSOR).exists() else ()))


def _shards(name: str, index: bytes) -> list[str]:
    """Return the weight files that an index lists."""
    weight_map = _parse_json(name, INDEX, {INDEX: index}).get("weight_map")
    shards = []
    if isinstance(weight_map, dict):
        shards = sorted(set(map(str, weight_map.values())))
    if not shards or not all(map(SHARD.fullmatch, shards)):
        raise ValueError(f"model {name}: its {INDEX} does not list the files of the folder that contain the weights")
    return shards


def read_folder(name: str, folder: str) -> dict[str, bytes]:
    """Read the files of a model.

    Raises FileError if a file does not exist, and ValueError if the model is not an image classifier or its files
    exceed the memory limit.
    """
    root = _check_folder(name, folder)
    return {file: files.read(File(str(root / file))) for file in file_names(name, folder)}


def digest_of_files(name: str, folder: str) -> str:
    """Compute `digest_of_folder` without loading whole files into memory."""
    root = _check_folder(name, folder)
    sha = hashlib.sha256()
    _add_part(sha, io.BytesIO(FOLDER_RULE.encode()))
    for file in file_names(name, folder):
        _add_part(sha, io.BytesIO(file.encode()))
        with (root / file).open("rb") as opened:
            _add_part(sha, opened)
    return sha.hexdigest()


def _check_folder(name: str, folder: str) -> Path:
    """Check a folder and return its path. Raises the same errors as `read_folder`."""
    root = files.expand_home(folder)
    if not root.is_dir():
        raise FileError(f"there is no folder {root}")
    contents = {CONFIG: files.read(File(str(root / CONFIG)))}
    classes = _parse_json(name, CONFIG, contents).get("architectures") or []
    if not any(CLASSIFIER in str(class_name) for class_name in (classes if isinstance(classes, list) else [classes])):
        listing = "none"
        if isinstance(classes, list) and classes:
            listing = ", ".join(map(str, classes))
        raise ValueError(
            f"model {name}: its {CONFIG} lists the architectures {listing}; expected an image classifier of "
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


CHUNK = 1 << 20  # bytes hashed at a time


def sha256_of(file: BinaryIO) -> str:
    file.seek(0)
    sha = hashlib.sha256()
    while chunk := file.read(CHUNK):
        sha.update(chunk)
    return sha.hexdigest()


def _add_part(sha: hashlib._Hash, file: BinaryIO) -> None:
    """Hash a part in the same way as `tasks.datasets.source.digest_of`: its length, then its bytes."""
    sha.update(file.seek(0, io.SEEK_END).to_bytes(8, "little"))
    file.seek(0)
    while chunk := file.read(CHUNK):
        sha.update(chunk)


def digest_of_folder(contents: Mapping[str, bytes]) -> str:
    return digest_of(
        FOLDER_RULE, tuple(part for file, content in contents.items() for part in (file.encode(), content))
    )


def drop_wrappers(file: str, content: bytes) -> bytes:
    """Remove prefixes of compiled or parallel modules from the weight names in a file.

    This changes only the header of a .safetensors file and the names in an index.
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


def folder_normalisation(name: str, contents: Mapping[str, bytes]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation of the folder's preprocessor, for images in [0, 1].

    Both are empty if there is no preprocessor. The preprocessor multiplies images in [0, 255] by `rescale_factor` and
    normalises them with `image_mean` and `image_std`. Raises ValueError if it works differently or its numbers are
    invalid.
    """
    if PREPROCESSOR not in contents:
        return (), ()
    preprocessor = _parse_json(name, PREPROCESSOR, contents)
    try:
        factor = 1.0
        if preprocessor.get("do_rescale", True):
            factor = float(preprocessor.get("rescale_factor") or 1 / BYTE)
        scale = BYTE * factor
        normalises = preprocessor.get("do_normalize", "image_mean" in preprocessor)
        mean = _numbers(preprocessor["image_mean"]) if normalises else (0.0,)
        std = _numbers(preprocessor["image_std"]) if normalises else (1.0,)
        if preprocessor.get("rescale_offset") or len(mean) != len(std) or scale <= 0 or min(std) <= 0:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"model {name}: its {PREPROCESSOR} describes a preparation of images that is not supported; set mean and "
            "std of the interface"
        ) from None
    if abs(scale - 1) < 1e-6:
        return (mean, std) if normalises else ((), ())
    return tuple(number / scale for number in mean), tuple(number / scale for number in std)


def _numbers(value: Any) -> tuple[float, ...]:
    if isinstance(value, list):
        return tuple(float(number) for number in value)
    return (float(value),)


def _parse_json(name: str, file: str, contents: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        document = json.loads(contents[file])
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ValueError(f"model {name}: its {file} is not a JSON object")
    return document
