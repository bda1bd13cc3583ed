"""From the rows of a competition to the batches of a network for tables: everything that is fitted for it, on the training rows alone."""

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

_EXAMPLES = 1024  # training rows by which the weights of a network are scaled: the standard deviations are then off by 2 %


@frozen(repr=False)
class TableRecipe:
    """Rows to numbers, categories and labels, as `fit_table_recipe` fitted them. A value: it depends on its training rows alone.

    Calling it with rows, of any part, appends the stages. Their output has the columns `numbers` and `categories`, as far as there are
    any (see `models.TableColumns`), and `labels` (as `target` has them, if the rows have the target). `low` and `high` are the ends of the
    scaled targets of the training rows.

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

    varies = False  # whether training rows differ between epochs
    tokenizer = None
    size_to_predict = 1024  # rows in a batch

    def __call__(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Append the stages; with labels where the rows have the target, in numbers."""
        return self._encode(rows, labelled=set(self.target.columns) <= set(schema(rows).names))

    def training(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Append the stages of training: rows need the target."""
        return self._encode(rows, labelled=True)

    def view(self, rows: Dataset[Any], number: int) -> Dataset[Any]:
        """Return rows to predict, without labels; all views are the same."""
        return self._encode(rows, labelled=False)

    def budget(self, rows: Dataset[Any]) -> None:
        """Count no tokens: there are none."""

    @property
    def smoothing(self) -> float:
        """The smoothing of the labels of classes in training: that of the network, unless probabilities are scored."""
        return TABLE_MODELS[self.network].smoothing if METRICS[self.spec.metric].needs == "labels" else 0.0

    @property
    def collator(self) -> Collator:
        """The collator of batches."""
        return default()

    @property
    def unlabelled(self) -> Collator:
        """The collator of batches to predict."""
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
    """Fit everything that turns rows into batches of the network `name`, on training rows whose targets are numbers.

    Numerical and categorical columns of the spec are read, and the words of texts. Raises `SchemaError` for rows that do not fit the spec,
    `DataError` for missing targets and without rows, `MissingExtraError` for texts without scikit-learn.

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


def make_table_model(  # noqa: PLR0913  # all but one have names
    recipe: TableRecipe,
    *,
    size: str,
    dropout: float | None = None,
    seed: int,
    steps: int | None = None,
    rows: Dataset[Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Make the network of a recipe, with weights drawn from `seed`, scaled by training `rows` if they are given.

    `steps` is the number of training steps, and `arguments` are other fields of the network's config. Raises what
    `models.create_table_model` raises.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["price"], "metric": "rmse"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", columns=[fp.kaggle.ColumnSpec(name="Rooms", type="numerical")], **about)
    >>> rows = fp.from_examples([{"Rooms": 3.0, "price": 10.0}, {"Rooms": 5.0, "price": 30.0}])
    >>> recipe = fit_table_recipe(spec, rows, "tabm")
    >>> make_table_model(recipe, size="tiny", seed=0)(mx.zeros((4, 1))).shape
    (4,)
    """
    found = recipe.target
    target = TableTarget(found.answer, found.outputs, found.mean, found.scale, recipe.low, recipe.high, found.log)
    examples = None
    if rows is not None:
        count = length(rows) or 0
        spread = select(np.arange(0, count, max(1, count // _EXAMPLES)))  # from all over the table, which may be sorted
        table = to_table(recipe.view(spread(rows), 0))
        examples = {each: mx.array(table.column(each).combine_chunks().to_numpy_ndarray()) for each in table.column_names}
    made = {"size": size, "dropout": dropout, "steps": steps, "seed": seed, "examples": examples, "arguments": arguments}
    return create_table_model(recipe.network, recipe.columns, target, **made)  # type: ignore[arg-type]  # their types are those above
