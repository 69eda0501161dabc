"""Training functions that `engram.membership` receives as objects, as the text of a setting.

A function of a module is named, `package.module:train`, so that its key follows its source. Any other function, such as
a closure or a function of a notebook, is pickled with cloudpickle into the store, and its key follows these bytes.
"""

from __future__ import annotations

import hashlib
import importlib
import pickle
from collections.abc import Callable
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.model_audit import NAME_DIGITS, RECORDINGS
from orchestrator.store import Store, local_path
from orchestrator.store.atomic_write import replace
from tasks.programs.code import STORED
from tasks.programs.function import PICKLE


def name_function(function: Callable[..., Any] | str, store: Store) -> str:
    """Return the text that names the function, or its pickle in the store.

    Raises SpecError if the function cannot be pickled.
    """
    if isinstance(function, str):
        return function
    if not callable(function):
        raise SpecError(f"train is a {type(function).__name__}; it must be a function of one engram.TrainingJob")
    if _is_importable(function):
        return f"{function.__module__}:{function.__qualname__}"
    content = _pickle(function)
    digest = hashlib.sha256(content).hexdigest()
    name = f"{RECORDINGS}/{digest[:NAME_DIGITS]}.pkl"
    root = local_path(store.location)
    if root is None:
        store.create_file(name, content)
        return f"{PICKLE}{STORED}{name}@{digest}"
    (root / RECORDINGS).mkdir(exist_ok=True)
    replace(root / RECORDINGS, root / name, content)
    return f"{PICKLE}{root / name}"


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
