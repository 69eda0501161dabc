"""Data sets with the names, shapes and counts of the published ones, and pixels of pure chance.

What the audit looks at before it trains is whether there are images enough and whether two sets share any, so MNIST and
CIFAR-10 are as long as the presets need, and no image is there twice. SVHN and ACDC are asked for whole, however small.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import io

from tests.support.benchmark_data import ten_classes, write_cifar10, write_mnist
from tests.tasks.datasets import test_acdc

FEW = 50


def write(root: Path) -> Path:
    """All of them; ENGRAM_DATA may name the root."""
    chance = np.random.default_rng(0)
    write_mnist(root / "mnist", *(noise(chance, count, 28, 28) for count in (60_000, FEW)))
    batches = [noise(chance, count, 3072) for count in (*[6_000] * 5, FEW)]
    write_cifar10(root / "cifar-10-batches-py", batches[:5], batches[5])
    svhn(root / "svhn", chance)
    acdc(root / "acdc")
    return root


def svhn(place: Path, chance: np.random.Generator) -> None:
    place.mkdir(parents=True)
    for name in ("train", "test", "extra"):
        pixels = noise(chance, 32, 32, 3, FEW)
        io.savemat(place / f"{name}_32x32.mat", {"X": pixels, "y": ten_classes(FEW)[:, None] + 1})


def acdc(place: Path, patients: int = 6) -> None:
    """Patients of all classes in turn, of whom the first two thirds were seen at 1.5 T and the others at 3 T."""
    groups = ("DCM", "HCM", "MINF", "NOR", "RV")
    lines = ["patient,tesla"]
    for number in range(1, patients + 1):
        test_acdc.written(place / "training", number, groups[number % 5], test_acdc.volume(number), packed=False)
        lines.append(f"{number},{'1.5' if 3 * number <= 2 * patients else '3'}")
    (place / "field_strengths.csv").write_text("\n".join([*lines, ""]))


def noise(chance: np.random.Generator, *shape: int) -> NDArray[np.uint8]:
    return chance.integers(0, 256, shape, np.uint8)
