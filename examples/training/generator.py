"""Fit a Gaussian copula to some rows of a table, and write the same number of samples.

python generator.py --table tumours.csv --rows rows.npy --seed 1 --out results
"""

import argparse
import os
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats


def draw_samples(table: pd.DataFrame, count: int, seed: int) -> pd.DataFrame:
    """Draw rows whose columns have the values and the rank correlations of the table."""
    ranks = table.rank(method="average").to_numpy() / (len(table) + 1)
    correlation = np.corrcoef(stats.norm.ppf(ranks), rowvar=False)
    normal = np.random.default_rng(seed).multivariate_normal(np.zeros(table.shape[1]), correlation, count)
    samples = {}
    for (name, column), shares in zip(table.items(), stats.norm.cdf(normal).T, strict=True):
        if pd.api.types.is_numeric_dtype(column):
            samples[name] = np.quantile(column, shares)
        else:
            samples[name] = np.sort(column)[(shares * len(column)).astype(int)]
    return pd.DataFrame(samples)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", default="tumours.csv")
    parser.add_argument("--rows", default=os.environ.get("ENGRAM_ROWS"))
    parser.add_argument("--seed", type=int, default=os.environ.get("ENGRAM_SEED", 0))
    parser.add_argument("--out", type=Path, default=os.environ.get("ENGRAM_OUT"))
    options = parser.parse_args()
    rows = pd.read_csv(options.table).iloc[np.load(options.rows)]
    draw_samples(rows, len(rows), options.seed).to_csv(options.out / "samples.csv", index=False)
