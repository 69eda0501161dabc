"""Single models as functions of a named set of images, whether a model is asked here or its owner's table is read."""

from __future__ import annotations

from tasks.audits.unique_feature.blinded_pictures import picture_ids
from tasks.audits.unique_feature.evaluation import Predictor, network_predictor
from tasks.audits.unique_feature.single_models import SingleModelConfig
from tasks.job import Inputs


def predictor(config: SingleModelConfig, inputs: Inputs) -> Predictor:
    """The model as a function of a named set of images."""
    if config.outputs is not None:
        return outputs_predictor(config)
    if config.model is not None:
        return file_predictor(config)
    return network_predictor(inputs[0])


def file_predictor(config: SingleModelConfig) -> Predictor:
    from tasks.external.loading import load_model

    assert config.model is not None
    model = load_model(config.model, config.shape, config.interface, config.classes)
    return lambda _, images: model.answers(images).log_p


def outputs_predictor(config: SingleModelConfig) -> Predictor:
    from tasks.external.outputs import read_outputs

    assert config.outputs is not None
    outputs = read_outputs(config.outputs, config.columns, config.interface.gives)
    where = picture_ids(config)
    return lambda name, images: outputs.select(where[name][: len(images)]).log_p
