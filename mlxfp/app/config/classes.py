"""Options of a run as frozen classes, one class per section of a configuration file.

The valid names of optimizers, schedules, models, metrics and other parts are not listed here: `runs.CHOICES` holds them.
"""

from functools import wraps
from typing import Any, Literal, TypeVar

from attrs import field, fields, frozen, has

from mlxfp.app.config.common_names import COMMON_NAMES
from mlxfp.support.errors import ArgumentTypeError, listed, suggest
from mlxfp.support.foreign_names import plain
from mlxfp.support.options import code_option, option, path_option

T = TypeVar("T")


def _explain_unknown(kind: type[T]) -> type[T]:
    """Decorate a class of options: for an unknown option, the error of the constructor suggests a known option."""
    changed: Any = kind
    names, original = [attribute.name for attribute in fields(changed)], changed.__init__

    @wraps(original)
    def explained(self: Any, *arguments: Any, **values: Any) -> None:
        unknown = next((name for name in values if name not in names), None)
        if unknown is not None:
            paths = meant(unknown)
            advice = " or ".join(map(_call, paths)) or COMMON_NAMES.get(plain(unknown), "")
            hint = f" Write {advice}." if paths else f" In a run, {advice}." if advice else suggest(unknown, names)
            raise ArgumentTypeError(f"{kind.__name__} has no option {unknown!r}.{hint} Known: {listed(names)}.")
        original(self, *arguments, **values)

    changed.__init__ = explained
    return kind


def check_config(config: object) -> None:
    """Raise `ArgumentTypeError` unless `config` is a configuration of a run."""
    if not isinstance(config, RunConfig):
        advice = "Pass the field config" if hasattr(config, "config") else "Make a configuration"
        raise ArgumentTypeError(f"config must be a RunConfig, got {type(config).__name__}. {advice}: runs.load_config(...).config.")


@_explain_unknown
@frozen(kw_only=True)
class DataConfig:
    """Source of the rows.

    >>> DataConfig(path="data/titanic").prefetch
    2
    """

    path: str | None = path_option(None, "The folder with the competition's files, or a file. Null: synthetic rows for experiments.")
    spec: str | None = path_option(
        None, "The name of a known data set, or the path of a spec in YAML or JSON. Null: inferred from the files."
    )
    target: str | None = option(None, "The column to predict, for an inferred spec. Null: inferred from the files.")
    limit: int | None = option(None, "Use only this many training rows, for a quick try.", at_least=10)
    prefetch: int = option(2, "The number of batches prepared in advance.", at_least=0, at_most=1000)
    workers: int = option(1, "The number of workers that prepare batches. The batches are the same.", at_least=1, at_most=1000)
    kind: Literal["threads", "processes"] = option(
        "threads", "The kind of the workers. processes: for functions of your own that are slow Python code; needs the extra processes."
    )
    cache: str | None = path_option(
        None, "task=audio and task=language_model: a folder for resampled audio or tokens, computed once. Null: no files."
    )


@_explain_unknown
@frozen(kw_only=True)
class TextConfig:
    """Conversion of rows to tokens.

    >>> TextConfig(max_length=256).missing
    'drop'
    """

    form: str = option("sentence", "The text form of a row: sentence ('The age is 22.') or key_value ('age: 22;').")
    template: str | None = option(None, "A template, used instead of form. {column} is replaced by the value of the column.")
    missing: Literal["drop", "unknown"] = option(
        "drop", "The text for a missing value. drop: leave out the column; unknown: write 'unknown'."
    )
    numbers: Literal["raw", "round", "quantile", "none"] = option(
        "round",
        "The text form of numbers. quantile: computed on the training rows of the fold; none: leave out numbers, for model.numeric.",
    )
    digits: int = option(2, "The digits after the decimal point, or the number of quantiles.", at_least=0, at_most=100)
    column: str = option("text", "The text column for training a language model from files with columns.")
    tokenizer: str = path_option(
        "wordpiece",
        "The tokenizer type (wordpiece, bpe, unigram), trained on the training rows of each fold, or the path of a trained tokenizer.",
    )
    vocab_size: int = option(2000, "The vocabulary size of a newly trained tokenizer.", at_least=64, at_most=1 << 20)
    max_length: int = option(128, "The maximum number of tokens of a row.", at_least=4, at_most=1 << 20)
    overflow: Literal["refuse", "cut"] = option(
        "refuse", "For rows longer than max_length. refuse: stop with an error; cut: drop the last tokens."
    )
    permute: bool = option(default=False, about="Shuffle the columns of each training row, in every epoch.")
    drop: float = option(0.0, "The fraction of values hidden at random in training.", at_least=0, below=1)


