"""Writes the stubs of `orchestrator` and `engram`, which give type checkers and editors the Python API's signatures.

The settings classes of the audits are created from the audits' fields when a program first uses them. The options of
`run` and `search` are declared as data, and an audit's fields are additional keywords. Type checkers can read neither,
and `Unpack[TypedDict]` cannot express both: mypy 2.4 does not support `extra_items` (PEP 728) and therefore rejects any
keyword that the dictionary does not name. `python -m orchestrator.python_stub` therefore writes the signatures out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import engram
import orchestrator
from orchestrator import audit_settings
from orchestrator.spec import audits

STUB = Path(orchestrator.__file__).with_suffix(".pyi")
ENGRAM_STUB = Path(engram.__file__).with_suffix(".pyi")
WIDTH = 120  # maximum characters per line
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    orchestrator.audit,
    orchestrator.audits,
    orchestrator.membership,
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

from orchestrator.audit_settings import AuditSettings
from orchestrator.errors import EngramError as EngramError
from orchestrator.errors import SpecError as SpecError
from orchestrator.runs.report import Report
from tasks.programs.function import TrainingJob as TrainingJob

"""


def format_stub() -> str:
    """Return the text of the stub of `orchestrator`."""
    lines = [_name_exports(orchestrator), ""]
    for function in FUNCTIONS:
        lines += _format(function)
    for name, audit in built_in_classes().items():
        lines += ["", *_format_class(name, audit)]
    return HEAD + "\n".join(lines) + "\n"


def format_engram_stub() -> str:
    """Return the text of the stub of `engram`, which exports the names of `orchestrator`."""
    names = sorted([*orchestrator.__all__, "TrainingJob", "open", *built_in_classes()])
    imports = [f"from orchestrator import {name} as {name}" for name in names]
    imports.append("from orchestrator.python_calls import runs as runs")
    return "\n".join(["# Written by `make docs`.", *imports, "", _name_exports(engram)]) + "\n"


def built_in_classes() -> dict[str, str]:
    """Map the names of the settings classes of Engram's own audits to the audits."""
    classes = {}
    for name, audit in audit_settings.settings_classes().items():
        if audits.find(audit).audit.config.__module__.startswith("tasks."):
            classes[name] = audit
    return classes


def _name_exports(module: ModuleType) -> str:
    exported = ", ".join(f'"{name}"' for name in module.__all__)
    return f"__all__ = [{exported}]"


def _format_class(name: str, audit: str) -> Iterator[str]:
    """Yield the lines of a settings class, whose fields accept any value that the command line accepts as text."""
    yield f"class {name}(AuditSettings):"
    yield "    def __init__("
    yield "        self,"
    yield "        preset: str | None = None,"
    yield "        *,"
    for field, parameter in audit_settings.setting_parameters(audit).items():
        line = f"        {field}: {parameter.annotation} = ...,"
        yield line if len(line) <= WIDTH else line.replace(" | ", "\n        | ")
    yield "        **fields: Any,"
    yield "    ) -> None: ..."


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
            default = f" = {parameter.default!r}".replace("'", '"')
        annotation = parameter.annotation.replace("'", '"')
        yield f"    {prefix}{parameter.name}: {annotation}{default},"
    yield f") -> {signature.return_annotation}: ..."


if __name__ == "__main__":
    STUB.write_text(format_stub(), encoding="utf-8")
    ENGRAM_STUB.write_text(format_engram_stub(), encoding="utf-8")
