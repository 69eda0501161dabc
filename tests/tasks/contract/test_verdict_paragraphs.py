"""The paragraphs of an answer about several models."""

from __future__ import annotations

from tasks.contract.verdict import Verdict


def test_items_stand_one_below_another() -> None:
    verdict = Verdict("forgotten", "Forgotten: of 2. a is b; c is d. Of 100.", "", (), items=("a is b", "c is d"))
    assert verdict.paragraphs == ("Forgotten: of 2.", "- a is b", "- c is d", "Of 100.")


def test_changed_sentence_stays_one_paragraph() -> None:
    verdict = Verdict("forgotten", "Forgotten: of 2. a is b; c is e.", "", (), items=("a is b", "c is d"))
    assert verdict.paragraphs == (verdict.sentence,)
