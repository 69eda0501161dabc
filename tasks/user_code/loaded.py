"""What this process has loaded of the user's code: that it is what was digested, and nothing beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tasks.user_code.closure import SourceFile, is_user_file

_digests: dict[str, str] = {}  # path of a file that this process has imported -> digest of the file then


def changed_file(files: Mapping[str, SourceFile]) -> str | None:
    """The path of a file that has changed since this process imported it; None if there is none."""
    for file in files.values():
        if _digests.get(str(file.path), file.digest) != file.digest:
            return str(file.path)
    return None


class UncoveredImport(ValueError):
    """Code of the user's was imported that no key covers: one line for the user."""


@contextmanager
def watch_imports(what: str, files: Mapping[str, SourceFile]) -> Iterator[None]:
    """Raise UncoveredImport if the block imports a file of the user's beside these, which its key covers.

    The modules that the block imported are then forgotten, so that the next attempt meets them again. No bytecode is
    written inside: Python takes bytecode for current if its source has the same size and second of change, which an
    edit that replaces 32 by 64 may leave alike.
    """
    before = set(sys.modules)
    writes_no_bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    except BaseException:
        _forget_modules(before)
        raise
    finally:
        sys.dont_write_bytecode = writes_no_bytecode
    covered = {file.path.resolve() for file in files.values()}
    for name, path in _user_modules(before).items():
        if path.resolve() not in covered:
            _forget_modules(before)
            raise UncoveredImport(
                f"{what}: {path} is imported when it runs, but no import in its source names {name}; import it by its "
                "name, from a folder on PYTHONPATH, so that keys see its changes"
            )
    for file in files.values():
        _digests.setdefault(str(file.path), file.digest)


def _forget_modules(before: set[str]) -> None:
    for name in _user_modules(before):
        del sys.modules[name]


def _user_modules(before: set[str]) -> dict[str, Path]:
    """The modules of the user's that were imported since, by name, with their files."""
    found = {}
    for name, module in [*sys.modules.items()]:
        if name in before:
            continue
        path = vars(module).get("__file__")  # `getattr` would load a module that is lazy
        if isinstance(path, str) and is_user_file(path):
            found[name] = Path(path)
    return found
