"""Words and symbols of a page are explained, those that it uses and no others."""

from __future__ import annotations

from dashboards.run import Run
from dashboards.symbols import explain_symbols
from tests.dashboards import pages


def test_symbols_that_the_page_uses_are_explained_before_them(smoke: Run) -> None:
    found = dict(explain_symbols(smoke))
    assert {"M_w", "twin", "canary", "null", "p", "nats"} <= set(found)
    assert not {"D_Q", "push", "KL"} & set(found)
    said = pages.words(pages.draw(smoke))
    assert said.index(found["M_w"]) < said.index("What it rests on")
