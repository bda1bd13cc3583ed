"""From the rows of a competition to the batches of a model: everything that is fitted for it, on the training rows alone."""

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
    prefetch,
    schema,
    select_columns,
    shuffle,
    template,
    tokenize,
    train_tokenizer,
)
from mlxfp.app.kaggle.rows.row_to_text import Bins, Form, Missing, fit_row_to_text, write_rows
from mlxfp.app.kaggle.rows.token_budgets import TokenBudget, token_budget
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.tasks.scaling import NUMBERS, Scales, fit_scales
from mlxfp.app.tasks.tables import TableRecipe
from mlxfp.app.tasks.targets import LABELS, Labelled, Target, fit_target
from mlxfp.collators import Collator
from mlxfp.collators import text as text_collator
from mlxfp.support.errors import ArgumentError

_MULTIPLE = 32  # batch lengths are multiples of it: few shapes, so few compilations


@frozen
class TextFormat:
    """How a row is rendered as text: in a `form`, with numbers in a style, or by a `template` instead, which ignores both.

    With `numbers="none"`, numerical columns are left out. `bins` are the quantiles of columns, computed from training rows by `fit_recipe`.

    >>> TextFormat("key_value", numbers="none").digits
    2
    """

    form: Form = "sentence"
    template: str | None = None
    missing: Missing = "drop"
    numbers: Literal["raw", "round", "significant", "quantile", "none"] = "round"
    digits: int = 2
    bins: Bins = field(factory=dict)

    def stage(self, spec: DatasetSpec, seed: int | None = None) -> Callable[[Dataset[Any]], Dataset[Any]]:
        """Return the stage that adds the column `text`; with `seed`, columns come in another order in every row."""
        if self.template is not None:
            return template(self.template, policy="drop" if self.missing == "drop" else "say", seed=seed)
        spec, options = self._options(spec)
        return write_rows(spec, self.bins, seed=seed, **options)

    def fit(self, spec: DatasetSpec, rows: Dataset[Any]) -> "TextFormat":
        """Return this format with the quantiles of the training rows, if it has any."""
        if self.template is not None:
            return self
        spec, options = self._options(spec)
        rendering: Any = fit_row_to_text(spec, rows, **options)
        return evolve(self, bins=rendering.bins)

    def _options(self, spec: DatasetSpec) -> tuple[DatasetSpec, dict[str, Any]]:
        """Return a spec of the columns to render, and the options of `fit_row_to_text`."""
        options = {"form": self.form, "missing": self.missing, "numbers": self.numbers, "digits": self.digits}
        if self.numbers != "none":
            return spec, options
        columns = [column for column in spec.columns if not column.kind.is_number]
        if not columns:
            raise ArgumentError(f"numbers='none' leaves {spec.name!r} no columns: all of them are numerical. Render them: numbers='round'.")
        return evolve(spec, columns=columns), options | {"numbers": "raw"}


