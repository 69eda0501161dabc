"""Networks are computed on one thread of a processor, and whatever was set before is set again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace

import pytest
import torch

from tasks import hardware


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """What torch knows of cuDNN, with a user's own settings."""
    kinds = {name: SimpleNamespace(fp32_precision=precision) for name, precision in (("conv", "tf32"), ("rnn", "none"))}
    found = SimpleNamespace(**kinds, deterministic=False)
    monkeypatch.setattr(torch.backends, "cudnn", found)
    before = torch.get_float32_matmul_precision()
    yield found
    assert before == torch.get_float32_matmul_precision()


def test_the_gpu_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, kind in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert torch.device(kind) == hardware.device()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda place: f"NVIDIA number {place.index}")
    assert ["cpu", "NVIDIA number 1"] == [hardware.name(torch.device(each)) for each in ("cpu", "cuda:1")]


def test_a_processor_computes_on_one_thread_and_on_as_many_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with suppress(KeyError), hardware.exactly(torch.device("cpu")):
            assert 1 == torch.get_num_threads()
            raise KeyError
        assert 3 == torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def test_a_gpu_computes_whole_float32_the_same_way_each_time_and_as_before_afterwards(
    library: SimpleNamespace,
) -> None:
    with suppress(KeyError), hardware.exactly(torch.device("cuda")):
        assert (True, "ieee", "ieee") == (
            library.deterministic,
            library.conv.fp32_precision,
            library.rnn.fp32_precision,
        )
        assert "highest" == torch.get_float32_matmul_precision()
        raise KeyError
    assert (False, "tf32", "none") == (
        library.deterministic,
        library.conv.fp32_precision,
        library.rnn.fp32_precision,
    )


def test_threads_are_set_inside_and_restored_after_an_error() -> None:
    before = torch.get_num_threads()

    def fail() -> None:
        with hardware.threads(before + 1):
            assert before + 1 == torch.get_num_threads()
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert before == torch.get_num_threads()
