"""Gradient boosting on a table of 569 tumours, where 30 labels are wrong. Which records does it memorise?

cd examples/training
engram run membership records=569 models=16 training.command='python gradient_boosting.py'
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier

from engram.training import TrainingJob

x, y = load_breast_cancer(return_X_y=True)
flipped = np.random.default_rng(0).permutation(len(y))[:30]
y[flipped] = 1 - y[flipped]

job = TrainingJob.from_environment(default_rows=len(y))  # alone, the script trains on all rows
model = HistGradientBoostingClassifier(max_iter=100, random_state=job.seed)
model.fit(x[job.rows], y[job.rows])
p = model.predict_proba(x)[np.arange(len(y)), y]
job.save_scores(-np.log(p[job.ask]))  # the loss of each record
