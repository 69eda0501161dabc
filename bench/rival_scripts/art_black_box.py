"""ART: its default black-box attack, a network that learns from half of the records who is a member."""

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
    inside, outside = np.flatnonzero(member[0]), np.flatnonzero(~member[0])
    learn = [rows[: len(rows) // 2] for rows in (inside, outside)]
    rest = np.concatenate([rows[len(rows) // 2 :] for rows in (inside, outside)])
    attack.fit(images[learn[0]], labels[learn[0]], images[learn[1]], labels[learn[1]])
    said = attack.infer(images[rest], labels[rest], probabilities=True)
    return {"auc": roc_auc_score(member[0][rest], np.ravel(said))}
