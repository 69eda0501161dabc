"""An SQLite file as the URI that SQLAlchemy reads, and back.

SQLAlchemy decodes percent signs in the path from 2.1 on and takes it as it stands before, and a question mark begins a
query. So a URI is only used if the installed SQLAlchemy reads it as the path that is meant.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

from orchestrator.errors import EngramError

SCHEME = "sqlite:///"
SPECIAL = "?%"  # characters of a path that a URI may change


def sqlite_uri(path: Path) -> str:
    """The URI of an SQLite file. Raises EngramError if the installed SQLAlchemy can open no file of this path."""
    text = str(path)
    if not any(character in text for character in SPECIAL):
        return SCHEME + text
    for uri in (SCHEME + text, SCHEME + _quoted(path)):
        if sqlite_path(uri) == path:
            return uri
    raise EngramError(f"{path}: the installed SQLAlchemy opens no path with a question mark; update it, or rename it")


def sqlite_path(uri: str) -> Path | None:
    """The file that a URI names; None if it names none, or has options after a question mark."""
    path = uri.removeprefix(SCHEME)
    if path == uri or "?" in path:
        return None
    return Path(_decoded(uri) if "%" in path else path)


def _quoted(path: Path) -> str:
    """The path with all percent signs and question marks as numbers, and also the slashes after the first of them.

    MLflow makes the folder above the last slash, undecoded: this one exists.
    """
    above = path
    while any(character in str(above) for character in SPECIAL):
        above = above.parent
    return f"{str(above).rstrip('/')}/{quote(str(path.relative_to(above)), safe=' ')}"


def _decoded(uri: str) -> str:
    try:
        from sqlalchemy.engine import make_url
    except ImportError:  # without MLflow nothing opens it
        return unquote(uri.removeprefix(SCHEME))
    return str(make_url(uri).database)