@_explain_unknown
@frozen(kw_only=True)
class MediaConfig:
    """Conversion of files to arrays for the tasks images and audio.

    >>> MediaConfig(side=224).rate
    16000
    """

    side: int = option(64, "The height and width of resized images, in pixels.", at_least=8, at_most=1 << 14)
    rate: int = option(16000, "The sample rate of resampled audio, in samples per second.", at_least=1000, at_most=1 << 20)
    seconds: float = option(4.0, "The length of audio clips, in seconds. Longer audio is cut, shorter audio is padded.", above=0)
    mels: int = option(64, "The number of mel bands of a spectrogram.", at_least=8, at_most=1 << 12)


@_explain_unknown
@frozen(kw_only=True)
class ModelConfig:
    """The model to train.

    >>> ModelConfig(name="bert", size="small").path is None
    True
    """

    name: str | None = option(
        None,
        "The model: a network for rows as text; a network for table columns, with its own training defaults; an estimator by name, "
        "or as in sklearn.svm:SVR; or auto for a blend of several models. Null: modernbert for tables and texts, decoder for a language "
        "model, convnet for images and audio.",
    )
    arguments: tuple[tuple[str, Any], ...] = option(
        (),
        "The arguments of an estimator, named as in its library, or the config fields of a table network.",
    )
    size: str = option("tiny", "The model size: a name known to models.create or models.create_table_model.")
    path: str | None = path_option(
        None, "A folder with pretrained weights, or a model name on the Hugging Face hub (ORG/NAME), used instead of name and size."
    )
    dropout: float | None = option(None, "The dropout rate. Null: the default of the model.", at_least=0, below=1)
    numeric: bool = option(
        default=False, about="Feed numerical columns directly into the model's head, scaled with statistics of the training rows."
    )
    texts: bool = option(default=True, about="Estimators read text columns. With false, text columns without dates are left out.")
    codes: bool = option(
        default=False, about="Estimators also read whole numbers with repeated values as categories, such as shop numbers."
    )


@_explain_unknown
@frozen(kw_only=True)
class OptimizerConfig:
    """Optimizer of the weights.

    >>> OptimizerConfig().name
    'adamw'
    """

    name: str = option("adamw", "The optimizer.")
    learning_rate: float | None = option(
        5e-4,
        "The peak learning rate. Null: the rate recommended by the authors, for table networks only.",
        above=0,
    )
    weight_decay: float = option(
        0.01, "The weight decay of matrices. Norms and biases have no weight decay. Adam and SGD add the decay to the gradient.", at_least=0
    )
    layer_decay: float = option(
        1.0,
        "With pretrained weights: learning rate of a block relative to the next block toward the head. The head uses the full rate.",
        above=0,
        at_most=1,
    )
    clip_norm: float | None = option(
        1.0, "The maximum norm of the gradients; larger gradients are scaled down. Null: no clipping.", above=0
    )


@_explain_unknown
@frozen(kw_only=True)
class ScheduleConfig:
    """Learning rate schedule of the run.

    >>> ScheduleConfig(name="cosine").warmup
    0.1
    """

    name: str = option("linear", "The decay of the learning rate after the warmup.")
    warmup: float = option(0.1, "The fraction of all updates with a rising learning rate; plateau has no warmup.", at_least=0, at_most=1)
    patience: int = option(2, "plateau: the rate falls after this many evaluations without improvement.", at_least=1)
    factor: float = option(0.5, "plateau: the factor applied to the rate.", above=0, below=1)


