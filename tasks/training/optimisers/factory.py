"""The optimiser that a recipe names."""

from __future__ import annotations

from functools import partial

from tasks.training.optimiser_config import LARS, SGD, Adafactor, AdamW
from tasks.training.optimisers.adafactor import AdafactorRule
from tasks.training.optimisers.adam import Adam
from tasks.training.optimisers.decoupled_decay import DecoupledDecay
from tasks.training.optimisers.lars import LARSRule
from tasks.training.optimisers.optimiser import Optimiser
from tasks.training.optimisers.rmsprop import RMSprop
from tasks.training.optimisers.rule_optimiser import RuleOptimiser
from tasks.training.optimisers.sgd import SGDRule
from tasks.training.parameter_buffer import ParameterBuffer
from tasks.training.recipe import Recipe


def optimiser_of(recipe: Recipe, weights: ParameterBuffer) -> Optimiser:
    """The optimiser of these weights; its learning rates start at 0."""
    match recipe.optimiser:
        case "adam":
            return Adam(weights, recipe.epsilon)
        case "rmsprop":
            return RMSprop(weights, recipe.epsilon)
        case SGD() as config:
            return RuleOptimiser(weights, partial(SGDRule, config))
        case LARS() as config:
            return RuleOptimiser(weights, partial(LARSRule, config))
        case Adafactor() as config:
            return RuleOptimiser(weights, partial(AdafactorRule, config))
        case AdamW() as config:
            adam = Adam(weights, config.epsilon, config.beta1, config.beta2)
            return DecoupledDecay(weights, adam, config.weight_decay)
