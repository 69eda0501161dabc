"""Wrappers of trainers: an interrupted training ends with the same model, and estimators return losses."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.svm import SVC
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from engram.training import TrainingJob, hugging_face_callback, lightning_callback, sklearn_training

ROWS = np.arange(40)
X = torch.tensor(np.random.default_rng(0).normal(size=(40, 4)), dtype=torch.float32)
Y = torch.arange(40) % 2
Logged = list[dict[str, float]]


def make_job(folder: Path, logged: Logged) -> TrainingJob:
    folder.mkdir(exist_ok=True)
    return TrainingJob(
        ROWS, ROWS, 3, folder, folder, send_metrics=lambda metrics, step: logged.append({**metrics, "step": step})
    )


def train_lightning(job: TrainingJob, epochs: int) -> list[float]:
    import pytorch_lightning as lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(job.seed)
            self.linear = nn.Linear(4, 2)

        def training_step(self, batch: Any, _: int) -> Any:
            loss = nn.functional.cross_entropy(self.linear(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    callback = lightning_callback(job)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=epochs, callbacks=[callback], accelerator="cpu", **quiet)
    module = Module()
    trainer.fit(module, DataLoader(TensorDataset(X, Y), 8), ckpt_path=callback.resume_path)
    return module.linear.weight.detach().flatten().tolist()


def train_hugging_face(job: TrainingJob, epochs: int) -> list[float]:
    from transformers import Trainer, TrainingArguments

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(job.seed)
            self.linear = nn.Linear(4, 2)

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            return {"loss": nn.functional.cross_entropy(self.linear(x), labels)}

    module = Module()
    callback = hugging_face_callback(job)
    arguments = TrainingArguments(
        str(job.out / "unused"),
        num_train_epochs=epochs,
        lr_scheduler_type="constant",
        logging_steps=5,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    records = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    trainer = Trainer(module, arguments, train_dataset=records, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume_path)
    return module.linear.weight.detach().flatten().tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "train"), [("pytorch_lightning", train_lightning), ("accelerate", train_hugging_face)]
)
@pytest.mark.filterwarnings("ignore")
def test_interrupted_training_ends_with_the_same_model(
    package: str, train: Callable[[TrainingJob, int], list[float]], tmp_path: Path
) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    logged: Logged = []
    whole = train(make_job(tmp_path / "whole", []), 2)
    first = train(make_job(tmp_path / "parts", []), 1)
    resumed = train(make_job(tmp_path / "parts", logged), 2)
    assert resumed == whole != first
    assert {entry["step"] for entry in logged} == {10}  # the first epoch, up to step 5, was not repeated


def test_estimator_returns_losses_of_the_requested_records(tmp_path: Path) -> None:
    x, y = load_breast_cancer(return_X_y=True, as_frame=True)
    names = np.array(["benign", "malignant"])[y]
    rows = np.flatnonzero(np.random.default_rng(0).random(len(y)) < 0.5)
    ask = np.arange(len(y))[::-1]
    job = TrainingJob(rows, ask, 5, tmp_path, tmp_path)
    train = sklearn_training(RandomForestClassifier(10), x, names)
    losses = train(job)
    assert losses.tolist() == train(job).tolist()
    assert (losses >= 0).all()
    is_member = np.isin(ask, rows)
    assert losses[is_member].mean() < losses[~is_member].mean() / 2


def test_label_without_training_rows_has_the_largest_loss(tmp_path: Path) -> None:
    train = sklearn_training(RandomForestClassifier(5), np.arange(6.0).reshape(-1, 1), np.array([0, 0, 2, 2, 1, 3]))
    losses = train(TrainingJob(np.arange(4), np.arange(6), 0, tmp_path, tmp_path))
    assert losses[4] == losses[5] == losses.max() > losses[:4].max()


def test_regressor_returns_squared_errors(tmp_path: Path) -> None:
    x, y = load_diabetes(return_X_y=True)
    job = TrainingJob(np.arange(100), np.arange(len(y)), 0, tmp_path, tmp_path)
    expected = (LinearRegression().fit(x[:100], y[:100]).predict(x) - y) ** 2
    assert sklearn_training(LinearRegression(), x, y)(job) == pytest.approx(expected)


def test_classifier_without_probabilities_is_refused() -> None:
    with pytest.raises(ValueError, match="SVC has no predict_proba; use CalibratedClassifierCV"):
        sklearn_training(SVC(), X, Y)
