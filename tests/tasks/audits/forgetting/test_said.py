import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.forgetting.said import said
from tasks.audits.forgetting.trainings import Model
from tests.tasks.audits.forgetting.made_up import table

VALUES = np.array([0.1234567, 0.5, 1.0])


def test_models_are_found_in_any_order_and_in_tables_of_several() -> None:
    several = pa.concat_tables([table("query", None, 1, VALUES), table("query", None, 0, VALUES / 2)])
    found = said([table("target", 3, 0, VALUES), several])
    assert [Model("query", None, 0), Model("query", None, 1)] == found.named("query")
    assert [Model("target", 3, 0)] == found.named("target", 3)
    assert [] == found.named("target", 0) == found.named("calibration")
    assert (3, None) == (found.images, found.groups)
    assert (0, 0) == (said([]).images, len(said([]).models))


def test_all_are_compared_at_the_coarsest_resolution_among_them() -> None:
    found = said([table("query", None, 0, VALUES), table("target", 0, 0, VALUES, resolution=0.01)])
    (query,), none, (target,) = found.alike(found.named("query"), [], found.named("target", 0))
    assert [0.12, 0.5, 1.0] == query.tolist() == target.tolist()
    assert (0, 3) == none.shape


def test_nothing_is_finer_than_float32() -> None:
    found = said([table("query", None, 0, np.array([1 - 1e-12, 0.3]))])
    assert [[[1.0, float(np.float32(0.3))]]] == [part.tolist() for part in found.alike(found.named("query"))]


def test_groups_are_known_where_images_have_them() -> None:
    found = said([table("query", None, 0, VALUES, groups=np.array([4, 4, 7]))])
    assert found.groups is not None
    assert [4, 4, 7] == found.groups.tolist()


def test_models_of_other_images_or_twice_the_same_are_our_own_error() -> None:
    with pytest.raises(AssertionError, match="other images"):
        said([table("query", None, 0, VALUES), table("query", None, 1, VALUES[:2])])
    with pytest.raises(AssertionError, match="there twice"):
        said([table("query", None, 0, VALUES), table("query", None, 0, VALUES)])
