import json
from pathlib import Path

import pytest
import torch

from bench.engine import autoencoders, images, seated
from bench.generation import BATCH, CPU, Estimates, by_distributions, products_in, stacked
from tasks.models.importance import Sampling
from tasks.training.strategies import Strategy
from tests.support.shell import ROOT, Here


@pytest.mark.slow
def test_the_bench_of_generation_runs_end_to_end_without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it needs none of the orchestrator's packages is seen where `training.py` runs it."""
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    out = tmp_path / "result.json"
    printed = Here(tmp_path).script(ROOT / "bench" / "generation.py", "--tiny", "--out", str(out))
    assert "| what | Engram | beside | ratio | must | aim | met |" in printed
    result = json.loads(out.read_text())
    assert "random images of MNIST's shape" == result["data"]
    assert [1.3, 1.8, 2.0] == [row["must"] for row in result["rows"] if row["must"]]
    assert all(row["ratio"] > 0 for row in result["rows"])


@pytest.mark.slow
def test_the_rows_of_a_gpu_can_be_made_anywhere() -> None:
    rows = list(stacked(images(2 * BATCH)[1], CPU, 1, 2, (1, 2)))
    assert 2 + 3 + 3 == len(rows)
    assert [12] * 3 == [row.must for row in rows if row.unit == "min"]
    assert all(row.ratio > 0 for row in rows)


def test_the_rival_estimates_the_same_density() -> None:
    (stack,) = seated(autoencoders(images(4)[1], CPU), Strategy("loop"))
    estimates = Estimates.of(stack, 4)
    with torch.inference_mode():
        theirs = by_distributions(estimates.network, estimates.x)
    # Two draws of 256 codes from a network at its start, whose weights hardly differ.
    torch.testing.assert_close(theirs.double(), estimates.ours(Sampling())[0], atol=0.5, rtol=0)
    assert max(estimates.errors(Sampling())) < 1e-3


def test_torch_takes_tf32_where_it_is_asked_to_and_only_there() -> None:
    assert not torch._C._get_cublas_allow_tf32()
    with products_in("TF32"):
        assert torch._C._get_cublas_allow_tf32()  # raises where torch's two settings contradict each other
    with products_in("float32"):
        assert not torch._C._get_cublas_allow_tf32()
    assert not torch._C._get_cublas_allow_tf32()
