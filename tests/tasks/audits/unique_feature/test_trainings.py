from dataclasses import replace

import pyarrow as pa
import pytest

from tasks.audits.unique_feature.pairs.canary_selection import RankedImage
from tasks.audits.unique_feature.trainings import TwinTraining, train_twin, trainings, twin_training
from tasks.audits.unique_feature.trainings import train_many_twins as train_many
from tasks.audits.unique_feature.trainings import twin_link as link
from tasks.contract.job import marks
from tasks.datasets.dataset import Dataset
from tasks.training.chains import chain
from tasks.training.classifier import Burnt, NearestImages, Training, train
from tests.support.settings import with_settings
from tests.tasks.audits.unique_feature import made_up
from tests.tasks.audits.unique_feature.made_up import configure, letter_model

CLEAN = replace(made_up.TRAINING, epochs=5, patience=1)


def model_kept_at(epoch: int) -> pa.Table:
    """The model of a canary that has the lowest validation loss at this epoch."""
    row = letter_model(1.0).to_pylist()[0] | {"best_epoch": epoch, "epochs": epoch + 1}
    return pa.Table.from_pylist([row], letter_model(1.0).schema)


def training_of(epochs: int, training: Training = CLEAN) -> pa.Table:
    """The training without patience, after `epochs` epochs."""
    return train(replace(training, epochs=epochs, patience=0), ())


@pytest.mark.parametrize("epoch", [1, 4])
def test_twin_stops_at_the_canary_models_epoch(epoch: int) -> None:
    assert training_of(epoch) == train_twin(twin_training(CLEAN), [model_kept_at(epoch)])


def test_twin_continues_past_its_own_stopping_point() -> None:
    stopping_training = replace(CLEAN, learning_rate=0.03, epochs=12)
    stopping_epoch = train(stopping_training, ())["epochs"][0].as_py()
    assert stopping_epoch < stopping_training.epochs
    assert training_of(stopping_training.epochs, stopping_training) == train_twin(
        twin_training(stopping_training), [model_kept_at(stopping_training.epochs)]
    )


def test_twins_of_one_seed_share_a_training() -> None:
    first, second = twin_training(CLEAN), twin_training(replace(CLEAN, seed=6))
    configs = [first, second, first, first]
    models = [model_kept_at(4), model_kept_at(2), model_kept_at(1), model_kept_at(4)]
    models_by_index = dict(train_many(configs, [[model] for model in models]))
    assert [training_of(4), training_of(2, second.training), training_of(1), training_of(4)] == [
        models_by_index[index] for index in range(4)
    ]


def test_twins_with_other_neighbours_left_out_are_separate() -> None:
    clean_trainings = []
    for row in (3, 7):
        clean_trainings.append(replace(CLEAN, left_out=NearestImages(row, 8)))
    configs = []
    for clean in (*clean_trainings, clean_trainings[0]):
        configs.append(twin_training(clean))
    models_by_index = dict(train_many(configs, [[model_kept_at(epoch)] for epoch in (4, 2, 3)]))
    assert [
        training_of(4, clean_trainings[0]),
        training_of(2, clean_trainings[1]),
        training_of(3, clean_trainings[0]),
    ] == [models_by_index[index] for index in range(3)]


def test_linked_twin_ends_like_the_unbroken_training() -> None:
    links = []
    for job in chain(train_twin, twin_training(CLEAN), 2, part=link):
        links.append(job.config)
    assert [part.epochs for part in links] == [2, 4, 5]
    assert [training_of(2), training_of(3), training_of(3)] == [train_twin(part, [model_kept_at(3)]) for part in links]


def test_twin_with_feature_or_patience_is_refused() -> None:
    with pytest.raises(ValueError, match="training burns a feature into row 3; a twin's must burn none"):
        TwinTraining(replace(made_up.TRAINING, burnt=(Burnt(3, made_up.LETTER),)))
    with pytest.raises(ValueError, match="patience is 1; it must be 0, since the canary's model says where a twin end"):
        TwinTraining(CLEAN)
    with pytest.raises(ValueError, match="twins that differ in more than seed and learning rate cannot share a call"):
        list(
            train_many(
                [twin_training(CLEAN), twin_training(replace(CLEAN, batch=8))], [[model_kept_at(1)], [model_kept_at(1)]]
            )
        )


def test_canaries_have_twins_that_wait_for_them() -> None:
    config = configure(data=Dataset("digits"), probe=Dataset("photos"), canaries=3, seeds=2, one_seed=True)
    for choice in ("random", "self-influence"):
        pairs = trainings(with_settings(config, choice=choice)).pairs
        assert len(pairs) == 6
        for pair in pairs:
            assert train_twin == pair.twin.function
            assert (pair.model,) == pair.twin.inputs
            assert replace(pair.clean, patience=0) == pair.twin.config.training
            assert (choice == "random") != isinstance(pair.canary.image, RankedImage)


def test_canaries_without_patience_share_a_twin() -> None:
    config = configure(data=Dataset("digits"), probe=Dataset("photos"), canaries=3, one_seed=True, patience=0)
    twins = set()
    for pair in trainings(config).pairs:
        twins.add((pair.twin.function, pair.twin.config, pair.twin.inputs))
    assert twins == {(train, trainings(config).pairs[0].clean, ())}


def test_twin_version_changes_with_the_training_version() -> None:
    assert marks(train_twin).version == 1
    assert marks(train).version == 3
