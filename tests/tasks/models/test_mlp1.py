import math

import numpy as np

from tasks.models.networks import Architecture

MLP1 = Architecture("mlp1", (28, 28, 1), 10)


def test_layers_have_the_published_widths() -> None:
    expected = {
        "dense1.weight": (512, 784),
        "dense1.bias": (512,),
        "dense2.weight": (256, 512),
        "dense2.bias": (256,),
        "dense3.weight": (128, 256),
        "dense3.bias": (128,),
        "dense4.weight": (10, 128),
        "dense4.bias": (10,),
    }
    assert expected == {name: values.shape for name, values in MLP1.initial(0).items()}


def test_weights_start_uniform_within_glorots_limit_and_biases_at_zero() -> None:
    weights = MLP1.initial(3)
    limit = math.sqrt(6 / (784 + 512))
    first = weights["dense1.weight"]
    assert 0.999 * limit < np.abs(first).max() <= np.float32(limit)
    assert abs(first.std() - limit / math.sqrt(3)) < 0.01 * limit
    assert not any(values.any() for name, values in weights.items() if name.endswith("bias"))


def test_initial_weights_follow_the_seed() -> None:
    one, again, other = (MLP1.initial(seed)["dense2.weight"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
