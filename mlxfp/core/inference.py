"""Schemas before data: what every stage gives, found once for a dataset.

Most stages compute their schema from the one before. A user's function without a declared schema is run on the first rows of its input;
always the same rows (epoch 0, before any shuffling), so the schema does not depend on chunking, epoch or cursor.
"""

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfp.core.chunks import RecordBatch, Schema, number_rows
from mlxfp.core.stepping import flush, push

if TYPE_CHECKING:
    from mlxfp.core.datasets import Dataset, Stage

SAMPLE_ROWS = 128  # rows that an undeclared schema is inferred from


@frozen
class Resolved:
    """The stages of a dataset with every schema declared, and the schemas: of the source, then after each stage."""

    stages: "tuple[Stage, ...]"
    schemas: tuple[Schema, ...]


def resolve(dataset: "Dataset[Any]") -> Resolved:
    """Find the schema after every part. Reads at most the first rows; raises `SchemaError` where a stage does not fit."""
    stages: list[Stage] = []
    schemas = [dataset.source.schema()]
    for stage in dataset.stages:
        try:
            declared = stage.infer(schemas[-1], lambda: head(dataset, stages))
            schemas.append(declared.schema(schemas[-1]))
        except Exception as error:
            if not schemas[-1].names:
                error.add_note("no columns come in: if no row reached a function before it, declare what that returns with schema=")
            error.add_note(f"while finding the schema after {stage!r}, stage {len(stages) + 1} of {dataset.source!r}")
            raise
        stages.append(declared)
    return Resolved(tuple(stages), tuple(schemas))


def head(dataset: "Dataset[Any]", stages: "list[Stage] | tuple[Stage, ...]") -> Iterator[RecordBatch]:
    """Yield the first chunks of epoch 0 as they come out of `stages`."""
    states = [stage.start(0) for stage in stages]
    yield from chain(push(stages, states, 0, _numbered(dataset.source.head())), flush(stages, states))


def _numbered(chunks: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    rows = 0
    for chunk in chunks:
        yield number_rows(chunk, 0, rows)
        rows += chunk.num_rows
