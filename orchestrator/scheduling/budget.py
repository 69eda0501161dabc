"""What the calls of a start use up, and whether that is all that it may."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.executors.calls import Call
from orchestrator.spec.specification import Execution
from orchestrator.spec.yaml_file import Prices

HOUR = 3600.0  # seconds


class Budget:
    """Counts the hours that calls hold GPUs, or a processor if they ask for no GPU, whatever becomes of them.

    A call that holds a quarter of a GPU for an hour uses a quarter of a GPU hour. Raises nothing: `spent` gives the
    reason to stop.
    """

    def __init__(self, execution: Execution) -> None:
        self.gpu_hours = self.cpu_hours = 0.0
        self._most_gpu_hours, self._most_cost = execution.max_gpu_hours, execution.max_cost
        self._prices = execution.prices or Prices()
        self.limited = self._most_gpu_hours is not None or self._most_cost is not None

    def charge(self, calls: Iterable[Call], seconds: float) -> None:
        """Count calls that have run side by side for so long."""
        for call in calls:
            if call.gpus:
                self.gpu_hours += call.gpus * seconds / HOUR
            else:
                self.cpu_hours += seconds / HOUR

    @property
    def cost(self) -> float:
        """What was used at the prices, in their currency."""
        return self.gpu_hours * self._prices.gpu + self.cpu_hours * self._prices.cpu

    @property
    def spent(self) -> str | None:
        """The reason to stop; None while there is something left."""
        if self._most_gpu_hours is not None and self.gpu_hours >= self._most_gpu_hours:
            return f"{self.gpu_hours:.3g} GPU hours are used, of at most {self._most_gpu_hours:g} (--max-gpu-hours)"
        if self._most_cost is not None and self.cost >= self._most_cost:
            unit = f" {self._prices.currency}".rstrip()
            return f"{self.cost:.3g}{unit} are spent, of at most {self._most_cost:g}{unit} (--max-cost)"
        return None
