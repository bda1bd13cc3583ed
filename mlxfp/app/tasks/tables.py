"""Conversion of competition rows to batches for table networks. All fitted values come from the training rows."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import frozen
from mlx import nn

from mlxfp import Dataset, length, schema, select, select_columns, to_table
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.validation.scoring import METRICS
from mlxfp.app.tasks.targets import LABELS, Labelled, Target, fit_target
from mlxfp.collators import Collator, default
from mlxfp.models import CATEGORIES, NUMBERS, TABLE_MODELS, TableColumns, TableTarget, create_table_model, fit_columns
from mlxfp.support.arrow_types import is_list_like

_EXAMPLES = 1024  # number of training rows for scaling the initial weights; enough to estimate standard deviations within about 2 %


@frozen(repr=False)
class TableRecipe:
    """Fitted conversion of rows to numbers, categories and labels. Returned by `fit_table_recipe`.

    A call `recipe(rows)` adds the conversion stages to a dataset with training, validation or test rows. The output columns are:

    - `numbers` and `categories`, if the spec has numerical or categorical columns (see `models.TableColumns`)
    - `labels`, if the rows have the target (see `target`)

    `low` and `high` are the smallest and largest scaled targets of the training rows.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["price"], "metric": "rmse"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", columns=[fp.kaggle.ColumnSpec(name="Rooms", type="numerical")], **about)
    >>> rows = fp.from_examples([{"Rooms": 3.0, "price": 10.0}, {"Rooms": 5.0, "price": 30.0}])
    >>> recipe = fit_table_recipe(spec, rows, "realmlp")
    >>> [(row["numbers"].shape, row["labels"]) for row in recipe(rows)], recipe.low
    ([((1,), -1.0), ((1,), 1.0)], (-1.0,))

    See also: `Recipe`, for models that read rows as text.
    """

    network: str
    spec: DatasetSpec
    columns: TableColumns
    target: Target
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    varies = False  # training rows are the same in every epoch
    tokenizer = None
    size_to_predict = 1024  # batch size for prediction

    def __call__(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Append the conversion stages to the dataset `rows`. The result has labels if the rows have numeric targets."""
        return self._encode(rows, labelled=set(self.target.columns) <= set(schema(rows).names))

    def training(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Append the conversion stages for training to the dataset `rows`, which must have the target."""
        return self._encode(rows, labelled=True)

    def view(self, rows: Dataset[Any], number: int) -> Dataset[Any]:
        """Return rows without labels, for prediction. The argument `number` has no effect in recipes of tables."""
        return self._encode(rows, labelled=False)

    def budget(self, rows: Dataset[Any]) -> None:
        """Return None, because table networks read no tokens."""

    @property
    def smoothing(self) -> float:
        """Label smoothing in training: the default of the network if the metric compares class labels, otherwise 0."""
        return TABLE_MODELS[self.network].smoothing if METRICS[self.spec.metric].needs == "labels" else 0.0

    @property
    def collator(self) -> Collator:
        """Collator of training batches."""
        return default()

    @property
    def unlabelled(self) -> Collator:
        """Collator of prediction batches."""
        return default()

    def __repr__(self) -> str:
        return f"TableRecipe({self.spec.name!r}: {self.columns!r}, {self.target.answer} of {self.target.outputs})"

    def _encode(self, rows: Dataset[Any], *, labelled: bool) -> Dataset[Any]:
        read = [*self.columns.names, *(self.target.columns if labelled else ())]
        encoded, keep = self.columns(select_columns(list(dict.fromkeys(read)))(rows)), []
        keep += [NUMBERS] if self.columns.numbers else []
        keep += [CATEGORIES] if self.columns.kinds else []
        if labelled:
            encoded, keep = Labelled(self.target)(encoded), [*keep, LABELS]
        return select_columns(keep)(encoded)


def fit_table_recipe(spec: DatasetSpec, rows: Dataset[Any], name: str) -> TableRecipe:
    """Fit the conversion of rows to batches for a table network, on training rows with numeric targets.

    The argument `name` is the name of the network. The conversion uses numerical columns, categorical columns, and words of text columns.

    Raises `SchemaError` for rows that do not fit the spec. Raises `DataError` if a target is missing or if there are no rows. Raises
    `MissingExtraError` for text columns if scikit-learn is not installed.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["Survived"], "classes": ["0", "1"], "metric": "accuracy"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="binary", columns=[fp.kaggle.ColumnSpec(name="Sex", type="categorical")], **about)
    >>> rows = fp.from_examples([{"Sex": "m", "Survived": 1}, {"Sex": "f", "Survived": 0}])
    >>> fit_table_recipe(spec, rows, "tabm")
    TableRecipe('x': TableColumns(0 of numbers, 1 of categories), class of 2)
    """
    numbers = [column.name for column in spec.columns if column.kind.is_number]
    named = [column.name for column in spec.columns if not column.kind.is_number and column.kind.has_names]
    texts = [column.name for column in spec.columns if column.name not in (*numbers, *named)]
    columns = fit_columns(rows, numbers=numbers, categories=named, texts=texts, bins=TABLE_MODELS[name].bins)
    target = fit_target(spec, rows)
    if target.answer != "value":
        return TableRecipe(name, spec, columns, target)
    labels = to_table(select_columns([LABELS])(Labelled(target)(select_columns(list(spec.target))(rows)))).column(LABELS).combine_chunks()
    values = np.asarray((labels.flatten() if is_list_like(labels.type) else labels).to_numpy()).reshape(len(labels), -1)
    low, high = (tuple(map(float, ends)) for ends in (values.min(axis=0), values.max(axis=0)))
    return TableRecipe(name, spec, columns, target, low, high)


def make_table_model(  # noqa: PLR0913  # keyword-only arguments
    recipe: TableRecipe,
    *,
    size: str,
    dropout: float | None = None,
    seed: int,
    steps: int | None = None,
    rows: Dataset[Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Create a table network for the inputs and the target of `recipe`. Training `rows`, if given, determine the initial weights.

    `seed` is the seed of random weights, and `steps` the number of training steps. `arguments` are additional fields of the network
    config. Raises the errors of `models.create_table_model`.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["price"], "metric": "rmse"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", columns=[fp.kaggle.ColumnSpec(name="Rooms", type="numerical")], **about)
    >>> rows = fp.from_examples([{"Rooms": 3.0, "price": 10.0}, {"Rooms": 5.0, "price": 30.0}])
    >>> recipe = fit_table_recipe(spec, rows, "tabm")
    >>> make_table_model(recipe, size="tiny", seed=0)(mx.zeros((4, 1))).shape
    (4,)
    """
    fitted = recipe.target
    target = TableTarget(fitted.answer, fitted.outputs, fitted.mean, fitted.scale, recipe.low, recipe.high, fitted.log)
    examples = None
    if rows is not None:
        count = length(rows) or 0
        spread = select(np.arange(0, count, max(1, count // _EXAMPLES)))  # take evenly spaced rows, because the table may be sorted
        table = to_table(recipe.view(spread(rows), 0))
        examples = {name: mx.array(table.column(name).combine_chunks().to_numpy_ndarray()) for name in table.column_names}
    options = {"size": size, "dropout": dropout, "steps": steps, "seed": seed, "examples": examples, "arguments": arguments}
    return create_table_model(recipe.network, recipe.columns, target, **options)  # type: ignore[arg-type]  # their types are those above
