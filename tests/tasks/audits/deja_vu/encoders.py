"""Synthetic external encoders for tests: one that recognises the object on a background, and others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tasks.audits.deja_vu.attack import attack, crops_of
from tasks.audits.deja_vu.config import DejaVu
from tasks.datasets.catalog import load_with_boxes
from tasks.datasets.images import Pixels

CLASS_NORM = 10.0  # norm of the embedding of a class; other features are about 1


class MemorisingEncoder(nn.Module):
    """Embeds the class of each memorised image, with random features of every image (n, 10 + 8)."""

    def __init__(self, images: Pixels, labels: np.ndarray, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("filters", torch.randn(8, 3, 7, 7, generator=generator) / 12)
        self.register_buffer("memorised", pixels_of(images).flatten(1))
        self.register_buffer("classes", CLASS_NORM * torch.eye(10)[torch.from_numpy(labels)])

    def forward(self, images: Tensor) -> Tensor:
        features = torch.conv2d(images, self.filters, None, [3, 3]).relu().mean((2, 3))
        # A product of matrices takes a tenth of the time; in float64, equal images are less than 1e-5 apart.
        distances = torch.cdist(
            images.flatten(1).double(), self.memorised.double(), compute_mode="use_mm_for_euclid_dist"
        )
        nearest = distances.min(1)
        class_embedding = self.classes[nearest.indices] * (nearest.values < 0.01).unsqueeze(1)
        return torch.cat([class_embedding, features], 1)


class ChangedEncoder(nn.Module):
    """The embeddings of an encoder, rotated and scaled, or rounded."""

    def __init__(self, encoder: nn.Module, scale: float = 1.0, digits: int = -1) -> None:
        super().__init__()
        self.encoder = encoder
        self.scale = scale
        self.digits = digits
        rotation = torch.linalg.qr(torch.randn(18, 18, generator=torch.Generator().manual_seed(1)))[0]
        self.register_buffer("rotation", rotation if digits < 0 else torch.eye(18))

    def forward(self, images: Tensor) -> Tensor:
        embeddings = self.scale * self.encoder(images) @ self.rotation
        return embeddings if self.digits < 0 else torch.round(embeddings, decimals=self.digits)


def pixels_of(images: Pixels) -> Tensor:
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255


def memorising_encoder(config: DejaVu, sets: Sequence[str] = ("A",), seed: int = 0) -> MemorisingEncoder:
    """Recognises the objects of the public images and memorises the crops of the given sets."""
    images = load_with_boxes(config.data, config.correlation)
    crops = crops_of(attack(config), images)
    is_memorised = np.isin(crops.sets, sets)
    memorised_images = [*crops.public_pictures(images), np.concatenate([*crops.batches(images)])[is_memorised]]
    labels = np.concatenate([images.labels[crops.public], images.labels[crops.rows[is_memorised]]])
    return MemorisingEncoder(np.concatenate(memorised_images), labels, seed)


def save_encoder(encoder: nn.Module, path: Path) -> str:
    """The encoder as TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, but its files are still in use
        torch.jit.script(encoder.eval()).save(str(path))
    return str(path)
