"""The function that a Ray worker runs. It is pickled by value, so it works before Engram can be imported there.

`tasks` and `orchestrator` are common names, and Ray puts the driver's working directory first on a worker's import
path, so a `tasks.py` there would be imported instead of our package. Calls and answers are therefore sent as bytes and
unpickled only after our packages are loaded. This module imports only the standard library.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

PACKAGES = ("orchestrator", "tasks")


def pin(root: str) -> None:
    """Import `orchestrator` and `tasks` from `root`, regardless of the order of the import path.

    Their submodules follow, because they are found through the package. `root` is appended to the path, so it hides no
    other modules. If the folder does not exist (on another machine), the path decides.
    """
    if not os.path.isdir(os.path.join(root, "orchestrator")):
        return
    for name in PACKAGES:
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        if name in sys.modules and os.path.dirname(file) != os.path.join(root, name):
            for loaded in [module for module in sys.modules if module == name or module.startswith(name + ".")]:
                del sys.modules[loaded]
    original_path = list(sys.path)
    sys.path.insert(0, root)
    try:
        importlib.invalidate_caches()
        for name in PACKAGES:
            importlib.import_module(name)
    finally:
        if root in original_path:
            sys.path[:] = original_path
        else:
            sys.path[:] = [*original_path, root]


def entry(
    root: str, environment: Mapping[str, str], store: str, identity: Mapping[str, str] | None = None
) -> Callable[[bytes], bytes | str]:
    """Return the function to send.

    It takes a pickled call and returns a pickled Finished, or text if it cannot compute.

    It cannot compute if Engram is missing or differs from the driver's `identity`: keys do not cover Engram's code, so
    different code must not compute them.
    """
    ready: list[Any] = []  # our calls module and the open store, set once per process

    def run(call: bytes) -> bytes | str:
        # Ray's soft cancellation is an interrupt. It is meant for calls that have not begun, so a running one ignores
        # it.
        with contextlib.suppress(ValueError):  # not in the main thread, where it could not be interrupted anyway
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            if not ready:
                os.environ.update(environment)  # before numpy or torch counts its threads
                pin(root)
                importlib.import_module("orchestrator.deferred_pandas").defer_pandas()
                calls = importlib.import_module("orchestrator.executors.calls")
                stores = importlib.import_module("orchestrator.store")
                if identity is not None and (differing := _differing(identity)):
                    return f"{socket.gethostname()}: {differing}"
                ready.append((calls, stores.open_store(store, create=False)))
            work = pickle.loads(call)
        except ImportError as error:
            return f"{socket.gethostname()}: {type(error).__name__}: {error}"
        calls, opened_store = ready[0]
        try:
            return pickle.dumps(calls.perform(work, opened_store))
        except calls.Poisoned:
            os._exit(1)  # the next call gets a new process

    return run


def asking(root: str, environment: Mapping[str, str]) -> Callable[[bytes, str], str]:
    """Return the function to send to a node. It takes a pickled Question and the node's id, and returns a problem.

    If there is no problem, the returned text is empty.
    """

    def answer(question: bytes, node: str) -> str:
        try:
            os.environ.update(environment)
            pin(root)
            nodes = importlib.import_module("orchestrator.executors.nodes")
        except ImportError as error:
            return f"cannot import Engram ({type(error).__name__}: {error}); every node needs the same installation"
        return str(nodes.answer_question(question, node))

    return answer


def _differing(identity: Mapping[str, str]) -> str:
    nodes = importlib.import_module("orchestrator.executors.nodes")
    provenance = importlib.import_module("orchestrator.store.provenance")
    return str(nodes.differences(identity, provenance.identity()))
