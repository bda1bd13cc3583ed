"""Checks of options before the training, without and with the data."""

from collections.abc import Iterator
from pathlib import Path

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
from mlxfp.models import TABLE_MODELS
from mlxfp.support.errors import ConfigError, MlxfpError, suggest

Problem = tuple[str, str]  # the path of an option, and a sentence

ARGUMENTS = "model.arguments."
# Other options change the scored rows or the metric, or have no effect on the score.
_FIXED = ("model.name", "model.path", "model.arguments", "training.seed", "training.seeds")
_TUNABLE = tuple(
    path
    for path in option_paths()
    if path.partition(".")[0] in ("text", "model", "optimizer", "schedule", "training") and path not in _FIXED
)


def config_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield invalid options without reading data: unknown names, missing paths and contradictions."""
    yield from _competition_problems(config) if config.task == "competition" else file_problems(config)


def _competition_problems(config: RunConfig) -> Iterator[Problem]:
    data, weights, name = config.data, config.model.path, config.competition.submission
    template, tokenizer = config.text.template, config.text.tokenizer
    spec: DatasetSpec | None = None
    try:
        spec = None if data.spec is None else named_spec(data.spec)
    except MlxfpError as error:
        yield "data.spec", str(error)
    own = config.own.spec is not None or config.own.rows is not None  # the spec is known only after the import of own parts
    if data.path is not None and not own and not (spec is None and data.spec is not None):
        yield from (("data.path", problem) for problem in _path_problems(data.path, spec))
    metric = config.competition.metric
    if spec is not None and metric is not None and (unfit := spec.task.unfit_metric(metric)):
        yield "competition.metric", unfit
    yield from _model_problems(config)
    yield from _estimator_problems(config)
    yield from _several_problems(config)
    if tokenizer not in TOKENIZERS and not Path(tokenizer).exists():
        yield "text.tokenizer", f"{tokenizer!r} is neither a kind to train ({', '.join(TOKENIZERS)}) nor an existing path"
    if weights is not None and tokenizer in TOKENIZERS and tokenizer != TextConfig().tokenizer:
        yield "text.tokenizer", f"pretrained weights know the tokens of their own tokenizer only, got {tokenizer!r}; leave it out"
    if template is not None and "{" not in template:
        yield "text.template", f"{template!r} has no {{column}}"
    if not is_csv_name(name):
        yield "competition.submission", f"{name!r} must be the name of a CSV file, and not of another file of the run"


def _several_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield options that do not fit several seeds."""
    if config.training.seeds > 1 and config.data.limit is not None:
        yield "data.limit", "it draws rows by training.seed, and several seeds would draw others; leave one of the two out"
    if config.training.seeds > 1 and config.competition.ensemble != "mean":
        yield "competition.ensemble", "the models of several seeds are averaged; take mean"


