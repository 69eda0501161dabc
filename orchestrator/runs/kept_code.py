"""Keep the files of a user's training programs in the store, so that a run does not see later changes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.errors import EngramError
from orchestrator.model_audit import NAME_DIGITS, RECORDINGS
from orchestrator.spec.config_parts import rebuild
from orchestrator.spec.resolve import Cell
from orchestrator.store import Store, local_path
from tasks.programs.code import CodeError, ProgramCode, pack_code


def keep_code(cell: Cell, store: Store) -> Cell:
    """Return the cell with its programs read from archives in the store.

    Without a local store, programs are read from their own folders, which all machines must see. Raises EngramError if
    the files cannot be kept.
    """
    root = local_path(store.location)
    if root is None:
        return cell
    folder = root / RECORDINGS

    def keep(part: Any, _metadata: Mapping[Any, Any]) -> Any:
        if isinstance(part, ProgramCode):
            return _archive(part, folder)
        return rebuild(part, keep)

    return replace(cell, config=keep(cell.config, {}))


def _archive(code: ProgramCode, folder: Path) -> ProgramCode:
    try:
        folder.mkdir(exist_ok=True)
        return pack_code(code, folder / f"{code.digest[:NAME_DIGITS]}.tar")
    except (OSError, CodeError) as error:
        raise EngramError(f"the program cannot be kept in the store: {error}") from None
