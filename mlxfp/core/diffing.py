"""What differs between two pipelines."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import attrs

from mlxfp.core.identity import fingerprint, identify
from mlxfp.core.parts import Pipeline, check_dataset, children, flat_parts

if TYPE_CHECKING:
    from mlxfp.core.datasets import Dataset


def diff(a: "Dataset[Any]", b: "Dataset[Any]") -> str:
    """Compare two pipelines part by part, for printing: `-` stands before parts of `a` alone, `+` before those of `b` alone.

    `!` stands before a part of both that prints alike and has other content, and what that is follows. Returns "" for equal pipelines.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.batching import batch
    >>> from mlxfp.data.shuffling import shuffle
    >>> from mlxfp.data.sources import from_examples
    >>> rows = from_examples([{"x": 1}])
    >>> print(diff(pipe(rows, shuffle(seed=0), batch(2)), pipe(rows, shuffle(seed=1), batch(2))))
      from_examples(1 rows)
    - shuffle(seed=0)
    + shuffle(seed=1)
      batch(size=2)

    See also: `fingerprint`, `freeze`.
    """
    for dataset in (a, b):
        check_dataset(dataset, diff)
    return "" if identify(a) == identify(b) else "\n".join(_lines(a, b))


def _lines(a: "Dataset[Any]", b: "Dataset[Any]") -> Iterator[str]:
    left, right = (list(zip(identify(dataset), flat_parts(dataset), strict=True)) for dataset in (a, b))
    matcher = SequenceMatcher(None, [mark for (_, mark), _ in left], [mark for (_, mark), _ in right], autojunk=False)
    for kind, first, last, start, stop in matcher.get_opcodes():
        if kind == "equal":
            yield from (f"  {text}" for (text, _), _ in left[first:last])
            continue
        for one, other in zip_longest(left[first:last], right[start:stop]):
            yield from _pair(one, other)


def _pair(one: Any, other: Any) -> Iterator[str]:
    """Compare two parts that are not the same, of which one may be missing."""
    if one is not None and other is not None and one[0][0] == other[0][0] and type(one[1]) is type(other[1]):
        yield f"! {one[0][0]}: {', '.join(_differing(one[1], other[1]))}"
        pairs = zip_longest(children(one[1]), children(other[1])) if len(children(one[1])) > 1 else ()
        for place, (left, right) in enumerate(pairs):
            lines = _lines(left, right) if left is not None and right is not None and identify(left) != identify(right) else ()
            yield from (f"  {place} | {line}" for line in lines)
        return
    yield from [] if one is None else [f"- {one[0][0]}"]
    yield from [] if other is None else [f"+ {other[0][0]}"]


def _differing(one: Any, other: Any) -> Iterator[str]:
    """Name the fields in which two parts of one type differ, but for the one dataset that they hold: its parts stand before them."""
    for field in attrs.fields(type(one)):
        values = getattr(one, field.name), getattr(other, field.name)
        if field.eq and not isinstance(values[0], Pipeline) and fingerprint(values[0]) != fingerprint(values[1]):
            yield f"another {field.name.lstrip('_')}"
