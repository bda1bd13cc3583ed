"""Checks of options before the training. Options are checked alone, then together with the data."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote

from attrs import fields

from mlxfp import length
from mlxfp.app.config.classes import RunConfig, TextConfig, meant, option_paths
from mlxfp.app.kaggle.estimators.named import ESTIMATORS, known_class, needs_permission
from mlxfp.app.kaggle.specs.catalogue import named_spec
from mlxfp.app.kaggle.specs.inferring import find_files
from mlxfp.app.kaggle.specs.reading import folder_of
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.run_folders.folders import is_csv_name
from mlxfp.app.runs.from_config.parts import AUTO, CONVNET, OWN_OPTIMIZERS, TOKENIZERS, is_estimator
from mlxfp.app.tasks.competition_data import CompetitionData
from mlxfp.distributed import Ranks
from mlxfp.models import CONVNET_SIZES, MODELS, TABLE_MODELS
from mlxfp.support.errors import ConfigError, MlxfpError, suggest
from mlxfp.support.hub import is_hub_name

Problem = tuple[str, str]  # option path and a sentence about the problem

ARGUMENTS = "model.arguments."
# Options that cannot be tuned, although other options in the same sections can be tuned.
_FIXED = ("model.name", "model.path", "model.arguments", "training.seed")
_TUNABLE = tuple(
    path
    for path in option_paths()
    if path.partition(".")[0] in ("text", "model", "optimizer", "schedule", "training") and path not in _FIXED
)


def config_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield problems with the options: unknown names, missing paths and contradictions. No data are read."""
    yield from _competition_problems(config) if config.task == "competition" else file_problems(config)


def _unused(options: Mapping[str, object], who: str) -> Iterator[Problem]:
    """Yield a problem for each option in `options` with a true value, because `who` does not use the option."""
    return ((path, f"{who} does not use this option; leave out the option") for path, value in options.items() if value)


def _reading_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield problems with `data.workers` or `data.cache`, if these options would have no effect."""
    if config.data.workers > 1 and not config.data.prefetch:
        yield "data.workers", f"{config.data.workers} workers prepare batches in advance, but data.prefetch is 0; set data.prefetch=2"
    if config.data.cache is not None and config.task not in ("audio", "language_model"):
        yield "data.cache", f"task={config.task} keeps no rows in files; leave out the option"


def _competition_problems(config: RunConfig) -> Iterator[Problem]:
    data, weights, name = config.data, config.model.path, config.competition.submission
    template, tokenizer = config.text.template, config.text.tokenizer
    spec: DatasetSpec | None = None
    try:
        spec = None if data.spec is None else named_spec(data.spec)
    except MlxfpError as error:
        yield "data.spec", str(error)
    if data.target is not None and (data.spec is not None or config.own.spec is not None):
        yield "data.target", "the spec names the target; leave out data.target, or the spec"
    has_own_rows = config.own.spec is not None or config.own.rows is not None  # user modules are not imported yet, so the spec is unknown
    if data.path is not None and not has_own_rows and not (spec is None and data.spec is not None):
        yield from (("data.path", problem) for problem in _path_problems(data.path, spec))
    metric = config.competition.metric
    if spec is not None and metric is not None and (unfit := spec.task.unfit_metric(metric)):
        yield "competition.metric", unfit
    yield from _reading_problems(config)
    yield from _model_problems(config)
    yield from _size_problems(config)
    yield from _estimator_problems(config)
    if tokenizer not in TOKENIZERS and not Path(tokenizer).exists():
        yield "text.tokenizer", f"{tokenizer!r} is neither a tokenizer type ({', '.join(TOKENIZERS)}) nor an existing path"
    if weights is not None and tokenizer in TOKENIZERS and tokenizer != TextConfig().tokenizer:
        yield (
            "text.tokenizer",
            f"pretrained weights need the tokenizer in the folder of the weights, got {tokenizer!r}; leave out text.tokenizer",
        )
    if template is not None and "{" not in template:
        yield "text.template", f"{template!r} has no placeholder {{column}}"
    if not is_csv_name(name):
        yield "competition.submission", f"{name!r} must be the name of a CSV file, different from the other files of the run"


def _model_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield invalid options of the model and the optimizer."""
    model, optimizer, name = config.model, config.optimizer, str(config.model.name)
    if name == CONVNET:
        yield "model.name", f"{CONVNET} needs task=images or task=audio"
    if model.path is not None and not Path(model.path).is_dir() and not is_hub_name(model.path):
        yield "model.path", f"there is no folder {model.path!r} of pretrained weights; give a folder, or a model name on the hub, ORG/NAME"
    if optimizer.name in OWN_OPTIMIZERS and name != optimizer.name:
        yield "optimizer.name", f"{optimizer.name} works only with model.name={optimizer.name}; use adamw"
    if optimizer.learning_rate is None and optimizer.name not in OWN_OPTIMIZERS:
        yield "optimizer.learning_rate", f"null works only with optimizer.name={' or '.join(OWN_OPTIMIZERS)}; give a number"
    if optimizer.layer_decay < 1 and model.path is None:
        yield "optimizer.layer_decay", "layer_decay needs pretrained weights; give model.path=FOLDER, or leave out layer_decay"
    if name == AUTO:
        yield from ((path, "model.name=auto chooses this option for each model; leave out the option") for path in _chosen_by_auto(config))
    if name in TABLE_MODELS:
        unused = {
            "model.path": model.path is not None,
            "model.numeric": model.numeric,
            "competition.views": config.competition.views > 1,
            "training.checkpoint_blocks": config.training.checkpoint_blocks,
        }
        yield from _unused(unused, name)


