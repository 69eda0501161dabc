import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.forgetting.confidence_matrix import confidence_matrix
from tasks.audits.forgetting.trainings import ModelId
from tests.tasks.audits.forgetting.made_up import table

VALUES = np.array([0.1234567, 0.5, 1.0])


def test_models_are_found_in_any_table_order() -> None:
    several = pa.concat_tables([table("query", None, 1, VALUES), table("query", None, 0, VALUES / 2)])
    matrix = confidence_matrix([table("target", 3, 0, VALUES), several])
    assert [ModelId("query", None, 0), ModelId("query", None, 1)] == matrix.replicates("query")
    assert [ModelId("target", 3, 0)] == matrix.replicates("target", 3)
    assert [] == matrix.replicates("target", 0) == matrix.replicates("calibration")
    assert matrix.images == 3
    assert matrix.groups.tolist() == [0, 1, 2]
    assert confidence_matrix([]).images == 0
    assert len(confidence_matrix([]).models) == 0


def test_coarsest_resolution_applies_to_all_models() -> None:
    matrix = confidence_matrix([table("query", None, 0, VALUES), table("target", 0, 0, VALUES, resolution=0.01)])
    (query,), none, (target,) = matrix.rounded_confidences(
        matrix.replicates("query"), [], matrix.replicates("target", 0)
    )
    assert [0.12, 0.5, 1.0] == query.tolist() == target.tolist()
    assert none.shape == (0, 3)


def test_nothing_is_finer_than_float32() -> None:
    matrix = confidence_matrix([table("query", None, 0, np.array([1 - 1e-12, 0.3]))])
    assert [part.tolist() for part in matrix.rounded_confidences(matrix.replicates("query"))] == [
        [[1.0, float(np.float32(0.3))]]
    ]


def test_groups_of_images_are_read() -> None:
    matrix = confidence_matrix([table("query", None, 0, VALUES, groups=np.array([4, 4, 7]))])
    assert matrix.groups.tolist() == [4, 4, 7]


def test_control_set_is_separate_from_d_q() -> None:
    matrix = confidence_matrix([table("query", None, 0, VALUES, control=1)])
    assert matrix.is_control.tolist() == [False, False, True]
    assert matrix.images == 2
    query = matrix.replicates("query")
    assert [VALUES.tolist()] == matrix.confidences(query).tolist()
    assert [part.shape for part in matrix.rounded_confidences(query)] == [(1, 2)]


def test_other_images_and_duplicates_are_internal_errors() -> None:
    with pytest.raises(AssertionError, match="other images"):
        confidence_matrix([table("query", None, 0, VALUES), table("query", None, 1, VALUES[:2])])
    with pytest.raises(AssertionError, match="occurs twice"):
        confidence_matrix([table("query", None, 0, VALUES), table("query", None, 0, VALUES)])
