"""Codes that are fitted to each observation: nearer to the posterior, and of that observation alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tasks.models.dequantisation import Binary
from tasks.models.importance import Chunk, Sampling, estimate_log_density
from tasks.models.vae import Dense, Vae, cifar10
from tests.tasks.models.plain import stack

MODELS, N = 2, 4
SMALL = Dense(Binary((6, 6, 1), padding=1), 3, (7, 5))
NARROW = replace(cifar10(), filters=2)
MEMBERS, ROWS = torch.tensor([11, 12]), torch.tensor([40, 7, 3, 1000])


def pixels(vae: Vae) -> Tensor:
    stream = torch.Generator().manual_seed(0)
    return torch.randint(
        0, 256, (N, vae.preparation.shape[0] ** 2 * vae.preparation.shape[2]), dtype=torch.uint8, generator=stream
    )


def lost(vae: Vae) -> dict[str, Tensor]:
    """Models whose encoders put every code far from where its image is likely."""
    tensors = stack(vae, MODELS)
    last = "encoder3" if isinstance(vae, Dense) else "posterior"
    bias = next(name for name in tensors if name.startswith(last) and "bias" in name)
    tensors[bias] = tensors[bias] + 2.0
    return tensors


@pytest.mark.parametrize("vae", [SMALL, NARROW], ids=["dense", "convolutional"])
def test_fitted_codes_count_for_more(vae: Vae) -> None:
    given = vae, lost(vae), pixels(vae), ROWS, MEMBERS
    plain, fitted = (estimate_log_density(*given, Sampling(64, refine=steps)) for steps in (0, 60))
    assert fitted.effective_samples is not None
    assert plain.effective_samples is not None
    assert plain.encoder_effective_samples is None
    assert torch.equal(plain.effective_samples, fitted.encoder_effective_samples)
    assert (fitted.effective_samples > 2 * plain.effective_samples).double().mean() > 0.7


def test_fitted_codes_are_nearer_to_the_log_p_that_many_of_the_encoders_find() -> None:
    given = SMALL, lost(SMALL), pixels(SMALL), ROWS, MEMBERS
    plain, fitted = (estimate_log_density(*given, Sampling(64, refine=steps)) for steps in (0, 60))
    exact = estimate_log_density(*given, Sampling(40_000)).log_p
    assert float((fitted.log_p - exact).abs().mean()) < float((plain.log_p - exact).abs().mean())


def test_what_is_fitted_depends_on_no_other_model_or_observation_and_on_no_cut() -> None:
    tensors, sampling = lost(SMALL), Sampling(9, refine=5)
    together = estimate_log_density(SMALL, tensors, pixels(SMALL), ROWS, MEMBERS, sampling).log_p
    some = torch.tensor([2, 0])
    one = {name: tensor[1:] for name, tensor in tensors.items()}
    alone = estimate_log_density(SMALL, one, pixels(SMALL)[some], ROWS[some], MEMBERS[1:], sampling).log_p
    torch.testing.assert_close(together[1:, some], alone, atol=1e-9, rtol=0)
    cut = estimate_log_density(SMALL, tensors, pixels(SMALL), ROWS, MEMBERS, sampling, Chunk(3, 2, 4)).log_p
    torch.testing.assert_close(together, cut, atol=1e-9, rtol=0)


def test_no_step_leaves_the_estimate_as_it_was() -> None:
    given = SMALL, lost(SMALL), pixels(SMALL), ROWS, MEMBERS
    assert torch.equal(
        estimate_log_density(*given, Sampling(9)).log_p, estimate_log_density(*given, Sampling(9, refine=0)).log_p
    )
    with pytest.raises(ValueError, match="refine is -1; it must be at least 0"):
        Sampling(refine=-1)


def test_models_that_come_from_inference_mode_can_be_fitted() -> None:
    tensors = lost(SMALL)
    given = pixels(SMALL), ROWS, MEMBERS, Sampling(9, refine=3)
    with torch.inference_mode():
        inside = estimate_log_density(SMALL, {name: tensor.clone() for name, tensor in tensors.items()}, *given).log_p
    assert torch.equal(inside, estimate_log_density(SMALL, tensors, *given).log_p)
