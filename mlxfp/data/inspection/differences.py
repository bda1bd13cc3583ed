"""Comparison of two pipelines, part by part."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

import attrs

from mlxfp.core.datasets import Dataset
from mlxfp.core.identity import fingerprint, identify
from mlxfp.core.nodes import Pipeline, check_dataset, children, flat_parts


def diff(a: Dataset[Any], b: Dataset[Any]) -> str:
    """Compare two pipelines part by part, and return printable lines. Returns "" for equal pipelines.

    `-` marks parts only in `a`, and `+` marks parts only in `b`. `!` marks parts that look equal when printed but differ in content. The
    line after a line with `!` names the difference.

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
    """Return True if the fingerprints of two pipelines differ.

    Fields without effect on items, such as `depth` of `prefetch`, do not count.
    """
    return [mark for _, mark in identify(a)] != [mark for _, mark in identify(b)]


def _lines(a: Dataset[Any], b: Dataset[Any]) -> Iterator[str]:
    parts_a, parts_b = (
        [(" ".join(text.splitlines()), mark, part) for (text, mark), part in zip(identify(dataset), flat_parts(dataset), strict=True)]
        for dataset in (a, b)
    )
    matcher = SequenceMatcher(None, [mark for _, mark, _ in parts_a], [mark for _, mark, _ in parts_b], autojunk=False)
    for kind, first, last, start, stop in matcher.get_opcodes():
        if kind == "equal":
            yield from (f"  {text}" for text, *_ in parts_a[first:last])
            continue
        for a_part, b_part in zip_longest(parts_a[first:last], parts_b[start:stop]):
            yield from _pair(a_part, b_part)


def _pair(one: Any, other: Any) -> Iterator[str]:
    """Yield the report lines for a stage (or source) that differs between two pipelines. A missing stage is given as None."""
    if one is None or other is None or one[0] != other[0] or type(one[2]) is not type(other[2]):
        yield from [] if one is None else [f"- {one[0]}"]
        yield from [] if other is None else [f"+ {other[0]}"]
        return
    yield f"! {one[0]}: {', '.join(_differing(one[2], other[2]))}"
    datasets = children(one[2]), children(other[2])
    for index, (a, b) in enumerate(zip(*datasets, strict=False) if len(datasets[0]) > 1 else ()):
        if _differ(a, b):
            yield from (f"  {index} | {line}" for line in _lines(a, b))


def _differing(one: Any, other: Any) -> Iterator[str]:
    """Yield the names of the fields that differ between two parts of the same type.

    A field that contains a pipeline is skipped. The parts of such a pipeline are compared separately.
    """
    for field in attrs.fields(type(one)):
        values = getattr(one, field.name), getattr(other, field.name)
        if field.eq and not isinstance(values[0], Pipeline) and fingerprint(values[0]) != fingerprint(values[1]):
            yield f"another {field.name.lstrip('_')}"
