"""Import the functions of users' modules, if their source is the one that was pinned."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from tasks.models import custom
from tasks.models.custom import Factory
from tasks.user_code import loaded
from tasks.user_code.loaded import UncoveredImport


def import_factory(factory: Factory) -> Callable[..., object]:
    """Import the factory function.

    Raises ValueError if its source differs from the pinned one or the import fails.
    """
    files = custom.source_files(factory)
    custom.check_digest(factory, files)
    changed = loaded.changed_file(files)
    if changed is not None:
        raise ValueError(
            f"{factory.noun} {factory}: its source has changed since this process imported it ({changed}); start again"
        )
    try:
        with loaded.watch_imports(f"{factory.noun} {factory}", files):
            module = importlib.import_module(factory.module)
    except UncoveredImport:
        raise
    except Exception as error:
        raise ValueError(f"{factory.noun} {factory}: {factory.module} cannot be imported: {one_line(error)}") from error
    functions = {}
    for name, value in vars(module).items():
        if callable(value) and not name.startswith("_"):
            functions[name] = value
    if factory.function not in functions:
        names = ", ".join(functions)
        raise ValueError(
            f"{factory.noun} {factory}: {factory.module} has no function {factory.function}; it has {names}"
        )
    function: Callable[..., object] = functions[factory.function]
    return function


def one_line(error: Exception) -> str:
    """Format an error from a user's code on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
