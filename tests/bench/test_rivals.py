"""The benches of speed: each row is produced, and the compared rival computes the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bench import (
    attack_table,
    convolutions,
    engine,
    forgetting,
    generation,
    language_models,
    linear_memorization,
    self_supervised,
)
from measurement.images import images
from tasks.audits.forgetting.rho import SCORES, Score, distances
from tasks.audits.membership.target_scores import balanced_targets
from tasks.external.weights import silence_transformers
from tasks.linear_memorization.gaussian_samples import normal_samples
from tasks.linear_memorization.gradient_flow import scores, spectrum
from tasks.models.importance import Sampling
from tasks.self_supervised import views
from tasks.training.strategies import Strategy
from tasks.worker import hardware
from tests.support.shell import ROOT, Here
from tests.support.waiting import HANGING

CPU = torch.device("cpu")


@pytest.mark.parametrize("score", SCORES)
def test_rho_is_compared_with_its_rival(score: Score) -> None:
    (row,) = forgetting.rows(tiny=True, score=score)
    assert f"{score} rho and its interval, 3 x 2 models, 50 images" in row.subject
    assert row.ratio > 0


@pytest.mark.parametrize("score", SCORES)
def test_rival_uses_equal_distances(score: Score) -> None:
    query, calibration, _ = forgetting.confidences(forgetting.TINY)
    expected, _ = distances(query, calibration, score)
    np.testing.assert_allclose(forgetting.by_scipy(query, calibration, score), expected, atol=1e-12)


@pytest.mark.slow
def test_generation_bench_runs_without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run in `training.py` shows that it needs none of the orchestrator's packages."""
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    out = tmp_path / "result.json"
    printed = Here(tmp_path).module("bench.generation", "--tiny", "--out", str(out))
    assert "| measurement | Engram | compared with | ratio | required | target | met |" in printed
    result = json.loads(out.read_text())
    assert result["data"] == "random images of MNIST's shape"
    assert [row["required"] for row in result["rows"] if row["required"]] == [1.3, 1.8, 2.0]
    assert all(row["ratio"] > 0 for row in result["rows"])


def test_rival_estimates_the_same_density() -> None:
    (stack,) = engine.seated(engine.autoencoders(images(4)[1], CPU), Strategy("loop"))
    estimates = generation.Estimates.of(stack, 4)
    with torch.inference_mode():
        rival_density = generation.by_distributions(estimates.network, estimates.x)
    # Two draws of 256 codes from a network at its start, whose weights hardly differ.
    torch.testing.assert_close(rival_density.double(), estimates.engram_log_p(Sampling())[0], atol=0.5, rtol=0)
    assert max(estimates.errors(Sampling())) < 1e-3


def test_tf32_is_used_only_on_request() -> None:
    assert not torch._C._get_cublas_allow_tf32()
    with generation.products_in("TF32"):
        assert torch._C._get_cublas_allow_tf32()  # raises where torch's two settings contradict each other
    with generation.products_in("float32"):
        assert not torch._C._get_cublas_allow_tf32()
    assert not torch._C._get_cublas_allow_tf32()


@pytest.mark.slow
def test_training_and_answering_are_compared_with_transformers() -> None:
    with hardware.exactly(CPU), silence_transformers():
        training_row, answered = language_models.rows(True, "t5", CPU)
        of_gpt = [*language_models.rows(True, "gpt", CPU)]
    assert training_row.subject == "training, tiny-t5#16x1, 24 questions, batch 8"
    assert answered.subject == "answering, tiny-t5#16x1, 24 questions, batch 8"
    kinds = ("training", "answering", "scoring 500 candidates")
    assert [kind for _ in ("whole", "lora") for kind in kinds] == [
        bench_row.subject.partition(",")[0] for bench_row in of_gpt
    ]
    assert all(bench_row.ratio > 0 for bench_row in (training_row, answered, *of_gpt))


def test_both_give_the_same_answers() -> None:
    with hardware.exactly(CPU), silence_transformers():
        bench = language_models.Bench(language_models.TINY[0], CPU)
        for _ in range(3):
            bench.train()
        assert bench.answer_by_generate() == bench.answer()


def test_curves_are_compared_with_their_rival() -> None:
    (row,) = linear_memorization.rows(tiny=True)
    assert "curves, n = 6, d = 9, 3 trainings, to t = 10" in row.subject
    assert row.ratio > 0


def test_attack_table_is_compared_with_one_target_after_another(tmp_path: Path) -> None:
    (row,) = attack_table.compared_rows(tiny=True)
    assert row.ratio > 0
    tables = attack_table.simulate_answers(8, 40, tmp_path)
    targets = balanced_targets(tables, 0)
    assert targets is not None
    difference = attack_table.largest_difference(
        attack_table.score_at_once(targets), attack_table.score_each_target(targets)
    )
    assert difference < 1e-9
    for name in attack_table.TABLES:
        assert attack_table.measure_table(tmp_path, name)["cpu"] > 0


