"""The facts, options and pages that benchmarks and studies share."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from measurement.machine import machine_facts
from tasks.numerics.matmul import products


def here(data: str, place: torch.device) -> dict[str, str]:
    """What a reader must know to compare."""
    return machine_facts() | {
        "device": gpu(place) if place.type == "cuda" else "CPU",
        "products": products(place, torch.float32).name,
        "data": data,
    }


def gpu(place: torch.device) -> str:
    """The GPU's name, memory and CUDA version."""
    properties = torch.cuda.get_device_properties(place)
    return f"{properties.name}, {properties.total_memory / 1e9:.0f} GB, CUDA {torch.version.cuda}"


def parser(description: str | None) -> argparse.ArgumentParser:
    """What the command lines of all benches share: tiny, out."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="few steps: whether it runs, not how fast")
    parser.add_argument("--out", type=Path, help="write the result here: JSON where it ends in .json, else Markdown")
    return parser


def publish_counts(title: str, setting: dict[str, str], table: str, out: Path | None) -> None:
    """Print a table of counts below what a reader must know, and write it where it was asked for."""
    facts = "\n".join(f"- {name}: {value}" for name, value in setting.items())
    text = f"# {title}\n\n{facts}\n\n{table}"
    print(text, end="")
    if out:
        out.write_text(text)
