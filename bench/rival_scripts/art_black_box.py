"""ART: its default black-box attack, a network trained to recognise members on half of the records."""

import numpy as np
import torch
from art.attacks.inference.membership_inference import MembershipInferenceBlackBox
from art.estimators.classification import PyTorchClassifier
from case import load_case
from sklearn.metrics import roc_auc_score


def judge(folder):
    images, labels, member, (target, *_) = load_case(folder)
    classifier = PyTorchClassifier(target, torch.nn.CrossEntropyLoss(), images.shape[1:], 10)
    attack = MembershipInferenceBlackBox(classifier)
    inside = np.flatnonzero(member[0])
    outside = np.flatnonzero(~member[0])
    learning_rows = [rows[: len(rows) // 2] for rows in (inside, outside)]
    remaining_rows = np.concatenate([rows[len(rows) // 2 :] for rows in (inside, outside)])
    attack.fit(images[learning_rows[0]], labels[learning_rows[0]], images[learning_rows[1]], labels[learning_rows[1]])
    probabilities = attack.infer(images[remaining_rows], labels[remaining_rows], probabilities=True)
    return {"auc": roc_auc_score(member[0][remaining_rows], np.ravel(probabilities))}
