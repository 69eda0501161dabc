"""Writes `orchestrator/__init__.pyi`, which gives type checkers and editors the signatures of the Python API.

The options of `run` and `search` are declared as data, which type checkers cannot read, and an audit's fields are
additional keywords. `Unpack[TypedDict]` cannot express both: mypy 2.4 does not support `extra_items` (PEP 728) and
therefore rejects any keyword that the dictionary does not name. `python -m orchestrator.python_stub` therefore writes
the signatures out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orchestrator

STUB = Path(orchestrator.__file__).with_suffix(".pyi")
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    orchestrator.audit,
    orchestrator.audits,
    orchestrator.open,
    orchestrator.plan,
    orchestrator.run,
    orchestrator.search,
)
HEAD = """\
# Written by `make docs` from the signatures of the functions in python_calls.py.
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from orchestrator.errors import EngramError as EngramError
from orchestrator.errors import SpecError as SpecError
from orchestrator.runs.report import Report

"""


def format_stub() -> str:
    """Return the text of the stub file."""
    exported = ", ".join(f'"{name}"' for name in orchestrator.__all__)
    lines = [f"__all__ = [{exported}]", ""]
    for function in FUNCTIONS:
        lines += _format(function)
    return HEAD + "\n".join(lines) + "\n"


def _format(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the lines of a function signature, with one parameter per line."""
    signature = inspect.signature(function)
    if not signature.parameters:
        yield f"def {function.__name__}() -> {signature.return_annotation}: ..."
        return
    yield f"def {function.__name__}("
    keywords_have_begun = False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keywords_have_begun:
            keywords_have_begun = True
            yield "    *,"
        prefix = ""
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            prefix = "**"
        if parameter.default is inspect.Parameter.empty:
            default = ""
        else:
            default = f" = {parameter.default!r}"
        annotation = parameter.annotation.replace("'", '"')
        yield f"    {prefix}{parameter.name}: {annotation}{default},"
    yield f") -> {signature.return_annotation}: ..."


if __name__ == "__main__":
    STUB.write_text(format_stub(), encoding="utf-8")
