"""Read the structure of a torch.save file without importing or calling any name in its pickle.

Besides weights, a checkpoint contains training settings: an `argparse.Namespace`, NumPy scalars, a scheduler.
Unpickling these would run code. This reader keeps only the names of globals, describes tensors by storage, shape and
stride, converts containers to plain lists, tuples and dictionaries, and replaces every other object by a `Foreign` with
its class name. `read_tensor` then copies the numbers of a described tensor.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

if TYPE_CHECKING:
    from torch import Tensor

LEGACY = b"\x80"  # first byte of torch.save files before torch 1.6: four pickles, then the storages
DATA = "data.pkl"
DICTIONARIES = ("collections.OrderedDict", "collections.defaultdict", "collections.Counter")
KEYS = (str, int, float, bool, bytes, type(None))  # hashed in constant time, unlike nested tuples
DTYPES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
}


class Unreadable(ValueError):
    """A file whose structure cannot be read. The message is a phrase."""


@dataclass(frozen=True)
class Global:
    """A name in a module. It is never imported."""

    name: str


@dataclass(frozen=True)
class Foreign:
    """An object whose class is not imported."""

    class_name: str


@dataclass(frozen=True, eq=False)
class Storage:
    key: str
    kind: str  # name of torch's storage class


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A dense tensor, described but not read. `dtype` is empty if it follows from the storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str = ""


@dataclass(frozen=True, eq=False)
class SavedFile:
    """A torch.save file: its structure, and a function that reads the bytes of a storage by key."""

    contents: Any
    storage_bytes: Callable[[str], bytes]


def open_saved(source: bytes | BinaryIO) -> SavedFile:
    """Read the structure of a torch.save file in either format. Raises Unreadable if this fails.

    The file must stay open while storages are read.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        file.seek(0)
        is_legacy = file.read(1) == LEGACY
        file.seek(0)
        return _open_legacy(file) if is_legacy else _open_archive(file)
    except Unreadable:
        raise
    except Exception as error:  # an invalid pickle may raise any exception in the reader
        raise Unreadable(f"its pickle cannot be read: {type(error).__name__}") from None


def _open_archive(file: BinaryIO) -> SavedFile:
    with zipfile.ZipFile(file) as archive:
        pickles = [name for name in archive.namelist() if name.partition("/")[2] == DATA]
        if len(pickles) != 1:
            raise Unreadable(f"it contains {len(pickles)} pickles; expected one")
        root = pickles[0].partition("/")[0]
        contents = _InertReader(io.BytesIO(archive.read(pickles[0]))).load()

    def storage_bytes(key: str) -> bytes:
        with zipfile.ZipFile(file) as opened:
            return opened.read(f"{root}/data/{key}")

    return SavedFile(contents, storage_bytes)


def _open_legacy(file: BinaryIO) -> SavedFile:
    *_, contents = (_InertReader(file).load() for _ in range(4))  # magic number, version, sizes, contents
    keys = _InertReader(file).load()
    start = file.tell()

    def storage_bytes(key: str) -> bytes:
        position = start
        for storage_key in keys:
            file.seek(position)
            (count,) = struct.unpack("<q", file.read(8))
            size = count * _item_size(kinds.get(storage_key, ""))
            if size < 0:
                raise Unreadable(f"it contains a storage of {count} numbers")
            if storage_key == key:
                return file.read(size)
            position += 8 + size
        raise Unreadable(f"it contains no storage {key}")

    kinds: dict[str, str] = {}
    for tensor in all_tensors(contents):
        kinds[tensor.storage.key] = tensor.storage.kind
    return SavedFile(contents, storage_bytes)


def _item_size(kind: str) -> int:
    import torch

    if kind not in DTYPES:
        raise Unreadable(f"it contains a {kind or 'storage of an unknown kind'}")
    return int(getattr(torch, DTYPES[kind]).itemsize)


def all_tensors(contents: Any) -> list[StoredTensor]:
    """Return every tensor in nested containers, visiting each container once."""
    pending = [contents]
    visited = set()
    tensors = []
    while pending:
        value = pending.pop()
        if isinstance(value, StoredTensor):
            tensors.append(value)
        elif isinstance(value, dict | list | tuple) and id(value) not in visited:
            visited.add(id(value))
            pending.extend(value.values() if isinstance(value, dict) else value)
    return tensors


