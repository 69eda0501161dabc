"""The network: conditional batch norm and attention by hand, its resolutions, and several models side by side."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.diffusion import unet
from tasks.diffusion.diffusion_config import SMALL, UNet
from tasks.diffusion.unet import Blocks, embed_conditions, network, sines
from tasks.models.layers import Layers, Mode, initial, weights_of

TINY = UNet((4, 8), 1, (4,), 2)
FEATURES = 3
SIDE = 8


def weights(config: UNet, side: int, seed: int, zeros: bool = True) -> dict[str, Tensor]:
    """The initial weights of a network, (1, *shape) each; without `zeros`, small numbers replace zeros."""
    outline = weights_of(
        lambda layers, x: network(layers, x, x.new_zeros(1, 0), x.new_zeros(1, 0, FEATURES), config), (3, side, side)
    )
    stream = np.random.default_rng(seed)
    tensors = {}
    for name, values in initial(outline, seed).items():
        if zeros or values.any() or name.endswith("mean"):
            start_values = values
        else:
            start_values = stream.normal(0, 0.1, values.shape)
        tensors[name] = torch.from_numpy(start_values.astype(np.float32))[None]
    return tensors


def network_inputs(rows: int, side: int = SIDE) -> tuple[Tensor, Tensor, Tensor]:
    """Images, times and vectors."""
    torch.manual_seed(0)
    return torch.randn(rows, 3, side, side), torch.arange(rows)[None] * 7, torch.randn(1, rows, FEATURES)


def test_conditional_batch_norm_by_hand() -> None:
    # One channel; the rows are 1 and 3 everywhere, so that the batch's mean is 2 and its variance 1. The embeddings 10
    # and 20 make the scales 1 + 0.5 e = 6 and 11 and the shifts -2 e + 4 = -16 and -36.
    x = torch.tensor([1.0, 3.0])[:, None, None, None].expand(2, 1, 2, 2)
    tensors = {
        "norm.gamma.weight": torch.tensor([[[0.5]]]),
        "norm.gamma.bias": torch.tensor([[1.0]]),
        "norm.beta.weight": torch.tensor([[[-2.0]]]),
        "norm.beta.bias": torch.tensor([[4.0]]),
        "norm.mean": torch.tensor([[0.0]]),
        "norm.variance": torch.tensor([[1.0]]),
    }
    embedding = torch.tensor([[[10.0], [20.0]]])
    normalised = Blocks(Layers(tensors, Mode(training=True)), embedding, TINY).norm("norm", x)
    by_hand = torch.tensor([-1 / (1 + 1e-5) ** 0.5 * 6 - 16, 1 / (1 + 1e-5) ** 0.5 * 11 - 36])
    torch.testing.assert_close(normalised, by_hand[:, None, None, None].expand(2, 1, 2, 2))
    # The running mean moves from 0 towards 2 by a tenth, the running variance from 1 towards 8 / 7 of 8 values.
    torch.testing.assert_close(tensors["norm.mean"], torch.tensor([[0.2]]))
    torch.testing.assert_close(tensors["norm.variance"], torch.tensor([[0.9 + 0.1 * 8 / 7]]))
    # Evaluation uses these two instead of the batch's.
    evaluated = Blocks(Layers(tensors), embedding, TINY).norm("norm", x)
    scale = (0.9 + 0.8 / 7 + 1e-5) ** -0.5
    torch.testing.assert_close(evaluated[:, 0, 0, 0], torch.tensor([0.8 * scale * 6 - 16, 2.8 * scale * 11 - 36]))


def test_attention_averages_similar_positions_by_hand() -> None:
    # Two heads of one channel, two positions: head 1 queries with 0 and returns the mean of its values, head 2
    # queries (2, 2) against keys (0, log 3 / 2), which gives the second position three times the first one's weight.
    values = torch.tensor([[[1.0, 3.0], [4.0, 8.0]]])  # (row, head, place)
    key = torch.tensor([[[5.0, 7.0], [0.0, float(np.log(3)) / 2]]])
    query = torch.tensor([[[0.0, 0.0], [2.0, 2.0]]])

    class FixedBlocks(Blocks):
        def norm(self, name: str, x: Tensor) -> Tensor:
            return x

        def conv(self, name: str, x: Tensor, channels: int, kernel: int = 3, start: object = None) -> Tensor:
            return torch.cat([query, key, values], 1)[..., None] if name.endswith("asked") else x

    attended = FixedBlocks(Layers({}), torch.zeros(1, 1, 1), UNet((2,), 1, (), 2)).attention(
        "a", torch.ones(1, 2, 2, 1)
    )
    torch.testing.assert_close(attended[0, :, :, 0], torch.tensor([[3.0, 3.0], [8.0, 8.0]]))


def test_time_is_encoded_as_cosines_and_sines() -> None:
    encoding = sines(torch.tensor([[0, 3]]), 4, torch.float64)
    by_hand = [[1, 1, 0, 0], [np.cos(3), np.cos(0.03), np.sin(3), np.sin(0.03)]]
    np.testing.assert_allclose(encoding[0].numpy(), by_hand)


def test_resampling_averages_down_and_repeats_up() -> None:
    x = torch.arange(4.0).view(1, 1, 2, 2)
    assert unet.resample(x, "down")[0, 0].tolist() == [[1.5]]
    assert unet.resample(x, "up")[0, 0].tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]


@pytest.mark.parametrize(("config", "side"), [(TINY, SIDE), (SMALL, 32), (UNet((4,), 2, (), 1), 5)])
def test_network_keeps_image_shape_and_starts_at_zero(config: UNet, side: int) -> None:
    noise = network(Layers(weights(config, side, 0)), *network_inputs(2, side), config)
    assert noise.shape == (2, 3, side, side)
    assert noise.abs().max() == 0


def test_attention_is_at_named_resolutions_and_middle() -> None:
    names = set()
    for name in weights(TINY, SIDE, 0):
        if name.endswith("found.weight"):
            names.add(name.removesuffix(".found.weight"))
    levels = {"down1.1", "up1.1", "up1.2"}
    assert {f"{level}.attention" for level in levels} | {"middle.attention"} == names


def test_predicted_noise_depends_on_time_and_vector() -> None:
    tensors = weights(TINY, SIDE, 0, zeros=False)
    x, times, vectors = network_inputs(1)
    usual = network(Layers(tensors), x, times, vectors, TINY)
    assert (network(Layers(tensors), x, times + 500, vectors, TINY) - usual).abs().max() > 1e-4
    assert (network(Layers(tensors), x, times, vectors + 1, TINY) - usual).abs().max() > 1e-4


def test_embedding_depends_on_sum_of_time_and_vector() -> None:
    tensors = weights(TINY, SIDE, 0)
    _, times, vectors = network_inputs(2)
    embedding = embed_conditions(Layers(tensors), times, vectors, TINY)
    assert embedding.shape == (1, 2, 16)
    arrays = {name: tensors[name][0].numpy() for name in tensors}
    silu = lambda x: x / (1 + np.exp(-x))  # noqa: E731
    hidden = silu(sines(times, 4, torch.float32)[0].numpy() @ arrays["time1.weight"].T + arrays["time1.bias"])
    summed = hidden @ arrays["time2.weight"].T + arrays["time2.bias"]
    summed += vectors[0].numpy() @ arrays["vector.weight"].T + arrays["vector.bias"]
    np.testing.assert_allclose(embedding[0].numpy(), silu(summed), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("training", [False, True])
def test_stacked_models_predict_as_each_alone(training: bool) -> None:
    models = [weights(TINY, SIDE, seed, zeros=False) for seed in (1, 2)]
    mode = Mode(training=training)
    x, times, vectors = network_inputs(3)
    alone = []
    for one in models:
        alone.append(network(Layers(dict(one), mode), x, times, vectors, TINY))
    stacked = {name: torch.cat([one[name] for one in models]) for name in models[0]}
    twice = (torch.cat([x, x], 1), times.expand(2, -1), vectors.expand(2, -1, -1))
    together = network(Layers(stacked, mode), *twice, TINY)
    torch.testing.assert_close(together, torch.cat(alone, 1), rtol=1e-4, atol=1e-5)


def test_padding_affects_no_other_row() -> None:
    tensors = weights(TINY, SIDE, 0, zeros=False)
    x, times, vectors = network_inputs(4)
    three = network(Layers(dict(tensors), Mode(training=True)), x[:3], times[:, :3], vectors[:, :3], TINY)
    mode = Mode(training=True, real=torch.tensor([[1.0, 1, 1, 0]]))
    four = network(Layers(dict(tensors), mode), x, times, vectors, TINY)
    torch.testing.assert_close(four[:3], three, rtol=1e-4, atol=1e-5)
