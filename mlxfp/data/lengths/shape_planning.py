"""Planning of batch shapes: few different shapes and little padding. MLX compiles a separate program for each shape.

Stages and collators declare possible shapes before data is read: stages by `Traits.longest_row` and `Traits.groups`, collators by the
methods of `Padding`. If a stage or collator declares no shapes, an epoch is run, and its rows, groups or batches are measured.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from attrs import evolve, frozen

from mlxfp.core.arrow.ragged import ends_of, read_lists
from mlxfp.core.chunks import Indices
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import schema
from mlxfp.core.execution import read_all
from mlxfp.core.nodes import brief, check_dataset, inner_parts, known_length
from mlxfp.core.stages import Groups, Stage
from mlxfp.support.checks import check_positive, check_types, explain_call
from mlxfp.support.errors import ArgumentError, PipelineError


@frozen
class ShapePlan:
    """Padded lengths in ascending order, and the share of padding among all tokens that results from these lengths.

    >>> shape_plan([3, 3, 4, 9, 10], shapes=2).lengths
    (4, 10)
    """

    lengths: tuple[int, ...]
    padding: float


@explain_call
def shape_plan(lengths: Iterable[int], *, shapes: int = 8, pad_multiple: int = 1) -> ShapePlan:
    """Return at most `shapes` padded lengths that give the least padding for rows of the given lengths.

    Dynamic programming over the distinct lengths finds the optimum. The lengths are first rounded up to multiples of `pad_multiple`. The
    time is quadratic in the number of distinct lengths: 0.2 seconds for 4,000. The lengths of a sample of the rows are enough, if the
    sample contains the longest row. If the result still has too much padding, use `pack`, which needs almost none.

    >>> shape_plan([3, 3, 4, 9, 10], shapes=2)
    ShapePlan(lengths=(4, 10), padding=0.09375)

    See also: `bucket_by_length(plan.lengths, ...)` and `lengths=` of the collators, which use the plan; `batch_shapes`.
    """
    check_positive(shapes=shapes, pad_multiple=pad_multiple)
    rows = np.array([*lengths])
    if rows.dtype.kind not in "iu" or rows.min() < 0:  # NumPy converts an empty list to floats, so an empty list raises this error.
        raise ArgumentError(f"shape_plan needs the lengths of at least one row, integers of at least 0, got {rows!r:.80}.")
    padded = np.maximum(1, -(-rows.astype(np.int64) // pad_multiple)) * pad_multiple
    distinct, counts = np.unique(padded, return_counts=True)
    chosen = _least_padded(distinct, ends_of(counts), shapes)
    total = int(chosen[np.searchsorted(chosen, padded)].sum())
    return ShapePlan(tuple(chosen.tolist()), (total - int(rows.sum())) / total)


@explain_call
def batch_shapes(dataset: Dataset[Any]) -> tuple[tuple[int, int], ...]:
    """Return the possible token shapes [B, L] of the batches of a pipeline.

    A batch has B rows of L tokens. The grouping stage determines B. If the number of rows is known, only the last batch can be smaller.
    The collator determines L. `tokenize(max_length=)`, `windows`, `pack`, `batch_by_tokens` and `bucket_by_length` limit L.

    No data is read if all stages and collators declare their sizes. Otherwise, for example with a `map` function, the pipeline runs for an
    epoch, and the result contains the shapes of this epoch. A user-defined stage declares its sizes by the fields `longest_row` and
    `groups` of `Traits`. A collator declares its lengths by the methods of `mlxfp.data.lengths.shape_planning.Padding`.

    Raises `PipelineError` if the set of shapes is infinite or batches lack `input_ids`.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"input_ids": [1] * count} for count in (3, 2, 7, 8, 6)])
    >>> fp.inspect.batch_shapes(fp.pipe(rows, fp.bucket_by_length([4, 8], size=2), fp.collate(fp.collators.text(pad_id=0, lengths=[4, 8]))))
    ((1, 4), (1, 8), (2, 4), (2, 8))

    See also: `shape_plan`.
    """
    check_dataset(dataset, batch_shapes)
    if dataset.level != "batches":
        raise PipelineError(
            f"batch_shapes needs batches, but the last stage {dataset.parts[-1]!r} yields {dataset.level}. Add a stage collate(...)."
        )
    return tuple(sorted(set(_facts(dataset))))


@runtime_checkable
class Padding(Protocol):
    """Protocol of a collator that pads rows of tokens."""

    longest: int | None  # maximum row length; None means unlimited

    def padded(self, longest: int) -> int:
        """Return the padded length of a group, given the length of its longest row."""


def check_lengths(lengths: Sequence[int]) -> None:
    """Check the lengths to which rows may be padded.

    Raises `ArgumentError` unless `lengths` contains at least one length, in strictly ascending order.
    """
    check_types((Sequence, np.ndarray), lengths=lengths)
    if not len(lengths) or isinstance(lengths, str):
        raise ArgumentError(f"lengths must contain at least one length to pad to, got {lengths!r}.")
    for index, length in enumerate(lengths):
        check_positive(**{f"lengths[{index}]": length})
    if any(a >= b for a, b in pairwise(lengths)):
        raise ArgumentError(f"lengths must be in strictly ascending order, got {list(lengths)}.")


def group_sizes(size: int, count: int | None, *, drop_last: bool) -> tuple[int, ...]:
    """Return the possible group sizes: `size` rows, and fewer rows in the last group. `count` is the number of all rows (None: unknown)."""
    if drop_last:
        return (size,)
    last = range(1, size) if count is None else (count % size,)
    return (*((size,) if count is None or count >= size else ()), *(rest for rest in last if rest))


def _facts(dataset: Dataset[Any]) -> tuple[Any, ...]:
    """Return the possible shapes that the stages of a dataset declare.

    Before `collate`, the result contains `Groups` (possible group sizes and row lengths). After `collate`, the result contains array
    shapes.
    """
    datasets = inner_parts(dataset.source)
    facts = tuple(fact for child in datasets for fact in _facts(child)) if datasets else (Groups(),)
    for index, stage in enumerate(dataset.stages):
        before, after = (evolve(dataset, stages=dataset.stages[:stop]) for stop in (index, index + 1))
        if before.level == "batches":
            facts = tuple(_measured_shapes(stage, after))
        elif stage.emits == "batches":
            facts = tuple(_shapes(stage, facts, before, after))
        elif stage.emits == "groups":
            facts = tuple(_grouped(stage, facts, before, after))
        else:
            longest = stage.traits.longest_row or (lambda _: None)
            # A stage may shorten rows, even to 0 tokens, so the smallest possible row length is 0.
            facts = tuple(Groups(groups.sizes, 0, longest(groups.most)) for groups in facts)
    return facts


def _grouped(stage: Stage, facts: tuple[Groups, ...], before: Dataset[Any], after: Dataset[Any]) -> Iterator[Groups]:
    declared = stage.traits.groups
    if declared is None:
        sizes = {chunk.num_rows for chunk in read_all(after, reader="batch_shapes")}
        possible: tuple[Groups, ...] = (Groups(tuple(sizes)),)
    else:
        possible = declared(known_length(before))
    most = [rows.most for rows in facts if rows.most is not None]
    for groups in possible:
        if len(most) == len(facts):
            yield evolve(groups, most=max(most) if groups.most is None else min(max(most), groups.most))
        else:
            yield groups


def _shapes(stage: Any, facts: tuple[Groups, ...], before: Dataset[Any], after: Dataset[Any]) -> Iterator[tuple[int, int]]:
    collator = getattr(stage, "collator", stage)
    if not isinstance(collator, Padding):
        yield from _measured_shapes(collator, after)
        return
    for groups in facts:
        known = [most for most in (groups.most, collator.longest) if most is not None] or _longest(before)
        if not known:
            raise PipelineError(
                f"These batches can have infinitely many shapes: rows can have any length, and {brief(collator)} pads to the longest row. "
                "Use length= or lengths= of the collator, or tokenize(max_length=)."
            )
        lengths = {collator.padded(longest) for longest in range(groups.least, min(known) + 1)}
        yield from ((size, length) for size in groups.sizes for length in lengths)


def _longest(dataset: Dataset[Any]) -> list[int]:
    """Read one epoch and return a list with one item: the largest number of tokens in a row.

    Return an empty list without reading if all stages declare row lengths, or if the rows have no column `input_ids`.
    """
    if all(stage.emits is not None or stage.traits.longest_row is not None for stage in _stages(dataset)):
        return []
    if "input_ids" not in schema(dataset).names:
        return []
    columns = (chunk.column("input_ids") for chunk in read_all(evolve(dataset, columns=("input_ids",)), reader="batch_shapes"))
    return [max((int(np.diff(read_lists(column)[1]).max(initial=0)) for column in columns), default=0)]


def _stages(dataset: Dataset[Any]) -> Iterator[Stage]:
    for child in inner_parts(dataset.source):
        yield from _stages(child)
    yield from dataset.stages


def _measured_shapes(collator: Any, dataset: Dataset[Any]) -> Iterator[tuple[int, int]]:
    for batch in read_all(dataset, reader="batch_shapes"):
        ids = batch.get("input_ids")
        if ids is None or ids.ndim < 2:  # `input_ids` is missing, or is not an array [B, L].
            raise PipelineError(
                f"batch_shapes needs an array input_ids [B, L] in every batch, got {', '.join(batch) or 'none'} from {brief(collator)}. "
                "Rename the array of tokens."
            )
        yield ids.shape[0], ids.shape[1]


def _least_padded(distinct: Indices, below: Indices, shapes: int) -> Indices:
    """Choose at most `shapes` of the distinct lengths, so that padding each row to the next chosen length needs the fewest tokens.

    `below[i]` is the number of rows shorter than `distinct[i]`. The last value of `below` is the number of all rows.
    """
    count = len(distinct)
    # `best[n]` is the least number of tokens after padding, for all rows with the n shortest lengths. Each iteration adds a padded length.
    best = np.concatenate([[0], below[1:] * distinct])
    choices = []
    for _ in range(min(shapes, count) - 1):
        before, best, choice = best, np.zeros_like(best), np.zeros_like(best)
        # The lengths with the indices `choice[last]` to `last - 1` are padded to `distinct[last - 1]`.
        for last in range(1, count + 1):
            totals = before[:last] - below[:last] * distinct[last - 1]
            choice[last] = totals.argmin()
            best[last] = totals[choice[last]] + below[last] * distinct[last - 1]
        choices.append(choice)
    chosen = [count]
    # Collect the padded lengths, from the largest to the smallest.
    for choice in reversed(choices):
        chosen.append(int(choice[chosen[-1]]))
    least: Indices = distinct[np.array(chosen[::-1]) - 1]
    return least
