"""Schema inference and optimization of pipelines. The optimized pipeline yields the same items and cursors.

- **projection**: sources do not read unused columns. Other columns are dropped after the last stage that reads them.
- **predicate**: sources receive the conditions of `filter_by`, and can skip data that cannot match.
- **fusion**: neighbouring stages run as one step if possible, for example row-wise stages.
- **late gathering**: stages pass row indices. `batch` and `collate` then read the rows from a table in memory.

Workers can run two parts of the optimized pipeline: the stateless steps at the start, and the steps after `batch` at the end.

Most stages compute their schema from the input schema. A user function without a declared schema runs on the first input rows of epoch 0
before any shuffling. The inferred schema therefore does not depend on chunking, epoch or cursor.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial, reduce
from itertools import groupby, takewhile, tee
from typing import Any

import attrs
import pyarrow as pa
from attrs import define, frozen

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.chunks import HIDDEN, RecordBatch, Schema
from mlxfp.core.execution import execute, start
from mlxfp.core.nodes import Pipeline, children
from mlxfp.core.running.steps import ALL_STAGES, NO_HOOKS, Hooks, Plan, SourceCalls, Step, are_costly, blame
from mlxfp.core.sources import Source
from mlxfp.core.stages import LEVELS, Halves, Level, Projection, RowWise, Stage, Traits, starts_empty

SAMPLE_ROWS = 128  # number of sample rows for schema inference


@frozen
class Resolved:
    """Stages of a pipeline with known output schemas. `schemas` holds the schema of the source and the schema after each stage."""

    stages: tuple[Stage, ...]
    schemas: tuple[Schema, ...]


def resolve(dataset: Pipeline[Any]) -> Resolved:
    """Find the output schema of each stage, from the first rows if necessary. Raises `SchemaError` if a stage rejects its input."""
    __tracebackhide__ = True
    stages: list[Stage] = []
    schemas = [dataset.calls.schema()]
    sample = _Sample(dataset)
    for stage in dataset.stages:
        try:
            rows = partial(sample.after, stages, schemas)
            declared = dataset.hooks.infer(stage, len(stages))(schemas[-1], rows)
            schemas.append(declared.schema(schemas[-1]))
        except Exception as error:
            if not schemas[-1].names:
                error.add_note("the input has no columns: if an earlier function received no rows, declare its output with schema=")
            error.add_note(f"while inferring the schema after {stage!r}, stage {len(stages) + 1} of {dataset.source!r}")
            raise
        stages.append(declared)
    return Resolved(tuple(stages), tuple(schemas))


def head(dataset: Pipeline[Any]) -> Iterator[RecordBatch]:
    """Yield the first output chunks of epoch 0. Only the first rows of the source are read."""
    return _head(dataset, dataset.resolved, _Head(dataset.hooks))


def plan(dataset: Pipeline[Any], columns: Sequence[str] | None = None) -> Plan:
    """Return a plan that yields at least the columns in `columns` (None: all columns). Some hooks prevent optimizations."""
    __tracebackhide__ = True
    written, first = _steps_as_written(dataset, dataset.resolved), min(dataset.hooks.changes.as_written, len(dataset.stages))
    schemas = dataset.resolved.schemas[first:]
    steps, needed = _projected(written[first:], schemas, schemas[-1].names if columns is None else columns)
    source, messages, schema = dataset.source, list[str](), schemas[0]
    if not first:
        source, messages = _pushed_down(dataset, [name for name in schema.names if name in needed[0]] or schema.names[:1])
        schema = dataset.hooks.source(source).schema()
    steps = _joined(steps, dataset, schema, messages)
    steps = _merged(steps, needed, first, messages)
    if not first:
        steps = _narrowed(steps, needed, schema, messages)
    if dataset.hooks.changes.fuses:
        steps = _fused(steps, messages)
    if dataset.hooks == NO_HOOKS:
        source, steps = _late(source, steps, messages)
    out = schemas[-1] if columns is None else reduce(lambda before, step: step.stage.schema(before), steps, schema)
    whole = _planned(dataset, (*written[:first], *steps), dataset.resolved, dataset.level, as_written=first)
    return attrs.evolve(whole, source=source, schema=out, rewrites=tuple(messages))


def as_written(dataset: Pipeline[Any]) -> Plan:
    """Return a plan with one step for each stage and without optimizations. Optimized plans must give the same items."""
    __tracebackhide__ = True
    return _planned(dataset, _steps_as_written(dataset, dataset.resolved), dataset.resolved, dataset.level)


def rewrites(dataset: Pipeline[Any]) -> Iterator[str]:
    """Yield a line about each optimization of a pipeline and of the datasets that the pipeline reads."""
    for child in children(dataset.plan.source):
        yield from rewrites(child)
    yield from dataset.plan.rewrites


def _steps_as_written(dataset: Pipeline[Any], resolved: Resolved) -> tuple[Step, ...]:
    return tuple(
        Step(stage, index, index + 1, resolved.schemas[index + 1], repr(written))
        for index, (stage, written) in enumerate(zip(resolved.stages, dataset.stages, strict=False))
    )


def _planned(dataset: Pipeline[Any], steps: tuple[Step, ...], resolved: Resolved, level: Level, *, as_written: int = ALL_STAGES) -> Plan:
    """Return a plan with the given steps. If possible, workers run the first and the last steps. The reading thread runs the other steps.

    The first `as_written` stages are not optimized. A `collate` among the first `as_written` stages runs as one step.
    """
    source = dataset.source
    stateless = takewhile(lambda step: step.stage.emits is None and _keeps_nothing(step.stage), steps)
    first = 0 if source.traits.level == "batches" else sum(1 for _ in stateless)
    groups = _on_groups(steps[first:]) if level != "examples" else ()
    host, device = _host_and_device(groups, as_written)
    if len(groups) == len(steps) - first or not are_costly(host):
        groups = host = device = ()
    stages = steps[first : len(steps) - len(groups)]
    return Plan(source, steps[:first], stages, groups, host, device, resolved.stages, level, resolved.schemas[-1], repr(source))


def _keeps_nothing(stage: Stage) -> bool:
    return starts_empty(stage) and type(stage).finish is Stage.finish


def _on_groups(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps at the end that turn each group into exactly one item. Workers can run these steps."""
    last = steps[-1:] if steps and steps[-1].stage.emits == "batches" else ()
    if any(step.stage.traits.length(1) != 1 or not _keeps_nothing(step.stage) for step in last):
        return ()
    rest = steps[: len(steps) - len(last)]
    count = sum(1 for _ in takewhile(lambda step: isinstance(step.stage, RowWise), reversed(rest)))
    return (*rest[len(rest) - count :], *last)


