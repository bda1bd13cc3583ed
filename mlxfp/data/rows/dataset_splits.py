"""Training, validation and test data as one value."""

from typing import Any

from attrs import frozen

from mlxfp.core.checks import check_columns, check_types
from mlxfp.core.datasets import Dataset, check_indexable
from mlxfp.core.describing import schema
from mlxfp.core.errors import ArgumentError, ArgumentTypeError
from mlxfp.data.rows.selecting import split


@frozen
class Splits:
    """The datasets of a task: to train on, to validate with, to test with. The last two may be None.

    Data that comes in parts needs no more than this: `Splits(from_hf(parts["train"]), valid=from_hf(parts["validation"]))`.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> Splits(from_examples([{"x": 1}]), valid=from_examples([{"x": 2}])).test is None
    True

    See also: `train_valid_test`, which cuts them from one dataset.
    """

    train: Dataset[Any]
    valid: Dataset[Any] | None = None
    test: Dataset[Any] | None = None

    def __attrs_post_init__(self) -> None:
        """Check that these are datasets."""
        check_types(Dataset, train=self.train)
        check_types((Dataset, type(None)), valid=self.valid, test=self.test)


def train_valid_test(
    data: Dataset[Any], *, seed: int, valid: float = 0.1, test: float | None = None, stratify: str | None = None
) -> Splits:
    """Cut a dataset at random into parts to train on, to validate with and, if `test` is given, to test with.

    `valid` and `test` are shares of the examples; the rest is for training. `stratify` names a column of which each value has the same
    share in all parts; it needs random access. Parts are disjoint, cover the data, and stay the same for one seed.

    `data` is a dataset: of files by `read_csv` and the other readers, of arrays by `from_table`, of Hugging Face sets by `from_hf`, of
    torch sets by `from_torch`. Raises `SchemaError` if `stratify` is not among its columns.

    >>> from mlxfp.core.describing import length
    >>> from mlxfp.data.sources.in_memory import from_table
    >>> parts = train_valid_test(from_table({"x": range(20), "label": [0, 1] * 10}), seed=0, stratify="label")
    >>> length(parts.train), sorted(row["label"] for row in parts.valid)
    (18, [0, 1])

    See also: `split`, which makes any number of parts.
    """
    if not isinstance(data, Dataset):
        raise ArgumentTypeError(
            f"train_valid_test takes a dataset, got {type(data).__name__}. Make one: read_csv(path) and the other readers for files, "
            "from_table({...}) for arrays, from_hf for Hugging Face sets, from_torch for torch sets, from_examples for a list of dicts."
        )
    check_types((int, float), valid=valid)
    check_types((int, float, type(None)), test=test)
    check_types((str, type(None)), stratify=stratify)
    fractions = [1 - valid - (test or 0), valid] + ([] if test is None else [test])
    if min(fractions) <= 0:
        raise ArgumentError(
            f"Every part needs a share above 0, got valid={valid} and test={test}, which leaves {fractions[0]:g} to train on."
        )
    if stratify is not None:
        check_columns([stratify], schema(data).names, "train_valid_test")
        check_indexable(data, f"train_valid_test by the values in {stratify!r}")
    return Splits(*split(fractions, seed=seed, stratify=stratify)(data))
