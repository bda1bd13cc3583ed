"""Schema, length and description of a pipeline, without running the pipeline."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

import attrs

from mlxfp.core.chunks import Schema
from mlxfp.core.nodes import Pipeline, check_dataset, children, known_length, length_after
from mlxfp.core.notebooks.diagrams import PartFacts, diagram
from mlxfp.core.planning import rewrites
from mlxfp.support.checks import check_choice, check_types
from mlxfp.support.errors import MlxfpError, without_generated_frames
from mlxfp.support.html import clip, element, fragment

_ONE = {"examples": "example", "groups": "group", "batches": "batch"}
_PART, _LINE = 1000, 500  # maximum number of characters in the text of a stage or source, and in a line about an optimization


def schema(dataset: Pipeline[Any]) -> Schema:
    """Return the Arrow schema of the output rows.

    Batches have no Arrow schema: after `collate`, the result is the schema of the groups before `collate`. The function may read the first
    rows, to infer the column types of files and of user functions without a declared schema.

    >>> import mlxfp as fp
    >>> fp.schema(fp.from_examples([{"x": 1, "name": "a"}]))
    x: int64
    name: string
    """
    __tracebackhide__ = True
    check_dataset(dataset, schema)
    with without_generated_frames():
        result: Schema = dataset.resolved.schemas[-1]
    return result


def length(dataset: Pipeline[Any]) -> int | None:
    """Return the number of items in an epoch. Return None for endless data, or if counting would require reading data.

    Exception: data kept by `load` or `cache` are read for the count. `len(dataset)` raises an error instead of None.

    >>> import mlxfp as fp
    >>> fp.length(fp.pipe(fp.from_examples([{"x": i} for i in range(5)]), fp.batch(2)))
    3
    """
    check_dataset(dataset, length)
    return length_after(dataset, dataset.calls.exact_length())


def explain(dataset: Pipeline[Any], *, columns: bool = False, format: Literal["text", "html"] = "text") -> str:
    """Return a description of every part of a pipeline: number of items, changes of the columns, memory and cost.

    `columns=True` lists all columns after every part.

    `format="html"` returns HTML for web pages: the diagram from notebooks, without rows. The HTML has a bounded size, no scripts, and the
    colours of the surrounding page. Raises `UnknownNameError` for another format.

    >>> import mlxfp as fp
    >>> print(fp.explain(fp.pipe(fp.from_examples([{"x": 1}]), fp.batch(2))))
    from_examples(1 rows)
        1 example: x int64; random access
    batch(size=2)
        1 group: same columns
    """
    check_dataset(dataset, explain)
    check_choice(("text", "html"), format=format)
    if format == "html":
        return fragment(diagram(part_facts(dataset)), *(element("p", clip(line, _LINE), class_="muted") for line in _rewritten(dataset)))
    check_types(bool, columns=columns)
    above: PartFacts | None = None
    lines: list[str] = []
    for facts in part_facts(dataset):
        indent = "  | " * facts.depth
        shown = facts.about(None if columns or facts.begins else above)
        lines += [f"{indent}{clip(facts.part, _PART)}", *(f"{indent}    {line}" for line in shown)]
        above = facts
    return "\n".join([*lines, *(clip(line, _LINE) for line in _rewritten(dataset))])


def _rewritten(dataset: Pipeline[Any]) -> Iterator[str]:
    with suppress(MlxfpError, OSError):  # The error is ignored here, because `_schema` shows the error text.
        lines = list(rewrites(dataset))
        yield from ["rewritten, with the same items and cursors:", *(f"    {line}" for line in lines)] if lines else []


def part_facts(dataset: Pipeline[Any], depth: int = 0, runs_in: tuple[str, str] = ("", "")) -> Iterator[PartFacts]:
    """Yield a description of every part of a pipeline. The two texts in `runs_in` name the thread and the workers that run the parts."""
    inner = children(dataset.source)
    for child in inner:
        yield from part_facts(child, depth + (len(inner) > 1), getattr(dataset.source, "runs_in", runs_in))
    parts = (dataset.source, *dataset.stages)
    written: Any = dataset
    thread, workers = runs_in
    shared = _shared(dataset) if workers else frozenset()
    indexable = bool(inner) and all(child.indexable for child in inner)
    schemas = _schemas(dataset)
    for count, part in enumerate(parts):
        so_far = attrs.evolve(written, stages=dataset.stages[:count])
        access = ""
        if so_far.level == "examples":
            access = "random access" if so_far.indexable else "no random access from here on" if indexable else ""
            indexable = so_far.indexable
        yield PartFacts(
            depth=depth,
            begins=not count and not inner,
            part=repr(part),
            level=so_far.level,
            schema=schemas[count] if schemas else _schema(so_far),
            count=_count(so_far),
            access=access,
            notes=part.traits.notes(),
            thread=thread,
            workers=workers if count - 1 in shared else "",
        )


def _shared(dataset: Pipeline[Any]) -> frozenset[int]:
    """Return the indices of the stages that run in workers. The index -1 stands for the source."""
    with suppress(MlxfpError, OSError):  # The error is ignored here, because `_schema` shows the error text.
        plan = dataset.plan
        indices = {index for step in (*plan.segment, *plan.host) for index in range(step.index, max(step.stop, step.index + 1))}
        return frozenset(indices | ({-1} if plan.source.traits.costly() and not children(plan.source) else set()))
    return frozenset()


def _count(dataset: Pipeline[Any]) -> str:
    """Return the number of items as text, such as "5 examples"."""
    if dataset.endless:
        return f"endless {dataset.level}"
    try:
        items = known_length(dataset)
    except (MlxfpError, OSError):  # The error is ignored here, because `_schema` shows the error text.
        return f"{dataset.level} (number not known)"
    if items is None:
        return f"{dataset.level} (number known after reading)"
    return f"{items:,} {_ONE[dataset.level] if items == 1 else dataset.level}"


def _schemas(dataset: Pipeline[Any]) -> tuple[Schema, ...]:
    """Return the output schemas of the source and of each stage. Return an empty tuple if a schema cannot be inferred."""
    with suppress(MlxfpError, OSError):
        schemas: tuple[Schema, ...] = dataset.resolved.schemas
        return schemas
    return ()


def _schema(dataset: Pipeline[Any]) -> Schema | str:
    try:
        return schema(dataset)
    except (MlxfpError, OSError) as error:
        return f"schema not known ({error})"
