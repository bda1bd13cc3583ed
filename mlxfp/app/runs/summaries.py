"""Summary of a run before training: rows, columns, target, metric and folds, with the reason of each choice."""

from collections.abc import Iterator

import pyarrow as pa

from mlxfp import select_columns, to_table
from mlxfp.app.kaggle.estimators.columns import are_codes
from mlxfp.app.kaggle.specs.dates import column_order
from mlxfp.app.kaggle.specs.reading import DELIMITERS, PARTS, delimiter_of, typed_reader
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.runs.plans import Plan
from mlxfp.support.errors import listed

_NAMES = 4  # the summary lists at most 4 column names of each type, and at most 4 classes


def summarize(plan: Plan) -> str:
    """Return the lines of the summary."""
    return "\n".join(f"  {line}" for line in _lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    spec, folds = plan.data.spec, plan.folds
    if files := "; ".join(_delimiters(plan)):
        yield f"files: {files}"
    yield f"rows: {folds.size:,} for training, {_test_rows(plan)}"
    yield f"columns: {'; '.join(_columns(spec))}"
    if dates := _dates(plan):
        yield f"dates: {', '.join(dates)}; models of tables read day, month, weekday and hour; models of texts read words"
    if codes := _codes(plan):
        readers = "some models also read" if plan.auto else "the model also reads"
        yield f"codes: {listed(codes)}; {readers} these numbers as categories"
    yield f"target: {', '.join(spec.target)}, {_kind(spec)}"
    yield f"metric: {plan.metric.name}, {_metric_reason(plan)}"
    yield f"folds: {_folds(plan)}"


def _delimiters(plan: Plan) -> Iterator[str]:
    """Yield a text for each delimiter other than the comma, with the names of the CSV files."""
    paths = [path for part in PARTS if (path := plan.data.path_of(part)) is not None and typed_reader(path) is None]
    marks = {path.name: delimiter_of(path) for path in paths if plan.user_parts.rows is None}
    for mark, noun in DELIMITERS.items():
        if names := [name for name in marks if marks[name] == mark]:
            yield f"{noun} in {listed(names)}" + (", where numbers such as 12,5 are read as 12.5" if mark == ";" else "")


def _test_rows(plan: Plan) -> str:
    if plan.data.test is None:
        return "no test file"
    rows = to_table(select_columns([plan.data.spec.columns[0].name])(plan.data.test)).num_rows
    return f"{rows:,} for the test"


def _dates(plan: Plan) -> list[str]:
    """Return the names of the text and categorical columns that hold dates, and possibly a few words."""
    names = [column.name for column in plan.data.spec.columns if column.type in ("text", "categorical")]
    rows = to_table(select_columns(names)(plan.rows)) if names else None
    strings = [] if rows is None else [name for name in names if pa.types.is_string(rows.schema.field(name).type)]
    return [name for name in strings if rows is not None and column_order(rows.column(name)) is not None]


def _codes(plan: Plan) -> list[str]:
    """Return the names of whole-number columns that a model reads both as numbers and as categories, such as shop numbers or ZIP codes."""
    names = [column.name for column in plan.data.spec.columns if column.kind.is_number]
    if not names or not (plan.auto or plan.settings["model"]["codes"]):
        return []
    rows = to_table(select_columns(names)(plan.rows))
    return [name for name in names if are_codes(rows.column(name))]


def _columns(spec: DatasetSpec) -> Iterator[str]:
    """Yield a description of each column type: the number of columns and the first column names."""
    for kind in dict.fromkeys(column.type for column in spec.columns):
        names = [column.name for column in spec.columns if column.type == kind]
        more = ["..."] if len(names) > _NAMES else []
        yield f"{len(names)} {kind} ({', '.join([*names[:_NAMES], *more])})"
    if spec.id is not None:
        yield f"id {spec.id}"


def _kind(spec: DatasetSpec) -> str:
    if not spec.classes:
        return str(spec.kind)
    shown = ", ".join(spec.classes[:_NAMES]) + (", ..." if len(spec.classes) > _NAMES else "")
    return f"{spec.kind} with {len(spec.classes)} classes ({shown})"


def _metric_reason(plan: Plan) -> str:
    spec = plan.data.spec
    if not plan.inferred or plan.settings["competition"]["metric"] is not None:
        return "from the spec or the configuration"
    if plan.metric.name != spec.task.metrics[0] and plan.metric.needs == "probabilities":
        return "because the sample submission has probabilities"
    return f"the usual metric of {spec.kind} targets"


def _folds(plan: Plan) -> str:
    spec, folds = plan.data.spec, plan.folds
    reason = "random"
    if folds.forward:
        reason = f"in the order of {spec.time}, because the test rows are later" if plan.inferred else f"in the order of {spec.time}"
    elif folds.method == spec.task.grouped_folds:
        reason = f"by {spec.group}" + (", because no value of the column occurs in the test rows" if plan.inferred else "")
    elif folds.method == "stratified":
        reason = "with equal shares of the classes" if spec.task.has_classes else "with equal distributions of the target"
    return f"{folds.count} folds" + (f", repeated {folds.repeats} times" if folds.repeats > 1 else "") + f", {reason}"
