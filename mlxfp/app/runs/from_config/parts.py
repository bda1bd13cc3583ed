"""Parts of a run, created from the options of a configuration: data, recipe, model, optimizer, training step and observers."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import mlx.core as mx
from attrs import evolve
from mlx import nn
from mlx.optimizers import Optimizer

from mlxfp import Dataset, length, load_tokenizer, observers, optimizers, prefetch, schedules, train_step
from mlxfp.app.config.classes import RunConfig
from mlxfp.app.config.loading import Resolved, resolve_config
from mlxfp.app.kaggle.estimators.fitting import Estimator, estimator
from mlxfp.app.kaggle.estimators.named import ESTIMATORS, Task, make_named, needs_permission
from mlxfp.app.kaggle.rows.row_to_text import Form
from mlxfp.app.kaggle.specs.catalogue import named_spec
from mlxfp.app.kaggle.specs.inferring import infer_spec
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.specs.synthetic import write_synthetic
from mlxfp.app.kaggle.validation.scoring import METRICS
from mlxfp.app.run_folders.folders import data_folder
from mlxfp.app.runs.own_parts import Code, OwnParts, own_parts
from mlxfp.app.runs.plans import Trackers, Training
from mlxfp.app.tasks.competition_data import FOLD_METHODS, CompetitionData, read_competition
from mlxfp.app.tasks.models import make_model, make_pretrained
from mlxfp.app.tasks.objectives import Goal
from mlxfp.app.tasks.recipes import AnyRecipe, Recipe, TextFormat, TokenizerKind, fit_recipe
from mlxfp.app.tasks.tables import TableRecipe, fit_table_recipe, make_table_model
from mlxfp.distributed import Ranks, World
from mlxfp.models import MODELS, TABLE_MODELS
from mlxfp.observers import Control, Observer
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, ConfigError, DataError
from mlxfp.support.options import NamesOrParts
from mlxfp.support.structuring import flatten, unstructure

TOKENIZERS = get_args(TokenizerKind)  # tokenizer types for training
_NONE = OwnParts()
CONVNET = "convnet"  # default model of images and audio
AUTO = "auto"  # a blend of several models; the data determine the choice of the models
# Table networks with their own optimizer. The optimizer has the name of the network.
OWN_OPTIMIZERS = tuple(name for name, network in TABLE_MODELS.items() if network.rates is not None)
PLATEAU = "plateau"  # schedule that lowers the learning rate when the metric stops improving; an observer applies this schedule

# Allowed values of configuration options, such as names of optimizers.
CHOICES: Mapping[str, Collection[str]] = {
    "text.form": get_args(Form),
    "model.name": NamesOrParts((*MODELS, CONVNET, *TABLE_MODELS, *ESTIMATORS, AUTO)),
    "optimizer.name": (*optimizers.OPTIMIZERS, *OWN_OPTIMIZERS),
    "schedule.name": (*schedules.SCHEDULES, PLATEAU),
    "validation.method": ("auto", *FOLD_METHODS),
    "competition.metric": METRICS,
}


def load_config(path: str | Path | None = None, *, preset: str | None = None, overrides: Sequence[str] = ()) -> Resolved:
    """Read a configuration from a YAML or JSON file, a preset and overrides.

    - An override `key.sub=value` takes precedence over the file `path`. The text after the first `=` is parsed as YAML 1.2.
    - The file takes precedence over the preset. The preset is the argument `preset`, or `preset: titanic` in the file.
    - The preset takes precedence over the default settings.

    A network of `models.TABLE_MODELS` has its own default settings. The default settings also override a preset for a different model.

    Names of models, optimizers and other components must be in `runs.CHOICES`. The section `own` names your functions as `module:name`,
    and `model.name` can name your own estimator. Raises `ConfigError` with a list of all mistakes. The list shows option, file and line,
    expected and received value, and the nearest known name.

    >>> import mlxfp as fp
    >>> fp.runs.load_config(overrides=["training.epochs=0", "modle.name=bert"])
    Traceback (most recent call last):
    mlxfp.support.errors.ConfigError: 2 mistakes in the configuration:
      training.epochs (command line): expected at least 1, got 0
      modle (command line): unknown key; did you mean 'model'?

    See also: `RunConfig`; `PRESETS`; `json_schema` for editors.
    """
    if isinstance(path, Mapping):
        raise ArgumentTypeError(
            f"path is the path of a YAML or JSON file, got {dict(path)!r:.80}. Write single options as load_config(overrides="
            "['training.epochs=3']), or build a RunConfig."
        )
    return resolve_config(path, preset=preset, overrides=overrides, choices=CHOICES, defaults=model_defaults)


def model_defaults(name: str) -> Mapping[str, Any]:
    """Return the default training settings of a model. The keys are sections of a configuration."""
    return TABLE_MODELS[name].defaults if name in TABLE_MODELS else {}


def competition_data(config: RunConfig, folder: Path, user_parts: OwnParts = _NONE) -> CompetitionData:
    """Read the data of a run. Without `data.path`, write synthetic rows for the spec to the folder of the run."""
    data, seed = config.data, config.training.seed
    spec = user_parts.spec if user_parts.spec is not None or data.spec is None else named_spec(data.spec)
    if user_parts.rows is not None:
        if spec is None:
            raise ArgumentError("own.rows needs a spec, which describes the columns of the rows. Give own.spec or data.spec.")
        return read_competition(
            data.path or "", spec=spec, rows=user_parts.rows, limit=data.limit, metric=config.competition.metric, seed=seed
        )
    path = data_folder(folder, data.path) if data.path is None else data.path
    if data.path is None:
        if spec is None:
            raise ArgumentError(
                "The run has no data. Give the folder of your files as data.path=FOLDER, or write synthetic rows for a known spec, as in "
                "data.spec=titanic."
            )
        spec = write_synthetic(spec, path, seed=seed)
    if spec is None and Path(path).exists():
        spec = _inferred(path, data.target)
    return read_competition(path, spec=spec, limit=data.limit, metric=config.competition.metric, seed=seed)


def _inferred(path: str | Path, target: str | None) -> DatasetSpec:
    try:
        return infer_spec(path, target=target)
    except ArgumentError as error:
        error.add_note("To set the target of a run, add --target COLUMN to the command, or data.target=COLUMN to the options.")
        raise


def recipe_of(config: RunConfig, spec: DatasetSpec, rows: Dataset[Any], *, seed: int) -> AnyRecipe:
    """Fit a recipe on training rows. The tokenizer is trained, or read from a path or from the folder of pretrained weights."""
    if config.model.name is not None and config.model.name in TABLE_MODELS:
        return fit_table_recipe(spec, rows, config.model.name)
    text, weights = config.text, config.model.path
    kind: Any = text.tokenizer if text.tokenizer in TOKENIZERS else None
    path = text.tokenizer if kind is None else weights
    return fit_recipe(
        spec,
        rows,
        format=TextFormat(text.form, text.template, text.missing, text.numbers, text.digits),  # type: ignore[arg-type]  # in CHOICES
        tokenizer=None if path is None else load_tokenizer(path),
        kind=kind or "wordpiece",
        vocab_size=text.vocab_size,
        max_length=text.max_length,
        overflow=text.overflow,
        permute=text.permute,
        drop=text.drop,
        numeric=config.model.numeric,
        seed=seed,
    )


def recipe_class(config: RunConfig) -> type[AnyRecipe]:
    """Return the class that converts rows to model inputs: `TableRecipe` for table networks, otherwise `Recipe`."""
    return TableRecipe if config.model.name in TABLE_MODELS else Recipe


def model_of(
    config: RunConfig, recipe: AnyRecipe, user_parts: OwnParts = _NONE, *, seed: int, rows: Dataset[Any] | None = None
) -> nn.Module:
    """Return the network for the inputs and the target of `recipe`. Training `rows`, if given, determine the initial weights."""
    model = config.model
    own_model: nn.Module | None = user_parts.make_model(config.own.model, recipe, seed)
    if own_model is not None:
        return own_model
    if isinstance(recipe, TableRecipe):
        size, count = config.training.size, 0 if rows is None else length(rows) or 0
        steps = config.training.epochs * max(1, count // size) if count else None
        arguments = {name: list(value) if isinstance(value, tuple) else value for name, value in model.arguments}
        return make_table_model(recipe, size=model.size, dropout=model.dropout, seed=seed, steps=steps, rows=rows, arguments=arguments)
    if model.path is not None:
        return make_pretrained(recipe, model.path, dropout=model.dropout, seed=seed)
    return make_model(recipe, model.name or "modernbert", size=model.size, dropout=model.dropout, seed=seed)


def is_estimator(config: RunConfig) -> bool:
    """Return True if the model is an estimator of another library instead of a network."""
    name = config.model.name
    return name is not None and (":" in name or name in ESTIMATORS)


def estimator_of(config: RunConfig, spec: DatasetSpec, user_parts: OwnParts = _NONE, *, rows: int, seed: int) -> Estimator:
    """Return the estimator. The argument `rows` is the number of training rows. Raises `ConfigError` for unknown `model.arguments`."""
    arguments = dict(config.model.arguments)
    model = (
        make_named(str(config.model.name), Task(spec, rows), arguments)
        if user_parts.estimator is None
        else user_parts.estimator(**arguments)
    )
    suited = estimator(model, spec, patience=config.observers.patience or 1, seed=seed)
    return evolve(suited, reads_texts=config.model.texts, reads_codes=config.model.codes)


def optimizer_of(config: RunConfig, goal: Goal | None = None, *, updates: int, params: Any = None) -> Optimizer:
    """Return the optimizer with the schedule of the learning rate. Weight decay applies only to parameters that are matrices.

    `updates` is the number of updates in the training. `params` has the parameters of the model, for layerwise learning rates.
    """
    optimizer, schedule = config.optimizer, config.schedule
    rates = TABLE_MODELS[optimizer.name].rates if optimizer.name in OWN_OPTIMIZERS else None
    peak = optimizer.learning_rate
    if peak is None:  # only optimizers with a default learning rate accept learning_rate=null
        assert rates is not None
        peak = rates.peaks[getattr(goal, "answer", "class")]
    rate: float | schedules.Schedule = peak
    if schedule.name != PLATEAU:
        rate = schedules.by_name(schedule.name, peak, steps=updates, warmup=schedule.warmup)
    if rates is not None:
        return optimizers.fading_adam(rate, *rates.groups, steps=updates, weight_decay=optimizer.weight_decay)
    if optimizer.layer_decay < 1:
        return optimizers.layerwise(optimizer.name, rate, params, decay=optimizer.layer_decay, weight_decay=optimizer.weight_decay)
    return optimizers.by_name(optimizer.name, rate, weight_decay=optimizer.weight_decay)


def run_folder(config: RunConfig) -> Path:
    """Return the folder of a run."""
    return Path(config.output) / config.name


def training_of(config: RunConfig, user_parts: OwnParts) -> Training:
    """Return the settings for the training of networks, with functions that create the optimizer, step and observers."""
    data, training, watched = config.data, config.training, config.observers
    return Training(
        seed=training.seed,
        epochs=training.epochs,
        size=training.size,
        ahead=prefetch(data.prefetch, workers=data.workers, kind=data.kind) if data.prefetch else None,
        cache=data.cache,
        accumulate=training.accumulate,
        optimizer=partial(optimizer_of, config),
        step=partial(step_of, config, make=user_parts.step or train_step),
        observers=partial(observers_of, config),
        patient=watched.patience is not None,
        decided=watched.patience is not None or config.schedule.name == PLATEAU,
        every=watched.every,
        evaluate_every=watched.evaluate_every,
        checkpoint_every=watched.checkpoint_every,
        keep=watched.keep,
        progress=watched.progress,
        seconds=None if watched.minutes is None else 60 * watched.minutes,
    )


def trackers_of(config: RunConfig) -> Trackers:
    """Return the folders and addresses of the experiment trackers, such as TensorBoard."""
    watched = config.observers
    params = {name: str(value) for name, value in flatten(unstructure(config)).items() if value is not None}
    return Trackers(config.name, params, watched.mlflow, watched.mlflow_model, watched.tensorboard)


def own_parts_of(config: RunConfig, code: Code) -> OwnParts:
    """Import the functions named in the section `own` of the configuration, and a user-defined estimator. See `own_parts` for errors."""
    return own_parts(list(_own_names(config)), code)


def _own_names(config: RunConfig) -> Iterator[tuple[str, str]]:
    section, model = config.own, config.model.name
    if model is not None and ":" in model and needs_permission(model):
        yield "model.name", model
    for part in ("model", "loss", "step", "spec", "rows"):
        if getattr(section, part) is not None:
            yield f"own.{part}", getattr(section, part)
    yield from (("own.observers", name) for name in section.observers)


def observers_of(config: RunConfig, metric: str, best: Path, control: Control, ranks: Ranks | None = None) -> tuple[Observer, ...]:
    """Return the observers that stop the training, save the best weights by `metric` to the file `best`, and lower the learning rate."""
    watched, schedule = config.observers, config.schedule
    result: list[Observer] = []
    if watched.patience is not None:
        result = [
            observers.checkpoint_best(best, metric, mode="min", ranks=ranks),
            observers.early_stopping(metric, mode="min", patience=watched.patience),
        ]
    if schedule.name == PLATEAU:
        lower = observers.reduce_on_plateau(metric, control=control, mode="min", patience=schedule.patience, factor=schedule.factor)
        result.insert(0, lower)
    return tuple(result)


def step_of(  # noqa: PLR0913
    config: RunConfig,
    model: nn.Module,
    goal: Goal,
    optimizer: Optimizer,
    ranks: Ranks | None = None,
    *,
    make: Callable[..., Any] = train_step,
) -> Any:
    """Return the training step, made by `train_step` or a function with the same arguments.

    With `ranks`, each rank reads the whole batch and trains on its share of the rows.
    """
    training = config.training
    dtype = None if training.compute_dtype == "float32" else getattr(mx, training.compute_dtype)
    step = make(
        model,
        goal.loss if ranks is None else _on_own_rows(goal.loss, ranks.world),
        optimizer,
        clip_norm=config.optimizer.clip_norm,
        accumulate=training.accumulate,
        compute_dtype=dtype,
        checkpoint_blocks=training.checkpoint_blocks,
        skip_nonfinite=training.skip_nonfinite,
        ema=training.ema,
        ranks=ranks,
    )
    if not callable(step):
        raise ConfigError(
            f"own.step: {config.own.step!r} must return a step, a function of a state and a batch, got {type(step).__name__}. "
            "Return fp.train_step(model, loss, optimizer, **options), or a function that calls this step."
        )
    return step


def _on_own_rows(loss: Callable[[Any, Any], Any], world: World) -> Callable[[Any, Any], Any]:
    def on_own_rows(model: Any, batch: Mapping[str, mx.array]) -> Any:
        if any(array.ndim and len(array) < world.copies for array in batch.values()):
            raise DataError(f"There are too few training rows: a batch has fewer rows than the {world.copies} ranks. Use fewer ranks.")
        return loss(model, {name: array[world.copy :: world.copies] if array.ndim else array for name, array in batch.items()})

    return on_own_rows
