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
from tests.tasks.audits.unique_feature.made_up import configure, reads_the_letter

CLEAN = replace(made_up.TRAINING, epochs=5, patience=1)


def kept(epoch: int) -> pa.Table:
    """The model of a canary whose lowest validation loss came with this epoch."""
    row = reads_the_letter(1.0).to_pylist()[0] | {"best_epoch": epoch, "epochs": epoch + 1}
    return pa.Table.from_pylist([row], reads_the_letter(1.0).schema)


def after(epochs: int, training: Training = CLEAN) -> pa.Table:
    """The training without patience, at the end of so many epochs."""
    return train(replace(training, epochs=epochs, patience=0), ())


@pytest.mark.parametrize("epoch", [1, 4])
def test_a_twin_is_the_clean_training_at_the_epoch_that_its_canarys_model_kept(epoch: int) -> None:
    assert after(epoch) == train_twin(twin_training(CLEAN), [kept(epoch)])


def test_a_twin_goes_on_where_its_own_loss_would_have_stopped_it() -> None:
    stops = replace(CLEAN, learning_rate=0.03, epochs=12)
    stopped = train(stops, ())["epochs"][0].as_py()
    assert stopped < stops.epochs
    assert after(stops.epochs, stops) == train_twin(twin_training(stops), [kept(stops.epochs)])


def test_twins_of_one_seed_share_a_training_and_are_the_same_as_alone() -> None:
    one, other = twin_training(CLEAN), twin_training(replace(CLEAN, seed=6))
    configs, models = [one, other, one, one], [kept(4), kept(2), kept(1), kept(4)]
    found = dict(train_many(configs, [[model] for model in models]))
    assert [after(4), after(2, other.training), after(1), after(4)] == [found[index] for index in range(4)]


def test_twins_of_one_seed_and_other_neighbours_left_out_are_trainings_of_their_own() -> None:
    ones = [replace(CLEAN, left_out=NearestImages(row, 8)) for row in (3, 7)]
    configs = [twin_training(clean) for clean in (*ones, ones[0])]
    found = dict(train_many(configs, [[kept(epoch)] for epoch in (4, 2, 3)]))
    assert [after(4, ones[0]), after(2, ones[1]), after(3, ones[0])] == [found[index] for index in range(3)]


def test_a_twins_chain_ends_as_the_unbroken_training_does() -> None:
    links = [job.config for job in chain(train_twin, twin_training(CLEAN), 2, part=link)]
    assert [part.epochs for part in links] == [2, 4, 5]
    assert [after(2), after(3), after(3)] == [train_twin(part, [kept(3)]) for part in links]


def test_a_twin_that_carries_a_feature_or_has_patience_is_refused() -> None:
    with pytest.raises(ValueError, match="training burns a feature into row 3; a twin's must burn none"):
        TwinTraining(replace(made_up.TRAINING, burnt=(Burnt(3, made_up.LETTER),)))
    with pytest.raises(ValueError, match="patience is 1; it must be 0, since the canary's model says where a twin end"):
        TwinTraining(CLEAN)
    with pytest.raises(ValueError, match="twins that differ in more than seed and learning rate cannot share a call"):
        list(train_many([twin_training(CLEAN), twin_training(replace(CLEAN, batch=8))], [[kept(1)], [kept(1)]]))


def test_every_canary_has_a_twin_of_its_own_which_waits_for_its_model() -> None:
    config = configure(data=Dataset("digits"), probe=Dataset("photos"), canaries=3, seeds=2, one_seed=True)
    for choice in ("random", "self-influence"):
        pairs = trainings(with_settings(config, choice=choice)).pairs
        assert len(pairs) == 6
        for pair in pairs:
            assert (train_twin, (pair.model,)) == (pair.twin.function, pair.twin.inputs)
            assert replace(pair.clean, patience=0) == pair.twin.config.training
            assert (choice == "random") != isinstance(pair.canary.image, RankedImage)


def test_without_patience_all_keep_their_last_epoch_and_canaries_of_a_seed_share_a_twin() -> None:
    config = configure(data=Dataset("digits"), probe=Dataset("photos"), canaries=3, one_seed=True, patience=0)
    twins = {(pair.twin.function, pair.twin.config, pair.twin.inputs) for pair in trainings(config).pairs}
    assert {(train, trainings(config).pairs[0].clean, ())} == twins


def test_a_twin_changes_its_version_with_that_of_every_training() -> None:
    assert (marks(train_twin).version, marks(train).version) == (1, 3)
