"""Count the operations of a computation by running it on tensors without memory (torch's meta device)."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import flop_registry

from tasks.contract.operations import ATTENTION, BYTES, CONVOLUTION, LAUNCHES, LOW, PRODUCT, Operations

META = torch.device("meta")
BLOCK = 512  # bytes; torch's allocator for GPUs rounds up to a multiple
# Operations that move no data but that torch does not declare as views.
FREE = ("empty", "_unsafe_view", "detach", "lift_fresh", "_local_scalar_dense", "new_empty", "set_data")


class Tracing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that run within the block, and the bytes of the tensors that they create.

    Every operation counts the bytes of its operands and results, as if none stayed in a cache or was fused with
    another. `peak_bytes` is the largest number of bytes that exist at the same time, without the tensors from before
    the block.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak_bytes = 0
        self._bytes_now = 0
        self._sizes: dict[int, int] = {}  # of storages that exist, by identity
        self._counts: dict[str, float] = defaultdict(float)

    @property
    def operations(self) -> Operations:
        return dict(self._counts)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        operands = list(_tensors((args, kwargs)))
        self._watch(operands, _tensors(result))
        packet = function._overloadpacket
        if _is_view(function) or any(packet.__name__.startswith(name) for name in FREE):
            return result
        self._counts[LAUNCHES] += 1
        self._counts[BYTES] += sum(tensor.numel() * tensor.element_size() for tensor in [*operands, *_tensors(result)])
        count = flop_registry.get(packet)
        if count is not None:
            kind = _kind(packet.__name__)
            if operands and operands[0].dtype == torch.bfloat16:
                kind += LOW
            self._counts[kind] += count(*args, **kwargs, out_val=result)
        return result

    def _watch(self, operands: Iterable[Tensor], results: Iterable[Tensor]) -> None:
        """Count the memory of results until nothing refers to it. Views share the memory of an operand."""
        operand_storages = {id(tensor.untyped_storage()) for tensor in operands}
        for tensor in results:
            storage = tensor.untyped_storage()
            key = id(storage)  # torch keeps the object as long as the memory
            if key in self._sizes or key in operand_storages:
                continue
            self._sizes[key] = -(-storage.nbytes() // BLOCK) * BLOCK
            self._bytes_now += self._sizes[key]
            self.peak_bytes = max(self.peak_bytes, self._bytes_now)
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self._bytes_now -= self._sizes.pop(key)


def _tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors among nested values, each with the elements that it has in memory."""
    for value in tree_flatten(values)[0]:
        if isinstance(value, Tensor):
            yield value


def _is_view(function: Any) -> bool:
    """Whether all results of an operation share memory with an operand that it does not change."""
    returns = function._schema.returns
    return bool(returns) and all(value.alias_info is not None and not value.alias_info.is_write for value in returns)


def _kind(name: str) -> str:
    if "convolution" in name:
        return CONVOLUTION
    return ATTENTION if "attention" in name else PRODUCT