def _size_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield a problem if `model.size` is not one of the sizes of the network."""
    model = config.model
    usual = {"competition": "modernbert", "language_model": "decoder"}.get(config.task, CONVNET)
    name = model.name or usual
    sizes = (
        CONVNET_SIZES
        if name == CONVNET
        else TABLE_MODELS[name].sizes
        if name in TABLE_MODELS
        else MODELS[name].sizes
        if name in MODELS
        else ()
    )
    if sizes and model.size not in sizes and model.path is None and config.own.model is None:
        yield "model.size", f"{name} has no size {model.size!r}; use {' or '.join(sizes)}"


def _chosen_by_auto(config: RunConfig) -> Iterator[str]:
    """Yield options with a non-default value that `model.name=auto` would override."""
    usual = RunConfig()
    kept = {
        "model": {"name"},
        "training": {"seed"},
        "observers": {
            "minutes",
            "progress",
            "plots",
            "mlflow",
            "tensorboard",
        },  # options for the time limit, for logging and for display
        "competition": {"metric", "threshold", "submission"},
        "own": {"spec", "rows"},
    }
    for section in ("text", "model", "optimizer", "schedule", "training", "observers", "competition", "own"):
        values, defaults = getattr(config, section), getattr(usual, section)
        names = [option.name for option in fields(type(values)) if option.name not in kept.get(section, ())]
        yield from (f"{section}.{name}" for name in names if getattr(values, name) != getattr(defaults, name))


def _estimator_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield options that do not suit the kind of model: options of networks for an estimator, and options of estimators for a network.

    A further problem: the class named by `model.name` is not an estimator.
    """
    name, section = config.model.name, config.own
    if not is_estimator(config):
        yield from _network_problems(config)
        return
    unused: dict[str, object] = {
        "model.path": config.model.path,
        "own.model": section.model,
        "own.loss": section.loss,
        "own.step": section.step,
        "own.observers": section.observers,
    }
    yield from _unused(unused, f"model.name={name} is an estimator and")
    if ":" in str(name) and not needs_permission(str(name)):
        try:
            known_class(str(name))
        except MlxfpError as error:
            yield "model.name", str(error)


def _network_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield a problem for each option or argument of the configuration that the model does not use."""
    name, arguments = config.model.name, config.model.arguments
    if name != AUTO:
        yield from _unused({"model.texts": not config.model.texts, "model.codes": config.model.codes}, f"model.name={name}")
    known = TABLE_MODELS[name].arguments if name is not None and name in TABLE_MODELS else ()
    if arguments and not known:
        takers = f"an estimator ({', '.join(ESTIMATORS)}, or a class) or a network for tables ({', '.join(TABLE_MODELS)})"
        yield "model.arguments", f"model.name={name} takes no arguments; arguments need {takers}"
        return
    for argument, _ in arguments:
        if argument not in known:
            yield "model.arguments", f"{name} has no argument {argument!r}.{suggest(argument, known)} Known: {', '.join(known)}"


def file_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield problems with the options of a run on images, sounds or texts."""
    yield from _reading_problems(config)
    yield from _size_problems(config)
    fits = "decoder" if config.task == "language_model" else CONVNET
    if config.own.rows is None and (config.data.path is None or not Path(config.data.path).exists()):
        yield "data.path", f"task={config.task} needs an existing folder with the files, got {config.data.path!r}"
    if config.model.name not in (None, fits):
        yield "model.name", f"{config.model.name!r} does not work with task={config.task}; use {fits}, or leave out model.name"
    default = RunConfig()
    unused = {
        "model.path": config.model.path,
        "model.numeric": config.model.numeric,
        "model.texts": not config.model.texts,
        "model.codes": config.model.codes,
        "data.spec": config.data.spec,
        "data.target": config.data.target,
        "own.spec": config.own.spec,
    }
    yield from _unused(unused, f"task={config.task}")
    for name in ("validation", "competition"):
        if getattr(config, name) != getattr(default, name):
            yield name, f"task={config.task} has no folds and no submission; leave the section out"
    tokenizer = config.text.tokenizer
    if config.task == "language_model" and tokenizer not in TOKENIZERS and not Path(tokenizer).exists():
        yield "text.tokenizer", f"{tokenizer!r} is neither a tokenizer type ({', '.join(TOKENIZERS)}) nor an existing path"


