"""Rewriting a pipeline into one that gives the same faster.

A rewritten pipeline has a stage in every place where the written one has one, with the same states, and a source with the same positions:
so a cursor means the same in both. Whatever else can be seen stays too: source rows, keys, and the errors that name them.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import reduce
from itertools import groupby, pairwise
from typing import Any

import attrs
import pyarrow as pa
from attrs import frozen

from mlxfp.core.chunks import HIDDEN, RecordBatch, Schema
from mlxfp.core.conditions import Condition
from mlxfp.core.datasets import Dataset, RowWise, Stage
from mlxfp.core.hints import Choice
from mlxfp.core.nodes import check_dataset, children
from mlxfp.core.rewriting import with_datasets
from mlxfp.core.stepping import blame


def optimize(dataset: Dataset[Any]) -> Dataset[Any]:
    """Rewrite a dataset into one that gives the same items and cursors with less work. Iterating does it by itself.

    Columns that no stage looks at and that do not come out are not read; the conditions of `filter_by` reach the reader, which passes over
    what cannot meet them; stages in a row that choose columns become one, and so do those that turn each row into one row; sentences that
    only `tokenize` looks at are not written; collators of tokens read the columns of many groups at once. What was rewritten is said by
    `explain`; the dataset prints as it was written. Reads at most the first rows, for schemas.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.rows.columns import select_columns
    >>> from mlxfp.data.sources.in_memory import from_table
    >>> rows = pipe(from_table({"x": [1, 2], "y": [3, 4]}), select_columns(["y"]))
    >>> optimize(rows), optimize(rows).source.schema().names
    (pipe(from_table(2 rows), select_columns(columns=('y',))), ['y'])

    See also: `explain`.
    """
    check_dataset(dataset, optimize)
    return dataset.optimized


def plain(dataset: Dataset[Any]) -> Dataset[Any]:
    """Return a dataset that runs as it is written, the datasets that its sources hold included: what a rewritten one is held to.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.rows.columns import select_columns
    >>> from mlxfp.data.sources.in_memory import from_table
    >>> rows = plain(pipe(from_table({"x": [1, 2], "y": [3, 4]}), select_columns(["y"])))
    >>> optimize(rows).source.schema().names
    ['x', 'y']
    """
    written = dataset.written or dataset
    return Dataset(with_datasets(written.source, plain), written.resolved.stages, written=written)


def narrow(dataset: Dataset[Any], wanted: Sequence[str]) -> Dataset[Any]:
    """Rewrite a dataset of whose columns only some are wanted; the others may come out too. The dataset itself where nothing changes."""
    if dataset.written is not None:
        return dataset
    chosen, columns, needed = _needed(dataset, wanted)
    source, conditions = dataset.source, _conditions(dataset)
    if conditions or len(columns) < len(dataset.resolved.schemas[0]):
        source = source.restricted(columns, conditions)
    stages = _fused(_merged(_joined(chosen, dataset, source.schema()), needed))
    if source is dataset.source and stages == dataset.resolved.stages:
        return dataset
    return Dataset(source, stages, written=dataset)


def rewrites(dataset: Dataset[Any]) -> Iterator[str]:
    """Say what is rewritten, a line each."""
    faster = dataset.optimized
    written = faster.written or faster
    for held in children(faster.source):
        yield from rewrites(held)
    before, after = written.resolved.schemas[0].names, faster.resolved.schemas[0].names
    if len(after) < len(before) and not getattr(written.source, "passes", False):
        yield f"{written.source!r} reads {len(after)} of {len(before)} columns: {', '.join(map(repr, after))}"
    yield from (f"{written.source!r} {note}" for note in faster.source.notes() if note not in written.source.notes())
    yield from _told(tuple(map(repr, written.stages)), faster.stages)


def _told(texts: Sequence[str], stages: Sequence[Stage]) -> Iterator[str]:
    for place, end in shared(stages):
        if isinstance(first := stages[place], Fused):
            yield from _told(texts[place:end], first.stages)
        if end - place > 1:
            yield f"{', '.join(texts[place:end])} {'choose columns once' if isinstance(first, Choose | Gone) else 'run as one'}"


def shared(stages: Sequence[Stage]) -> Iterator[tuple[int, int]]:
    """Yield where the stages begin and end, of which the first does the work of all."""
    firsts = [place for place, stage in enumerate(stages) if not place or not stage.idle]
    return pairwise([*firsts, len(stages)])


def apart(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return the stages with those that were fused each in its own place."""
    out: list[Stage] = []
    for place, end in shared(stages):
        first = stages[place]
        out += first.stages if isinstance(first, Fused) else stages[place:end]
    return tuple(out)


