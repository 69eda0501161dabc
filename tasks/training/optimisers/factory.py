"""The optimiser that a recipe names."""

from __future__ import annotations

from tasks.training.optimisers.adam import Adam
from tasks.training.optimisers.optimiser import Optimiser
from tasks.training.optimisers.rmsprop import RMSprop
from tasks.training.parameter_buffer import ParameterBuffer
from tasks.training.recipe import Recipe


def optimiser_of(recipe: Recipe, weights: ParameterBuffer) -> Optimiser:
    """The optimiser of these weights; its learning rates start at 0."""
    match recipe.optimiser:
        case "adam":
            return Adam(weights, recipe.epsilon)
        case "rmsprop":
            return RMSprop(weights, recipe.epsilon)
