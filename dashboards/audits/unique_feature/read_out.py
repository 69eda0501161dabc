"""What can be read out of the models: the strongest pixels at a feature's place, beside the feature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing
from dashboards.gallery import Picture, encode_png
from tasks.audits.unique_feature.measures.exact_ranks import EXACT_RANKS
from tasks.audits.unique_feature.slopes import strongest_pixels

MOST = 6  # canaries
SCORE = "pair"
HEADING = "Read out of the models: the strongest pixels at the feature's place, white"


def read_out(table: pa.Table) -> Iterator[Picture]:
    """For each of the first canaries what its image carried, and the pixels of the largest slopes, as many."""
    if not table.schema.equals(EXACT_RANKS):
        return
    rows = [row for row in table.to_pylist() if row["score"] == SCORE and row["hits"] is not None]
    seen: dict[int, dict[str, Any]] = {}
    for row in rows:
        seen.setdefault(row["canary"], row)
    for row in list(seen.values())[:MOST]:
        shape = (row["height"], row["width"])
        found = strongest_pixels(np.array(row["slopes"]), row["inked"])
        hits = f"{row['hits']} of {row['inked']} hit, {drawing.format_number(row['hits_by_chance'])} by chance"
        for which, mask in (("what the models were asked about", row["ink"]), ("read out of the models", found)):
            image = (np.array(mask, bool).reshape(shape) * 255).astype(np.uint8)[..., None]
            title = f"canary {row['canary']}, {which}{f', {hits}' if mask is found else ''}"
            yield Picture(encode_png(image), title, f"The feature's place, {title}", HEADING)