@frozen(repr=False)
class Choose(RowWise):
    """Columns of those that come in, in this order and with these names."""

    columns: Choice

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Choose the columns; the hidden ones stay."""
        hidden = [name for name in chunk.schema.names if name in HIDDEN]
        chosen = chunk.select([*(old for _, old in self.columns), *hidden])
        return chosen if self.keeps_names else chosen.rename_columns([*(name for name, _ in self.columns), *hidden])

    def schema(self, schema: Schema) -> Schema:
        """Return the fields of the columns."""
        return pa.schema([schema.field(old).with_name(name) for name, old in self.columns])

    @property
    def keeps_names(self) -> bool:
        """Whether no column has another name than before."""
        return all(name == old for name, old in self.columns)


@frozen(repr=False)
class Fused(RowWise):
    """Neighbouring stages that turn each row into one row, in one step."""

    stages: tuple[Any, ...]  # `RowWise` each

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Apply one after the other."""
        for stage in self.stages:
            try:
                chunk = stage.apply(chunk)
            except Exception as error:
                blame(error, stage)
                raise
        return chunk

    def schema(self, schema: Schema) -> Schema:
        """Return the schema after the last one."""
        return reduce(lambda before, stage: stage.schema(before), self.stages, schema)

    def runs(self) -> tuple[Stage, ...]:
        """Say that each is a stage of its own."""
        return self.stages


@frozen(repr=False)
class Gone(RowWise):
    """Keeps the place of a stage whose work another one does."""

    idle = True

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Return the chunk."""
        return chunk


def _needed(dataset: Dataset[Any], wanted: Sequence[str]) -> tuple[list[Stage], list[str], list[set[str]]]:
    """Return the stages, those that choose columns with no more than is needed, the columns needed of the source, and behind each stage."""
    stages, (*befores, _) = dataset.resolved.stages, dataset.resolved.schemas
    needed, out, behind = set(wanted), list[Stage](), list[set[str]]()
    for stage, before in zip(reversed(stages), reversed(befores), strict=True):
        behind.append(needed)
        choice = stage.choice(before.names)
        if stage.emits == "batches":  # no column comes out
            needed = set()
        if choice is None:
            looked_at = stage.looks_at()
            needed = {*before.names} if looked_at is None else {*needed, *looked_at}
        else:
            choice = tuple(pair for pair in choice if pair[0] in needed)
            needed = {old for _, old in choice}
        out.append(stage if choice is None else Choose(choice))
    names = dataset.resolved.schemas[0].names
    return out[::-1], [name for name in names if name in needed] or names[:1], behind[::-1]  # a chunk of no columns would have no rows


def _conditions(dataset: Dataset[Any]) -> tuple[Condition, ...]:
    """Return what all rows meet that come through the first stages, as conditions on columns of the source."""
    origins = {name: name for name in dataset.resolved.schemas[0].names}
    found: list[Condition] = []
    for stage, schema in zip(dataset.resolved.stages, dataset.resolved.schemas, strict=False):
        choice, conditions = stage.choice(schema.names), stage.requires()
        if choice is not None:
            origins = {name: origins[old] for name, old in choice}
        elif conditions:
            found += [attrs.evolve(each, column=origins[each.column]) for each in conditions]
        else:
            break
    return tuple(found)


def _joined(stages: list[Stage], dataset: Dataset[Any], schema: Schema) -> tuple[Stage, ...]:
    """Let the first of several stages in a row that choose columns do the work of all, and none where nothing is left to do."""
    out: list[Stage] = []
    for are_choices, some in groupby(stages, lambda stage: isinstance(stage, Choose)):
        row = list(some)
        if are_choices:
            whole: Any = reduce(_then, row)
            written, before = dataset.resolved.stages[len(out)], dataset.resolved.schemas[len(out)]
            unchanged = schema.names == before.names and written.choice(before.names) == whole.columns
            nothing_to_do = whole.columns == tuple((name, name) for name in schema.names)
            first = Gone() if nothing_to_do else written if unchanged else whole
            out += [first, *(Gone() for _ in row[1:])]
        else:
            out += row
        for stage in row:
            schema = stage.schema(schema)
    return tuple(out)


def _merged(stages: tuple[Stage, ...], needed: Sequence[Collection[str]]) -> tuple[Stage, ...]:
    """Let a stage do the work of the one behind it, too, where that one knows how."""
    out, first = list(stages), 0
    for place in range(1, len(stages)):
        if stages[place].idle:
            continue
        both = stages[place].behind(out[first], needed[place])
        if both is None:
            first = place
        else:
            out[first], out[place] = both, Gone()
    return tuple(out)


def _fused(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Let the first of several stages in a row that turn each row into one row do the work of all."""
    out: list[Stage] = []
    for alike, some in groupby(stages, lambda stage: isinstance(stage, RowWise) and type(stage).step is RowWise.step):
        row = list(some)
        several = alike and sum(not stage.idle for stage in row) > 1
        out += [Fused(tuple(row)), *(Gone() for _ in row[1:])] if several else row
    return tuple(out)


def _then(first: Any, second: Any) -> Choose:
    origins = dict(first.columns)
    return Choose(tuple((name, origins[old]) for name, old in second.columns))
