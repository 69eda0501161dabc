"""ART: SHAPr, with the documented rule that any value above 0 should be considered a privacy leak."""

import torch
from art.estimators.classification import PyTorchClassifier
from art.metrics import SHAPr
from case import load_case


def judge(folder):
    images, labels, member, (target, *_) = load_case(folder)
    classifier = PyTorchClassifier(target, torch.nn.CrossEntropyLoss(), images.shape[1:], 10)
    inside = member[0]
    leaks = SHAPr(classifier, images[inside], labels[inside], images[~inside], labels[~inside])
    return {"largest": float(leaks.max()), "accuses": bool((leaks > 0).any())}
