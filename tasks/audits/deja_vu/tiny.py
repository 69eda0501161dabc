"""The same audit on a few embedded scenes with a small model, in seconds."""

from __future__ import annotations

from dataclasses import replace

from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.drawing import Drawing
from tasks.datasets.dataset import Dataset
from tasks.diffusion.diffusion_training import UNet
from tasks.diffusion.pixel_classifier import PixelClassifier
from tasks.self_supervised.pretraining_config import TRANSFORMERS

SIDE = 32  # pixels, of the scenes


def tiny(config: DejaVu) -> DejaVu:
    """The config with its shape, as many epochs that are attacked and as many layers, shrunk to seconds."""
    epochs = min(config.epochs, 2)
    is_transformer = config.backbone in TRANSFORMERS
    return replace(
        config,
        data=Dataset("digits-on-photos"),
        per_class=4,
        public=100,
        largest=0,
        attacked=0,
        validation=40,
        smallest=8,
        backbone="vit-ti" if is_transformer else "small-resnet#8",
        projector=(16,) * len(config.projector),
        augmentation=replace(config.augmentation, resolution=SIDE, side=0),
        epochs=epochs,
        recorded=tuple(epoch for epoch in (1, 2) if epoch <= epochs)[-len(config.recorded) :]
        if config.recorded
        else (),
        link=1 if config.link else 0,
        batch=20,
        accumulate=1,
        warmup=0,
        fine_tuning=min(config.fine_tuning, 2),
        k=tuple(range(5, 5 + len(config.k))),
        diffusion=replace(
            config.diffusion, resolution=8, unet=UNet((4, 8), 1, (4,), 2), epochs=2, batch=32, accumulate=1
        ),
        drawing=Drawing(4, 2, 3, 1 if config.drawing.link else 0, PixelClassifier(epochs=1, batch=32)),
        shown=min(config.shown, 2),
        partings=199,
        resamples=100,
    )
