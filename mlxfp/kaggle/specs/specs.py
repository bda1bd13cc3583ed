"""What a data set of a competition is: facts about its files, its columns and what is asked. Values, without any data."""

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from attrs import Factory, field, frozen

from mlxfp.core.checks import check_choice, check_not_negative, check_text, check_types, check_unique
from mlxfp.core.errors import ArgumentError, ArgumentTypeError

Kind = Literal["binary", "multiclass", "multilabel", "regression", "ordinal", "ranking", "time_series"]
ColumnType = Literal["text", "categorical", "numerical"]
Spelling = Literal["integer", "number", "boolean", "text"]

# What values of a column in a submission look like, from the narrowest spelling to the widest.
SPELLINGS: Mapping[Spelling, str] = {
    "integer": r"^-?\d+$",
    "boolean": "^(True|False)$",
    "number": r"^-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$",
    "text": "",
}
CLASSED = ("binary", "multiclass", "multilabel", "ordinal")  # kinds whose targets are one of some classes
_BREAK = re.compile(r"[\W_]+|(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)")


def humanize(name: str) -> str:
    """Split the name of a column into words.

    >>> [humanize(name) for name in ("PassengerId", "1stFlrSF", "home_planet", "MSZoning")]
    ['passenger id', '1st flr SF', 'home planet', 'MS zoning']
    """
    words = [word for word in _BREAK.split(name) if word]
    return " ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in words) or name


def _texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        raise ArgumentTypeError(f"Several texts must be a list, got the string {values!r}. Write [{values!r}].")
    check_types((list, tuple), texts=values)
    check_text(**{f"text {place}": value for place, value in enumerate(values)})
    return tuple(values)


def _pairs(values: Any) -> tuple[tuple[str, str], ...]:
    check_types((Mapping, tuple), values=values)
    pairs = tuple((value, name) for value, name in (values.items() if isinstance(values, Mapping) else values))
    for value, name in pairs:
        check_text(**{f"value {value!r}": value, f"the name of the value {value!r}": name})
    return pairs


def _columns(columns: Any) -> tuple["ColumnSpec", ...]:
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
        """Check the types."""
        check_text(name=self.name)
        check_types((str, type(None)), sha256=self.sha256)
        if self.rows is not None:
            check_not_negative(rows=self.rows)


@frozen(kw_only=True)
class ColumnSpec:
    """A column that a model may see: its type, and how people call it and its values.

    `values` gives names to values of a categorical column, written as they are in the file. `absent` are values that say that there is
    nothing, such as 0 for the area of a pool that is not there: a row written as text leaves them out, or says "none". What either names
    is a value, even if it is None or NA, which is missing elsewhere: see `read_part`.

    >>> ColumnSpec(name="Pclass", type="categorical", title="class", values={"1": "first class"})
    ColumnSpec(name='Pclass', type='categorical', title='class', values=(('1', 'first class'),), absent=())
    """

    name: str
    type: ColumnType
    title: str = field(default=Factory(lambda self: humanize(self.name), takes_self=True))
    values: tuple[tuple[str, str], ...] = field(default=(), converter=_pairs)
    absent: tuple[str, ...] = field(default=(), converter=_texts)

    def __attrs_post_init__(self) -> None:
        """Check that it is a column, and that the names of its values can be told apart."""
        check_text(name=self.name, title=self.title)
        check_choice(get_args(ColumnType), type=self.type)
        if not self.name or not self.title:
            raise ArgumentError(f"A column needs a name and a title, got name={self.name!r}, title={self.title!r}.")
        if self.values and self.type != "categorical":
            raise ArgumentError(f"Column {self.name!r} names its values and is {self.type}. Make it categorical, or leave values out.")
        if self.type == "numerical":
            self._check_numbers()
        check_unique(
            {
                f"values of column {self.name!r}": [value for value, _ in self.values],
                f"names of the values of column {self.name!r}": [name for _, name in self.values],
            }
        )

    def _check_numbers(self) -> None:
        for value in self.absent:
            try:
                float(value)
            except ValueError as error:
                raise ArgumentError(
                    f"Column {self.name!r} is numerical, and absent has {value!r}, which is no number. Leave it out."
                ) from error


@frozen(kw_only=True)
class SubmissionSpec:
    """What a file to hand in looks like: its columns in order, the id first, and how predictions are spelled in it.

    >>> SubmissionSpec(columns=["PassengerId", "Survived"], spelling="integer").columns
    ('PassengerId', 'Survived')
    """

    columns: tuple[str, ...] = field(converter=_texts)
    spelling: Spelling

    def __attrs_post_init__(self) -> None:
        """Check the spelling and that columns are named once."""
        check_choice(get_args(Spelling), spelling=self.spelling)
        check_unique({"columns": self.columns})


@frozen(kw_only=True)
class DatasetSpec:
    """The facts of a competition's data set.

    `target` names the columns to predict: several for `multilabel`, and for a `regression` of several numbers. `classes` are the values of
    targets as the file writes them, in the order of their numbers: two for binary and multilabel, in their order for ordinal. `columns` are
    those that a model may see; what is in the files and not named here is left alone. Rows of one `group` belong together; `time` says
    when a row was. The number of features is `len(columns)`, those of samples are in the files.

    Raises `ArgumentError` for facts that contradict each other.

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

    See also: `infer_spec`, which proposes one; `check_spec`; `SPECS`, those that are known.
    """

    name: str
    kind: Kind
    train: FileSpec
    test: FileSpec | None = None
    sample: FileSpec | None = None
    id: str | None = None
    target: tuple[str, ...] = field(converter=_texts)
    classes: tuple[str, ...] = field(default=(), converter=_texts)
    group: str | None = None
    time: str | None = None
    columns: tuple[ColumnSpec, ...] = field(converter=_columns)
    metric: str
    submission: SubmissionSpec | None = None

    def __attrs_post_init__(self) -> None:
        """Check that the facts go together."""
        check_text(name=self.name, metric=self.metric)
        check_choice(get_args(Kind), kind=self.kind)
        check_types((str, type(None)), id=self.id, group=self.group, time=self.time)
        names = [column.name for column in self.columns]
        check_unique({"columns": names, "titles of columns": [column.title for column in self.columns], "target": self.target})
        for problem in (*self._target_problems(), *self._class_problems()):
            raise ArgumentError(f"The spec of {self.name!r}: {problem}")

    def _target_problems(self) -> tuple[str, ...]:
        apart = {*self.target, *([] if self.id is None else [self.id])}
        seen = sorted(apart & {column.name for column in self.columns})
        needed = {"time_series": ("time", self.time), "ranking": ("group", self.group)}.get(self.kind, ("", ""))
        return (
            *([] if self.target else ["it has no target. Name the column to predict."]),
            *([f"columns has {', '.join(map(repr, seen))}, and a model must not see the id or the target. Leave it out."] if seen else []),
            *([f"{self.kind} needs {needed[0]}, the name of a column."] if needed[1] is None else []),
        )

    def _class_problems(self) -> tuple[str, ...]:
        check_unique({"classes": self.classes})
        count, least = len(self.classes), 2 if self.kind in CLASSED else 0
        most = 2 if self.kind in ("binary", "multilabel") else None if self.kind in CLASSED else 0
        single = self.kind in CLASSED and self.kind != "multilabel" and len(self.target) > 1
        wanted = f"{least}" if least == most else f"at least {least}"
        return (
            *([f"{self.kind} has one target, got {len(self.target)}. Choose another kind, or one of them."] if single else []),
            *([f"{self.kind} has {wanted} classes, got {count}."] if count < least or (most is not None and count > most) else []),
        )
