"""Reads a case, which every rival is given alike."""

import numpy as np
import torch


def load_case(folder):
    """Images (n, pixels), labels (n,), who was trained on which (models, n), and the models."""
    read = np.load(folder / "records.npz")
    paths = sorted(folder.glob("*.pt"))
    return read["images"], read["labels"], read["member"], [torch.load(path, weights_only=False) for path in paths]


def log_odds(model, images, labels):
    """log p of the label less log of all others' p, as the paper of LiRA has it."""
    with torch.no_grad():
        logits = model(torch.tensor(images)).double()
    own = torch.nn.functional.one_hot(torch.tensor(labels), logits.shape[1]).bool()
    return (logits[own] - logits.masked_fill(own, -torch.inf).logsumexp(1)).numpy()
