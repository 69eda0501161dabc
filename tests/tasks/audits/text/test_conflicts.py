"""Contradictory or ineffective settings are refused with a message that names them."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import SpecError
from tasks.audits.text import Text
from tests.tasks.audits.text.made_up import configure
from tests.tasks.audits.text.test_documents import CONFIG as DOCUMENTS
from tests.tasks.audits.text.test_extraction import CONFIG as EXTRACTION
from tests.tasks.audits.text.test_identifiers import CONFIG as IDENTIFIERS
from tests.tasks.audits.text.test_insertions import CONFIG as INSERTIONS


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"secrets": 26}, "secrets: no single one of 26 could be found at level=0.05, as each is ranked among 500. "),
        (
            {"pattern": "{number} {digits:2}"},
            "no single one of 24 could be found at level=0.05, as each is ranked among 100",
        ),
        ({"pattern": "{digits:6}"}, "pattern: expected {number}"),
        ({"repetitions": ()}, "repetitions: expected numbers of at least 1, got ()"),
        ({"accumulate": 5}, "accumulate: expected a divisor of batch=32, got 5"),
        (
            {"adaptation": "lora", "precision": "bfloat16"},
            "precision: expected float32 for the small model tiny-gpt, got bfloat16",
        ),
    ],
)
def test_conflicts_of_secrets(settings: dict[str, Any], message: str) -> None:
    refuse(Text(), settings, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"question": "documents", "question.extraction": "continuation"}, "unknown field 'question.extraction'"),
        (
            {"question": "planted", "outputs": "log_p.csv", "question.source.extraction": "continuation"},
            "unknown field 'question.source.extraction': table has outputs",
        ),
        ({"extraction": "on"}, "question.extraction is 'on'; allowed: continuation"),
        ({"attempts": ()}, "attempts: expected one or more numbers"),
    ],
)
def test_conflicts_of_extraction(settings: dict[str, Any], message: str) -> None:
    refuse(EXTRACTION, settings, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"question": "documents", "question.identifiers": ("uuid4",)}, "unknown field 'question.identifiers'"),
        ({"prefix": 100, "suffix": 50}, "prefix + suffix: expected at most length=128, got 150"),
        ({"attempts": ()}, "attempts: expected one or more numbers, got none"),
    ],
)
def test_conflicts_of_documents(settings: dict[str, Any], message: str) -> None:
    refuse(DOCUMENTS, settings, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"question": "planted", "base": None, "question.prefix": 1}, "unknown field 'question.prefix': planted has"),
        ({"prefix": 80}, "prefix + suffix: expected at most length=96, got 100"),
    ],
)
def test_conflicts_of_insertions(settings: dict[str, Any], message: str) -> None:
    refuse(INSERTIONS, settings, message)


@pytest.mark.parametrize(
    ("formats", "message"),
    [
        (("uuid7",), "identifiers: expected random formats, got uuid7, which grows with time"),
        (("iban",), "got iban, which has check digits"),
        (("uuids",), "expected uuid4, md5, sha1, sha256 or a pattern"),
        (("id-{number}-{hex:8}",), "Remove {number}"),
        (("uuid4", "uuid4"), "expected each format once"),
        (("{digits:1}",), "could be found at level="),
    ],
)
def test_conflicts_of_identifiers(formats: tuple[str, ...], message: str) -> None:
    refuse(IDENTIFIERS, {"identifiers": formats}, message)


def refuse(config: Text, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        configure(config, **settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
