"""Compare the files of data sets with the digests that runs recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.inspection import status
from orchestrator.inspection.page_seal import pinned_items
from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.notes import data_notes, examine_images
from tasks.datasets.places import known_names


@dataclass(frozen=True)
class DataCheck:
    """The result for one data set: `agrees`, `changed` or `unchecked`, the reason in words, and notes on its images."""

    name: str
    state: str
    note: str
    notes: tuple[str, ...] = ()


def requested_data(store: Store, word: str | None) -> list[Dataset]:
    """Return a data set by name, those of a run, or those of all runs in the store.

    Raises SpecError if the word is neither a data set nor a run.
    """
    if word is not None and (":" in word or word.partition("#")[0].partition("@")[0] in known_names()):
        return [Dataset.parse(word)]
    journals = status.journals(store).values() if word is None else [status.find(store, word)]
    return list(dict.fromkeys(_datasets_of(journals)))


def _datasets_of(journals: Iterable[Journal]) -> Iterator[Dataset]:
    for journal in journals:
        for _, item in pinned_items(journal):
            if isinstance(item, Dataset):
                yield item


def check_data(store: Store, datasets: Iterable[Dataset], decode: bool = False) -> Iterator[DataCheck]:
    """Read all files of each data set and compare them with its recorded digest.

    What Engram knows about the files is renewed, so that the next run uses their present content. With `decode`, all
    images are decoded and examined as well.
    """
    digests = store.digests()
    for dataset in datasets:
        try:
            renewed = catalog.read_again(dataset, digests)
            notes: tuple[str, ...] = ()
            if decode:
                pinned = Dataset(dataset.name, renewed.digest)
                examine_images(pinned, digests)
                notes = data_notes(pinned, digests)
        except (DatasetError, OSError) as error:
            yield DataCheck(dataset.name, "unchecked", str(error))
            continue
        if renewed.changed:
            note = f"images that changed: {len(renewed.changed):,}, such as {renewed.changed[0]}"
        elif dataset.digest and renewed.digest != dataset.digest:
            note = "files were added, removed or changed"
        else:
            yield DataCheck(dataset.name, "agrees", f"digest {renewed.digest}", notes)
            continue
        yield DataCheck(dataset.name, "changed", f"{note}; its digest is now {renewed.digest}", notes)
