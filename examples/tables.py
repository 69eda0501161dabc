"""Which records of a table does a model reveal? Three kinds of models on a public table of 569 tumours.

    python examples/tables.py

The table, 30 measurements of cell nuclei with a diagnosis (UCI, "Breast Cancer Wisconsin (Diagnostic)"), ships with
scikit-learn. The script writes it to a CSV file and audits each model on it.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

from sklearn.datasets import load_breast_cancer

import engram

MODELS = int(os.environ.get("MODELS", "16"))  # per audit
NETWORKS = (
    "mlp1",
    "sklearn:sklearn.ensemble.RandomForestClassifier",
    "sklearn:sklearn.linear_model.LogisticRegression",
)


def write_table(path: Path) -> None:
    """Write the measurements and the diagnosis as CSV."""
    tumours = load_breast_cancer()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*tumours.feature_names, "diagnosis"])
        for measurements, diagnosis in zip(tumours.data.tolist(), tumours.target, strict=True):
            writer.writerow([*measurements, tumours.target_names[diagnosis]])


def main() -> None:
    write_table(Path("tumours.csv"))
    for network in NETWORKS:
        run = engram.run(
            "membership",
            preset="quickstart",
            data="table:tumours.csv#label=diagnosis",
            examples=0,  # all
            models=MODELS,
            network=network,
        )
        records = run.table("records")
        found = sum(filter(None, records["memorised"].to_pylist()))
        assert run.verdict is not None
        print(f"{network}: {run.verdict.answer}, {found} of {records.num_rows} records memorised")


if __name__ == "__main__":
    main()
