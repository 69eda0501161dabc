"""Keep the files of a user's training programs in the store, so that a run does not see later changes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from orchestrator.errors import EngramError
from orchestrator.model_audit import NAME_DIGITS, RECORDINGS
from orchestrator.spec.config_parts import rebuild
from orchestrator.spec.resolve import Cell
from orchestrator.store import Store, local_path
from tasks.programs.code import STORED, CodeError, ProgramCode, pack_code


def keep_code(cell: Cell, store: Store) -> Cell:
    """Return the cell with its programs read from archives in the store. Raises EngramError if they cannot be kept."""

    def keep(part: Any, _metadata: Mapping[Any, Any]) -> Any:
        if isinstance(part, ProgramCode) and not part.folder.startswith(STORED):
            return _archive(part, store)
        return rebuild(part, keep)

    return replace(cell, config=keep(cell.config, {}))


def _archive(code: ProgramCode, store: Store) -> ProgramCode:
    """Write the archive of a program into the store."""
    root = local_path(store.location)
    name = f"{code.digest[:NAME_DIGITS]}.tar"
    try:
        if root is not None:
            (root / RECORDINGS).mkdir(exist_ok=True)
            return pack_code(code, root / RECORDINGS / name)
        with TemporaryDirectory(prefix="engram-") as folder:
            pack_code(code, Path(folder) / name)
            store.create_file(f"{RECORDINGS}/{name}", (Path(folder) / name).read_bytes())
        return ProgramCode("", f"{STORED}{RECORDINGS}/{name}", code.digest)
    except (OSError, CodeError) as error:
        raise EngramError(f"the program cannot be kept in the store: {error}") from None
