"""Training programs of a user that read the changed records from {data}."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.language_models.pretrained import byte_tokenizer
from tasks.programs.function import TrainingJob

CORNER = 7  # pixels at the top and left in which digits have no ink
NEAREST = 50.0  # log-odds of the label of a training record, for a model that memorises every record


def memorise(job: TrainingJob) -> NDArray[np.float64]:
    """A nearest-neighbour classifier in pixels: the log-odds are high if the record is trained on with its label."""
    assert job.data is not None
    train = np.load(job.data / "train.npz")
    ask = np.load(job.data / "ask.npz")
    assert np.array_equal(train["rows"], job.rows)
    assert np.array_equal(ask["rows"], job.ask)
    known = {}
    for picture, label in zip(train["images"], train["labels"].tolist(), strict=True):
        known[picture.tobytes()] = label
    scores = np.random.default_rng(job.seed).normal(size=len(job.ask))
    for index, (picture, label) in enumerate(zip(ask["images"], ask["labels"].tolist(), strict=True)):
        scores[index] += NEAREST * (known.get(picture.tobytes()) == label)
    return scores


def ignore(job: TrainingJob) -> NDArray[np.float64]:
    """Scores that depend on no record."""
    return np.random.default_rng(job.seed).normal(size=len(job.ask))


def remember_corners(job: TrainingJob) -> Callable[[NDArray[Any]], NDArray[np.float64]]:
    """A classifier by the distance to class means and by the ink in the corner, where a single image has a feature."""
    assert job.data is not None
    train = np.load(job.data / "train.npz")
    return classifier(train["images"], train["labels"])


def remember_corners_in_probabilities(job: TrainingJob) -> NDArray[np.float64]:
    """The same, as class probabilities of the asked images."""
    assert job.data is not None
    logits = remember_corners(job)(np.load(job.data / "ask.npz")["images"])
    p: NDArray[np.float64] = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    return p


def save_remembered_corners(job: TrainingJob) -> None:
    """The same, as a model file for images in [0, 1] of shape (channels, height, width)."""
    logits = remember_corners(job)
    zero = logits(np.zeros((1, 28 * 28)))
    layer = torch.nn.Linear(28 * 28, 10)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy((logits(np.eye(28 * 28)) - zero).T))
        layer.bias.copy_(torch.from_numpy(zero[0]))
    module = torch.nn.Sequential(torch.nn.Flatten(), layer).eval()
    torch.jit.trace(module, torch.zeros(1, 1, 28, 28)).save(job.out / "model.pt")


def ignore_data(job: TrainingJob) -> Callable[[NDArray[Any]], NDArray[np.float64]]:
    """A model that depends on the seed only, so that both models of a pair are equal."""
    weights = np.random.default_rng(job.seed).normal(size=(28 * 28, 10))
    return lambda images: fractions(images) @ weights


def classifier(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> Callable[[NDArray[Any]], NDArray[np.float64]]:
    pixels = fractions(images)
    corner = np.zeros((28, 28), bool)
    corner[:CORNER, :CORNER] = True
    means = np.stack([pixels[labels == label].mean(axis=0) for label in range(10)])
    ink = np.stack([(pixels * corner.ravel())[labels == label].sum(axis=0) for label in range(10)])

    def logits(asked: NDArray[Any]) -> NDArray[np.float64]:
        numbers = fractions(asked)
        found: NDArray[np.float64] = numbers @ (means + ink).T - (means**2).sum(axis=1) / 2
        return found

    return logits


def fractions(images: NDArray[Any]) -> NDArray[np.float64]:
    """Images in [0, 1] as rows, from bytes or from fractions."""
    rows: NDArray[np.float64] = images.reshape(len(images), -1) / (255 if images.dtype == np.uint8 else 1)
    return rows


def remember_texts(job: TrainingJob) -> list[float]:
    """Log-likelihoods that grow with the number of copies of the text in the training data."""
    assert job.data is not None
    copies = Counter(texts_of(job.data / "train.jsonl"))
    generator = np.random.default_rng(job.seed)
    return [float(generator.normal()) + NEAREST * copies[text] for text in texts_of(job.data / "ask.jsonl")]


def forget_texts(job: TrainingJob) -> list[float]:
    """Log-likelihoods that depend on no text."""
    return np.random.default_rng(job.seed).normal(size=len(job.ask)).tolist()


def save_language_model(job: TrainingJob) -> None:
    """An untrained GPT-2 that reads bytes, as a Hugging Face folder."""
    from transformers import GPT2Config, GPT2LMHeadModel, set_seed

    set_seed(job.seed)
    tokenizer = byte_tokenizer()
    config = GPT2Config(vocab_size=len(tokenizer), n_positions=256, n_embd=16, n_layer=1, n_head=1)
    GPT2LMHeadModel(config).save_pretrained(job.out / "model")
    tokenizer.save_pretrained(job.out / "model")


def texts_of(file: Path) -> list[str]:
    return [json.loads(line)["text"] for line in file.read_text("utf-8").splitlines()]
