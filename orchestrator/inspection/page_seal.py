"""The seal of a page: the digests of the page itself and of what it rests on, written into it.

    <template id="engram-seal">{"engram seal": 1, "page": DIGEST, "audited": [...], "tables": [...]}</template>

A template's content is shown by no browser. The page's digest is SHA-256 of the file's bytes with zeros wherever that
digest stands, so that any tool can compute it:

    sed "s/$DIGEST/$(printf '%064d' 0)/g" report.html | sha256sum

A seal shows that a page has changed since its digest was noted. It is no signature: whoever changes the page can also
seal it anew.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import EngramError
from orchestrator.inspection.evidence import AuditedItem, ResultTable

FORMAT = "engram seal"
VERSION = 1
ZEROS = "0" * 64
# The two places of the page's digest. Texts that a page shows are escaped, so that none of them can hold either.
SHOWN = '<code class="digest" id="digest-of-page">{}</code>'
NOTED = '"page": "{}"'
ELEMENT = re.compile(rb'<template id="engram-seal">(.*?)</template>', re.DOTALL)
DIGEST = re.compile(r"[0-9a-f]{64}")
BESIDE = re.compile(rb'<a href="\.\./[^"]*">(.*?)</a>', re.DOTALL)  # a link to the page of another run


class Unsealed(EngramError):
    """A page has no seal, or one that cannot be read."""


@dataclass(frozen=True)
class Seal:
    """What a page says of itself: its own digest, the run or sweep (or two runs) that it shows, what these rest on."""

    page: str
    runs: tuple[str, ...]
    audited: tuple[AuditedItem, ...]
    tables: tuple[ResultTable, ...]


def element(runs: Sequence[str], audited: Sequence[AuditedItem], tables: Sequence[ResultTable]) -> str:
    """The seal's element for a page that `close` has still to be called on; the page's digest is zeros."""
    value = {
        FORMAT: VERSION,
        "page": ZEROS,
        "runs": list(runs),
        "audited": [dataclasses.asdict(entry) for entry in audited],
        "tables": [dataclasses.asdict(table) for table in tables],
    }
    text = json.dumps(value)
    for character in "&<>":  # so that the text is JSON as it stands, whatever it holds
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<template id="engram-seal">{text}</template>'


def seal_page(page: str) -> str:
    """The page with its digest in place of the zeros, in its seal and where it is shown (`SHOWN`)."""
    digest = hashlib.sha256(page.encode()).hexdigest()
    for place in (SHOWN, NOTED):
        page = page.replace(place.format(ZEROS), place.format(digest))
    return page


def digest_of_page(page: bytes, sealed: str) -> str:
    """The digest of a page in which the digest `sealed` stands."""
    return hashlib.sha256(page.replace(sealed.encode(), ZEROS.encode())).hexdigest()


def make_standalone(page: bytes) -> bytes:
    """The page for where those of other runs are not beside it: their names are no links, and it is sealed anew."""
    plain = BESIDE.sub(rb"\1", page)
    if plain == page:
        return page
    return seal_page(plain.decode().replace(read(page, "page").page, ZEROS)).encode()


def read(page: bytes, name: str) -> Seal:
    """The seal in a page's bytes. Raises Unsealed, in one line, where there is none or it cannot be read."""
    found = ELEMENT.findall(page)
    if not found:
        raise Unsealed(
            f"{name} has no seal: it was written by an earlier version of Engram, or is no report of it; "
            "`engram report RUN` writes the page of a run with one"
        )
    try:
        value = json.loads(found[0])
        if len(found) > 1 or value[FORMAT] != VERSION:
            raise ValueError("it has several, or one of a version that is not known here")
        seal = Seal(
            page=_digest(value["page"]),
            runs=tuple(map(str, value["runs"])),
            audited=tuple(_entry(AuditedItem, entry) for entry in value["audited"]),
            tables=tuple(_entry(ResultTable, table) for table in value["tables"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Unsealed(f"the seal of {name} cannot be read, so the page has been changed: {error}") from None
    return seal


def _entry(kind: Any, value: Mapping[str, Any]) -> Any:
    """An entry of the seal. ValueError, TypeError or KeyError where its fields are not those of its kind."""
    fields = dict(value)
    _digest(fields["digest"])
    if "fields" in fields:
        fields["fields"] = tuple(map(str, fields["fields"]))
    if not all(isinstance(fields[name], str) for name in ("what", "run", "name") if name in fields):
        raise ValueError("a name in it is no text")
    return kind(**fields)


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not DIGEST.fullmatch(value):
        raise ValueError(f"{value!r} in it is no SHA-256")
    return value
