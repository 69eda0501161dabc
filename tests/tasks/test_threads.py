import pytest
import torch

from tasks.threads import threads


def test_threads_are_set_inside_and_restored_after_an_error() -> None:
    before = torch.get_num_threads()

    def fail() -> None:
        with threads(before + 1):
            assert before + 1 == torch.get_num_threads()
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert before == torch.get_num_threads()