@_explain_unknown
@frozen(kw_only=True)
class TrainingConfig:
    """Options of the training loop, such as the number of epochs and the batch size.

    >>> TrainingConfig(epochs=3).size
    32
    """

    seed: int = option(0, "The seed of all random numbers.", at_least=0)
    epochs: int = option(10, "The number of passes over the training rows.", at_least=1)
    size: int = option(32, "The number of rows in a batch.", at_least=1, at_most=1 << 20)
    accumulate: int = option(1, "The number of batches per update (gradient accumulation).", at_least=1)
    compute_dtype: Literal["float32", "bfloat16", "float16"] = option("float32", "The dtype of the computation; weights stay float32.")
    checkpoint_blocks: bool = option(default=False, about="Recompute blocks in the backward pass to save memory.")
    skip_nonfinite: bool = option(default=False, about="Skip updates with infinite or NaN gradients, instead of ending the run.")
    ema: float | None = option(
        None, "The decay of an exponential moving average of the weights, such as 0.999. Predictions use the average.", above=0, below=1
    )


@_explain_unknown
@frozen(kw_only=True)
class ObserversConfig:
    """Logging, checkpoints and early stopping during a run.

    >>> ObserversConfig(patience=3).keep
    1
    """

    progress: bool = option(default=True, about="Show a progress bar.")
    every: int = option(10, "The number of steps between two log entries.", at_least=1)
    evaluate_every: int | None = option(None, "The number of steps between two evaluations. Null: after each epoch.", at_least=1)
    patience: int | None = option(None, "Stop a fold after this many evaluations without improvement. Null: never.", at_least=1)
    checkpoint_every: int = option(50, "The number of steps between two checkpoints.", at_least=1)
    keep: int = option(1, "The number of recent checkpoints to keep, in addition to the best checkpoint.", at_least=1)
    minutes: float | None = option(
        None,
        "The time limit in minutes for the whole command, from imports to reports. Networks and boosted trees stop training early.",
        above=0,
    )
    mlflow: str | None = option(None, "The URI of an MLflow store, such as sqlite:///mlflow.db. Null: no MLflow logging.")
    mlflow_model: str | None = option(None, "Register the models of the run in MLflow under this name. Null: no registration.")
    tensorboard: str | None = option(
        None, "The TensorBoard folder; the run writes event files into a subfolder. Null: no TensorBoard logging."
    )
    plots: bool = option(default=True, about="Write a report at the end of the run.")


@_explain_unknown
@frozen(kw_only=True)
class ValidationConfig:
    """Evaluation of the model.

    >>> ValidationConfig(folds=10).repeats
    1
    """

    method: str = option(
        "auto", "The assignment of rows to folds. auto: by time or group if the spec names a time or group column, else stratified."
    )
    folds: int = option(5, "The number of folds. Each fold is the validation set once.", at_least=2)
    repeats: int = option(
        1, "The number of repetitions of cross-validation, with different folds in each repetition.", at_least=1, at_most=1000
    )
    seed: int = option(0, "The seed of the folds.", at_least=0)


@_explain_unknown
@frozen(kw_only=True)
class CompetitionConfig:
    """The competition metric, and options for test predictions and the submission file.

    >>> CompetitionConfig().submission
    'submission.csv'
    """

    metric: str | None = option(
        None,
        "The metric of the competition. Null: the metric of the spec. For several classes, roc_auc is the mean over the classes, weighted "
        'by their rows, as scikit-learn\'s roc_auc_score with multi_class="ovr", average="weighted".',
    )
    views: int = option(1, "The number of random column orders. Predictions are averaged over the orders.", at_least=1, at_most=1000)
    threshold: bool = option(default=False, about="Tune the decision threshold for two classes, nested within the folds.")
    submission: str = option("submission.csv", "The file name of the submission.")


