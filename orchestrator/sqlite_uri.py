"""Converts the path of an SQLite file to the URI that SQLAlchemy reads, and back.

SQLAlchemy 2.1 and later decode percent signs in the path, but earlier versions do not, and a question mark starts a
query. A URI is therefore used only if the installed SQLAlchemy reads it as the intended path.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

from orchestrator.errors import EngramError

SCHEME = "sqlite:///"
SPECIAL = "?%"  # path characters that a URI may change


def sqlite_uri(path: Path) -> str:
    """Return the URI of an SQLite file. Raises EngramError if the installed SQLAlchemy cannot open this path."""
    text = str(path)
    if not any(character in text for character in SPECIAL):
        return SCHEME + text
    for uri in (SCHEME + text, SCHEME + _quoted(path)):
        if sqlite_path(uri) == path:
            return uri
    raise EngramError(
        f"{path}: the installed SQLAlchemy cannot open paths with a question mark; update it, or rename the path"
    )


def sqlite_path(uri: str) -> Path | None:
    """Return the file that a URI names. Returns None if it names none, or has options after a question mark."""
    path = uri.removeprefix(SCHEME)
    if path == uri or "?" in path:
        return None
    return Path(_decoded(uri) if "%" in path else path)


def _quoted(path: Path) -> str:
    """Encode percent signs and question marks in the path, as well as every slash after the first of them.

    MLflow creates the folder above the last slash without decoding it. With this encoding, that folder already exists.
    """
    plain_parent = path
    while any(character in str(plain_parent) for character in SPECIAL):
        plain_parent = plain_parent.parent
    return f"{str(plain_parent).rstrip('/')}/{quote(str(path.relative_to(plain_parent)), safe=' ')}"


def _decoded(uri: str) -> str:
    try:
        from sqlalchemy.engine import make_url
    except ImportError:  # without MLflow, nothing opens the file
        return unquote(uri.removeprefix(SCHEME))
    return str(make_url(uri).database)
