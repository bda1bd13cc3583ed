"""Recognition of groups: a column with values that repeat in the train file and never occur in the test file."""

import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.app.kaggle.specs.cells import are_numbers

_GROUPS = 10  # minimum number of groups in the train file
_ROWS = 3  # minimum number of train rows per group on average
_SHARED = 0.8  # minimum fraction of train rows that share the group with another row
_TESTED = (20, 2)  # minimum numbers of rows and groups in the test file: fewer rows can differ by chance


def find_group(train: pa.Table, test: pa.Table, names: list[str]) -> str | None:
    """Return the column with the fewest groups among `names`, or None. The tables hold texts.

    A random split of the rows would put most groups into both files. If no group is in both files, the competition was split by groups.
    A column of numbers is accepted only if the test numbers lie within the range of the train numbers, because larger numbers may simply
    count up in time.

    >>> train = pa.table({"storm": [f"s{row // 4}" for row in range(60)]})
    >>> test = pa.table({"storm": [f"t{row // 4}" for row in range(20)]})
    >>> find_group(train, test, ["storm"]), find_group(train, train, ["storm"])
    ('storm', None)
    """
    groups = [name for name in names if _are_groups(train[name], test[name])]
    return min(groups, key=lambda name: len(train[name].unique()), default=None)


def _are_groups(known: pa.ChunkedArray, others: pa.ChunkedArray) -> bool:
    others = others.drop_null()
    distinct, tested = known.unique(), others.unique()
    if known.null_count or len(distinct) < _GROUPS or len(known) < _ROWS * len(distinct) or (len(others), len(tested)) < _TESTED:
        return False
    if len(tested) < _TESTED[1] or pc.any(pc.is_in(tested, distinct)).as_py():
        return False
    counts = known.value_counts().field("counts")
    if pc.sum(counts.filter(pc.greater(counts, 1))).as_py() < _SHARED * len(known):
        return False
    if not (are_numbers(distinct) and are_numbers(tested)):
        return True
    numbers, new = (pc.utf8_trim_whitespace(values).cast(pa.float64()) for values in (distinct, tested))
    inside = pc.and_(pc.greater(new, pc.min(numbers)), pc.less(new, pc.max(numbers)))
    return bool(2 * pc.sum(inside).as_py() >= len(new))
