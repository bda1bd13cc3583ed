"""Training, validation and test data as one value."""

from typing import Any

from attrs import frozen

from mlxfp.core.checks import check_columns, check_types
from mlxfp.core.datasets import Dataset, check_indexable
from mlxfp.core.describing import schema
from mlxfp.core.errors import ArgumentError, ArgumentTypeError
from mlxfp.data.selecting import split
from mlxfp.data.task_specs import TaskSpec


@frozen
class Splits:
    """The datasets of a task: to train on, to validate with, to test with. The last two may be None.

    Data that comes in parts needs no more than this: `Splits(from_hf(parts["train"]), valid=from_hf(parts["validation"]))`.

    >>> from mlxfp.data.sources import from_examples
    >>> Splits(from_examples([{"x": 1}]), valid=from_examples([{"x": 2}])).test is None
    True

    See also: `splits`, which cuts them from one dataset.
    """

    train: Dataset[Any]
    valid: Dataset[Any] | None = None
    test: Dataset[Any] | None = None

    def __attrs_post_init__(self) -> None:
        """Check that these are datasets."""
        check_types(Dataset, train=self.train)
        check_types((Dataset, type(None)), valid=self.valid, test=self.test)


def splits(data: Dataset[Any], *, seed: int, valid: float = 0.1, test: float | None = None, task: TaskSpec | None = None) -> Splits:
    """Cut a dataset at random into parts to train on, to validate with and, if `test` is given, to test with.

    `valid` and `test` are shares of the examples; the rest is for training. With a classification as `task`, each class has the same share
    in all parts; that needs random access. Parts are disjoint, cover the data, and stay the same for one seed.

    `data` is a dataset: of files by `read_csv` and its like, of arrays by `from_table`, of Hugging Face sets by `from_hf`, of torch sets
    by `from_torch`. Raises `SchemaError` if the task's label is not among its columns.

    >>> from mlxfp.core.describing import length
    >>> from mlxfp.data.sources import from_table
    >>> parts = splits(from_table({"x": range(20), "label": [0, 1] * 10}), seed=0, task=TaskSpec("text", "classification"))
    >>> length(parts.train), sorted(row["label"] for row in parts.valid)
    (18, [0, 1])

    See also: `split`, which makes any number of parts.
    """
    if not isinstance(data, Dataset):
        raise ArgumentTypeError(
            f"splits takes a dataset, got {type(data).__name__}. Make one: read_csv(path) and its like for files, from_table({{...}}) for "
            "arrays, from_hf for Hugging Face sets, from_torch for torch sets, from_examples for a list of dicts."
        )
    check_types((int, float), valid=valid)
    check_types((int, float, type(None)), test=test)
    check_types((TaskSpec, type(None)), task=task)
    fractions = [1 - valid - (test or 0), valid] + ([] if test is None else [test])
    if min(fractions) <= 0:
        raise ArgumentError(
            f"Every part needs a share above 0, got valid={valid} and test={test}, which leaves {fractions[0]:g} to train on."
        )
    label = task.column("label") if task is not None and task.kind == "classification" else None
    if label is not None:
        check_columns([label], schema(data).names, "splits")
        check_indexable(data, f"splits by the classes in {label!r}")
    return Splits(*split(fractions, seed=seed, stratify=label)(data))
