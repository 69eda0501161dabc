"""A pytest plugin that runs each test several times, with products rounded as on other processors or by other
libraries.

    python -m pytest -m trained -p tests.support.other_rounding --rounding onednn --rounding noise ...

The choices that a processor makes when torch is loaded depend on the environment: ATEN_CPU_CAPABILITY,
ONEDNN_MAX_CPU_ISA, MKL_CBWR.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

# In the names of operators that sum many float32 numbers in an order chosen by the library.
SUMMING = ("mm", "conv", "linear", "sum", "mean", "softmax", "norm", "attention")
LAST_BIT = 2.0**-23


@contextmanager
def library(onednn: bool, threads: int) -> Iterator[None]:
    """Compute products of dense layers with oneDNN or with torch's own library, on `threads` threads."""
    import torch

    from tasks.worker import hardware

    with ExitStack() as changes:
        if onednn and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
            pytest.skip("this torch has no oneDNN")
        changes.enter_context(patch("tasks.numerics.matmul.onednn_is_faster", lambda: onednn))
        on_threads = hardware.threads
        changes.enter_context(patch.object(hardware, "threads", lambda count: on_threads(threads)))
        yield


@contextmanager
def noise(seed: int = 0) -> Iterator[None]:
    """Disturb every sum of float32 numbers by at most LAST_BIT, relative to it."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    generator = torch.Generator().manual_seed(seed)

    def disturb(value: Any) -> None:
        if isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.is_contiguous():
            value.mul_(1 + (2 * torch.rand(value.shape, generator=generator) - 1) * LAST_BIT)

    class Noise(TorchDispatchMode):
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = operator(*args, **(kwargs or {}))
            name = operator.name()
            if any(part in name for part in SUMMING) and not name.endswith("_"):
                for value in result if isinstance(result, (tuple, list)) else [result]:
                    disturb(value)
            return result

    with Noise():
        yield


ROUNDINGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "torch": lambda: library(onednn=False, threads=1),
    "torch on 2 threads": lambda: library(onednn=False, threads=2),
    "onednn": lambda: library(onednn=True, threads=1),
    "onednn on 2 threads": lambda: library(onednn=True, threads=2),
    "noise": noise,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounding", action="append", choices=list(ROUNDINGS), help="may be given several times")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("rounding", metafunc.config.getoption("--rounding"), indirect=True, scope="function")


def clear_caches(module: ModuleType) -> None:
    """Clear the caches of the functions that a module defines."""
    for value in vars(module).values():
        if hasattr(value, "cache_clear") and value.__module__ == module.__name__:
            value.cache_clear()


@pytest.fixture(autouse=True)
def rounding(request: pytest.FixtureRequest) -> Iterator[None]:
    """The requested rounding; tables that test modules keep from another one are dropped."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tests.tasks."):
            clear_caches(module)
    with ROUNDINGS[request.param]():
        yield
