"""Check torch.export archives before torch reads them.

torch's reader (torch/export/pt2_archive/_package.py, torch/_export/serde/serialize.py) does more than read data in
these cases:

- a weight or constant is marked `use_pickle`, or is an object rather than a tensor: it is unpickled;
- example inputs or weights in the old format contain more than tensors: they are unpickled after the safe method fails;
- the archive contains a compiled model (AOTInductor): the shared library is loaded;
- a size is an expression: sympy evaluates it with Python's `eval`;
- an operator is named: any path below `torch`, `operator` or `math` is followed, including functions that run commands;
- names of inputs and nodes, and guards, become the text of a Python function, which is executed;
- a container names a type: its module is imported.

Beyond what plain models need, an archive that contains any of these is refused. Names and bytes come from torch's own
reader, so that what is checked is exactly what is read afterwards.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram

TENSOR = re.compile(r"(weight|tensor)_\d+")
IN_PLACE = "iand|ior|ixor|ilshift|irshift"
OPERATOR = re.compile(
    rf"torch\.ops\.(aten|prims|quantized|quantized_decomposed|torchvision)\.([a-zA-Z]\w*|_[a-zA-Z]\w*|"
    rf"__(and|or|xor|lshift|rshift|{IN_PLACE})__)\.[a-zA-Z]\w*"
    r"|torch\.ops\.higher_order\.(cond|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|torch\.sym_\w+"
    r"|(_operator|operator)\.(add|sub|mul|floordiv|truediv|mod|neg|pos|pow|eq|ne|lt|le|gt|ge|and_|or_|not_|getitem)"
    r"|math\.(ceil|floor|trunc|sqrt|pow|log2)"
)
FORBIDDEN = re.compile(r"torch\.ops\.aten\.from_file\.")  # this operator opens a file
# Words allowed in a size expression, in addition to torch's functions for sizes.
WORD = re.compile(
    r"Symbol|Integer|Float|Rational|Add|Mul|Pow|Min|Max|Mod|And|Or|Not|Eq|Ne|Lt|Le|Gt|Ge|Equality|Unequality"
    r"|StrictLessThan|LessThan|StrictGreaterThan|GreaterThan|true|false|True|False|oo"
    r"|positive|negative|nonnegative|nonzero|zero|integer|real|[a-z]{1,3}\d+"
)
NAME = re.compile(r"[A-Za-z_]\w*")
EXPRESSION = re.compile(r"[\w\s+\-*/%(),<>=]*")
QUOTED = re.compile(r"'\w+'")
# The characters of names, dtypes, devices and versions. Text made of these characters is at most a name in Python.
PLAIN = re.compile(r"[\w.:+-]*")
CONTAINERS = re.compile(r"builtins\.(tuple|list|dict)|collections\.OrderedDict")
CONTEXT = re.compile(r'null|\[("\w+"(, "\w+")*)?\]')  # the keys of a dict
FREE = frozenset({"as_string", "as_strings", "guards_code"})  # their representation is used, or they are unused


class Refused(ValueError):
    """An archive that cannot be read without running its code. The message is a phrase about its contents."""


def program(content: bytes) -> ExportedProgram:
    """Read the program in an archive. Raises Refused if reading it could run code."""
    from torch.export.pt2_archive import PT2ArchiveReader
    from torch.export.pt2_archive._package import load_pt2

    reader = PT2ArchiveReader(io.BytesIO(content))
    check({name: reader.read_bytes(name) for name in reader.get_file_names()})
    # torch.export.load calls this function too, but falls back to an older format if it fails.
    programs: dict[str, ExportedProgram] = load_pt2(io.BytesIO(content)).exported_programs
    return programs["model"]


def check(records: dict[str, bytes]) -> None:
    """Raise Refused unless the records of an archive are those of a plain model."""
    if "models/model.json" not in records:
        raise Refused("it contains no program called model")
    for name, content in records.items():
        if name.startswith("data/aotinductor"):
            raise Refused("it contains compiled code (AOTInductor)")
        if name.endswith("_config.json"):
            _check_payload(name, json.loads(content))
        elif name.startswith("models/"):
            _check_program(name, json.loads(content))
        elif name.endswith(".pt"):
            _check_tensors(name, content)


def _check_payload(name: str, payload: Any) -> None:
    for weight, entry in payload["config"].items():
        if entry.get("use_pickle") or not TENSOR.fullmatch(entry["path_name"]):
            raise Refused(f"{weight} in {name} would have to be unpickled")
        _check_program(name, entry)


def _check_tensors(name: str, content: bytes) -> None:
    import torch

    try:
        torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except Exception:
        raise Refused(f"{name} would have to be unpickled") from None


def _check_program(name: str, program: Any) -> None:
    for key, text in _texts(program):
        if key in ("target", "as_operator"):
            if FORBIDDEN.match(text) or not OPERATOR.fullmatch(text):
                raise Refused(f"{name} uses {text[:60]!r}, which is not an operator of torch")
        elif key == "expr_str":
            if not is_expression(text):
                raise Refused(f"{name} has the size {text[:60]!r}, which is not a plain expression")
        elif key in ("in_spec", "out_spec"):
            _check_containers(name, json.loads(text))
        elif key not in FREE and not PLAIN.fullmatch(text):
            raise Refused(f"{name} has the name {text[:60]!r}, which is not a plain name")


def _check_containers(name: str, specification: Any) -> None:
    for key, text in _texts(specification):
        if not {"type": CONTAINERS, "context": CONTEXT}.get(key, PLAIN).fullmatch(text):
            raise Refused(f"{name} takes or returns a {text[:60]!r}; only tuples, lists and dicts are allowed")


def is_expression(text: str) -> bool:
    """Return whether a text is a plain expression of numbers and symbols, as printed by sympy."""
    bare = QUOTED.sub("", text)
    plain = re.sub(r"\b\d+\.\d*", "0", bare)
    words = NAME.findall(plain)
    return bool(EXPRESSION.fullmatch(plain)) and all(WORD.fullmatch(word) or word in _functions() for word in words)


@cache
def _functions() -> frozenset[str]:
    from torch.utils._sympy import functions

    return frozenset(functions.__all__)


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in nested JSON, including keys, with the key above it. Skips the metadata of nodes."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield "", name
            if name != "metadata":
                yield from _texts(part, name)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, key)
