"""Settings that contradict each other, or that could find nothing, are refused in one line that names them."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import SpecError
from tasks.audits.text import Text
from tests.tasks.audits.text.made_up import configured
from tests.tasks.audits.text.test_documents import CONFIG as DOCUMENTS
from tests.tasks.audits.text.test_extraction import CONFIG as EXTRACTION
from tests.tasks.audits.text.test_identifiers import CONFIG as IDENTIFIERS
from tests.tasks.audits.text.test_insertions import CONFIG as INSERTIONS


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"secrets": 26}, "26 secrets are ranked among 500, and no single one of them could be found at level 0.05"),
        ({"pattern": "{number} {digits:2}"}, "24 secrets are ranked among 100"),
        ({"pattern": "{digits:6}"}, "it must hold {number}"),
        ({"repetitions": ()}, "repetitions is (); there must be one at least"),
        ({"accumulate": 5}, "accumulate is 5; it must divide batch, which is 32"),
        ({"adaptation": "lora", "precision": "bfloat16"}, "precision is bfloat16; the model must come from a folder"),
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
        ({"attempts": ()}, "attempts is empty"),
    ],
)
def test_conflicts_of_extraction(settings: dict[str, Any], message: str) -> None:
    refuse(EXTRACTION, settings, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"question.identifiers": ("uuid4",)}, "unknown field 'question.identifiers': documents has"),
        ({"prefix": 100, "suffix": 50}, "prefix is 100 and suffix 50, which is more than length (128) together"),
        ({"attempts": ()}, "attempts is empty; it must be at least one number of attempts"),
    ],
)
def test_conflicts_of_documents(settings: dict[str, Any], message: str) -> None:
    refuse(DOCUMENTS, settings, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"question": "planted", "base": None, "question.prefix": 1}, "unknown field 'question.prefix': planted has"),
        ({"prefix": 80}, "prefix is 80 and suffix 20, which is more than length (96) together"),
    ],
)
def test_conflicts_of_insertions(settings: dict[str, Any], message: str) -> None:
    refuse(INSERTIONS, settings, message)


@pytest.mark.parametrize(
    ("formats", "message"),
    [
        (("uuid7",), "identifiers has uuid7, which grows with time; they must be drawn evenly"),
        (("iban",), "identifiers has iban, which has check digits"),
        (("uuids",), "each must be one of uuid4, md5, sha1, sha256, or hold"),
        (("id-{number}-{hex:8}",), "which no identifier has"),
        (("uuid4", "uuid4"), "each format must be given once"),
        (("{digits:1}",), "no single one of them could be found"),
    ],
)
def test_conflicts_of_identifiers(formats: tuple[str, ...], message: str) -> None:
    refuse(IDENTIFIERS, {"identifiers": formats}, message)


def refuse(config: Text, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        configured(config, **settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