def _model_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield invalid options of the model and the optimizer."""
    model, optimizer, name = config.model, config.optimizer, str(config.model.name)
    if name == CONVNET:
        yield "model.name", f"{CONVNET} is for pictures and sounds, with task=images or task=audio"
    if model.path is not None and not Path(model.path).is_dir():
        yield "model.path", f"there is no folder {model.path!r} of pretrained weights"
    if optimizer.name in OWN_OPTIMIZERS and name != optimizer.name:
        yield "optimizer.name", f"{optimizer.name} is for model.name={optimizer.name}; take adamw"
    if optimizer.learning_rate is None and optimizer.name not in OWN_OPTIMIZERS:
        yield "optimizer.learning_rate", f"null is for optimizer.name={' or '.join(OWN_OPTIMIZERS)}; give a number"
    if optimizer.layer_decay < 1 and model.path is None:
        yield "optimizer.layer_decay", "it is for pretrained weights; give their folder, model.path=FOLDER, or leave it out"
    if name == AUTO:
        yield from ((path, "model.name=auto chooses it for each of its models; leave it out") for path in _chosen_by_auto(config))
    if name in TABLE_MODELS:
        unused = {
            "model.path": model.path is not None,
            "model.numeric": model.numeric,
            "competition.views": config.competition.views > 1,
            "training.checkpoint_blocks": config.training.checkpoint_blocks,
        }
        yield from ((path, f"{name} does not use it; leave it out") for path, used in unused.items() if used)
        sizes = TABLE_MODELS[name].sizes
        if model.size not in sizes:
            yield "model.size", f"{name} has the sizes {', '.join(sizes)}, got {model.size!r}; take one of them"


def _chosen_by_auto(config: RunConfig) -> Iterator[str]:
    """Yield options with a non-default value that `model.name=auto` would override."""
    usual = RunConfig()
    kept = {
        "model": {"name"},
        "training": {"seed"},
        "observers": {"minutes", "progress", "plots", "mlflow", "trackio", "tensorboard"},  # progress of folds and members is shown
        "competition": {"metric", "threshold", "submission"},
        "own": {"spec", "rows"},
    }
    for section in ("text", "model", "optimizer", "schedule", "training", "observers", "competition", "own"):
        here, there = getattr(config, section), getattr(usual, section)
        names = [each.name for each in fields(type(here)) if each.name not in kept.get(section, ())]
        yield from (f"{section}.{name}" for name in names if getattr(here, name) != getattr(there, name))


def _estimator_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield options of networks with an estimator, options of estimators with a network, and names of classes that are no estimators."""
    name, own = config.model.name, config.own
    if not is_estimator(config):
        yield from _network_problems(config)
        return
    unused: dict[str, object] = {
        "model.path": config.model.path,
        "own.model": own.model,
        "own.loss": own.loss,
        "own.observers": own.observers,
    }
    for path, value in unused.items():
        if value:
            yield path, f"model.name={name} is an estimator, and does not use it; leave it out"
    if ":" in str(name) and not needs_permission(str(name)):
        try:
            known_class(str(name))
        except MlxfpError as error:
            yield "model.name", str(error)


