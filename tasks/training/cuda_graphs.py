"""GPU work recorded once and then replayed: launching its operations one by one takes longer than running them.

NVIDIA's CUDA graphs, by `torch.cuda.graph`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

REHEARSALS = 3  # before recording: libraries choose their algorithms and allocate their workspaces in the first ones


class Graphs:
    """Recordings on one device by name, each made at its first use."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._graphs: dict[str, torch.cuda.CUDAGraph] = {}

    def run(self, name: str, function: Callable[[], None], changed: Sequence[Tensor]) -> None:
        """Run the function's recording on the current stream. `changed` are the tensors that it changes."""
        if name not in self._graphs:
            self._graphs[name] = self._record(function, changed)
        self._graphs[name].replay()

    def _record(self, function: Callable[[], None], changed: Sequence[Tensor]) -> torch.cuda.CUDAGraph:
        before = [tensor.clone() for tensor in changed]
        current = torch.cuda.current_stream(self._device)
        # A recording keeps the workspaces of the stream that it was made on: stacks that replay theirs side by side
        # must have recorded them on their own. The default stream cannot be recorded.
        own = current
        if current == torch.cuda.default_stream(self._device):
            own = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        own.wait_stream(current)
        with torch.cuda.stream(own):
            for _ in range(REHEARSALS):
                function()
                with torch.no_grad():
                    for tensor, original in zip(changed, before, strict=True):
                        tensor.copy_(original)
        current.wait_stream(own)
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate meanwhile: only this one's work is being recorded.
        with torch.cuda.graph(graph, stream=own, capture_error_mode="thread_local"):
            function()
        return graph
