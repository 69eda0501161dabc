"""Play the owner of a model: train two models, one with D_Q and one without, and write the outputs of both.

python train_owner.py probes probes-split.csv

    forgotten.csv    trained on D_C only: the owner's statement is true
    kept.csv         trained on D_C and D_Q: the owner's statement is false

D_Q are the images that the provider once supplied. The folder also contains the control images, which were never
supplied to anyone.

A real owner sends one table and never sees the provider's list, probes-split.csv. Here, the list stands for the supply
of D_Q. Training is plain PyTorch; the script uses only the embedded images of Engram, as the collected data. It reads
the images in the auditor's folder from their list, images.csv, as any owner does.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from tasks.audits.forgetting.presets import PLAIN
from tasks.datasets import catalog

WIDTHS = (28 * 28, 512, 256, 128, 10)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probes", type=Path, help="the auditor's folder")
    parser.add_argument(
        "split", type=Path, help="the auditor's list of supplied images, which a real owner does not have"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(), help="the folder for the tables; default: the current folder"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=60)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with (asked.probes / "images.csv").open(newline="") as file:
        names = [row["image"] for row in csv.DictReader(file)]
    pictures = scaled(np.stack([np.asarray(Image.open(asked.probes / name)) for name in names]))
    others = other_digits()
    given = given_digits(asked.split)
    for name, parts in {"forgotten": [others], "kept": [others, given]}.items():
        torch.manual_seed(asked.seed)
        images, labels = (torch.cat(columns) for columns in zip(*parts, strict=True))
        model = network()
        train(model, images, labels, asked.epochs)
        answer(asked.out / f"{name}.csv", names, model(pictures))
        right = float((model(images).argmax(dim=1) == labels).float().mean())
        print(f"{name}.csv: trained on {len(images)} images, {right:.3f} of them right")


def other_digits() -> tuple[Tensor, Tensor]:
    """D_C: images (n, pixels) in [0, 1], and their labels."""
    part = PLAIN.calibration
    data = catalog.load(catalog.pin(part.data))
    rows = part.rows(data)
    return scaled(data.train_images[rows]), torch.tensor(data.train_labels[rows])


def given_digits(split: Path) -> tuple[Tensor, Tensor]:
    """D_Q, as supplied by the provider: the rows of its list that are marked `query`."""
    with split.open(newline="") as file:
        rows = [int(row["row"]) for row in csv.DictReader(file) if row["set"] == "query"]
    data = catalog.load(catalog.pin(PLAIN.query.data))
    return scaled(data.train_images[rows]), torch.tensor(data.train_labels[rows])


def scaled(images: NDArray[np.uint8]) -> Tensor:
    return torch.tensor(images).reshape(len(images), -1).float() / 255


def network() -> nn.Sequential:
    """The network that owner and provider agreed on: the audit's mlp1."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(WIDTHS):
        dense = nn.Linear(inputs, outputs)
        nn.init.xavier_uniform_(dense.weight)
        nn.init.zeros_(dense.bias)
        layers += [dense, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimiser.step()


def answer(path: Path, names: Sequence[str], logits: Tensor) -> None:
    """Write the table: the probability of every class, with all digits."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", *(f"p{label}" for label in range(logits.shape[1]))])
        for name, row in zip(names, logits.detach().double().softmax(dim=1).tolist(), strict=True):
            table.writerow([name, *row])


if __name__ == "__main__":
    main()