def read_tensor(saved: SavedFile, tensor: StoredTensor) -> Tensor:
    """Read a described tensor.

    Raises Unreadable if its storage is missing, too short or of the wrong kind.
    """
    import torch

    name = tensor.dtype or DTYPES.get(tensor.storage.kind, "")
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise Unreadable(f"it contains a {name or tensor.storage.kind}, which is not a dense tensor of numbers")
    extent = []
    for size, stride in zip(tensor.shape, tensor.stride, strict=True):
        extent.append((size - 1) * stride)
    last = tensor.offset + sum(extent)
    if not math.prod(tensor.shape):
        return torch.empty(tensor.shape, dtype=dtype)
    try:
        storage = saved.storage_bytes(tensor.storage.key)
    except KeyError:
        raise Unreadable(f"it contains no storage {tensor.storage.key}") from None
    if min(*tensor.stride, *tensor.shape, tensor.offset, 0) < 0 or len(storage) < (last + 1) * dtype.itemsize:
        raise Unreadable(f"it contains a tensor of shape {tensor.shape}, for which its storage is too short")
    numbers = torch.frombuffer(bytearray(storage), dtype=dtype, count=len(storage) // dtype.itemsize)
    return numbers.as_strided(tensor.shape, tensor.stride, tensor.offset)


def _tensor(arguments: Sequence[Any]) -> Any:
    """Describe a tensor from (storage, offset, shape, stride, ...)."""
    storage, offset, shape, stride = arguments[:4]
    is_dense = isinstance(storage, Storage) and isinstance(offset, int)
    if not is_dense or not all(isinstance(number, int) for number in (*shape, *stride)):
        return Foreign("torch.Tensor")
    return StoredTensor(storage, offset, tuple(shape), tuple(stride))


def _typed_tensor(arguments: Sequence[Any]) -> Any:
    """Describe a tensor from (storage, offset, shape, stride, requires_grad, hooks, dtype, ...)."""
    tensor = _tensor(arguments)
    dtype = arguments[6]
    if not isinstance(tensor, StoredTensor) or not isinstance(dtype, Global):
        return Foreign("torch.Tensor")
    return replace(tensor, dtype=dtype.name.rpartition(".")[2])


def _first(arguments: Sequence[Any]) -> Any:
    """Return the tensor of a parameter: the first of (data, requires_grad, hooks, ...)."""
    return arguments[0]


def _dictionary(arguments: Sequence[Any]) -> dict[Any, Any]:
    """Return the dictionary for an OrderedDict.

    Python 2 passes it as a list of pairs. Otherwise the dictionary is empty and is filled later.
    """
    result: dict[Any, Any] = {}
    pairs = arguments[0] if arguments else ()
    if isinstance(pairs, list):
        _insert(result, [item for pair in pairs for item in pair])
    return result


def _rebuild_from_type(arguments: Sequence[Any]) -> Any:
    """Describe a tensor with attributes from (function, class, arguments, state), ignoring the attributes."""
    return _call(arguments[0], arguments[2])


HANDLERS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    **dict.fromkeys(DICTIONARIES, _dictionary),
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
    "torch.Size": lambda arguments: tuple(arguments[0]),
}


def _call(function: Any, arguments: Any) -> Any:
    """Return what calling a name would produce: a described tensor, a container or a foreign object."""
    if not isinstance(function, Global):
        return Foreign("an object without a name")
    handler = HANDLERS.get(function.name)
    if handler is None:
        return Foreign(function.name)
    return handler(arguments)


def _insert(target: Any, items: list[Any]) -> None:
    if not isinstance(target, dict):
        return
    for key, value in zip(items[::2], items[1::2], strict=False):
        if isinstance(key, KEYS):
            target[key] = value


_Unpickler: Any = vars(pickle)["_Unpickler"]  # the pure Python class, whose opcodes are methods


class _InertReader(_Unpickler):  # type: ignore[misc]
    """Python's unpickler, with every opcode replaced that would import, call, build or hash something."""

    dispatch: ClassVar[dict[int, Any]] = dict(_Unpickler.dispatch)

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, encoding="latin1")

    def find_class(self, module: str, name: str) -> Global:
        return Global(f"{module}.{name}")

    def get_extension(self, code: int) -> None:
        self.append(Global(f"copyreg extension {code}"))

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[1], Global):
            is_view = len(pid) > 5 and pid[5] is not None
            if is_view:
                return Foreign("a view of a storage")
            return Storage(str(pid[2]), pid[1].name.rpartition(".")[2])
        return Foreign("a persistent object")

    def _instantiate(self, function: Any, arguments: Any) -> None:
        self.append(_call(function, arguments))

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = _call(self.stack[-1], arguments)

    def load_newobj_ex(self) -> None:
        self.stack.pop()
        self.load_reduce()

    def load_build(self) -> None:
        self.stack.pop()

    def load_setitem(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        _insert(self.stack[-1], [key, value])

    def load_setitems(self) -> None:
        items = self.pop_mark()
        _insert(self.stack[-1], items)

    def load_dict(self) -> None:
        result: dict[Any, Any] = {}
        _insert(result, self.pop_mark())
        self.append(result)

    def load_append(self) -> None:
        value = self.stack.pop()
        if isinstance(self.stack[-1], list):
            self.stack[-1].append(value)

    def load_appends(self) -> None:
        items = self.pop_mark()
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)

    def load_empty_set(self) -> None:
        self.append(Foreign("builtins.set"))

    def load_additems(self) -> None:
        self.pop_mark()

    def load_frozenset(self) -> None:
        self.pop_mark()
        self.append(Foreign("builtins.frozenset"))

    def load_bytearray8(self) -> None:
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(self.read(size))

    def load_readonly_buffer(self) -> None:
        pass


for _name, _load in (
    ("REDUCE", _InertReader.load_reduce),
    ("NEWOBJ", _InertReader.load_reduce),
    ("NEWOBJ_EX", _InertReader.load_newobj_ex),
    ("BUILD", _InertReader.load_build),
    ("SETITEM", _InertReader.load_setitem),
    ("SETITEMS", _InertReader.load_setitems),
    ("DICT", _InertReader.load_dict),
    ("APPEND", _InertReader.load_append),
    ("APPENDS", _InertReader.load_appends),
    ("EMPTY_SET", _InertReader.load_empty_set),
    ("ADDITEMS", _InertReader.load_additems),
    ("FROZENSET", _InertReader.load_frozenset),
    ("BYTEARRAY8", _InertReader.load_bytearray8),
    ("READONLY_BUFFER", _InertReader.load_readonly_buffer),
):
    _InertReader.dispatch[getattr(pickle, _name)[0]] = _load
