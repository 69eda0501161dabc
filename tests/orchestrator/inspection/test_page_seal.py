"""The seal of a page, apart from how it is drawn."""

from __future__ import annotations

import hashlib
import json

import pytest

from orchestrator.inspection import page_seal
from orchestrator.inspection.page_seal import AuditedItem, ResultTable

MODEL = AuditedItem("model", "a</template>&.pt", "ab" * 32, 5, None, True, False, ("given.models",))
SUMMARY = ResultTable("toys-1", "summary", "cd" * 32, 1, 1, "2026-01-01T00:00:00+00:00")
SHOWN = page_seal.SHOWN.format(page_seal.ZEROS)


def sealed(text: str = "An estimate of 0.37.") -> bytes:
    element = page_seal.element(["toys-1"], [MODEL], [SUMMARY])
    return page_seal.seal_page(f"<p>{text}</p>{SHOWN}{element}").encode()


def test_a_seal_is_read_as_it_was_written_whatever_names_hold() -> None:
    page = sealed()
    seal = page_seal.read(page, "report.html")
    assert (("toys-1",), (MODEL,), (SUMMARY,)) == (seal.runs, seal.audited, seal.tables)
    assert 2 == page.count(seal.page.encode())


def test_the_pages_digest_is_sha256_with_zeros_in_its_place() -> None:
    page = sealed()
    seal = page_seal.read(page, "report.html")
    assert hashlib.sha256(page.replace(seal.page.encode(), b"0" * 64)).hexdigest() == seal.page
    assert seal.page == page_seal.digest_of_page(page, seal.page)


def test_every_single_changed_character_is_found() -> None:
    page = sealed()
    for at in range(len(page)):
        changed = page[:at] + (b"1" if page[at : at + 1] != b"1" else b"2") + page[at + 1 :]
        try:
            seal = page_seal.read(changed, "report.html")
        except page_seal.Unsealed:
            continue
        assert seal.page != page_seal.digest_of_page(changed, seal.page), at


def test_zeros_that_the_page_shows_stay_as_they_are() -> None:
    page = sealed("0" * 64)
    seal = page_seal.read(page, "report.html")
    assert b"<p>" + b"0" * 64 in page
    assert seal.page == page_seal.digest_of_page(page, seal.page)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"engram seal": 1', b'"engram seal": 2'),
        (b"ab" * 32, b"ab" * 31),
        (b'"tables": [', b'"tables": [3, '),
        (b'"stored"', b'"shored"'),
        (b'{"engram', b'[{"engram'),
        (b"<p>", b'<template id="engram-seal">{}</template><p>'),
    ],
)
def test_a_seal_that_cannot_be_read_is_one_line(old: bytes, new: bytes) -> None:
    page = sealed()
    assert old in page
    with pytest.raises(page_seal.Unsealed, match=r"^the seal of report\.html cannot be read, so the page has been"):
        page_seal.read(page.replace(old, new), "report.html")


def test_the_seal_is_json_as_it_stands() -> None:
    text = sealed().partition(b'<template id="engram-seal">')[2].removesuffix(b"</template>")
    assert MODEL.name == json.loads(text)["audited"][0]["name"]
