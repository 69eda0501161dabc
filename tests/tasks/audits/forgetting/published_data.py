"""Data sets with the names, shapes and counts of the published ones, and pixels of pure chance.

What the audit looks at before it trains is whether there are images enough and whether two sets share any, so MNIST and
CIFAR-10 are as long as the presets need, and no image is there twice. SVHN and ACDC are asked for whole, however small.
"""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import io

from tests.tasks.datasets import test_acdc

FEW = 50


def write(root: Path) -> Path:
    """All of them; ENGRAM_DATA may name the root."""
    chance = np.random.default_rng(0)
    mnist(root / "mnist", chance)
    cifar10(root / "cifar-10-batches-py", chance)
    svhn(root / "svhn", chance)
    acdc(root / "acdc")
    return root


def mnist(place: Path, chance: np.random.Generator) -> None:
    place.mkdir(parents=True)
    for part, count in (("train", 60_000), ("t10k", FEW)):
        header = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28)
        (place / f"{part}-images-idx3-ubyte").write_bytes(header + chance.bytes(count * 784))
        labels = struct.pack(">4BI", 0, 0, 8, 1, count) + of_ten(count).astype(np.uint8).tobytes()
        (place / f"{part}-labels-idx1-ubyte").write_bytes(labels)


def cifar10(place: Path, chance: np.random.Generator) -> None:
    place.mkdir(parents=True)
    for name, count in (*((f"data_batch_{number}", 6_000) for number in range(1, 6)), ("test_batch", FEW)):
        pixels = np.frombuffer(chance.bytes(count * 3072), np.uint8).reshape(count, 3072)
        (place / name).write_bytes(pickle.dumps({b"data": pixels, b"labels": of_ten(count).tolist()}, protocol=2))


def svhn(place: Path, chance: np.random.Generator) -> None:
    place.mkdir(parents=True)
    for name in ("train", "test", "extra"):
        pixels = np.frombuffer(chance.bytes(FEW * 3072), np.uint8).reshape(32, 32, 3, FEW)
        io.savemat(place / f"{name}_32x32.mat", {"X": pixels, "y": of_ten(FEW)[:, None] + 1})


def acdc(place: Path, patients: int = 6) -> None:
    """Patients of all classes in turn, of whom the first two thirds were seen at 1.5 T and the others at 3 T."""
    groups = ("DCM", "HCM", "MINF", "NOR", "RV")
    lines = ["patient,tesla"]
    for number in range(1, patients + 1):
        test_acdc.written(place / "training", number, groups[number % 5], test_acdc.volume(number), packed=False)
        lines.append(f"{number},{'1.5' if 3 * number <= 2 * patients else '3'}")
    (place / "field_strengths.csv").write_text("\n".join([*lines, ""]))


def of_ten(count: int) -> NDArray[np.int64]:
    return np.arange(count) % 10
