"""The example of a density model of one's own: its densities are right, and it is learned as it stands."""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.models.catalog import DensityModel
from tasks.models.custom import pin
from tasks.training.custom_density import CustomDensity
from tasks.training.density import fit
from tasks.training.density_config import DensityTraining, Fold
from tests.support.shell import ROOT

FOLDER = ROOT / "examples" / "density"
MODEL = DensityModel("flow:real_nvp")
SHAPE = (2, 3, 2)


@pytest.fixture
def flow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example, on Python's path."""
    monkeypatch.syspath_prepend(FOLDER)
    import flow

    yield flow
    sys.modules.pop("flow", None)


def changed(flow: Any) -> Any:
    """A flow that is far from its start, in float64."""
    torch.manual_seed(1)
    model = flow.RealNVP(SHAPE, couplings=4, hidden=8).double()
    for coupling in model.couplings:
        torch.nn.init.normal_(coupling.outer.weight, std=0.5)
        torch.nn.init.normal_(coupling.outer.bias, std=0.5)
    return model


def forward(model: Any, values: Tensor) -> Tensor:
    for coupling in model.couplings:
        scale, shift = coupling(values)
        values = values * scale.exp() + shift
    return values


def test_the_log_density_is_that_of_the_jacobian(flow: Any) -> None:
    model = changed(flow)
    images = torch.randn(5, *SHAPE, dtype=torch.float64)
    for image, found in zip(images, model.log_prob(images), strict=True):
        jacobian: Any = torch.autograd.functional.jacobian(lambda v: forward(model, v), image.flatten()[None])
        log_det = torch.linalg.slogdet(jacobian[0, :, 0, :]).logabsdet
        normal = forward(model, image.flatten()[None])
        expected = log_det - 0.5 * (normal.square().sum() + 12 * math.log(2 * math.pi))
        torch.testing.assert_close(expected, found)


def test_samples_are_the_images_of_normal_numbers(flow: Any) -> None:
    model = changed(flow)
    torch.manual_seed(2)
    drawn = model.sample(6)
    torch.manual_seed(2)
    assert (6, *SHAPE) == drawn.shape
    torch.testing.assert_close(torch.randn(6, 12, dtype=torch.float64), forward(model, drawn.flatten(1)))


def test_it_learns_digits_several_models_in_one_pass(flow: Any) -> None:
    pinned = pin(MODEL)
    assert pinned.digest
    config = DensityTraining(
        Dataset("digits"),
        pinned,
        examples=200,
        epochs=8,
        recorded=(1, 8),
        held_out=Fold(0, 4, 0),
        drawn=2,
    )
    rows = fit(config, ()).to_pylist()
    assert rows[-1]["test_loss"] < rows[0]["test_loss"] - 100
    # In nats of a byte: below log 256 each, what one would need that had learned nothing.
    first, last = (np.mean(rows[epoch]["log_p"]) for epoch in (0, -1))
    assert first < last
    assert -784 * math.log(256) < last
    assert 2 * 784 * 4 == len(rows[-1]["samples"])
    assert CustomDensity(str(pinned), load(config.data).shape).stackable


def test_it_imports_nothing_of_engram() -> None:
    tree = ast.parse((FOLDER / "flow.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {"__future__", "math", "torch"} == imported
