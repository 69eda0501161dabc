"""Verdict and certificate report whether the analysis is bound."""

from __future__ import annotations

import pytest

from tasks.audits.unique_feature import AUDIT, UniqueFeature
from tasks.contract.circumstances import Circumstances
from tasks.contract.commitment import Binding
from tests.tasks.contract.test_looks import summary_of_pairs


@pytest.mark.parametrize(
    ("binding", "sentence"),
    [("analysis", "The analysis is bound, too"), ("draw", "Analysis not bound"), ("", "")],
)
def test_answers_report_content_of_commitment(binding: Binding, sentence: str) -> None:
    summary = summary_of_pairs(0.0, 0.03, 12, 1.0)
    circumstances = Circumstances(binding)
    verdict = AUDIT.answer(UniqueFeature(), summary, circumstances)
    certificate = AUDIT.certify("Is it?", UniqueFeature(), summary, circumstances=circumstances)
    assert verdict is not None
    assert certificate is not None
    for text in (verdict.limits, certificate.beyond):
        assert text.startswith(sentence)
        assert ("analysis" in text.lower()) == bool(binding)
