"""What differs between two pipelines."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

import attrs

from mlxfp.core.datasets import Dataset
from mlxfp.core.identity import fingerprint, identify
from mlxfp.core.nodes import Pipeline, check_dataset, children, flat_parts


def diff(a: Dataset[Any], b: Dataset[Any]) -> str:
    """Compare two pipelines part by part, for printing: `-` stands before parts of `a` alone, `+` before those of `b` alone.

    `!` stands before a part of both that prints the same and has other content, and the difference follows. Returns "" for equal pipelines.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": 1}])
    >>> print(fp.inspect.diff(fp.pipe(rows, fp.shuffle(seed=0), fp.batch(2)), fp.pipe(rows, fp.shuffle(seed=1), fp.batch(2))))
      from_examples(1 rows)
    - shuffle(seed=0)
    + shuffle(seed=1)
      batch(size=2)

    See also: `fingerprint`, `checksum`.
    """
    for dataset in (a, b):
        check_dataset(dataset, diff)
    return "\n".join(_lines(a, b)) if _differ(a, b) else ""


def _differ(a: Dataset[Any], b: Dataset[Any]) -> bool:
    """Return true if the identities of two pipelines differ. Fields without effect on items, as `depth` of `prefetch`, do not count."""
    return [mark for _, mark in identify(a)] != [mark for _, mark in identify(b)]


def _lines(a: Dataset[Any], b: Dataset[Any]) -> Iterator[str]:
    left, right = (
        [(" ".join(text.splitlines()), mark, part) for (text, mark), part in zip(identify(dataset), flat_parts(dataset), strict=True)]
        for dataset in (a, b)
    )
    matcher = SequenceMatcher(None, [mark for _, mark, _ in left], [mark for _, mark, _ in right], autojunk=False)
    for kind, first, last, start, stop in matcher.get_opcodes():
        if kind == "equal":
            yield from (f"  {text}" for text, *_ in left[first:last])
            continue
        for one, other in zip_longest(left[first:last], right[start:stop]):
            yield from _pair(one, other)


def _pair(one: Any, other: Any) -> Iterator[str]:
    """Yield the lines for two different parts; a missing part is None."""
    if one is None or other is None or one[0] != other[0] or type(one[2]) is not type(other[2]):
        yield from [] if one is None else [f"- {one[0]}"]
        yield from [] if other is None else [f"+ {other[0]}"]
        return
    yield f"! {one[0]}: {', '.join(_differing(one[2], other[2]))}"
    held = children(one[2]), children(other[2])
    for place, (left, right) in enumerate(zip(*held, strict=False) if len(held[0]) > 1 else ()):
        if _differ(left, right):
            yield from (f"  {place} | {line}" for line in _lines(left, right))


def _differing(one: Any, other: Any) -> Iterator[str]:
    """Yield the names of fields that differ between two parts of one type. The only child dataset is compared by the caller."""
    for field in attrs.fields(type(one)):
        values = getattr(one, field.name), getattr(other, field.name)
        if field.eq and not isinstance(values[0], Pipeline) and fingerprint(values[0]) != fingerprint(values[1]):
            yield f"another {field.name.lstrip('_')}"
