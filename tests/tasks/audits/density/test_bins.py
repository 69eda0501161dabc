import numpy as np
import pytest

from tasks.audits.density.bins import bin_of
from tasks.audits.density.measures.outliers import Outliers
from tasks.audits.density.measures.ratios import Ratios


def test_edges_are_whole_multiples_of_the_width_and_belong_to_the_bin_above() -> None:
    assert [-3, -2, -1, -1, 0, 0, 1] == bin_of([-20.5, -20, -10, -0.5, 0, 9.99, 10], 10).tolist()


def test_a_value_lies_between_the_edges_that_its_bin_is_said_to_have() -> None:
    values = np.arange(-3000, 3000) * 0.1
    for width in (0.1, 0.3, 0.7, 1 / 3):
        found = bin_of(values, width)
        assert ((found * width <= values) & (values < (found + 1) * width)).all()


def test_infinity_and_nothing_are_in_no_bin() -> None:
    found = bin_of([np.inf, -np.inf, np.nan], 2)
    assert not np.isfinite(found).any()


@pytest.mark.parametrize("width", [0, -1, np.inf, np.nan])
@pytest.mark.parametrize("config", [Outliers, Ratios])
def test_a_bin_has_a_width(width: float, config: type[Outliers | Ratios]) -> None:
    with pytest.raises(ValueError, match="it must be a finite number above 0"):
        config(width)
