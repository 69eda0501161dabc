"""Wrappers of common trainers: callbacks that save and log a training, and training functions of estimators."""
