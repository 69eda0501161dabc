"""Named hardware, such as `8xH100`, and its rates for each kind of operation.

`device_rates.json` holds the rates of one device: floating-point operations, bytes and launches per second. Rates of
devices that were never measured are published peaks times the efficiency of a measured device: 75 % for products in
float32 (77 % on an H200), 65 % of that for convolutions and 50 % for attention, 50 % in bfloat16, and 79 % of the
memory's bandwidth.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import SpecError
from orchestrator.spec.fields import nearest
from tasks.contract.operations import LAUNCHES, Operations

FILE = Path(__file__).with_name("device_rates.json")
CPU = "cpu"
CORES = 8  # processors for each GPU of named hardware
NAMED = re.compile(r"(?:([1-9]\d{0,4})x)?([A-Za-z]\w*)")


@dataclass(frozen=True)
class DeviceRates:
    """The rates of a device per second, by kind of operation, and the error factor of a time derived from them."""

    name: str
    title: str
    memory: float  # bytes
    factor: float
    rates: Mapping[str, float]
    source: str

    def seconds(self, operations: Operations, together: float = 1.0) -> float:
        """Return the seconds for these operations of one model, of which `together` share their launches."""
        total = 0.0
        for kind, amount in operations.items():
            shared = together if kind == LAUNCHES else 1.0
            total += amount / shared / self.rates[kind]
        return total


@dataclass(frozen=True)
class Hardware:
    """A number of equal devices: GPUs, each with several processors, or processors alone."""

    count: int
    device: DeviceRates

    def __str__(self) -> str:
        return f"{self.count}x{self.device.name}"

    @property
    def gpus(self) -> int:
        return 0 if self.device.name == CPU else self.count

    @property
    def processors(self) -> int:
        return self.count if self.device.name == CPU else CORES * self.count


@functools.cache
def load_rates() -> Mapping[str, DeviceRates]:
    """Load the rates shipped with this package, by device."""
    devices = {}
    for name, content in json.loads(FILE.read_text(encoding="utf-8")).items():
        devices[name] = DeviceRates(name, **content)
    return devices


def rates_of_model(model: str) -> DeviceRates | None:
    """Return the rates of a GPU by its driver's name, such as `NVIDIA H100 80GB HBM3`. None if they are not known."""
    words = re.split(r"[\s-]+", model)
    for name, device in load_rates().items():
        if name != CPU and name in words:
            return device
    return None


def parse_hardware(text: str, processors: int) -> Hardware:
    """Parse `8xH100`, `H100` or `16xcpu`. `cpu` alone stands for the processors of this machine.

    Raises SpecError for anything else.
    """
    devices = load_rates()
    match = NAMED.fullmatch(text)
    names = {name.lower(): name for name in devices}
    name = names.get(match[2].lower()) if match else None
    if match is None or name is None:
        examples = ", ".join(devices)
        hint = nearest(match[2], devices) if match else ""
        raise SpecError(f"on is {text!r}; it must be one of {examples}, or a number of them such as 8xH100{hint}")
    count = int(match[1]) if match[1] else 1
    if name == CPU and not match[1]:
        count = processors
    return Hardware(count, devices[name])