def test_rivals_curves_converge_with_smaller_steps() -> None:
    z = normal_samples(0, 0, 6, 9)
    times = np.array([0.1, 0.5, 1.0, 2.0])
    rival_curves = linear_memorization.by_steps(z, times, 1e-3, 1001)
    for by_rival, own_curves in zip(rival_curves, scores(spectrum(torch.from_numpy(z)[None]), times), strict=True):
        np.testing.assert_allclose(by_rival[:3], own_curves[0, :3], atol=1e-3)
        assert np.isnan(by_rival[3])


def test_memory_orders_of_convolutions_are_compared() -> None:
    (row,) = convolutions.rows("cnn1", CPU, tiny=True)
    assert row.subject.startswith("cnn1, batch 2: step with channels last")
    assert row.ratio > 0


NEIGHBOURS = "bench.neighbours"


@pytest.mark.slow
def test_neighbour_bench_runs_end_to_end(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    printed = Here(tmp_path).module(NEIGHBOURS, "--tiny", "--out", str(out))
    result = json.loads(out.read_text())
    assert "| measurement | Engram | compared with | ratio | required | target | met |" in printed
    assert [row["required"] for row in result["rows"]] == [2.0, 0.9, None]
    assert [row["unit"] for row in result["rows"]] == ["x"] * 3
    assert all(row["ratio"] > 0 for row in result["rows"])
    assert "left out" not in result


@pytest.mark.slow
def test_absent_rivals_are_left_out_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for absent in ("ray", "mlflow", "faiss", "sklearn", "threadpoolctl"):
        monkeypatch.setitem(sys.modules, absent, None)
    out = tmp_path / "result.json"
    printed = Here(tmp_path).module(NEIGHBOURS, "--tiny", "--out", str(out))
    result = json.loads(out.read_text())
    assert "- left out: scikit-learn and faiss, not installed here" in printed
    assert [row["required"] for row in result["rows"]] == [None]
    assert "the ceiling" in result["rows"][0]["subject"]


def test_training_and_views_are_compared_with_naive_form() -> None:
    with hardware.exactly(CPU):
        training_row, views_row = self_supervised.rows(True, CPU)
    assert training_row.subject == "training, small-resnet#4, 32 x 32, 20 images, batch 10"
    assert views_row.subject == "two views alone, small-resnet#4, 32 x 32, 20 images, batch 10"
    assert training_row.ratio > 0
    assert views_row.ratio > 0


def test_naive_views_have_equal_mean_and_spread() -> None:
    bench = self_supervised.Bench(self_supervised.TINY[0], CPU)
    naive = torch.stack([torch.cat([first, second]) for _ in range(20) for first, second in bench.naive_minibatches()])
    order = [part for epoch in range(20) for part in bench.training._order(epoch)]
    own_views = torch.stack(
        [
            bench.training._images(squares, bench.training.sizes[:10], views.draw_views(0, 1, step, 10))
            for step, squares in enumerate(bench.training.images.squares.minibatches(order))
        ]
    )
    assert naive.shape == own_views.shape
    assert float(naive.mean()) == pytest.approx(float(own_views.mean()), abs=0.06)
    assert float(naive.std()) == pytest.approx(float(own_views.std()), rel=0.06)


@pytest.mark.slow
def test_cpu_rows_need_no_extras(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    for absent in ("ray", "mlflow", "faiss"):
        (tmp_path / f"{absent}.py").write_text("raise ImportError('absent')\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    environment.pop("ENGRAM_DATA", None)
    command = [sys.executable, "-m", "bench.training", "--tiny", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=HANGING)
    assert done.returncode == 0, done.stderr
    assert "| measurement | Engram | compared with | ratio | required | target | met |" in done.stdout
    result = json.loads(out.read_text())
    assert result["data"] == "random images of MNIST's shape"
    assert result["left out"] == "faiss, not installed here"
    rows = result["rows"]
    assert [row for row in rows if "failed" in row["engram"] or "left out" in row["engram"]] == [], done.stderr
    assert [row["required"] for row in rows if row["required"]] == [1.45, 0.7, 2.0, 6.0, 1.3, 1.8, 2.0, 2.0]
    assert all(row["ratio"] > 0 and row["met"] is not None for row in rows if row["required"])
    shadow_rows = [row for row in rows if row["subject"].startswith("shadow model")]
    assert [row["rival"].rpartition(", ")[2] for row in shadow_rows] == ["tensors", "PIL"]
    assert all("half of 512 records, 1 epochs, 4 models" in row["subject"] for row in shadow_rows)
    assert all(row["ratio"] > 0 for row in shadow_rows)
