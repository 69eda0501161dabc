"""The example of the provider: from the outputs of models that are never touched to a verdict on each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.shell import ROOT, Here

PROVIDER = ROOT / "examples" / "provider"


@pytest.mark.slow
def test_tables_from_a_stand_in_owner_are_judged_one_by_one(tmp_path: Path) -> None:
    engram = Here(tmp_path)
    shutil.copy(PROVIDER / "audit.yaml", tmp_path)
    asked = ("forgetting", "--preset", "plain-digits", "query.secret=0123456789abcdef0123456789abcdef")
    assert "Warning" not in engram("probes", *asked, "--out", "probes").stdout
    engram.script(PROVIDER / "train_owner.py", "probes", "probes-split.csv", "--epochs", "3")

    run = engram.json("run", "audit.yaml", "epochs=3", "replicates=2", "permutations=199")["run"]
    rows = engram.json("results", run, "--store", "store")
    surer = {row["setting"]: row["estimate"] for row in rows if row["metric"] == "surer of D_Q than of control"}
    assert {'{"target": "forgotten.csv"}', '{"target": "kept.csv"}'} == set(surer)
    assert surer['{"target": "kept.csv"}'] > surer['{"target": "forgotten.csv"}']
