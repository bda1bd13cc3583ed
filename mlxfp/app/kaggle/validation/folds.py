"""Immutable assignments of rows to folds: random, stratified, grouped or ordered in time."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen
from attrs.converters import optional
from numpy.typing import ArrayLike, NDArray

from mlxfp import Dataset, select_columns, to_table
from mlxfp.app.kaggle.specs.dates import sortable_times
from mlxfp.app.kaggle.validation.scoring import read_only
from mlxfp.inspect import fingerprint
from mlxfp.support.checks import check_integer, check_positive, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.support.randomness import fold_in, generator

Indices = NDArray[np.int64]
_SHOWN = 5  # maximum number of classes in a warning


@frozen(eq=False, repr=False)
class Fold:
    """Training rows and validation rows of one fold, as ascending int64 row indices.

    >>> fold = next(iter(kfold(4, count=2, seed=0)))
    >>> sorted([*fold.train, *fold.valid]) == [0, 1, 2, 3]
    True
    """

    folds: "Folds"
    repeat: int
    number: int

    @property
    def valid(self) -> Indices:
        """Indices of the validation rows."""
        return np.flatnonzero(self.folds.assignments[self.repeat] == self.number)

    @property
    def train(self) -> Indices:
        """Indices of the training rows: in most folds, all rows except the validation rows.

        Folds by time only train on rows before the validation rows, and on no group of the validation rows.
        """
        assigned = self.folds.assignments[self.repeat]
        rows = np.flatnonzero(assigned < self.number if self.folds.forward else assigned != self.number)
        return self.folds.apart(rows, self.valid)

    def inner(self, share: float, *, seed: int) -> tuple[Indices, Indices]:
        """Split the training rows into rows for training and rows for early stopping. Rows of a group, or with equal times, stay together.

        `share` is the fraction of rows for early stopping (in folds by group or time: the fraction of groups or times). Folds by time use
        the last rows for early stopping. Other folds use random rows. Both results hold at least one row.

        >>> train, stopping = next(iter(kfold(10, count=2, seed=0))).inner(0.2, seed=0)
        >>> len(train), len(stopping)
        (4, 1)
        """
        if not 0 < share < 1:
            raise ArgumentError(f"share must be above 0 and below 1, got share={share!r}.")
        rows = self.train
        units = self.folds.units[rows]
        known = np.unique(units)
        if len(known) < 2:
            raise ArgumentError(
                f"The training rows of {self!r} have only one group. Early stopping needs two. Use more groups, or no early stopping."
            )
        if not self.folds.forward:
            known = generator(fold_in(0, "inner", seed, self.repeat, self.number)).permutation(known)
        size = min(max(1, round(share * len(known))), len(known) - 1)
        stops = np.isin(units, known[-size:])
        train = self.folds.apart(rows[~stops], rows[stops])
        if not len(train):
            raise ArgumentError(f"{self!r} has no training rows: the rows for early stopping contain all groups. Use more groups.")
        return train, rows[stops]

    def __repr__(self) -> str:
        repeats = f", repeat {self.repeat + 1} of {self.folds.repeats}" if self.folds.repeats > 1 else ""
        return f"fold {self.number + 1} of {self.folds.count}{repeats}"


@frozen(repr=False)
class Folds:
    """Assignment of rows to folds, created by the functions of this module. Iteration yields every `Fold`, one repeat after the other.

    - `assignments`: int64[R, N] for R repeats and N rows: the number of the fold that validates a row, or -1 if no fold validates the row.
    - `units`: int64[N]. Rows with equal numbers are in the same fold.
    - `forward`: if True, each fold trains only on rows of folds with lower numbers.
    - `groups`: optional group numbers, int64[N]. No group is in both the training rows and the validation rows of a fold.

    >>> folds = kfold(6, count=3, seed=0)
    >>> folds, len(list(folds)), folds.fingerprint == kfold(6, count=3, seed=0).fingerprint
    (kfold: 6 rows in 3 folds, 3, True)
    """

    method: str
    assignments: Indices = field(converter=read_only, eq=fingerprint)
    units: Indices = field(converter=read_only, eq=fingerprint)
    forward: bool = field(default=False, kw_only=True)
    groups: Indices | None = field(default=None, kw_only=True, converter=optional(read_only), eq=fingerprint)

    def apart(self, rows: Indices, others: Indices) -> Indices:
        """Return the rows whose group does not occur in `others`."""
        return rows if self.groups is None else rows[~np.isin(self.groups[rows], self.groups[others])]

    @property
    def repeats(self) -> int:
        """Number of repeats."""
        return int(self.assignments.shape[0])

    @property
    def count(self) -> int:
        """Number of folds per repeat."""
        return int(self.assignments.max()) + 1

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self.assignments.shape[1])

    @property
    def fingerprint(self) -> str:
        """Hash of the assignments, 32 hexadecimal digits. Equal assignments have equal fingerprints, regardless of the fold method."""
        return fingerprint((self.assignments, self.forward, *(() if self.groups is None else (self.groups,))))

    def __iter__(self) -> Iterator[Fold]:
        return (Fold(self, repeat, number) for repeat in range(self.repeats) for number in range(self.count))

    def __repr__(self) -> str:
        repeats = f", repeated {self.repeats} times" if self.repeats > 1 else ""
        return f"{self.method}: {self.size:,} rows in {self.count} folds{repeats}"


@explain_call
def kfold(size: int, *, count: int, seed: int, repeats: int = 1) -> Folds:
    """Assign `size` rows at random to `count` folds, `repeats` times. Fold sizes differ by at most one row.

    >>> kfold(7, count=3, seed=0).assignments.tolist()
    [[2, 1, 0, 1, 0, 2, 2]]

    See also: `stratified`, which keeps the shares of classes; `grouped`, for rows that belong together; `time`.
    """
    check_positive(size=size)
    return assign("kfold", np.zeros(size, np.int64), None, count=count, seed=seed, repeats=repeats)


@explain_call
def stratified(labels: ArrayLike, *, count: int, seed: int, repeats: int = 1) -> Folds:
    """Assign rows to folds of nearly equal size with nearly equal class counts (differences of at most one row).

    `labels` are classes, [N]. For numeric targets, pass bins or use `kfold`. Warns about classes with fewer rows than folds,
    because some folds then cannot train on or validate the class.

    >>> [fold.valid.tolist() for fold in stratified([0, 0, 1, 1], count=2, seed=0)]
    [[1, 2], [0, 3]]
    """
    return _with_classes(assign("stratified", labels, None, count=count, seed=seed, repeats=repeats), labels)


@explain_call
def grouped(groups: ArrayLike, *, count: int, seed: int, repeats: int = 1) -> Folds:
    """Assign whole groups to folds of similar size, largest groups first.

    >>> {fold.number: len(fold.valid) for fold in grouped(["a", "a", "b", "c", "a", "b"], count=2, seed=0)}
    {0: 3, 1: 3}

    See also: `duplicates`, which numbers groups of equal rows.
    """
    return assign("grouped", None, groups, count=count, seed=seed, repeats=repeats)


@explain_call
def stratified_grouped(labels: ArrayLike, groups: ArrayLike, *, count: int, seed: int, repeats: int = 1) -> Folds:
    """Assign whole groups to folds with class fractions as even as the groups allow.

    Groups with the most uneven classes come first. Each group goes to the fold with the smallest resulting variance, as in the
    StratifiedGroupKFold of scikit-learn. Warns about classes missing from some folds.

    >>> folds = stratified_grouped([0, 1, 0, 1], ["a", "a", "b", "b"], count=2, seed=0)
    >>> sorted(sorted(fold.valid.tolist()) for fold in folds)
    [[0, 1], [2, 3]]
    """
    return _with_classes(assign("stratified_grouped", labels, groups, count=count, seed=seed, repeats=repeats), labels)


@explain_call
def time(times: ArrayLike, *, count: int, groups: ArrayLike | None = None) -> Folds:
    """Split rows by time into `count` + 1 consecutive periods. Each period except the first is the validation set of one fold.

    Each fold trains on all periods before its validation period. Periods have similar sizes, and rows with equal times share a period.
    The first period gets no out-of-fold predictions. The argument `times`, [N], holds numbers, dates or other sortable values. Texts must
    be numbers, dates, or codes such as 2026-W05: the year comes first, and all codes have the same number of digits. Raises
    `ArgumentError` for other texts.

    The argument `groups`, [N], holds the group of each row. A fold then trains on no group of its validation rows. Raises `ArgumentError`
    if no training rows remain, for example if every shop has a row per day. Omit `groups` or use `grouped` in this case.

    >>> [(fold.train.tolist(), fold.valid.tolist()) for fold in time([2021, 2019, 2020, 2020], count=2)]
    [([1], [2, 3]), ([1, 2, 3], [0])]
    >>> [fold.train.tolist() for fold in time([1, 1, 2, 2], count=1, groups=["a", "b", "a", "c"])]
    [[1]]
    """
    units = _codes("times", sortable_times("times", times))
    check_positive(count=count)
    kinds = int(units.max()) + 1
    if kinds <= count:
        raise ArgumentError(f"Folds by time need more distinct times than folds, got {kinds} times for count={count}. Reduce count.")
    ends = np.cumsum(np.bincount(units))  # for each distinct time, the number of rows up to and including this time
    cuts = np.searchsorted(ends, len(units) * np.arange(1, count + 1) / (count + 1))
    for index in range(count):  # assign at least one distinct time to every period
        cuts[index] = min(max(cuts[index], cuts[index - 1] + 1 if index else 0), kinds - 1 - (count - index))
    codes = None if groups is None else _codes("groups", groups)
    if codes is not None and len(codes) != len(units):
        raise ArgumentError(f"groups need one value per row, got {len(codes)} for {len(units)} rows.")
    folds = Folds("time", (np.searchsorted(cuts, units) - 1)[None], units, forward=True, groups=codes)
    empty_fold = next((fold for fold in folds if not len(fold.train)), None)
    if empty_fold is not None:
        raise ArgumentError(
            f"{empty_fold!r} has no training rows: all earlier rows are left out, because their groups have validation rows. If the test "
            "file has the same groups as the training file, make folds by time alone: remove group from the spec. If all test groups are "
            "new, make folds by group alone: set validation.method=grouped. A smaller number of folds may also help."
        )
    return folds


def custom(assignments: ArrayLike, *, groups: ArrayLike | None = None) -> Folds:
    """Create folds from your own assignments: for each row, the number of the validation fold, from 0.

    Rows with the number -1 are only used for training. `assignments` has the shape [N], or [R, N] for R repeats. If `groups`, [N], is
    given, all rows of a group stay together in early stopping. Raises `ArgumentError` for a fold without rows or without training rows,
    and for a group in several folds.

    >>> [fold.valid.tolist() for fold in custom([1, 0, 0, -1])]
    [[1, 2], [0]]
    """
    array = np.atleast_2d(np.asarray(assignments))
    if array.dtype.kind not in "iu" or array.ndim != 2 or not array.size:
        raise ArgumentTypeError(
            "assignments must be whole numbers: the fold number of each row. The shape must be [N], or [R, N] for R repeats. "
            f"Got {array.dtype}{list(array.shape)}: {array!r:.60}."
        )
    units = np.arange(array.shape[1]) if groups is None else _codes("groups", groups)
    if len(units) != array.shape[1]:
        raise ArgumentError(f"groups need one value per row, got {len(units)} for {array.shape[1]} rows.")
    for assigned in array:
        numbers = np.unique(assigned)
        if numbers[numbers >= 0].tolist() != list(range(array.max() + 1)) or numbers[0] < -1 or array.max() < 0:
            raise ArgumentError(
                f"assignments must contain every fold number from 0 to the highest (-1 means no fold), got {numbers.tolist()}."
            )
        if len(numbers) < 2:
            raise ArgumentError("assignments must leave rows to train on, got all rows in fold 0. Use at least two folds.")
        pairs = np.unique(np.stack([units, assigned]), axis=1)[0]
        if len(pairs) > len(np.unique(units)):
            split = pairs[:-1][pairs[1:] == pairs[:-1]][0]
            raise ArgumentError(
                f"Each group must be in exactly one fold, got group {np.asarray(groups)[units == split][0]} in several folds."
            )
    return Folds("custom", array, units)


def duplicates(rows: Dataset[Any], *, columns: Sequence[str] | None = None) -> Indices:
    """Return a group number for each row of a dataset, int64[N]. Equal rows have equal numbers.

    The groups keep copies of a row in the same fold. `columns` names the columns to compare, by default all columns. Exclude the id,
    because ids make all rows different. Reads all rows.

    >>> import mlxfp as fp
    >>> duplicates(fp.from_examples([{"id": 1, "x": 5}, {"id": 2, "x": 6}, {"id": 3, "x": 5}]), columns=["x"]).tolist()
    [0, 1, 0]

    See also: `grouped`, `stratified_grouped`.
    """
    table = to_table(rows if columns is None else select_columns(columns)(rows))
    seen: dict[str, int] = {}
    return np.array([seen.setdefault(fingerprint(row), len(seen)) for row in table.to_pylist()], np.int64)


def missing_classes(folds: Folds, labels: ArrayLike, names: Sequence[str] | None = None) -> str | None:
    """Return a message about classes missing from some folds, with a remedy.

    The result is None if every fold trains on and validates all classes. `labels` are classes, [N]. If `names` is given, `labels`
    are indices into `names`.
    """
    kinds, codes, rows = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
    all_folds = list(folds)
    trained, validated = (
        np.sum([np.bincount(codes[part], minlength=len(kinds)) > 0 for part in parts], axis=0)
        for parts in ([fold.train for fold in all_folds], [fold.valid for fold in all_folds])
    )
    lacking = np.flatnonzero((trained < len(all_folds)) | (validated < len(all_folds)))
    if not len(lacking):
        return None
    shown = [repr(kinds[index].item() if names is None else names[int(kinds[index])]) for index in lacking[:_SHOWN]]
    details = [
        f"{name} ({count:,} row{'s' if count > 1 else ''}) is trained in {trained[index]} and validated in {validated[index]} folds"
        for name, index, count in zip(shown, lacking, rows[lacking], strict=False)
    ]
    more = f"; and {len(lacking) - _SHOWN:,} more classes" if len(lacking) > _SHOWN else ""
    return (
        f"Some of the {len(all_folds)} folds lack a class: {'; '.join(details)}{more}. A model cannot learn a class without training rows, "
        "and metrics such as roc_auc need validation rows of several classes. Use fewer folds, use more rows, or merge rare classes."
    )


def _with_classes(folds: Folds, labels: ArrayLike) -> Folds:
    message = missing_classes(folds, labels)
    if message is not None:
        warnings.warn(message, UserWarning, stacklevel=4)
    return folds


def assign(  # noqa: PLR0913  # union of the arguments of all fold methods
    method: str, labels: ArrayLike | None, groups: ArrayLike | None, *, count: int, seed: int, repeats: int
) -> Folds:
    """Assign rows to folds. The rows of each class in `labels` are spread evenly over the folds, and groups are never split."""
    units = None if groups is None else _codes("groups", groups)
    classes = np.zeros(0 if units is None else len(units), np.int64) if labels is None else _codes("labels", labels)
    if units is not None and len(classes) != len(units):
        raise ArgumentError(f"labels and groups need one value per row, got {len(classes)} for labels and {len(units)} for groups.")
    check_positive(count=count, repeats=repeats)
    check_integer(seed=seed)
    unit_name, assign_units = ("rows", _assign_rows) if units is None else ("groups", _assign_groups)
    units = np.arange(len(classes)) if units is None else units
    most = len(np.unique(units))
    if not 2 <= count <= most:
        raise ArgumentError(
            f"{method} needs from 2 to {most} folds, because there are {most} {unit_name}, got count={count}. In a configuration, the "
            "number of folds is validation.folds."
        )
    chances = [generator(fold_in(0, "folds", seed, repeat)) for repeat in range(repeats)]
    return Folds(method, np.stack([assign_units(classes, units, count, chance) for chance in chances]), units)


def _assign_rows(classes: Indices, _: Indices, count: int, chance: np.random.Generator) -> Indices:
    """Shuffle the rows, sort them by class, and assign rows to folds in turn. Folds then have even sizes and even class counts."""
    order = chance.permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]
    assigned = np.empty(len(classes), np.int64)
    assigned[order] = chance.permutation(count)[np.arange(len(classes)) % count]
    return assigned


def _assign_groups(classes: Indices, groups: Indices, count: int, chance: np.random.Generator) -> Indices:
    table = np.zeros((groups.max() + 1, classes.max() + 1))  # row counts, [group, class]
    np.add.at(table, (groups, classes), 1)
    order = chance.permutation(len(table))
    order = order[np.lexsort((-table[order].sum(axis=1), -table[order].std(axis=1)))]
    totals, filled, assigned = table.sum(axis=0), np.zeros((count, table.shape[1])), np.empty(len(table), np.int64)
    # Each group goes to the fold that makes the class counts most even. Groups go to empty folds first, so no fold stays empty.
    for group in order:
        trials = filled + np.eye(count)[:, :, None] * table[group]  # [receiving fold, fold, class]
        uneven = (trials / totals).std(axis=1).mean(axis=1)
        assigned[group] = np.lexsort((filled.sum(axis=1), np.round(uneven, 12)))[0]  # of equally even folds, the fold with the fewest rows
        filled[assigned[group]] += table[group]
    return assigned[groups]


def _codes(name: str, values: ArrayLike) -> Indices:
    """Return the index of each value among the sorted distinct values, [N]."""
    array = np.asarray(values)
    if array.ndim != 1 or not array.size:
        raise ArgumentTypeError(f"{name} must be one value per row, [N], got {array.dtype}{list(array.shape)}.")
    missing = array != array if array.dtype.kind in "fmM" else np.array([value is None or value != value for value in array.tolist()])
    if missing.any():
        raise ArgumentError(
            f"{name} must not be missing, got {array[missing][0]} in row {int(np.argmax(missing))}. Fill in missing values."
        )
    try:
        return np.unique(array, return_inverse=True)[1].astype(np.int64)
    except TypeError:
        raise ArgumentTypeError(f"{name} must be sortable values of one type, got {array!r:.60}.") from None