def _network_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield arguments that a network does not accept."""
    name, arguments = config.model.name, config.model.arguments
    known = TABLE_MODELS[name].arguments if name is not None and name in TABLE_MODELS else ()
    if arguments and not known:
        takers = f"an estimator ({', '.join(ESTIMATORS)}, or a class) or a network for tables ({', '.join(TABLE_MODELS)})"
        yield "model.arguments", f"only {takers} takes them, and model.name is {name!r}"
        return
    for argument, _ in arguments:
        if argument not in known:
            yield "model.arguments", f"{name} has no {argument!r}.{suggest(argument, known)} Known: {', '.join(known)}"


def file_problems(config: RunConfig) -> Iterator[Problem]:
    """Yield invalid options of a run on files."""
    fits = "decoder" if config.task == "language_model" else CONVNET
    if config.own.rows is None and (config.data.path is None or not Path(config.data.path).exists()):
        yield "data.path", f"a run with task={config.task} needs the folder with its files, got {config.data.path!r}"
    if config.model.name not in (None, fits):
        yield "model.name", f"{config.model.name!r} does not fit task={config.task}; take {fits}, or leave it out"
    default = RunConfig()
    unused = {
        "model.path": config.model.path,
        "model.numeric": config.model.numeric,
        "data.spec": config.data.spec,
        "data.pseudo_labels": config.data.pseudo_labels,
        "own.spec": config.own.spec,
    }
    for path, value in unused.items():
        if value:
            yield path, f"task={config.task} does not use it; leave it out"
    if config.training.seeds > 1:
        yield "training.seeds", f"task={config.task} trains one model; leave it out"
    for name in ("validation", "competition"):
        if getattr(config, name) != getattr(default, name):
            yield name, f"task={config.task} has no folds and no submission; leave the section out"
    tokenizer = config.text.tokenizer
    if config.task == "language_model" and tokenizer not in TOKENIZERS and not Path(tokenizer).exists():
        yield "text.tokenizer", f"{tokenizer!r} is neither a kind to train ({', '.join(TOKENIZERS)}) nor an existing path"


def data_problems(config: RunConfig, data: CompetitionData) -> Iterator[Problem]:
    """Yield options that do not fit the data, and data without a learnable target."""
    spec, metric, competition = data.spec, data.metric, config.competition
    task, targets = spec.task, data.targets
    if metric.needs != "values" and not task.has_classes:
        yield "competition.metric", f"{metric.name} compares classes, and a run predicts numbers for {spec.kind}; take spearman or rmse"
    if not spec.columns:
        yield "data.spec", f"{spec.name} has no columns to predict from; columns without any value do not count"
    if (targets == targets[0]).all():
        value = spec.classes[int(targets.flat[0])] if task.has_classes else f"{targets.flat[0]:g}"
        what = f"the target {', '.join(map(repr, spec.target))} is {value!r} in all {len(targets):,} training rows"
        yield (
            "data.limit" if config.data.limit is not None else "data.path",
            f"{what}, so there is nothing to learn; use other or more rows",
        )
    if config.data.pseudo_labels is not None and (not task.one_class or data.test is None):
        yield "data.pseudo_labels", "they are classes of the rows of a test file; leave the option out"
    if data.test is not None and not length(data.test):
        yield "data.path", "the test file has no rows"
    if competition.ensemble == "vote" and not task.one_class:
        yield "competition.ensemble", "a vote is on classes; take mean"
    if competition.ensemble == "rank" and not (metric.ranks == "rows" and (task.is_decision or not task.has_classes)):
        yield "competition.ensemble", f"ranks are for metrics of order, roc_auc and spearman, and this is {metric.name}; take mean"
    if competition.threshold and not (task.is_decision and metric.needs == "labels" and competition.ensemble == "mean"):
        yield "competition.threshold", "only the mean of binary decisions has one, with a metric of labels"


def check_ranks(config: RunConfig, ranks: Ranks) -> None:
    """Raise `ConfigError` for a run that ranks cannot share."""
    size, count = config.training.size, ranks.world.copies
    if is_estimator(config) or config.model.name == AUTO:
        raise ConfigError(f"model.name={config.model.name} is fitted in one process. Run it without ranks.")
    if config.training.seeds > 1:
        raise ConfigError(f"training.seeds: ranks train one model of each fold, got {config.training.seeds}. Run it without ranks.")
    if config.own.observers:
        raise ConfigError(
            "own.observers see the events of one rank, and one that ends the run there would leave the others waiting. Leave them out, or "
            "run without ranks."
        )
    if size % count:
        raise ConfigError(f"training.size: batches of {size} rows cannot be divided among {count} ranks. Give a multiple of {count}.")


def check_tunable(config: RunConfig) -> None:
    """Raise `ConfigError` for a run whose options cannot be tuned."""
    if config.task != "competition":
        raise ConfigError(f"task: a run of {config.task} has no folds to tune by. Only runs of the task competition can be tuned.")
    if config.training.seeds > 1:
        raise ConfigError("training.seeds: trials train one model of each fold. Leave it out, and set it in the best configuration.")


def check_tunable_option(key: str) -> None:
    """Raise `ConfigError` for the path of an option that cannot be tuned."""
    if key in _TUNABLE or (key.startswith(ARGUMENTS) and key != ARGUMENTS):
        return
    if key in option_paths():
        raise ConfigError(
            f"{key} cannot be tuned: it decides what is scored, or nothing. Options of a model can: {', '.join(_TUNABLE[-8:])}."
        )
    near = [path for path in meant(key.rpartition(".")[2]) if path in _TUNABLE]
    said = f" Did you mean {' or '.join(map(repr, near))}?" if near else suggest(key, _TUNABLE)
    raise ConfigError(f"A configuration has no {key!r}, so it cannot be tuned.{said} Those of a library begin with {ARGUMENTS}")


def _path_problems(path: str, spec: DatasetSpec | None) -> Iterator[str]:
    """Yield problems with the files at a path, such as a missing train file."""
    if not Path(path).exists():
        yield f"there is nothing at {path!r}; give the folder with the competition's files"
    elif spec is not None and not (folder_of(path) / spec.train.name).is_file():
        yield f"{str(folder_of(path))!r} has no file {spec.train.name!r}, the train file of {spec.name!r}; give the folder that holds it"
    elif spec is None:
        try:
            find_files(path)
        except MlxfpError as error:
            yield str(error)
