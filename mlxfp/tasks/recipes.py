"""From the rows of a competition to what a model is given: all that is learned for it, from the training rows alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import evolve, field, frozen

from mlxfp.collators.columns import Collator
from mlxfp.collators.texts import text as text_collator
from mlxfp.config.classes import ModelConfig, TextConfig
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import schema
from mlxfp.core.errors import ArgumentError, DataError
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.augmenting import drop_fields
from mlxfp.data.rows.columns import select_columns
from mlxfp.kaggle.rows.numbers import NumberStyle
from mlxfp.kaggle.rows.row_to_text import Bins, fit_row_to_text, write_rows
from mlxfp.kaggle.rows.token_budgets import TokenBudget, token_budget
from mlxfp.kaggle.specs.specs import DatasetSpec
from mlxfp.tasks.scaling import NUMBERS, Scale, Scales, fit_scales
from mlxfp.tasks.targets import LABELS, Labelled, Target, fit_target
from mlxfp.text.templates.templates import Template, template
from mlxfp.text.tokenizers.files import load_tokenizer
from mlxfp.text.tokenizers.tokenizer import Tokenizer
from mlxfp.text.tokenizers.training import train_tokenizer
from mlxfp.text.tokenizing import tokenize

_MULTIPLE = 32  # lengths of batches are multiples of it: few shapes, so few compilations
TRAINED = ("wordpiece", "bpe", "unigram")


@frozen(repr=False)
class Recipe:
    """Rows to tokens, scaled numbers and labels, as `fit_recipe` found it. A value: it knows its training rows, and no others.

    Calling it with rows, of any part, appends the stages. What comes out has the columns `input_ids` (lists of int32), `numbers` (lists
    of float32, as `scales` has them, if there are such) and `labels` (as `target` has them, if the rows have the target). A row comes out
    the same, whatever other rows there are. `training(rows)` is the same with what is done to training rows only: columns in another
    order, values hidden; it is another one in each epoch.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> from mlxfp.kaggle.specs.specs import ColumnSpec, FileSpec
    >>> about = {"train": FileSpec(name="a.csv"), "target": ["price"], "metric": "rmse"}
    >>> spec = DatasetSpec(name="x", kind="regression", columns=[ColumnSpec(name="Rooms", type="numerical")], **about)
    >>> rows = from_examples([{"Rooms": 3.0, "price": 10.0}, {"Rooms": 5.0, "price": 30.0}])
    >>> recipe = fit_recipe(spec, rows, model=ModelConfig(numeric=True))
    >>> [(row["numbers"], row["labels"]) for row in recipe(rows)]
    [([-1.0], -1.0), ([1.0], 1.0)]
    >>> sorted(next(iter(recipe(from_examples([{"Rooms": 4.0}])))))
    ['input_ids', 'numbers']

    See also: `collator` and `unlabelled`, which make batches of it; `target.read`, which turns what a model answers into predictions.
    """

    spec: DatasetSpec
    config: TextConfig
    tokenizer: Tokenizer
    target: Target
    scales: Scales | None = None
    bins: Bins = field(factory=dict)
    seed: int = 0

    def __call__(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Append the stages; with labels where the rows have the target, in numbers."""
        return self._encoded(self.text(rows), labelled=set(self.target.columns) <= set(schema(rows).names))

    def training(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Append the stages as for training: rows need the target, and differ from epoch to epoch with `permute` and `drop`."""
        columns = [column.name for column in self.spec.columns]
        hidden = rows if not self.config.drop else drop_fields(self.config.drop, columns, seed=self.seed)(rows)
        written = self.text(hidden, seed=self.seed if self.config.permute else None)
        # Another order of columns may be a token longer than the one that was counted.
        return self._encoded(written, labelled=True, cuts=True)

    def text(self, rows: Dataset[Any], *, seed: int | None = None) -> Dataset[Any]:
        """Append the stage that writes the rows as text, in the column `text`; with `seed`, columns in another order in every row."""
        written: Dataset[Any] = _writing(self.spec, self.config, self.bins, seed)(rows)
        return written

    def view(self, rows: Dataset[Any], number: int) -> Dataset[Any]:
        """See rows to predict in one of several ways, without labels: view 0 as they are, others with columns in other orders."""
        return self._encoded(self.text(rows, seed=None if number == 0 else self.seed + number), labelled=False, cuts=number > 0)

    def budget(self, rows: Dataset[Any]) -> TokenBudget:
        """Count the tokens of rows; raises `DataError` if some are longer than `max_length`, unless they may be cut."""
        config = self.config
        try:
            return token_budget(self.text(rows), self.tokenizer, max_length=config.max_length, overflow=config.overflow)
        except DataError as error:
            error.add_note("In a configuration these are text.max_length, text.form=key_value, and text.overflow=cut.")
            raise

    @property
    def collator(self) -> Collator:
        """What makes batches of training rows: ids, mask, labels and numbers."""
        return self._collator(LABELS)

    @property
    def unlabelled(self) -> Collator:
        """What makes batches of rows to predict: the same without labels."""
        return self._collator(None)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that batches may have."""
        longest = self.config.max_length
        return tuple(sorted({*range(_MULTIPLE, longest, _MULTIPLE), longest}))

    def __repr__(self) -> str:
        """Say what it is for, and what it makes."""
        numbers = "" if self.scales is None else f", {self.scales.count} numbers"
        return f"Recipe({self.spec.name!r}: {self.tokenizer!r}{numbers}, {self.target.answer} of {self.target.outputs})"

    def _collator(self, label: str | None) -> Collator:
        kind: Any = "class" if self.target.answer == "class" else "value"
        numbers = [] if self.scales is None else [NUMBERS]
        classes = self.target.outputs if label and kind == "class" else None
        return text_collator(
            pad_id=self.tokenizer.pad_id, label=label, label_kind=kind, classes=classes, lengths=self.lengths, carry=numbers
        )

    def _encoded(self, rows: Dataset[Any], *, labelled: bool, cuts: bool = False) -> Dataset[Any]:
        config, keep = self.config, ["input_ids"]
        if self.scales is not None:
            rows, keep = self.scales(rows), [*keep, NUMBERS]
        if labelled:  # after all that reads columns: one of them may be called labels
            rows, keep = Labelled(self.target)(rows), [*keep, LABELS]
        truncation: Any = "error" if config.overflow == "refuse" and not cuts else "right"
        return pipe(rows, tokenize(self.tokenizer, max_length=config.max_length, truncation=truncation), select_columns(keep))


def fit_recipe(
    spec: DatasetSpec,
    rows: Dataset[Any],
    *,
    text: TextConfig | None = None,
    model: ModelConfig | None = None,
    seed: int = 0,
) -> Recipe:
    """Learn from training rows, whose targets are numbers, all that turns rows into batches: quantiles, vocabulary, scales.

    The tokenizer is trained on these rows as text, or read from `text.tokenizer`, or from the folder of a pretrained model. With
    `text.template`, the template alone says what is written, and of `text` `form`, `numbers` and `digits` say nothing. Reads the rows, in
    epoch 0, once for each of those.

    Raises `ArgumentError` for a configuration that contradicts itself or the spec, such as a template that shows the target; `SchemaError`
    for rows that do not fit the spec; `DataError` for targets that are missing, and where there are no rows.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> from mlxfp.kaggle.specs.specs import ColumnSpec, FileSpec
    >>> about = {"train": FileSpec(name="a.csv"), "target": ["Survived"], "classes": ["0", "1"], "metric": "accuracy"}
    >>> spec = DatasetSpec(name="x", kind="binary", columns=[ColumnSpec(name="Age", type="numerical")], **about)
    >>> rows = from_examples([{"Age": 22.0, "Survived": 1}, {"Age": 35.0, "Survived": 0}])
    >>> recipe = fit_recipe(spec, rows)
    >>> next(iter(recipe(rows)))["labels"], recipe.tokenizer.decode(next(iter(recipe(rows)))["input_ids"])
    (1, 'survived or not? the age is 22.')
    """
    text, model = text or TextConfig(), model or ModelConfig()
    _check(spec, text, model)
    bins: Bins = {}
    if text.template is None:
        said, numbers = _said(spec, text)
        written: Any = fit_row_to_text(said, rows, form=text.form, missing=text.missing, numbers=numbers, digits=text.digits)
        bins = written.bins
    tokenizer = _tokenizer(text, model, _writing(spec, text, bins, None)(rows))
    scales = fit_scales(spec, rows) if model.numeric else None
    return Recipe(spec, text, tokenizer, fit_target(spec, rows), scales, bins, seed)


def recipe_to_plain(recipe: Recipe) -> dict[str, Any]:
    """Return what a recipe has learned as plain values, for a file; `recipe_from_plain` makes an equal one, with spec and config.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> from mlxfp.kaggle.specs.specs import ColumnSpec, FileSpec
    >>> about = {"train": FileSpec(name="a.csv"), "target": ["price"], "metric": "rmse"}
    >>> spec = DatasetSpec(name="x", kind="regression", columns=[ColumnSpec(name="Rooms", type="numerical")], **about)
    >>> recipe = fit_recipe(spec, from_examples([{"Rooms": 3.0, "price": 10.0}, {"Rooms": 5.0, "price": 30.0}]))
    >>> plain = recipe_to_plain(recipe)
    >>> sorted(plain), recipe_from_plain(plain, spec, recipe.config) == recipe
    (['bins', 'scales', 'seed', 'target', 'tokenizer'], True)
    """
    return {
        "tokenizer": attrs.asdict(recipe.tokenizer),
        "target": attrs.asdict(recipe.target),
        "scales": None if recipe.scales is None else [attrs.asdict(scale) for scale in recipe.scales.scales],
        "bins": {name: [list(each) for each in bins] for name, bins in recipe.bins.items()},
        "seed": recipe.seed,
    }


def recipe_from_plain(values: Mapping[str, Any], spec: DatasetSpec, config: TextConfig) -> Recipe:
    """Make a recipe of what `recipe_to_plain` returned."""
    scales = values["scales"]
    return Recipe(
        spec,
        config,
        Tokenizer(**values["tokenizer"]),
        _target(**{name: tuple(value) if isinstance(value, list) else value for name, value in values["target"].items()}),
        None if scales is None else Scales(tuple(Scale(**{**each, "absent": tuple(each["absent"])}) for each in scales)),
        {name: tuple((float(low), int(below)) for low, below in bins) for name, bins in values["bins"].items()},
        int(values["seed"]),
    )


def _target(**values: Any) -> Target:
    return Target(**values)


def _check(spec: DatasetSpec, text: TextConfig, model: ModelConfig) -> None:
    shown = () if text.template is None else Template(text.template).columns
    hidden = [name for name in (*spec.target, spec.id) if name in shown]
    if hidden:
        raise ArgumentError(
            f"A model must not see the target or the id, and text.template shows {hidden[0]!r}: {text.template!r:.80}. Leave it out."
        )
    if model.path is not None and text.tokenizer in TRAINED[1:]:
        raise ArgumentError(
            f"Pretrained weights know the tokens of their own tokenizer only, got text.tokenizer={text.tokenizer!r} with model.path="
            f"{model.path!r}. Leave text.tokenizer out."
        )
    scaled = [column.name for column in spec.columns if column.kind.is_number and model.numeric]
    taken = [name for name in (*spec.target, *scaled) if name == "text" or (model.numeric and name == NUMBERS and name not in scaled)]
    if taken:
        raise ArgumentError(f"A column of numbers is named {taken[0]!r}, as one that is made of the rows of {spec.name!r}. Rename it.")


def _writing(spec: DatasetSpec, config: TextConfig, bins: Bins, seed: int | None) -> Any:
    if config.template is not None:
        return template(config.template, policy="drop" if config.missing == "drop" else "say", seed=seed)
    said, numbers = _said(spec, config)
    return write_rows(said, bins, form=config.form, missing=config.missing, numbers=numbers, digits=config.digits, seed=seed)


def _said(spec: DatasetSpec, config: TextConfig) -> tuple[DatasetSpec, NumberStyle]:
    """Return the spec of what is written, and how its numbers are."""
    if config.numbers != "none":
        return spec, config.numbers
    columns = [column for column in spec.columns if not column.kind.is_number]
    if not columns:
        raise ArgumentError(f"text.numbers=none leaves {spec.name!r} nothing to write: all its columns are numbers. Write them: round.")
    return evolve(spec, columns=columns), "raw"


def _tokenizer(config: TextConfig, model: ModelConfig, written: Dataset[Any]) -> Tokenizer:
    if config.tokenizer not in TRAINED:
        return load_tokenizer(config.tokenizer)
    if model.path is not None:
        return load_tokenizer(Path(model.path))
    kind: Any = config.tokenizer
    return train_tokenizer(written, kind=kind, vocab_size=config.vocab_size, lowercase=kind == "wordpiece")
