"""A provider and an owner without mutual trust, from commitment to certificate, each in a separate folder."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from tests.dashboards.pages import words
from tests.support.shell import ROOT, Here, refusals

SECRET = "0123456789abcdef0123456789abcdef"
NONCE = "00112233445566778899aabbccddeeff"
AUDIT = f"""
audit: forgetting
preset: plain-digits
set:
  query: {{secret: "{SECRET}"}}
  replicates: 2
  epochs: 2
  permutations: 199
execution: {{store: store, address: none}}
"""


def query_files(folder: Path) -> set[tuple[str, str]]:
    with (folder / "probes-split.csv").open(newline="") as file:
        return {(row["set"], row["row"]) for row in csv.DictReader(file)}


@pytest.mark.slow
def test_draw_is_bound_to_both_parties(tmp_path: Path) -> None:
    for name in ("provider", "owner"):
        (tmp_path / name).mkdir()
    provider = Here(tmp_path / "provider")
    owner = Here(tmp_path / "owner")
    (provider.folder / "audit.yaml").write_text(AUDIT)

    commitment = provider("probes", "audit.yaml", "--commit").stdout.strip()
    assert len(commitment) == 64
    # The owner, who has only the commitment, answers with a nonce.
    probes = provider.json("probes", "audit.yaml", "--nonce", NONCE, "--nonce-by", "the owner", "--out", "probes")
    settings = probes["settings"]
    binding = {"commitment": commitment, "nonce": NONCE, "nonce_by": "the owner"}
    assert settings == [f"query.control.{name}={value}" for name, value in binding.items()]
    bound = query_files(provider.folder)
    provider("probes", "audit.yaml", "--out", "alone/probes")
    assert bound != query_files(provider.folder / "alone")

    shutil.copytree(provider.folder / "probes", owner.folder / "probes")
    shutil.copy(provider.folder / "probes-split.csv", owner.folder)  # stands for the handed-over images
    readme = (owner.folder / "probes" / "README.txt").read_text()
    assert commitment in readme
    assert NONCE in readme
    owner.script(ROOT / "examples" / "provider" / "train_owner.py", "probes", "probes-split.csv", "--epochs", "2")

    shutil.copy(owner.folder / "kept.csv", provider.folder)
    run_arguments = ("run", "audit.yaml", "given.outputs=kept.csv", "--report")
    changed = provider(*run_arguments, *settings, "query.held_back=0.4", code=2).stderr
    assert f"commitment is {commitment}; with a nonce it must be that of these settings" in changed
    run = provider.json(*run_arguments, *settings)
    page = words(Path(run["report"]))
    assert f"follows from the commitment {commitment} and the nonce {NONCE} of the owner" in page
    assert SECRET not in Path(run["report"]).read_text()
    assert "The analysis is bound, too" in page
    for name, value in (("calibration.examples", "500"), ("epochs", "3"), ("network", "cnn1"), ("given.columns", "a")):
        refused = provider(*run_arguments, *settings, f"{name}={value}", code=2).stderr
        assert "No setting may change after the commitment" in refused
    # In the end the secret is opened, and the owner computes the commitment.
    shutil.copy(provider.folder / "audit.yaml", owner.folder)
    assert commitment == owner("probes", "audit.yaml", "--commit").stdout.strip()
    # A draw made by the provider alone would have used other images.
    assert "these settings and this secret generate" in provider(*run_arguments, code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("forgetting", "--preset", "smoke", "--commit"), "query.control.secret is empty; give one"),
        (("deja_vu", "--preset", "smoke", "--commit"), "has no secret draw"),
        (
            ("relational", "--preset", "smoke", f"secret={SECRET}", "--nonce", "abc", "--out", "p"),
            "nonce has 3 characters",
        ),
        (
            ("forgetting", "--preset", "smoke", f"query.secret={SECRET}", "--nonce", "", "--out", "p"),
            "--nonce is empty",
        ),
        (
            ("relational", "--preset", "smoke", f"secret={SECRET}", "--nonce", NONCE, "--nonce-by", "", "--out", "p"),
            "nonce_by is ''; expected one line",
        ),
        (("forgetting", "--preset", "smoke"), "--out is missing"),
        (("forgetting", "--preset", "smoke", "--nonce-by", "me", "--out", "p"), "--nonce-by requires --nonce"),
    ],
)
def test_unbindable_draw_is_refused_in_one_line(engram: Here, arguments: tuple[str, ...], line: str) -> None:
    refusal = engram("probes", *arguments, code=2)
    assert line in refusal.stderr
    assert len(refusals(refusal.stderr)) == 1


def test_commitment_is_printed_with_its_configuration(engram: Here) -> None:
    arguments = ("probes", "relational", "--preset", "smoke", f"secret={SECRET}", "--commit")
    reply = engram.json(*arguments)
    printed = engram(*arguments)
    assert printed.stdout.strip() == reply["commitment"]
    assert json.dumps(reply["configuration"], sort_keys=True) in printed.stderr


def test_commitment_covers_the_drawn_configuration(engram: Here) -> None:
    shape = ("unique_feature", "given.shape=28,28,1", "probe=digits", "feature.kind=random", f"given.secret={SECRET}")
    glyph = engram("probes", *shape, "--commit").stdout
    assert glyph == engram("probes", *shape, "--nonce", NONCE, "--commit").stdout
    assert glyph != engram("probes", *shape, "feature.text=B", "--commit").stdout
    arguments = ("relational", "--preset", "smoke", f"secret={SECRET}")
    assert engram("probes", *arguments, "--commit").stdout != engram("probes", *arguments, "seed=9", "--commit").stdout
