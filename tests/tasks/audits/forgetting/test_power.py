from tasks.audits.forgetting.power import Detections, detections, smallest_detected
from tasks.statistics import proportion


def test_detections_are_the_models_found_not_to_have_forgotten() -> None:
    found = detections(["forgotten", "not forgotten", "undecided", "not forgotten"])
    assert Detections(models=4, detected=2) == found
    assert proportion(2, 4) == found.power


def test_the_smallest_share_is_the_one_from_which_on_all_are_found() -> None:
    no, yes, unknown = "forgotten", "not forgotten", "undecided"
    assert 0.1 == smallest_detected({1.0: yes, 0.0: no, 0.1: yes, 0.5: yes, 0.01: unknown})
    assert 0.5 == smallest_detected({0.1: yes, 0.2: no, 0.5: yes})
    assert smallest_detected({0.1: yes, 0.5: no}) is None
    assert 0.1 == smallest_detected({0.0: yes, 0.1: yes})  # a false alarm is no share
    assert smallest_detected({}) is None
