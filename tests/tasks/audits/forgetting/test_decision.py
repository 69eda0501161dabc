from tasks.audits.forgetting.decision import Decision, decided, right


def test_the_interval_decides() -> None:
    assert Decision("forgotten") == decided(1.0, 0.91, 1.1, 0.2, margin=0.1)
    assert Decision("not forgotten") == decided(0.5, 0.3, 0.89, 0.2, margin=0.1)
    assert Decision("undecided", "the interval includes 0.9") == decided(1.0, 0.9, 1.1, 0.2, margin=0.1)
    assert Decision("undecided", "the interval includes 0.8") == decided(0.7, 0.6, 0.8, 0.2, margin=0.2)


def test_nothing_is_decided_where_nothing_can_be_and_the_reason_is_told() -> None:
    assert "no calibration model" in str(decided(None, None, None, 0.2, 0.1).reason)
    assert "too few models" in str(decided(0.5, None, None, 0.2, 0.1).reason)
    assert "no power" in str(decided(0.1, 0.05, 0.2, -0.01, 0.1).reason)
    assert "no power" in str(decided(0.1, 0.05, 0.2, 0.0, 0.1).reason)


def test_a_known_training_says_whether_the_answer_is_right() -> None:
    assert "right" == right("forgotten", remembers=False) == right("not forgotten", remembers=True)
    assert "wrong" == right("forgotten", remembers=True) == right("not forgotten", remembers=False)
    assert "undecided" == right("undecided", remembers=True)
    assert right("forgotten", remembers=None) is None
