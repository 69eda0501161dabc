"""A scikit-learn estimator as a training function: which of 442 patients does a random forest memorise?

python examples/training/random_forest.py
"""

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

import engram
from engram.training import sklearn_training

x, y = load_diabetes(return_X_y=True)
train = sklearn_training(RandomForestRegressor(50), x, y)

if __name__ == "__main__":
    report = engram.membership(train, records=len(y), models=16)
    print(report.verdict.sentence)
