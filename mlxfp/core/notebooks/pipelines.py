"""Notebook display of a dataset: a diagram of the sources and stages, and the first rows."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import attrs

from mlxfp.core.chunks import to_rows
from mlxfp.core.describing import part_facts
from mlxfp.core.execution import run, start
from mlxfp.core.nodes import Pipeline, children, decoders
from mlxfp.core.notebooks.batches import batch_html
from mlxfp.core.notebooks.diagrams import diagram
from mlxfp.core.notebooks.rows import ROWS, rows_html
from mlxfp.support.html import Html, clip, element, fragment

_ERROR = 300  # maximum number of characters of an error message
_FEW = 50_000  # A shuffled source with at most this number of rows is read for the display, in less than a second.


def dataset_html(dataset: Pipeline[Any]) -> str:
    """Return HTML with a diagram of the sources and stages of a pipeline, and with the first rows."""
    return fragment(diagram(part_facts(dataset)), *_first(dataset))


def _gathers(dataset: Pipeline[Any]) -> bool:
    """Return True if the first item needs a whole epoch of a source. Return False for a `shuffle` of few rows with random access."""
    source = dataset.source
    few = _permutes(dataset) and source.indexable and (source.length() or _FEW + 1) <= _FEW
    return (source.traits.gathers and not few) or any(map(_gathers, children(source)))


def _permutes(dataset: Pipeline[Any]) -> bool:
    return getattr(dataset.source, "permutes", False)


def _direct(dataset: Any) -> Any:
    """Remove `load`, `cache` and `prefetch` where possible, because the display needs few rows. The items of epoch 0 stay the same."""
    while dataset.source.traits.same_items:
        inner = dataset.source.dataset
        dataset = attrs.evolve(inner, stages=(*inner.stages, *dataset.stages))
    if _permutes(dataset):
        dataset = attrs.evolve(dataset, source=attrs.evolve(dataset.source, dataset=_direct(dataset.source.dataset)))
    return dataset


def _first(written: Pipeline[Any]) -> Iterator[Html]:
    dataset = _direct(written)
    if _gathers(dataset):
        yield element("p", "The first rows are not shown: a whole epoch would be read for them.", class_="muted")
        return
    try:
        with closing(run(dataset, start(0, None))) as items:
            first: Any = next(items, (None, None))[0]
        if first is None:
            yield element("p", "No items.", class_="muted")
        elif dataset.level == "batches":
            yield element("p", "The first batch:", class_="muted")
            yield batch_html(first, decoders(dataset).get("input_ids"))
        else:
            yield element("p", f"The first {'rows' if dataset.level == 'examples' else 'group'}:", class_="muted")
            yield rows_html(to_rows(first.slice(0, ROWS)), decoders(dataset))
    except Exception as error:  # noqa: BLE001  # an error of a user function must not hide the diagram
        yield element("p", f"The first rows cannot be shown: {clip(error, _ERROR)}", class_="muted")
