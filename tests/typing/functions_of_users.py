"""What users may annotate their functions of rows with; `make check` holds type checkers to it. Nothing here runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_type

import mlx.core as mx
import numpy as np

import mlxfp as fp
from mlxfp.losses import cross_entropy
from mlxfp.optimizers import adamw

rows = fp.from_examples([{"x": 1}])


def of_dict(row: dict[str, Any]) -> dict[str, Any]:
    """Change a row."""
    return {**row, "y": row["x"]}


def of_mapping(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Change a row that is a mapping."""
    return {**row, "y": row["x"]}


def drawing(row: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """Change a row at random."""
    return {"x": row["x"] + random.integers(3)}


def kept(row: dict[str, Any]) -> bool:
    """Say whether a row stays."""
    return bool(row["x"])


def kept_mapping(row: Mapping[str, Any]) -> bool:
    """Say the same of a mapping."""
    return bool(row["x"])


def several(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Make two rows of one."""
    yield row
    yield row


def several_mappings(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Make two rows of a mapping."""
    return [row, row]


def of_list(group: list[dict[str, Any]]) -> dict[str, mx.array]:
    """Make a batch of a list, as collate functions for torch do."""
    return {"x": mx.array([row["x"] for row in group])}


def of_dicts(group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Make a batch of any sequence of dicts."""
    return {"x": mx.array([row["x"] for row in group])}


def of_mappings(group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Make a batch of any sequence of mappings."""
    return {"x": mx.array([row["x"] for row in group])}


def of_examples(group: fp.Examples) -> dict[str, Any]:
    """Make a batch of whole columns."""
    return {"x": mx.array(group.column("x").to_numpy())}


assert_type(fp.pipe(rows, fp.map(of_dict), fp.map(of_mapping), fp.map(drawing, seed=0)), fp.Dataset[Mapping[str, Any]])
assert_type(fp.pipe(rows, fp.filter(kept), fp.filter(kept_mapping)), fp.Dataset[Mapping[str, Any]])
assert_type(fp.pipe(rows, fp.flat_map(several), fp.flat_map(several_mappings)), fp.Dataset[Mapping[str, Any]])
for collator in (of_list, of_dicts):
    assert_type(fp.pipe(rows, fp.batch(2), fp.collate(collator)), fp.Dataset[dict[str, Any]])
assert_type(fp.pipe(rows, fp.batch(2), fp.collate(of_mappings)), fp.Dataset[dict[str, Any]])
assert_type(fp.pipe(rows, fp.batch(2), fp.collate(of_examples)), fp.Dataset[dict[str, Any]])
assert_type(fp.pipe(rows, fp.batch(2), fp.collate(lambda group: {"x": mx.array(len(group))})), fp.Dataset[dict[str, Any]])

# A dataset has `pipe` as a method, with the types of the function.
assert_type(rows.pipe(), fp.Dataset[Mapping[str, Any]])
assert_type(rows.pipe(fp.shuffle(seed=0), fp.batch(2)), fp.Dataset[fp.Examples])
assert_type(rows.pipe(fp.batch(2)).pipe(fp.collate(of_list)), fp.Dataset[dict[str, Any]])

adamw(1e-3)
cross_entropy(mx.zeros((1, 2)), mx.array([0]))


def misplaced() -> None:
    """Make mistakes. If a checker accepts one of these, the unused ignore is reported."""
    rows.pipe(fp.collate(of_list))  # type: ignore[arg-type]  # collate without batch
    rows.map(of_dict)  # type: ignore[attr-defined]  # a stage is no method
    rows | fp.batch(2)  # type: ignore[operator]  # nor joined by an operator
    fp.map(len, sed=0)  # type: ignore[call-overload]  # a name that is not there
    fp.batch(batch_size=2)  # type: ignore[call-arg]  # one of another library
    fp.filter(of_list)  # type: ignore[arg-type]  # of a list, where rows come
