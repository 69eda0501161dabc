"""Train the hospital's model, a small network, on the X-rays of a folder, and save it as TorchScript.

python train_model.py xrays --out model.pt --seed 1
python train_model.py xrays --out weights.pt --seed 1 --state-dict

The training is independent of any audit, has no early stopping, and prints the accuracy on the test images. `network`
makes the module, here and for users of the state dict.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn


def network(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Make the network: images (rows, channels, height, width) in [0, 1] to logits (rows, classes)."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * width, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder with train/CLASS/*.png and test/CLASS/*.png")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--state-dict", action="store_true", help="save the weights alone")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(asked.seed)
    images, labels, classes = split(asked.data / "train")
    model = network((1, *images.shape[2:]), classes)
    train(model, images, labels, asked.epochs, asked.batch, asked.learning_rate)
    model.eval()
    tested = accuracy(model, *split(asked.data / "test")[:2])
    print(f"accuracy: training {accuracy(model, images, labels):.3f}, test {tested:.3f}")
    if asked.state_dict:
        torch.save(model.state_dict(), asked.out)
    else:
        warnings.simplefilter("ignore", FutureWarning)  # TorchScript is old, and what every version of torch can read
        torch.jit.script(model).save(str(asked.out))


def split(folder: Path) -> tuple[Tensor, Tensor, int]:
    """The images (n, 1, height, width) in [0, 1], their labels, and how many classes there are."""
    classes = sorted(path.name for path in folder.iterdir())
    files = [(path, label) for label, name in enumerate(classes) for path in sorted((folder / name).glob("*.png"))]
    images = np.stack([np.asarray(Image.open(path).convert("L")) for path, _ in files])
    return torch.tensor(images)[:, None].float() / 255, torch.tensor([label for _, label in files]), len(classes)


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, batch: int, rate: float) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(batch):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimiser.step()


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    return float((model(images).argmax(dim=1) == labels).float().mean())


if __name__ == "__main__":
    main()
