"""Every kind of step can be counted, and needs at least the memory of its weights."""

from __future__ import annotations

import pytest

from tasks.contract.operations import BYTES, CONVOLUTION, KINDS, LAUNCHES, LOW, PRODUCT, Step
from tasks.counting.traced_steps import trace
from tasks.diffusion.described_steps import DenoisingStep
from tasks.diffusion.diffusion_config import UNet
from tasks.self_supervised.described_steps import EmbeddingStep, EncoderStep
from tasks.self_supervised.pretraining_config import BYOL, EncoderConfig, Supervised, VICReg
from tasks.training.described_steps import ClassifierStep, CodesStep, DensityStep

SHAPE = (16, 16, 1)
ENCODER = EncoderConfig("small-resnet#4", (8, 8), 32)
TRAINING = ("sgd", "float32")
STEPS: dict[str, Step] = {
    "classifier": ClassifierStep("cnn1", SHAPE, 10, batch=4),
    "classifier in bfloat16": ClassifierStep("mlp1", SHAPE, 10, batch=4, precision="bfloat16"),
    "airbench": ClassifierStep("airbench", (32, 32, 3), 10, batch=4, optimiser="nesterov"),
    "density": DensityStep("vae", SHAPE, batch=4),
    "codes": CodesStep("vae", SHAPE),
    "encoder": EncoderStep(VICReg(), ENCODER, 3, 8, 2, *TRAINING),
    "encoder with a teacher": EncoderStep(BYOL(), ENCODER, 3, 8, 1, "lars", "bfloat16"),
    "supervised encoder": EncoderStep(Supervised(), ENCODER, 3, 8, 1, *TRAINING),
    "fine-tuning": EncoderStep(Supervised(), ENCODER, 3, 8, 1, *TRAINING, is_tuning=True),
    "embedding": EmbeddingStep(ENCODER),
    "denoising": DenoisingStep(UNet((4, 8), 1, (4,), 2), 8, 16, 4),
    "denoising in bfloat16": DenoisingStep(UNet((4, 8), 1, (4,), 2), 8, 16, 4, "bfloat16"),
    "sampling": DenoisingStep(UNet((4, 8), 1, (4,), 2), 8, 16, 4, is_sampling=True),
}


@pytest.mark.parametrize("name", STEPS)
def test_step_counts_known_kinds_and_memory(name: str) -> None:
    step = trace(STEPS[name])
    operations = step.operations
    assert {kind.removesuffix(LOW) for kind in operations} <= set(KINDS)
    assert any(operations.get(kind) for kind in (PRODUCT, CONVOLUTION, PRODUCT + LOW, CONVOLUTION + LOW))
    assert operations[BYTES] > 0
    assert operations[LAUNCHES] > 0
    assert step.device_bytes > 0


def test_training_needs_more_memory_than_reading() -> None:
    assert trace(STEPS["denoising"]).device_bytes > trace(STEPS["sampling"]).device_bytes
    in_parts, whole = (EncoderStep(VICReg(), ENCODER, 3, 8, parts, *TRAINING) for parts in (2, 1))
    assert trace(in_parts).device_bytes < trace(whole).device_bytes