def _host_and_device(groups: tuple[Step, ...], as_written: int) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return the steps for workers, and the steps for the thread that creates MLX arrays."""
    if not groups or groups[-1].stage.emits != "batches":
        return groups, ()
    collate = groups[-1]
    halves = _halves(collate) if collate.index >= as_written else None
    if halves is None:
        return groups[:-1], groups[-1:]
    part = partial(attrs.evolve, collate, stop=collate.index)
    return (*groups[:-1], *(part(stage=stage) for stage in halves.host)), (part(stage=halves.device),)


def _halves(step: Step) -> Halves | None:
    """Split a `collate` stage into a part for workers and a part for the device. Return None if the split would save too little time."""
    split = getattr(step.stage, "halves", None)
    halves: Halves | None = None if split is None else split(step.schema)
    return halves


@define
class _Sample:
    """Sample rows for schema inference. Each stage processes each sample row only once, because the output of the stages is stored."""

    dataset: Pipeline[Any]
    seen: Iterator[RecordBatch] | None = None  # stored output of the stages that have already run
    done: int = 0

    def after(self, stages: Sequence[Stage], schemas: Sequence[Schema]) -> Iterator[RecordBatch]:
        """Return the output of `stages` for the sample rows, as chunks. Stages of the previous call do not run again."""
        before = None
        if self.seen is not None:
            self.seen, before = tee(self.seen)
        so_far = Resolved(tuple(stages), tuple(schemas))
        self.seen, chunks = tee(_head(self.dataset, so_far, _Head(self.dataset.hooks, before), self.done))
        self.done = len(stages)
        return chunks


@frozen
class _Head(Hooks):
    """Hooks that limit a run to the first rows of a source. If `before` is given, the chunks in `before` replace the source rows."""

    before: Iterator[RecordBatch] | None = None

    def source(self, source: Source) -> SourceCalls:
        calls, before = super().source(source), self.before
        return attrs.evolve(calls, read=lambda epoch, position: ((chunk, None) for chunk in (calls.head() if before is None else before)))


def _head(dataset: Pipeline[Any], resolved: Resolved, hooks: _Head, first: int = 0) -> Iterator[RecordBatch]:
    """Run the stages from index `first` on, and yield the output chunks. `hooks` supplies the input chunks."""
    __tracebackhide__ = True
    # For groups, the run has the level "examples", because only a run at this level leaves out empty chunks.
    level = dataset.level if dataset.level == LEVELS[2] else LEVELS[0]
    plan = _planned(dataset, _steps_as_written(dataset, resolved)[first:], resolved, level)
    return (chunk for chunk, _ in execute(plan, start(0, None), hooks))


def _projected(steps: Sequence[Step], schemas: Sequence[Schema], final: Sequence[str]) -> tuple[list[Step], list[set[str]]]:
    """Find the columns needed before each step and after the last step. In steps that select columns, keep only the needed columns."""
    needed, out = [set(final)], list[Step]()
    for step, schema in zip(reversed(steps), reversed(schemas[:-1]), strict=True):
        traits = step.stage.traits
        projection, read = traits.projection and traits.projection(schema.names), traits.columns_read
        after: set[str] = set() if step.stage.emits == "batches" else needed[-1]  # batches have no columns
        if projection is not None:
            projection = tuple(pair for pair in projection if pair[0] in after)
            step = attrs.evolve(step, stage=Project(projection))  # noqa: PLW2901
            needed.append({old for _, old in projection})
        else:
            needed.append(set(schema.names) if read is None else after.union(read))
        out.append(step)
    return out[::-1], needed[::-1]


def _pushed_down(dataset: Pipeline[Any], columns: Sequence[str]) -> tuple[Source, list[str]]:
    """Let the source read only `columns` and skip filtered rows, if possible. Return the source, and lines for `explain`."""
    whole, names, conditions = dataset.source, dataset.resolved.schemas[0].names, _conditions(dataset.resolved)
    if not conditions and len(columns) == len(names):
        return whole, []
    restricted = whole.traits.restricted
    if restricted is None:
        return whole, []
    source: Source = restricted(columns, conditions)
    remaining, messages = dataset.hooks.source(source).schema().names, list[str]()
    # If the source has `keeps_rows`, the plan of the inner dataset already contains a message about the columns.
    if len(remaining) < len(names) and not whole.traits.keeps_rows:
        messages.append(f"{whole!r} reads {len(remaining)} of {len(names)} columns: {', '.join(map(repr, remaining))}")
    notes = source.traits.notes()
    known = whole.traits.notes() if notes else ()
    return source, messages + [f"{whole!r} {note}" for note in notes if note not in known]


def _conditions(resolved: Resolved) -> tuple[Condition, ...]:
    """Return the conditions of the filters at the start of the pipeline, with the column names of the source."""
    origins = {name: name for name in resolved.schemas[0].names}
    conditions: list[Condition] = []
    for stage, schema in zip(resolved.stages, resolved.schemas, strict=False):
        traits = stage.traits
        if traits.projection is not None:
            origins = {name: origins[old] for name, old in traits.projection(schema.names)}
        elif traits.predicates:
            conditions += [attrs.evolve(condition, column=origins[condition.column]) for condition in traits.predicates]
        else:
            break
    return tuple(conditions)


def _joined(steps: Sequence[Step], dataset: Pipeline[Any], schema: Schema, messages: list[str]) -> list[Step]:
    """Merge consecutive projections into one step. Drop projections without an effect."""
    out: list[Step] = []
    for projections, group in groupby(steps, lambda step: isinstance(step.stage, Project)):
        row = list(group)
        if projections:
            first = row[0]
            whole: Any = reduce(Project.then, (step.stage for step in row))  # type: ignore[arg-type]  # all are projections
            if whole.columns != tuple((name, name) for name in schema.names):
                written, before = dataset.resolved.stages[first.index], dataset.resolved.schemas[first.index].names
                unchanged = schema.names == before and written.traits.projection(before) == whole.columns
                out.append(_spanning(row, written if unchanged else whole))
            if len(row) > 1:
                messages.append(f"{_texts(row)} choose columns once")
        else:
            out += row
        schema = reduce(lambda before, step: step.stage.schema(before), row, schema)
    return out


def _merged(steps: Sequence[Step], needed: Sequence[Collection[str]], first: int, messages: list[str]) -> list[Step]:
    """Combine neighbouring stages with `Traits.fuse`, except a `collate` that workers run in part.

    `needed[i]` contains the columns that the stage `first + i` or a later stage needs.
    """
    out: list[Step] = []
    for step in steps:
        fuse = step.stage.traits.fuse
        fused = None if not out or fuse is None or _halves(step) is not None else fuse(out[-1].stage, needed[step.stop - first])
        if fused is None:
            out.append(step)
        else:
            out[-1] = _spanning([out[-1], step], fused)
            messages.append(f"{out[-1].text} run as one")
    return out


def _narrowed(steps: Sequence[Step], needed: Sequence[Collection[str]], schema: Schema, messages: list[str]) -> list[Step]:
    """Add steps that drop unused columns: before each stage that is not row-wise, and after the last stage."""
    out: list[Step] = []
    for step in (*steps, None):
        last = out[-1] if out else None
        used = needed[-1] if step is None else needed[step.index]
        names = [name for name in schema.names if name in used] or schema.names[:1]
        if last is not None and len(names) < len(schema) and (step is None or not isinstance(step.stage, RowWise)):
            kept = Project(tuple((name, name) for name in names))
            messages.append(f"{last.text} leaves out {len(schema) - len(names)} columns that nothing reads after it")
            schema = kept.schema(schema)
            out.append(Step(kept, last.index, last.index, schema, ""))
        if step is not None:
            narrowed = any(not earlier.text for earlier in out)
            # Selecting a dropped column would fail, so the stage selects only the remaining columns.
            choose = step.stage.traits.projection if narrowed else None
            out.append(step if choose is None else attrs.evolve(step, stage=Project(choose(schema.names))))
            schema = out[-1].stage.schema(schema)
    return out


def _fused(steps: Sequence[Step], messages: list[str]) -> list[Step]:
    """Fuse consecutive row-wise stages into one step."""
    out: list[Step] = []
    for row_wise, group in groupby(steps, lambda step: isinstance(step.stage, RowWise) and type(step.stage).step is RowWise.step):
        row = list(group)
        if row_wise and len(row) > 1:
            out.append(_spanning(row, Fused(tuple(step.stage for step in row), tuple(step.text for step in row))))
            messages += [f"{_texts(row)} run as one"] if sum(bool(step.text) for step in row) > 1 else []
        else:
            out += row
    return out


def _late(source: Source, steps: list[Step], messages: list[str]) -> tuple[Source, list[Step]]:
    """If the first step is `collate` and the source has a table in memory, read each batch directly from the table."""
    gathering = getattr(steps[0].stage, "gathering", None) if steps else None  # only the stage `collate` has this attribute
    table = None if gathering is None else source.traits.in_table()
    stage = None if table is None or table.source is None or gathering is None else gathering(table.holder, source.schema())
    if table is None or stage is None:
        return source, steps
    messages.append(f"{steps[0].text} gather the rows of {table.holder!r}, a batch at a time")
    return table.source, [attrs.evolve(steps[0], stage=stage), *steps[1:]]


def _spanning(row: Sequence[Step], stage: Any) -> Step:
    return Step(stage, row[0].index, max(step.stop for step in row), row[-1].schema, _texts(row))


def _texts(row: Sequence[Step]) -> str:
    return ", ".join(step.text for step in row if step.text)


@frozen(repr=False)
class Project(RowWise):
    """Row-wise stage that selects, reorders and renames columns. The planner creates this stage."""

    columns: Projection

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, projection=lambda names: self.columns)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Return the selected columns and the hidden columns `__row__` and `__key__`."""
        hidden = [name for name in chunk.schema.names if name in HIDDEN]
        chosen = chunk.select([*(old for _, old in self.columns), *hidden])
        keeps_names = all(name == old for name, old in self.columns)
        return chosen if keeps_names else chosen.rename_columns([*(name for name, _ in self.columns), *hidden])

    def schema(self, schema: Schema) -> Schema:
        return pa.schema([schema.field(old).with_name(name) for name, old in self.columns])

    def then(self, after: "Project") -> "Project":
        """Return one column selection that replaces this selection followed by the selection `after`."""
        origins = dict(self.columns)
        return Project(tuple((name, origins[old]) for name, old in after.columns))


@frozen(repr=False)
class Fused(RowWise):
    """Row-wise stage that runs several row-wise stages. The planner creates this stage."""

    stages: tuple[Any, ...]  # row-wise stages, in order
    texts: tuple[str, ...]  # text of each stage

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        for stage, text in zip(self.stages, self.texts, strict=True):
            try:
                chunk = stage.apply(chunk)
            except Exception as error:
                blame(error, text)
                raise
        return chunk

    def schema(self, schema: Schema) -> Schema:
        return reduce(lambda before, stage: stage.schema(before), self.stages, schema)
