"""Conversion of competition rows to batches for text models. All fitted values come from the training rows."""

from collections.abc import Callable
from typing import Any, Literal

from attrs import evolve, field, frozen

from mlxfp import (
    Dataset,
    Template,
    Tokenizer,
    batch,
    collate,
    drop_fields,
    length,
    load,
    pipe,
    schema,
    select_columns,
    shuffle,
    template,
    tokenize,
    train_tokenizer,
)
from mlxfp.app.kaggle.rows.row_to_text import Bins, Form, Missing, find_quantiles, write_rows
from mlxfp.app.kaggle.rows.token_budgets import TokenBudget, token_budget
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.tasks.scaling import NUMBERS, Scales, fit_scales
from mlxfp.app.tasks.tables import TableRecipe
from mlxfp.app.tasks.targets import LABELS, Labelled, Target, fit_target
from mlxfp.collators import Collator
from mlxfp.collators import text as text_collator
from mlxfp.support.errors import ArgumentError

_MULTIPLE = 32  # batch lengths are multiples of 32, because MLX compiles once per shape


Ahead = Callable[[Dataset[Any]], Dataset[Any]]  # the stage `prefetch`


@frozen
class TextFormat:
    """Text format of rows. `form` and `numbers` select the text form and the number format: see `fit_row_to_text`.

    A `template` replaces the form and the number format. `numbers="none"` omits numerical columns. `bins` holds the quantiles of columns,
    computed from training rows by `fit_recipe`.

    >>> TextFormat("key_value", numbers="none").digits
    2
    """

    form: Form = "sentence"
    template: str | None = None
    missing: Missing = "drop"
    numbers: Literal["raw", "round", "quantile", "none"] = "round"
    digits: int = 2
    bins: Bins = field(factory=dict)

    def stage(self, spec: DatasetSpec, seed: int | None = None) -> Callable[[Dataset[Any]], Dataset[Any]]:
        """Return the stage that writes each row as text in the column `text`. With `seed`, each row has a random column order."""
        if self.template is not None:
            return template(self.template, policy="drop" if self.missing == "drop" else "say", seed=seed)
        spec, options = self._options(spec)
        return write_rows(spec, self.bins, seed=seed, **options)

    def fit(self, spec: DatasetSpec, rows: Dataset[Any]) -> "TextFormat":
        """Return the format with quantiles of the training rows if the number format is "quantile", otherwise an equal format."""
        self.stage(spec)  # raise the errors of wrong options
        return evolve(self, bins=find_quantiles(spec, rows, self.digits)) if self.numbers == "quantile" and self.template is None else self

    def _options(self, spec: DatasetSpec) -> tuple[DatasetSpec, dict[str, Any]]:
        """Return two results: a spec with only the columns to write as text, and the options for `fit_row_to_text`."""
        options = {"form": self.form, "missing": self.missing, "numbers": self.numbers, "digits": self.digits}
        if self.numbers != "none":
            return spec, options
        columns = [column for column in spec.columns if not column.kind.is_number]
        if not columns:
            raise ArgumentError(f"numbers='none' removes all columns of {spec.name!r}, because all are numerical. Use numbers='round'.")
        return evolve(spec, columns=columns), options | {"numbers": "raw"}


