"""Facts, options and pages shared by benchmarks and studies."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from measurement.files import write_whole
from measurement.machine import machine_facts
from tasks.numerics.matmul import products


def measurement_facts(data: str, device: torch.device) -> dict[str, str]:
    """Return the facts that make results comparable: machine, versions, device, product library and data."""
    return machine_facts() | {
        "device": gpu(device) if device.type == "cuda" else "CPU",
        "products": products(device, torch.float32).name,
        "data": data,
    }


def gpu(device: torch.device) -> str:
    """Return the GPU's name, memory and CUDA version."""
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name}, {properties.total_memory / 1e9:.0f} GB, CUDA {torch.version.cuda}"


def make_parser(docstring: str | None, program: str | None = None) -> argparse.ArgumentParser:
    """Create a parser with the option `--tiny`. Its description is the first line of a module docstring."""
    description = (docstring or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--tiny", action="store_true", help="run small cases to test the code, not to measure")
    return parser


def publish_counts(title: str, setting: dict[str, str], table: str, out: Path | None) -> None:
    """Print a table of counts below the facts. If `out` is given, also write both to this file."""
    facts = "\n".join(f"- {name}: {value}" for name, value in setting.items())
    text = f"# {title}\n\n{facts}\n\n{table}"
    print(text, end="")
    if out:
        write_whole(text, out)
