"""Validation of addresses given by the user, of Ray clusters and of MLflow's tracking stores.

Whether anything answers there is checked only when the address is used.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from orchestrator.errors import ClusterError, SpecError

PLACES = ("none", "local", "auto")  # addresses of clusters that are words
DEFAULT_CLIENT_PORT = 10001
# Labels of a name, or an IPv6 address; anything else is refused before a lookup, which may crash on it.
V6 = r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?"
HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?" + rf"|{V6}|\[{V6}\]", re.ASCII)
NUMBER = re.compile("[0-9]{1,5}")


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of HOST:PORT or ray://HOST:PORT (whose port is optional). Raises ClusterError for anything else."""
    scheme, _, rest = address.rpartition("://")
    host, separator, port = rest.rpartition(":")
    if scheme == "ray" and not separator:
        host, port = rest, str(DEFAULT_CLIENT_PORT)
    sound = HOST.fullmatch(host) and len(host) < 256 and NUMBER.fullmatch(port) and 0 < int(port) < 65536
    if scheme not in ("", "ray") or not sound:
        raise ClusterError(
            f"{address!r} is no address of a Ray cluster; give HOST:PORT, ray://HOST:PORT, auto, local or none"
        )
    return host.strip("[]"), int(port)


def absolute(uri: str) -> str:
    """The URI, or path, independent of the working directory. Raises SpecError if it is not a valid one."""
    for scheme in ("sqlite:///", "file:///"):
        if uri.startswith(scheme):
            path = uri.removeprefix(scheme)
            if scheme == "file:///" or path.startswith("/"):
                return uri
            return f"{scheme}{Path(path).absolute()}"
    if "://" in uri or uri.startswith("databricks"):
        try:
            parts = urlsplit(uri)
            parts.port  # noqa: B018 -- raises where it is no number
        except ValueError as error:  # it may hold a password, so it is not repeated
            raise SpecError(f"the tracking store's URI is none: {error}; give one, or off") from None
        if parts.scheme in ("http", "https") and not parts.hostname:
            raise SpecError(f"the tracking store's URI names no server: {parts.scheme}://HOST:PORT does")
        return uri
    if not uri.strip():
        raise SpecError("the tracking store's URI is empty; give one, or off")
    return Path(os.path.expanduser(uri)).absolute().as_uri()