@_explain_unknown
@frozen(kw_only=True)
class OwnConfig:
    """User-defined parts, each given as module:name.

    Modules are imported only with `--code FOLDER`, from this folder or from installed packages.

    >>> OwnConfig(loss="my_parts:focal").loss
    'my_parts:focal'
    """

    model: str | None = code_option(None, "A function (recipe, seed) -> model, used instead of model.name.")
    loss: str | None = code_option(None, "A function (outputs, labels) -> (sum, weight), like the functions in fp.losses.")
    step: str | None = code_option(
        None,
        "A function (model, loss, optimizer, **options) -> step, used instead of fp.train_step and called with the same options. "
        "A step maps (state, batch) to (state, metrics).",
    )
    spec: str | None = code_option(None, "A DatasetSpec, used instead of data.spec.")
    rows: str | None = code_option(
        None, "A function (data.path, part) -> dataset of rows or None, used instead of files. part is 'train', 'valid' or 'test'."
    )
    observers: tuple[str, ...] = code_option(
        (), "Functions that map the event stream of a fold to an event stream, added to the observers."
    )


@_explain_unknown
@frozen(kw_only=True)
class RunConfig:
    """Complete configuration of a run.

    >>> RunConfig(name="first").training.epochs
    10

    See also: `load_config` for configuration files, `PRESETS` for presets.
    """

    name: str = option("run", "The name of the run and of the run folder.")
    output: str = path_option("runs", "The folder that contains the folders of runs.")
    task: Literal["competition", "images", "audio", "language_model"] = option(
        "competition", "competition: rows of tables and texts, in folds; images or audio: files in class folders; language_model: texts."
    )
    data: DataConfig = field(factory=DataConfig)
    text: TextConfig = field(factory=TextConfig)
    media: MediaConfig = field(factory=MediaConfig)
    model: ModelConfig = field(factory=ModelConfig)
    optimizer: OptimizerConfig = field(factory=OptimizerConfig)
    schedule: ScheduleConfig = field(factory=ScheduleConfig)
    training: TrainingConfig = field(factory=TrainingConfig)
    observers: ObserversConfig = field(factory=ObserversConfig)
    validation: ValidationConfig = field(factory=ValidationConfig)
    competition: CompetitionConfig = field(factory=CompetitionConfig)
    own: OwnConfig = field(factory=OwnConfig)


def option_paths() -> tuple[str, ...]:
    """Return the paths of all options of a run, such as `training.epochs`."""
    inner = (
        (section.name, fields(section.type) if section.type is not None and has(section.type) else ()) for section in fields(RunConfig)
    )
    return tuple(path for name, parts in inner for path in ([f"{name}.{part.name}" for part in parts] or [name]))


def meant(name: str) -> tuple[str, ...]:
    """Return the paths of the options that a user can mean by the unknown option name `name`.

    The result holds every option with this name in any section, such as `model.size`. If no section has such an option, the result is the
    option that other libraries call `name`. The result is empty for an unknown name.

    >>> meant("batch_size"), meant("epochs"), meant("size"), meant("unheard")
    (('training.size',), ('training.epochs',), ('model.size', 'training.size'), ())
    """
    paths, wanted = option_paths(), plain(name)
    same = tuple(path for path in paths if plain(path.rpartition(".")[2]) == wanted)
    common = COMMON_NAMES.get(wanted)
    return same or ((common,) if common in paths else ())


def hint(name: str) -> str | None:
    """Return a suggestion for an unknown configuration key. Return None if mlxfp has no suggestion.

    >>> hint("lr"), hint("unheard")
    ("did you mean 'optimizer.learning_rate'?", None)
    """
    paths = meant(name)
    return f"did you mean {' or '.join(map(repr, paths))}?" if paths else COMMON_NAMES.get(plain(name))


def _call(path: str) -> str:
    """Return the Python code that sets an option."""
    section, _, name = path.rpartition(".")
    kinds: dict[str, Any] = {section_field.name: section_field.type for section_field in fields(RunConfig)}
    return f"{kinds[section].__name__ if section else RunConfig.__name__}({name}=...)"
