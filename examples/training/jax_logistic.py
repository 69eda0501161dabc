"""Logistic regression in JAX on 569 tumours, with more features than it needs.

cd examples/training
engram run membership records=569 models=16 training.command='python jax_logistic.py'
"""

import jax
import jax.numpy as jnp
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from engram.training import TrainingJob

STEPS = 500
x, y = load_breast_cancer(return_X_y=True)
x = jnp.array(PolynomialFeatures(2).fit_transform(StandardScaler().fit_transform(x)))
y = jnp.array(y)


def losses(weights, x, y):
    """Return the cross-entropy of each record."""
    return jax.nn.softplus(-(2 * y - 1) * (x @ weights))


job = TrainingJob.from_environment(default_rows=len(y))
rows = jnp.array(job.rows)
weights = 0.01 * jax.random.normal(jax.random.key(job.seed), (x.shape[1],))
gradient = jax.jit(jax.grad(lambda weights: losses(weights, x[rows], y[rows]).mean()))
for step in range(STEPS):
    weights = weights - 0.01 * gradient(weights)
    if step % 100 == 0:
        job.log(step=step, loss=float(losses(weights, x[rows], y[rows]).mean()))
job.save_scores(losses(weights, x, y)[job.ask])
