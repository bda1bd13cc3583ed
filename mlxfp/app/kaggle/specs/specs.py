"""Specs: facts about the files, the columns and the target of a competition, as values without any data."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pyarrow as pa
from attrs import Factory, field, frozen

from mlxfp.app.kaggle.specs.column_kinds import COLUMN_KINDS, ColumnKind, ColumnType
from mlxfp.app.kaggle.specs.kinds import METRIC_NAMES, TASK_KINDS, Kind, TaskKind
from mlxfp.app.kaggle.specs.spellings import Spelling
from mlxfp.support.checks import check_choice, check_not_negative, check_text, check_types, check_unique
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, suggest

_BREAK = re.compile(r"[\W_]+|(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)")


def humanize(name: str) -> str:
    """Split the name of a column into words."""
    words = [word for word in _BREAK.split(name) if word]
    return " ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in words) or name


def _known_metric(name: str) -> str | None:
    return None if name in METRIC_NAMES else f"the name of a metric ({', '.join(METRIC_NAMES)}){suggest(name, METRIC_NAMES).rstrip()}"


def _to_texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        raise ArgumentTypeError(f"Several texts must be a list, got the string {values!r}. Write [{values!r}].")
    check_types((list, tuple), texts=values)
    check_text(**{f"text {place}": value for place, value in enumerate(values)})
    return tuple(values)


def _to_pairs(values: Any) -> tuple[tuple[str, str], ...]:
    check_types((Mapping, tuple), values=values)
    pairs = tuple((value, name) for value, name in (values.items() if isinstance(values, Mapping) else values))
    for value, name in pairs:
        check_text(**{f"value {value!r}": value, f"the name of the value {value!r}": name})
    return pairs


def _to_columns(columns: Any) -> tuple["ColumnSpec", ...]:
    check_types((list, tuple), columns=columns)
    check_types(ColumnSpec, **{f"column {place}": column for place, column in enumerate(columns)})
    return tuple(columns)


@frozen(kw_only=True)
class FileSpec:
    """A file in the folder of a competition: its name, and its hash and number of rows where they are known.

    >>> FileSpec(name="train.csv", rows=891)
    FileSpec(name='train.csv', sha256=None, rows=891)
    """

    name: str
    sha256: str | None = None
    rows: int | None = None

    def __attrs_post_init__(self) -> None:
        check_text(name=self.name)
        check_types((str, type(None)), sha256=self.sha256)
        if self.rows is not None:
            check_not_negative(rows=self.rows)


@frozen(kw_only=True)
class ColumnSpec:
    """A column that a model may see: its type, its title, and names for its values.

    `values` gives names to the values of a categorical column, which are written as in the file. `absent` are values that mean that there
    is nothing, such as 0 for the area of a pool of a house without one: a row written as text leaves them out, or says "none". A value in
    `values` or `absent` is never read as missing, even if it is None or NA: see `read_part`.

    >>> ColumnSpec(name="Pclass", type="categorical", title="class", values={"1": "first class"})
    ColumnSpec(name='Pclass', type='categorical', title='class', values=(('1', 'first class'),), absent=())
    """

    name: str
    type: ColumnType
    title: str = field(default=Factory(lambda self: humanize(self.name), takes_self=True))
    values: tuple[tuple[str, str], ...] = field(default=(), converter=_to_pairs)
    absent: tuple[str, ...] = field(default=(), converter=_to_texts)

    def __attrs_post_init__(self) -> None:
        check_text(name=self.name, title=self.title)
        check_choice(get_args(ColumnType), type=self.type)
        if not self.name or not self.title:
            raise ArgumentError(f"A column needs a name and a title, got name={self.name!r}, title={self.title!r}.")
        if self.values and not self.kind.has_names:
            raise ArgumentError(f"Column {self.name!r} names its values and is {self.type}. Make it categorical, or leave values out.")
        unfit = self.kind.unfit(pa.array(self.absent, pa.string())).to_pylist()
        if unfit:
            raise ArgumentError(f"Column {self.name!r} holds {self.kind.holds}, and absent has {unfit[0]!r}. Leave it out.")
        check_unique(
            {
                f"values of column {self.name!r}": [value for value, _ in self.values],
                f"names of the values of column {self.name!r}": [name for _, name in self.values],
            }
        )

    @property
    def kind(self) -> ColumnKind:
        """The entry of `COLUMN_KINDS` that says how columns of this type are read, checked and written."""
        return COLUMN_KINDS[self.type]


@frozen(kw_only=True)
class SubmissionSpec:
    """The format of a submission: its columns in order, the id first, and the spelling of predictions.

    >>> SubmissionSpec(columns=["PassengerId", "Survived"], spelling="integer").columns
    ('PassengerId', 'Survived')
    """

    columns: tuple[str, ...] = field(converter=_to_texts)
    spelling: Spelling

    def __attrs_post_init__(self) -> None:
        check_choice(get_args(Spelling), spelling=self.spelling)
        check_unique({"columns": self.columns})


@frozen(kw_only=True)
class DatasetSpec:
    """The facts of a competition's data set.

    `target` names the columns to predict: several for `multilabel`, and for a `regression` of several numbers. `classes` are the values of
    the targets as the file writes them; their places are the numbers of the classes: two classes for binary and multilabel, in ascending
    order for ordinal. `columns` are those that a model may see; other columns of the files are ignored. Rows with the same value in the
    column `group` belong together; the column `time` says when a row was recorded. `metric` is one of `METRICS` that fits the kind; a
    metric of your own is an argument of `score`, and not in a spec.

    Raises `UnknownNameError` for an unknown kind or metric, and `ArgumentError` for facts that contradict each other.

    >>> spec = DatasetSpec(
    ...     name="cats",
    ...     kind="binary",
    ...     train=FileSpec(name="train.csv"),
    ...     target=["purrs"],
    ...     classes=["no", "yes"],
    ...     columns=[ColumnSpec(name="fur_length", type="numerical")],
    ...     metric="accuracy",
    ... )
    >>> spec.columns[0].title
    'fur length'

    See also: `infer_spec`, which proposes a spec; `check_spec`; `SPECS`, the shipped specs.
    """

    name: str
    kind: Kind
    train: FileSpec
    test: FileSpec | None = None
    sample: FileSpec | None = None
    id: str | None = None
    target: tuple[str, ...] = field(converter=_to_texts)
    classes: tuple[str, ...] = field(default=(), converter=_to_texts)
    group: str | None = None
    time: str | None = None
    columns: tuple[ColumnSpec, ...] = field(converter=_to_columns)
    metric: str = field(metadata={"checks": (_known_metric,)})
    submission: SubmissionSpec | None = None

    def __attrs_post_init__(self) -> None:
        check_text(name=self.name, metric=self.metric)
        check_choice(METRIC_NAMES, metric=self.metric)
        check_choice(TASK_KINDS, kind=self.kind)
        check_types((str, type(None)), id=self.id, group=self.group, time=self.time)
        names = [column.name for column in self.columns]
        titles = [column.title for column in self.columns]
        check_unique({"columns": names, "titles of columns": titles, "target": self.target, "classes": self.classes})
        for problem in self._problems():
            raise ArgumentError(f"The spec of {self.name!r}: {problem}")

    @property
    def task(self) -> TaskKind:
        """The entry of `TASK_KINDS` that says how targets of this kind are read, learned, scored and written."""
        return TASK_KINDS[self.kind]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of a model's outputs: the classes if each row has one class, otherwise the targets."""
        return self.classes if self.task.one_class else self.target

    def _problems(self) -> Iterator[str]:
        hidden = sorted({*self.target, self.id or ""} & {column.name for column in self.columns})
        task, count = self.task, len(self.classes)
        least, most = task.class_counts
        if not self.target:
            yield "it has no target. Name the column to predict."
        if hidden:
            yield f"columns has {', '.join(map(repr, hidden))}, and a model must not see the id or the target. Leave it out."
        if task.column is not None and getattr(self, task.column) is None:
            yield f"{self.kind} needs {task.column}, the name of a column."
        if task.one_class and len(self.target) > 1:
            yield f"{self.kind} has one target, got {len(self.target)}. Choose another kind, or one of them."
        if count < least or (most is not None and count > most):
            yield f"{self.kind} has {least if least == most else f'at least {least}'} classes, got {count}."
        if unfit := task.unfit_metric(self.metric):
            yield f"{unfit}."
