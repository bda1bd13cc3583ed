"""`explain_write`: which parts of a pipeline workers do, and which are done in order, before anything is written."""

from collections.abc import Iterator
from typing import Any

from mlxfp.core.checks import check_types
from mlxfp.core.datasets import Dataset
from mlxfp.core.nodes import check_dataset, children
from mlxfp.data.running.runners import RANKS, Runner
from mlxfp.data.running.writing import keeps_no_state

_WORKERS, _IN_ORDER = "workers", "in order"


def explain_write(dataset: Dataset[Any], *, on: Runner) -> str:
    """Say which stages of a pipeline the workers of a runner do when `write` is called, and which are done in order. Nothing runs.

    >>> import mlxfp as fp
    >>> rows = fp.pipe(fp.from_examples([{"input_ids": [1, 2]}] * 9), fp.map(lambda row: row))
    >>> print(explain_write(fp.pipe(rows, fp.pack(6)), on=fp.runners.threads(2)))
    on the workers of runners.threads(2): map(function=<lambda>)
    in order, by the thread that calls: pack(length=6), the files
    >>> print(explain_write(rows, on=fp.runners.threads(2)))
    on the workers of runners.threads(2): map(function=<lambda>), the files

    See also: `explain`, for what comes out of each part.
    """
    check_dataset(dataset, explain_write)
    check_types(Runner, on=on)
    divided = keeps_no_state(dataset)
    found = [*_places(dataset), ("the files", _WORKERS if divided else _IN_ORDER)]
    if on.name == RANKS and not divided:
        return f"by rank 0 of {on!r}, while the others wait: {', '.join(text for text, _ in found)}"
    lines = {_WORKERS: f"on the workers of {on!r}", _IN_ORDER: "in order, by the thread that calls"}
    said = {place: ", ".join(text for text, where in found if where == place) for place in lines}
    return "\n".join(f"{line}: {said[place]}" for place, line in lines.items() if said[place])


def _places(dataset: Any) -> Iterator[tuple[str, str]]:
    """Yield each stage as it was written, and each source that holds datasets, with where it runs."""
    source, plan = dataset.source, dataset.plan
    held = children(source)
    for child in held:  # taken by number, rows go through the stages of what is held where they are taken
        yield from ((text, _WORKERS) for text, _ in _places(child)) if source.indexable else _places(child)
    if held:
        yield repr(source), _WORKERS if source.indexable else _IN_ORDER
    by_workers = {step.index for step in (*plan.segment, *plan.host)}
    for step in plan.steps:
        for stage in dataset.stages[step.index : step.stop]:
            yield repr(stage), _WORKERS if step.index in by_workers else _IN_ORDER
