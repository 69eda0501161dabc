"""The scripts in `examples/hospital` as modules."""

from __future__ import annotations

from studies.example_scripts import load_script

make_xrays = load_script("hospital/make_xrays")
train_model = load_script("hospital/train_model")
