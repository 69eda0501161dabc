"""Training functions that `engram.membership` receives as objects, as the text of a setting.

A function of a module is named, `package.module:train`, so that its key follows its source. Any other function, such as
a closure or a function of a notebook, is pickled with cloudpickle into the store, and its key follows these bytes.
"""

from __future__ import annotations

import hashlib
import importlib
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.model_audit import NAME_DIGITS, RECORDINGS
from orchestrator.store import Store, local_path
from orchestrator.store.atomic_write import replace
from tasks.programs.function import PICKLE


@contextmanager
def name_function(function: Callable[..., Any] | str, store: Store) -> Iterator[str]:
    """Yield the text that names the function, or the path of its pickle.

    A pickle is in the store or, if that is remote, in a temporary folder that is removed at the end of the block.

    Raises SpecError if the function cannot be pickled.
    """
    if isinstance(function, str):
        yield function
        return
    if not callable(function):
        raise SpecError(f"train is a {type(function).__name__}; it must be a function of one engram.TrainingJob")
    if _is_importable(function):
        yield f"{function.__module__}:{function.__qualname__}"
        return
    content = _pickle(function)
    root = local_path(store.location)
    if root is not None:
        folder = root / RECORDINGS
        folder.mkdir(exist_ok=True)
        yield _write(content, folder)
        return
    with TemporaryDirectory(prefix="engram-") as temporary:
        yield _write(content, Path(temporary))


def _is_importable(function: Callable[..., Any]) -> bool:
    """Return whether other processes find the function in its module."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    if module in (None, "__main__") or not name.isidentifier():
        return False
    try:
        return getattr(importlib.import_module(module), name, None) is function
    except ImportError:
        return False


def _pickle(function: Callable[..., Any]) -> bytes:
    import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(function, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # objects that the function refers to may raise anything
        line = " ".join(str(error).split())
        raise SpecError(
            f"the training function refers to an object that cannot be pickled: {type(error).__name__}: {line}; create "
            "it inside the function"
        ) from None
    return content


def _write(content: bytes, folder: Path) -> str:
    path = folder / f"{hashlib.sha256(content).hexdigest()[:NAME_DIGITS]}.pkl"
    replace(folder, path, content)
    return f"{PICKLE}{path}"
