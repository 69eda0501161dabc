"""Checks, in the process that computes, that the user's task code is the code from which its keys were derived."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tasks.user_code.closure import SourceFile, digest_of_files, find_user_files
from tasks.user_code.loaded import ImportWatch, UncoveredImport, open_watch


class SourceChanged(ValueError):
    """The files of a task have changed since its keys were derived."""


class TaskSource:
    """The source of a task's module, and the imports of this process since the source was opened."""

    def __init__(self, module: str, digest: str, files: Mapping[str, SourceFile], watch: ImportWatch | None) -> None:
        self._module = module
        self._digest = digest
        self._files = files
        self._watch = watch

    def problem(self) -> Exception | None:
        """Return the reason why a result of the task does not match its key. Returns None if it does."""
        if self._watch is None:
            return None
        current_digest = digest_of_files(self._files.values())
        if current_digest != self._digest:
            return SourceChanged(
                f"the code of {self._module} differs from the code that this run was planned with: "
                f"{', '.join(self._files)} have digest {current_digest} here, not {self._digest}; repeat the "
                "command with the same code on all machines"
            )
        try:
            self._watch.check()
        except UncoveredImport as error:
            return error
        return None


@contextmanager
def open_source(digests: Mapping[str, str]) -> Iterator[TaskSource]:
    """Open the source of a task whose functions, given as `module:name`, belong to one module that is not imported yet.

    A function without a digest has a version instead and is not checked.
    """
    user_sources = {function.partition(":")[0]: digest for function, digest in digests.items() if digest}
    if not user_sources:
        yield TaskSource("", "", {}, None)
        return
    ((module, digest),) = user_sources.items()
    files = _files(module)
    with open_watch(f"audit in {module}", files) as watch:
        yield TaskSource(module, digest, files, watch)


@functools.cache  # later changes to the files do not matter, because the modules are already imported
def _files(module: str) -> Mapping[str, SourceFile]:
    return find_user_files(module)
