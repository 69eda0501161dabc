"""The folder of Ray's sessions on this machine; their sockets need a short path."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import ClusterError

SOCKET_PATH = 107  # maximum number of characters of a Unix socket's path
# RAY_TMPDIR/ray/session_2026-11-21_02-51-00_123456_1234567/sockets/plasma_store.1
SUBPATH_LENGTH = len("/ray/session_2026-11-21_02-51-00_123456_1234567/sockets/plasma_store.1")
LONGEST = SOCKET_PATH - SUBPATH_LENGTH
VARIABLE = "RAY_TMPDIR"
SHORT = "/tmp"


def session_variables() -> Mapping[str, str]:
    """The variables that give Ray's sessions a short enough path; empty if the default path is short enough.

    Raises ClusterError if RAY_TMPDIR is too long, or if TMPDIR is too long and /tmp cannot be written.
    """
    configured_folder = os.environ.get(VARIABLE)
    if configured_folder is not None:
        if len(os.fsencode(configured_folder)) > LONGEST:
            raise ClusterError(
                f"{VARIABLE} is {configured_folder}; it must have at most {LONGEST} characters, for Ray's sockets"
            )
        return {}
    folder = _temporary_folder()
    if len(os.fsencode(folder)) <= LONGEST:
        return {}
    if not os.access(SHORT, os.W_OK):
        raise ClusterError(
            f"TMPDIR is {folder}, too long for Ray's sockets, and {SHORT} cannot be written; set {VARIABLE} to a path "
            f"of at most {LONGEST} characters"
        )
    return {VARIABLE: SHORT}


def session_folder() -> Path:
    """The folder of Ray's sessions. Raises as `session_variables`."""
    folder = session_variables().get(VARIABLE) or os.environ.get(VARIABLE) or _temporary_folder()
    return Path(folder) / "ray"


def _temporary_folder() -> str:
    """The folder that Ray uses without RAY_TMPDIR."""
    if sys.platform.startswith("linux"):
        return os.environ.get("TMPDIR") or SHORT
    return tempfile.gettempdir()
