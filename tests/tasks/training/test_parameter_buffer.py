"""Many models' tensors in one buffer, each with a place of its own."""

import torch

from tasks.training.parameter_buffer import PAD, ParameterBuffer, fill_row

CPU = torch.device("cpu")


def test_every_part_of_a_flat_buffer_is_a_multiple_of_the_pad() -> None:
    flat = ParameterBuffer({"a": (3, 5), "b": (10,), "c": (65,)}, 2, CPU, torch.float32)
    starts = [(view.data_ptr() - flat.buffer.data_ptr()) // 4 for view in flat.views.values()]
    assert ([0, PAD, 2 * PAD], [PAD, PAD, 2 * PAD]) == (starts, [len(part) for part in flat.parts(1)])
    flat.tensors_of_model(1)["b"].fill_(1)
    assert [0, 10] == flat.buffer.sum(1).tolist()
    assert torch.equal(flat.views["b"][1], flat.parts(1)[1][:10])


def test_a_slope_is_filled_up_with_zeros() -> None:
    assert [1, 1, 1, 0] == fill_row(torch.ones(1, 3), 4).tolist()
    whole = torch.ones(2, 2)
    assert whole.data_ptr() == fill_row(whole, 4).data_ptr()
