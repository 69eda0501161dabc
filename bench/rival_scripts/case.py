"""Read a case, the input shared by all rivals."""

import numpy as np
import torch


def load_case(folder):
    """Load images (n, pixels), labels (n,), membership (models, n), and the models."""
    arrays = np.load(folder / "records.npz")
    paths = sorted(folder.glob("*.pt"))
    return (
        arrays["images"],
        arrays["labels"],
        arrays["member"],
        [torch.load(path, weights_only=False) for path in paths],
    )


def log_odds(model, images, labels):
    """Return log p of the label minus the log of the sum of all other p, as in the LiRA paper."""
    with torch.no_grad():
        logits = model(torch.tensor(images)).double()
    is_own_label = torch.nn.functional.one_hot(torch.tensor(labels), logits.shape[1]).bool()
    return (logits[is_own_label] - logits.masked_fill(is_own_label, -torch.inf).logsumexp(1)).numpy()