@frozen(repr=False)
class Recipe:
    """Fitted conversion of rows to tokens, scaled numbers and labels. Returned by `fit_recipe`.

    A call `recipe(rows)` adds the conversion stages to a dataset with training, validation or test rows. The output columns are:

    - `input_ids`: lists of int32
    - `numbers`: lists of float32, if the recipe has `scales`
    - `labels`: training labels, if the rows have the target (see `target`)

    The output of a row does not depend on other rows. `training(rows)` can also permute columns and hide values, differently in each
    epoch.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["price"], "metric": "rmse"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", columns=[fp.kaggle.ColumnSpec(name="Rooms", type="numerical")], **about)
    >>> rows = fp.from_examples([{"Rooms": 3.0, "price": 10.0}, {"Rooms": 5.0, "price": 30.0}])
    >>> recipe = fit_recipe(spec, rows, numeric=True)
    >>> [(row["numbers"], row["labels"]) for row in recipe(rows)]
    [([-1.0], -1.0), ([1.0], 1.0)]
    >>> sorted(next(iter(recipe(fp.from_examples([{"Rooms": 4.0}])))))
    ['input_ids', 'numbers']

    See also: `collator` and `unlabelled`, for batches of the output; `target.read`, for converting model answers to predictions.
    """

    spec: DatasetSpec
    format: TextFormat
    tokenizer: Tokenizer
    target: Target
    scales: Scales | None = None
    max_length: int = 128
    overflow: Literal["refuse", "cut"] = "refuse"
    permute: bool = False
    drop: float = 0.0
    seed: int = 0

    smoothing = 0.0  # label smoothing of classes in training
    size_to_predict = 64  # batch size for prediction

    def __call__(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Append the conversion stages to the dataset `rows`. The result has labels if the rows have numeric targets."""
        return self._encode(self.text(rows), labelled=set(self.target.columns) <= set(schema(rows).names))

    def training(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Append the conversion stages for training to the dataset `rows`, which must have the target.

        With `permute`, rows have a random column order. With `drop`, random values are hidden. The random choices differ between epochs.
        """
        columns = [column.name for column in self.spec.columns]
        hidden = rows if not self.drop else drop_fields(self.drop, columns, seed=self.seed)(rows)
        # A different column order can add one token to a text after `budget` has counted the tokens. Tokens beyond `max_length` are cut.
        return self._encode(self.text(hidden, seed=self.seed if self.permute else None), labelled=True, may_cut=True)

    def text(self, rows: Dataset[Any], *, seed: int | None = None) -> Dataset[Any]:
        """Append a stage that writes each row as text in the column `text`. With `seed`, each row has a random column order."""
        return self.format.stage(self.spec, seed)(rows)

    def view(self, rows: Dataset[Any], number: int) -> Dataset[Any]:
        """Return rows for prediction, without labels. With `number=0`, the column order is the original order, otherwise a random order."""
        return self._encode(self.text(rows, seed=None if number == 0 else self.seed + number), labelled=False, may_cut=number > 0)

    def budget(self, rows: Dataset[Any]) -> TokenBudget:
        """Count the tokens of rows. Raise `DataError` for rows longer than `max_length`, unless `overflow="cut"`."""
        return token_budget(self.text(rows), self.tokenizer, max_length=self.max_length, overflow=self.overflow)

    @property
    def collator(self) -> Collator:
        """Collator of training batches: token ids, attention mask, labels and scaled numbers."""
        return self._collator(LABELS)

    @property
    def unlabelled(self) -> Collator:
        """Collator of prediction batches: token ids, attention mask and scaled numbers."""
        return self._collator(None)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Possible lengths of batches."""
        return tuple(sorted({*range(_MULTIPLE, self.max_length, _MULTIPLE), self.max_length}))

    @property
    def varies(self) -> bool:
        """True if training rows differ between epochs."""
        return self.permute or self.drop > 0

    def __repr__(self) -> str:
        numbers = "" if self.scales is None else f", {self.scales.count} numbers"
        return f"Recipe({self.spec.name!r}: {self.tokenizer!r}{numbers}, {self.target.answer} of {self.target.outputs})"

    def _collator(self, label: str | None) -> Collator:
        kind: Any = "class" if self.target.answer == "class" else "value"
        numbers = [] if self.scales is None else [NUMBERS]
        classes = self.target.outputs if label and kind == "class" else None
        return text_collator(
            pad_id=self.tokenizer.pad_id, label=label, label_kind=kind, classes=classes, lengths=self.lengths, carry=numbers
        )

    def _encode(self, rows: Dataset[Any], *, labelled: bool, may_cut: bool = False) -> Dataset[Any]:
        keep = ["input_ids"]
        if self.scales is not None:
            rows, keep = self.scales(rows), [*keep, NUMBERS]
        if labelled:  # add the labels last, because an input column may also be named "labels"
            rows, keep = Labelled(self.target)(rows), [*keep, LABELS]
        truncation: Any = "error" if self.overflow == "refuse" and not may_cut else "right"
        return pipe(rows, tokenize(self.tokenizer, max_length=self.max_length, truncation=truncation), select_columns(keep))


AnyRecipe = Recipe | TableRecipe
TokenizerKind = Literal["bpe", "wordpiece", "unigram"]


def fit_recipe(  # noqa: PLR0913  # keyword-only arguments with defaults
    spec: DatasetSpec,
    rows: Dataset[Any],
    *,
    format: TextFormat | None = None,
    tokenizer: Tokenizer | None = None,
    kind: TokenizerKind = "wordpiece",
    vocab_size: int = 2000,
    max_length: int = 128,
    overflow: Literal["refuse", "cut"] = "refuse",
    permute: bool = False,
    drop: float = 0.0,
    numeric: bool = False,
    seed: int = 0,
) -> Recipe:
    """Fit quantiles, vocabulary and scales for the conversion of rows to batches. `rows` are training rows with numeric targets.

    Without `tokenizer`, a tokenizer with the given `kind` and `vocab_size` is trained on the text of the rows. With `numeric`,
    numerical columns are scaled and added to the inputs of the model head. The rows are read once for each of these fits, in epoch 0.

    Raises `ArgumentError` for options that cannot be combined, and for a template that would show the target to the model. Raises
    `SchemaError` for rows that do not fit the spec. Raises `DataError` if a target is missing or if there are no rows.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["Survived"], "classes": ["0", "1"], "metric": "accuracy"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="binary", columns=[fp.kaggle.ColumnSpec(name="Age", type="numerical")], **about)
    >>> rows = fp.from_examples([{"Age": 22.0, "Survived": 1}, {"Age": 35.0, "Survived": 0}])
    >>> recipe = fit_recipe(spec, rows)
    >>> next(iter(recipe(rows)))["labels"], recipe.tokenizer.decode(next(iter(recipe(rows)))["input_ids"])
    (1, 'survived or not? the age is 22.')
    """
    _check_columns(spec, format or TextFormat(), numeric=numeric)
    fitted = (format or TextFormat()).fit(spec, rows)
    if tokenizer is None:
        tokenizer = train_tokenizer(fitted.stage(spec)(rows), kind=kind, vocab_size=vocab_size, lowercase=kind == "wordpiece")
    scales = fit_scales(spec, rows) if numeric else None
    return Recipe(spec, fitted, tokenizer, fit_target(spec, rows), scales, max_length, overflow, permute, drop, seed)


def training_batches(recipe: AnyRecipe, rows: Dataset[Any], *, size: int, seed: int, ahead: Ahead | None = None) -> Dataset[Any]:
    """Return training batches, with a different order in each epoch. If there are enough rows, all batches have the same size.

    Rows that do not vary between epochs are tokenized once and kept in memory. The stage `ahead` prepares batches in advance.
    """
    encoded = recipe.training(rows) if recipe.varies else load()(recipe(rows))
    whole = (length(rows) or 0) >= size
    batches = pipe(encoded, shuffle(seed=seed), batch(size, drop_last=whole), collate(recipe.collator))
    return batches if ahead is None else ahead(batches)


def labelled_batches(recipe: AnyRecipe, rows: Dataset[Any]) -> Dataset[Any]:
    """Return batches for evaluation, in row order. Rows are tokenized once and kept in memory."""
    return pipe(recipe(rows), load(), batch(recipe.size_to_predict), collate(recipe.collator))


def _check_columns(spec: DatasetSpec, format: TextFormat, *, numeric: bool) -> None:
    shown = () if format.template is None else Template(format.template).columns
    hidden = [name for name in (*spec.target, spec.id) if name in shown]
    if hidden:
        raise ArgumentError(
            f"A model must not see the target or the id, but template={format.template!r:.80} contains {hidden[0]!r}. Remove this field."
        )
    scaled = [column.name for column in spec.columns if column.kind.is_number and numeric]
    conflicts = [name for name in (*spec.target, *scaled) if name == "text" or (numeric and name == NUMBERS and name not in scaled)]
    if conflicts:
        raise ArgumentError(
            f"The column {conflicts[0]!r} of {spec.name!r} has the name of a column that the recipe adds. Rename the column."
        )
