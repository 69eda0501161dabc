import numpy as np

from tasks.audits.forgetting.log_odds import log_odds


def test_log_odds_of_confidences() -> None:
    np.testing.assert_allclose(log_odds(np.array([0.5, 0.9, 0.1])), [0, np.log(9), -np.log(9)], atol=1e-12)


def test_what_is_printed_as_certain_lies_within_half_a_last_place() -> None:
    np.testing.assert_allclose(log_odds(np.array([0.0, 1.0]), 0.01), [-np.log(199), np.log(199)])
    assert np.isfinite(log_odds(np.array([0.0, 1.0]))).all()
