"""Check the user's code in this process: imported files are covered by digests and have not changed since."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tasks.user_code.closure import SourceFile, is_user_file

_digests: dict[str, str] = {}  # path of an imported file -> its digest at the time of import
_watches: list[ImportWatch] = []  # open watches, outermost first


class UncoveredImport(ValueError):
    """A user file was imported that no key covers."""


class ImportWatch:
    """Finds user files that are imported after its creation and that no digest covers.

    `subject` begins the message. Files that an inner watch covers are allowed, since the network that a user's audit
    trains has its own digest in the keys.
    """

    def __init__(self, subject: str, files: Mapping[str, SourceFile]) -> None:
        self._subject = subject
        self._files = files
        self._covered = {file.path.resolve() for file in files.values()}
        self._before = set(sys.modules)

    def check(self) -> None:
        """Raise UncoveredImport if an uncovered file was imported.

        In that case, all modules imported since the watch was opened are forgotten, so that the next attempt checks
        them again.
        """
        for name, path in self._imported().items():
            if path.resolve() not in self._covered:
                self.forget_modules()
                raise UncoveredImport(
                    f"{self._subject}: {path} is imported when it runs, but no import in its source names {name}; "
                    "import it by its name, from a folder on PYTHONPATH, so that keys see its changes"
                )
        cover_files(self._files)

    def forget_modules(self) -> None:
        """Forget the user's modules imported since the watch was opened, as if they had never been imported."""
        for name in self._imported():
            del sys.modules[name]

    def _imported(self) -> dict[str, Path]:
        """Return the files of the user's modules imported since the watch was opened, by module name."""
        imported_files = {}
        # Thousands of modules may be loaded, and a single command looks up audits many times.
        new_names = sys.modules.keys() - self._before
        for name, module in [*sys.modules.items()] if new_names else []:
            if name not in new_names or module is sys.modules["__main__"]:  # multiprocessing calls it __mp_main__, too
                continue
            path = vars(module).get("__file__")  # `getattr` would load a lazy module
            if isinstance(path, str) and is_user_file(path):
                imported_files[name] = Path(path)
        return imported_files


def cover_files(files: Mapping[str, SourceFile]) -> None:
    """Note that these files have been imported, and allow them in all open watches."""
    for file in files.values():
        _digests.setdefault(str(file.path), file.digest)
    for watch in _watches:
        watch._covered |= {file.path.resolve() for file in files.values()}


def changed_file(files: Mapping[str, SourceFile]) -> str | None:
    """Return the path of a file that has changed since this process imported it, or None."""
    for file in files.values():
        if _digests.get(str(file.path), file.digest) != file.digest:
            return str(file.path)
    return None


@contextmanager
def open_watch(subject: str, files: Mapping[str, SourceFile]) -> Iterator[ImportWatch]:
    """Watch the imports in the block. The caller checks them.

    No bytecode is written inside the block. Python considers bytecode up to date if its source has the same size and
    modification time in seconds, which is often true after an edit such as 32 to 64.
    """
    watch = ImportWatch(subject, files)
    writes_no_bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    _watches.append(watch)
    try:
        yield watch
    finally:
        _watches.remove(watch)
        sys.dont_write_bytecode = writes_no_bytecode


@contextmanager
def watch_imports(subject: str, files: Mapping[str, SourceFile]) -> Iterator[None]:
    """Watch the imports in the block and check them when it ends. If the block fails, its imports are forgotten."""
    with open_watch(subject, files) as watch:
        try:
            yield
        except BaseException:
            watch.forget_modules()
            raise
        watch.check()