def data_problems(config: RunConfig, data: CompetitionData) -> Iterator[Problem]:
    """Yield a problem for each option that does not fit the data, and for a target that has the same value in all rows."""
    spec, metric, competition = data.spec, data.metric, config.competition
    task, targets = spec.task, data.targets
    if metric.needs != "values" and not task.has_classes:
        yield "competition.metric", f"{metric.name} compares classes, but a run predicts numbers for {spec.kind}; use spearman or rmse"
    if not spec.columns:
        yield "data.spec", f"{spec.name} has no input columns with values; add columns to the spec or the files"
    if (targets == targets[0]).all():
        value = spec.classes[int(targets.flat[0])] if task.has_classes else f"{targets.flat[0]:g}"
        problem = f"the target {', '.join(map(repr, spec.target))} is {value!r} in all {len(targets):,} training rows"
        yield (
            "data.limit" if config.data.limit is not None else "data.path",
            f"{problem}, so there is nothing to learn; use other rows or more rows",
        )
    if data.test is not None and not length(data.test):
        yield "data.path", "the test file has no rows; add rows, or remove the file"
    if competition.threshold and not (task.is_decision and metric.needs == "labels"):
        yield "competition.threshold", "a threshold needs two classes and a metric of labels; leave out the option"


def check_ranks(config: RunConfig, ranks: Ranks) -> None:
    """Raise `ConfigError` for a configuration that cannot run on several ranks."""
    size, count = config.training.size, ranks.world.copies
    if is_estimator(config) or config.model.name == AUTO:
        raise ConfigError(f"model.name={config.model.name} is fitted in one process. Run without --ranks.")
    if config.own.observers:
        raise ConfigError(
            "own.observers cannot be used with ranks: an observer that ends the run on one rank would leave the other ranks "
            "waiting. Leave out own.observers, or run without --ranks."
        )
    if size % count:
        raise ConfigError(f"training.size: batches of {size} rows cannot be divided among {count} ranks. Give a multiple of {count}.")


def check_tunable(config: RunConfig) -> None:
    """Raise `ConfigError` for a run whose options cannot be tuned."""
    if config.task != "competition":
        raise ConfigError(f"task: tuning needs folds, and task={config.task} has no folds. Only runs with task=competition can be tuned.")
    if config.model.name == AUTO:
        data = f"--data {quote(config.data.path)}" if config.data.path is not None else config.name
        others = ", ".join(name for name in (*ESTIMATORS, *TABLE_MODELS) if name != "lightgbm")
        raise ConfigError(
            "model.name=auto cannot be tuned, because auto chooses the options of several models. "
            f"Tune one model: mlxfp tune {data} model.name=lightgbm --trials 20. Other models: {others}."
        )


def check_tunable_option(key: str) -> None:
    """Raise `ConfigError` for the path of an option that cannot be tuned."""
    if key in _TUNABLE or (key.startswith(ARGUMENTS) and key != ARGUMENTS):
        return
    if key in option_paths():
        raise ConfigError(
            f"{key} cannot be tuned, because only options of the model and of its training can be tuned. "
            f"Examples: {', '.join(_TUNABLE[-8:])}."
        )
    near = [path for path in meant(key.rpartition(".")[2]) if path in _TUNABLE]
    advice = f" Did you mean {' or '.join(map(repr, near))}?" if near else suggest(key, _TUNABLE)
    raise ConfigError(f"A configuration has no option {key!r} to tune.{advice} Arguments of an estimator begin with {ARGUMENTS}")


def _path_problems(path: str, spec: DatasetSpec | None) -> Iterator[str]:
    """Yield problems with the files at a path, such as a missing train file."""
    if not Path(path).exists():
        yield f"there is no file or folder at {path!r}; give the folder with the competition's files"
    elif spec is not None and not (folder_of(path) / spec.train.name).is_file():
        yield f"{str(folder_of(path))!r} has no file {spec.train.name!r}, the train file of {spec.name!r}; give the folder with this file"
    elif spec is None:
        try:
            find_files(path)
        except MlxfpError as error:
            yield str(error)
