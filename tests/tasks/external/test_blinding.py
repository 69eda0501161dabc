"""Pictures whose order says nothing: every one is there, a tenth twice, and the secret alone says where."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tasks.external.blinding import blind_images, check_secret, derive_secret_seed, different


def test_every_image_is_there_and_a_tenth_of_them_twice() -> None:
    handed = blind_images(["a"], 200, seed=3)
    times = Counter(handed.order.tolist())
    assert (list(range(200)), 20) == (sorted(times), sum(count == 2 for count in times.values()))
    assert 200 == len(set(handed.ids))
    assert {image for image, count in times.items() if count == 2} == set(handed.repeats)
    for image, again in handed.repeats.items():
        places = [int(name.split("/")[1].removesuffix(".png")) for name in (handed.ids[image], again)]
        assert [image, image] == handed.order[places].tolist()


def test_the_order_is_the_seeds_and_the_name_that_of_what_there_is() -> None:
    first, again = blind_images(["a"], 50, seed=3), blind_images(["a"], 50, seed=3)
    assert (first.name, first.order.tolist()) == (again.name, again.order.tolist())
    assert first.order.tolist() != blind_images(["a"], 50, seed=4).order.tolist()
    assert first.name != blind_images(["b"], 50, seed=3).name


def test_an_order_says_nothing_about_what_an_image_is() -> None:
    """The first place of image 0 is spread evenly over thirds of the folder: chi-squared with 2 degrees of freedom."""
    places = np.array(
        [blind_images(["a"], 30, seed).ids[0].split("/")[1].removesuffix(".png") for seed in range(600)], int
    )
    counts = np.bincount(np.minimum(places // 11, 2), minlength=3)
    # Of two places the first counts, so that it is a little earlier in the tenth that is there twice.
    assert abs(counts / 600 - 1 / 3).max() < 0.07


def test_with_a_secret_the_seed_does_not_say_the_order() -> None:
    assert (
        derive_secret_seed(1, "order", "")
        != derive_secret_seed(1, "order", "0" * 16)
        != derive_secret_seed(1, "order", "1" * 16)
    )
    with pytest.raises(ValueError, match="secret has 3 characters; it must have at least 16, which nobody can guess"):
        check_secret("abc")


def test_answers_differ_beyond_the_last_place_and_beyond_what_devices_differ_in() -> None:
    p, q = np.array([0.5, 0.5, 0.5]), np.array([0.5001, 0.51, 0.6])
    one, other = (p, np.log(p / (1 - p))), (q, np.log(q / (1 - q)))
    assert [False, True, True] == different(one, other, 0.0).tolist()
    assert [False, False, True] == different(one, other, 0.01).tolist()