@frozen(repr=False)
class Recipe:
    """Rows to tokens, scaled numbers and labels, as `fit_recipe` fitted them. A value: it depends on its training rows, and on no others.

    Calling it with rows, of any part, appends the stages. Their output has the columns `input_ids` (lists of int32), `numbers` (lists of
    float32, if there are `scales`) and `labels` (as `target` has them, if the rows have the target). The output of a row does not depend
    on other rows. `training(rows)` also permutes columns and hides values, if asked for, differently in each epoch.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["price"], "metric": "rmse"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", columns=[fp.kaggle.ColumnSpec(name="Rooms", type="numerical")], **about)
    >>> rows = fp.from_examples([{"Rooms": 3.0, "price": 10.0}, {"Rooms": 5.0, "price": 30.0}])
    >>> recipe = fit_recipe(spec, rows, numeric=True)
    >>> [(row["numbers"], row["labels"]) for row in recipe(rows)]
    [([-1.0], -1.0), ([1.0], 1.0)]
    >>> sorted(next(iter(recipe(fp.from_examples([{"Rooms": 4.0}])))))
    ['input_ids', 'numbers']

    See also: `collator` and `unlabelled`, which make batches of it; `target.read`, which turns a model's answers into predictions.
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

    smoothing = 0.0  # of the labels of classes in training
    size_to_predict = 64  # rows in a batch

    def __call__(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Append the stages; with labels where the rows have the target, in numbers."""
        return self._encode(self.text(rows), labelled=set(self.target.columns) <= set(schema(rows).names))

    def training(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Append the stages of training: rows need the target, and differ between epochs with `permute` and `drop`."""
        columns = [column.name for column in self.spec.columns]
        hidden = rows if not self.drop else drop_fields(self.drop, columns, seed=self.seed)(rows)
        # Another order of columns may be a token longer than the one that was counted.
        return self._encode(self.text(hidden, seed=self.seed if self.permute else None), labelled=True, may_cut=True)

    def text(self, rows: Dataset[Any], *, seed: int | None = None) -> Dataset[Any]:
        """Append the stage that adds the column `text`; with `seed`, columns come in another order in every row."""
        return self.format.stage(self.spec, seed)(rows)

    def view(self, rows: Dataset[Any], number: int) -> Dataset[Any]:
        """Return one of several views of rows to predict, without labels: view 0 as they are, others with columns in other orders."""
        return self._encode(self.text(rows, seed=None if number == 0 else self.seed + number), labelled=False, may_cut=number > 0)

    def budget(self, rows: Dataset[Any]) -> TokenBudget:
        """Count the tokens of rows; raises `DataError` if some are longer than `max_length`, unless they may be cut."""
        return token_budget(self.text(rows), self.tokenizer, max_length=self.max_length, overflow=self.overflow)

    @property
    def collator(self) -> Collator:
        """The collator of training batches: ids, mask, labels and numbers."""
        return self._collator(LABELS)

    @property
    def unlabelled(self) -> Collator:
        """The collator of batches to predict: the same without labels."""
        return self._collator(None)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that batches may have."""
        return tuple(sorted({*range(_MULTIPLE, self.max_length, _MULTIPLE), self.max_length}))

    @property
    def varies(self) -> bool:
        """Whether training rows differ between epochs."""
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
        if labelled:  # after all stages that read columns: one of these may be called labels
            rows, keep = Labelled(self.target)(rows), [*keep, LABELS]
        truncation: Any = "error" if self.overflow == "refuse" and not may_cut else "right"
        return pipe(rows, tokenize(self.tokenizer, max_length=self.max_length, truncation=truncation), select_columns(keep))


AnyRecipe = Recipe | TableRecipe
TokenizerKind = Literal["bpe", "wordpiece", "unigram"]


def fit_recipe(  # noqa: PLR0913  # what has a default is keyword-only
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
    """Fit everything that turns rows into batches, on training rows whose targets are numbers: quantiles, vocabulary, scales.

    Without a `tokenizer`, one of a `kind` and `vocab_size` is trained on the text of the rows. With `numeric`, numerical columns are scaled
    for the model's head. Reads the rows, in epoch 0, once for each of those.

    Raises `ArgumentError` for options that contradict each other or the spec, such as a template with the target; `SchemaError` for rows
    that do not fit the spec; `DataError` for missing targets, and without rows.

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


def training_batches(recipe: AnyRecipe, rows: Dataset[Any], *, size: int, seed: int, prefetched: int = 0) -> Dataset[Any]:
    """Return the batches of training rows: in another order each epoch, all of one size if there are enough rows.

    Rows that are the same in each epoch are tokenized once, and held in memory.
    """
    encoded = recipe.training(rows) if recipe.varies else load()(recipe(rows))
    whole = (length(rows) or 0) >= size
    made = pipe(encoded, shuffle(seed=seed), batch(size, drop_last=whole), collate(recipe.collator))
    return prefetch(prefetched)(made) if prefetched else made


def labelled_batches(recipe: AnyRecipe, rows: Dataset[Any]) -> Dataset[Any]:
    """Return batches to evaluate with, in the order of the rows; tokenized once, and held in memory."""
    return pipe(recipe(rows), load(), batch(recipe.size_to_predict), collate(recipe.collator))


def _check_columns(spec: DatasetSpec, format: TextFormat, *, numeric: bool) -> None:
    shown = () if format.template is None else Template(format.template).columns
    hidden = [name for name in (*spec.target, spec.id) if name in shown]
    if hidden:
        raise ArgumentError(
            f"A model must not see the target or the id, and template={format.template!r:.80} shows {hidden[0]!r}. Leave it out."
        )
    scaled = [column.name for column in spec.columns if column.kind.is_number and numeric]
    taken = [name for name in (*spec.target, *scaled) if name == "text" or (numeric and name == NUMBERS and name not in scaled)]
    if taken:
        raise ArgumentError(f"A numerical column of {spec.name!r} is named {taken[0]!r}, as a column that is added to the rows. Rename it.")
