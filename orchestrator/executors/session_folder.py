"""The folder of Ray's sessions on this machine. Their sockets need a short path."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import ClusterError

SOCKET_PATH = 107  # maximum length of a Unix socket path
# RAY_TMPDIR/ray/session_2026-11-21_02-51-00_123456_1234567/sockets/plasma_store.1
SUBPATH_LENGTH = len("/ray/session_2026-11-21_02-51-00_123456_1234567/sockets/plasma_store.1")
LONGEST = SOCKET_PATH - SUBPATH_LENGTH
VARIABLE = "RAY_TMPDIR"
SHORT = "/tmp"


def session_variables() -> Mapping[str, str]:
    """Return the variables that give Ray's sessions a path that is short enough.

    Returns no variables if the default path is short enough. Raises ClusterError if RAY_TMPDIR is too long, or if
    TMPDIR is too long and /tmp cannot be written.
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
    """Return the folder of Ray's sessions. Raises the same errors as `session_variables`."""
    folder = session_variables().get(VARIABLE) or os.environ.get(VARIABLE) or _temporary_folder()
    return Path(folder) / "ray"


def _temporary_folder() -> str:
    """Return the folder that Ray uses if RAY_TMPDIR is not set."""
    if sys.platform.startswith("linux"):
        return os.environ.get("TMPDIR") or SHORT
    return tempfile.gettempdir()
