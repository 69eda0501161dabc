"""The sentence that says which models were examined."""

from __future__ import annotations

import pytest

from tasks.contract.examined_models import NOT_DEPLOYED, describe_files, describe_tables, describe_trained


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (describe_trained(1), f"The audit trained 1 model with this training recipe. {NOT_DEPLOYED}"),
        (
            describe_trained(1200, ", each so"),
            f"The audit trained 1,200 models with this training recipe, each so. {NOT_DEPLOYED}",
        ),
        (
            describe_trained(12, in_pairs=True, at_most=True),
            f"The audit trained at most 12 pairs of models with this training recipe. {NOT_DEPLOYED}",
        ),
        (describe_files(["in/model.pt"]), "The audit examined the model file model.pt."),
        (describe_files(["a.pt", "b.pt"]), "The audit examined the model files a.pt and b.pt."),
        (
            describe_files([f"{name}.pt" for name in "abcdef"]),
            "The audit examined the model files a.pt, b.pt, c.pt, d.pt and 2 more.",
        ),
        (
            describe_tables(["sent/a.csv"]),
            "The audit examined the answers of one model, which its owner returned as a table (a.csv).",
        ),
        (
            describe_tables(["a.csv", "b.csv"], "outputs"),
            "The audit examined the outputs of 2 models, which their owner returned as tables (a.csv and b.csv).",
        ),
        (describe_tables([]), "The audit examines the answers of a model, which its owner returns as a table."),
    ],
)
def test_examined_models_are_named(sentence: str, expected: str) -> None:
    assert sentence == expected
