"""Evaluate the hospital's model on every image in the auditor's folder and write the outputs as a table.

python answer.py model.pt probes --out outputs.csv

The model never leaves the hospital. The script needs only the auditor's images and their list, images.csv.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

BATCH = 512


@torch.no_grad()
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="TorchScript file written by train_model.py")
    parser.add_argument("probes", type=Path, help="the auditor's folder")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)  # of torch, about TorchScript
    model = torch.jit.load(str(asked.model), map_location="cpu").eval()
    with (asked.probes / "images.csv").open(newline="") as file:
        names = [row["image"] for row in csv.DictReader(file)]
    with asked.out.open("w", newline="") as file:
        table = csv.writer(file)
        for start in range(0, len(names), BATCH):
            here = names[start : start + BATCH]
            grey = np.stack([np.asarray(Image.open(asked.probes / name).convert("L")) for name in here])
            # In double precision, so that a probability of nearly 1 does not round to 1.
            log_p = model(torch.tensor(grey)[:, None].float() / 255).double().log_softmax(dim=1).numpy()
            if not start:
                table.writerow(["image", *(f"logp{label}" for label in range(log_p.shape[1]))])
            table.writerows([name, *(f"{value:.9g}" for value in row)] for name, row in zip(here, log_p, strict=True))


if __name__ == "__main__":
    main()
