"""What a pipeline is, without running it: its schema, its length, and an explanation to read."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import attrs

from mlxfp.core.chunks import Schema, columns_text
from mlxfp.core.errors import MlxfpError, without_generated_frames
from mlxfp.core.nodes import Pipeline, check_dataset, children, known_length, length_after
from mlxfp.core.planning import rewrites


def schema(dataset: Pipeline[Any]) -> Schema:
    """Return the Arrow schema of the rows that come out (after `collate`: of the groups that go into it).

    Reads at most the first rows: of files, to infer types, and through user functions without a declared schema.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> schema(from_examples([{"x": 1, "name": "a"}]))
    x: int64
    name: string
    """
    __tracebackhide__ = True
    check_dataset(dataset, schema)
    with without_generated_frames():
        found: Schema = dataset.resolved.schemas[-1]
    return found


def length(dataset: Pipeline[Any]) -> int | None:
    """Return how many items an iteration gives, or None where only reading the data would tell and where there is no end.

    Rows that `load` or `cache` keep are read for it.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.lengths.batching import batch
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> length(pipe(from_examples([{"x": i} for i in range(5)]), batch(2)))
    3
    """
    check_dataset(dataset, length)
    return length_after(dataset, dataset.hooks.exact_length(dataset.source)())


def explain(dataset: Pipeline[Any]) -> str:
    """Describe every part of a pipeline: what it is, what comes out of it, how many, and what it holds or costs.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.lengths.batching import batch
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> print(explain(pipe(from_examples([{"x": 1}]), batch(2))))
    from_examples(1 rows)
        examples: x int64; 1 of them; random access
    batch(size=2)
        groups: x int64; 1 of them
    """
    check_dataset(dataset, explain)
    lines = (line for indent, part, facts in part_facts(dataset) for line in (f"{indent}{part}", f"{indent}    {facts}"))
    return "\n".join([*lines, *_rewritten(dataset)])


def _rewritten(dataset: Pipeline[Any]) -> Iterator[str]:
    with suppress(MlxfpError, OSError):  # the lines about columns say what is wrong
        said = list(rewrites(dataset))
        yield from ["rewritten, with the same items and cursors:", *(f"    {line}" for line in said)] if said else []


def part_facts(dataset: Pipeline[Any], indent: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield every part of a pipeline: its indentation, what it is, and what is known of it without running it."""
    held = children(dataset.source)
    for child in held:
        yield from part_facts(child, indent + ("  | " if len(held) > 1 else ""))
    parts = (dataset.source, *dataset.stages)
    written: Any = dataset
    indexable = bool(held) and all(child.indexable for child in held)
    for count, part in enumerate(parts):
        so_far = attrs.evolve(written, stages=dataset.stages[:count])
        facts = [f"{so_far.level}: {_columns(so_far)}"]
        facts += [_length(so_far)]
        if so_far.level == "examples":
            facts += ["random access"] if so_far.indexable else ["no random access from here on"] if indexable else []
            indexable = so_far.indexable
        yield indent, repr(part), "; ".join([*facts, *part.notes()])


def _length(dataset: Pipeline[Any]) -> str:
    if dataset.endless:
        return "no end"
    try:
        items = known_length(dataset)
    except (MlxfpError, OSError):  # the line about columns says what is wrong
        return "length not known"
    return "length known only by reading" if items is None else f"{items:,} of them"


def _columns(dataset: Pipeline[Any]) -> str:
    try:
        return columns_text(schema(dataset))
    except (MlxfpError, OSError) as error:
        return f"schema not known ({error})"
