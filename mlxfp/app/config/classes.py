"""The options of a run: frozen classes, one for each part of a configuration file.

Names of parts that other rooms list in a table (optimizers, schedules, models, metrics, ...) are plain text here: `runs.CHOICES` has them.
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
    """Make a class say what an unknown option means, where Python would only say that it is unexpected."""
    changed: Any = kind
    names, made = [each.name for each in fields(changed)], changed.__init__

    @wraps(made)
    def explained(self: Any, *arguments: Any, **values: Any) -> None:
        unknown = next((name for name in values if name not in names), None)
        if unknown is not None:
            paths = meant(unknown)
            said = " or ".join(map(_call, paths)) or COMMON_NAMES.get(plain(unknown), "")
            hint = f" Write {said}." if paths else f" In a run, {said}." if said else suggest(unknown, names)
            raise ArgumentTypeError(f"{kind.__name__} has no option {unknown!r}.{hint} Known: {listed(names)}.")
        made(self, *arguments, **values)

    changed.__init__ = explained
    return kind


@_explain_unknown
@frozen(kw_only=True)
class DataConfig:
    """Where the rows come from.

    >>> DataConfig(path="data/titanic").prefetch
    2
    """

    path: str | None = path_option(None, "The folder with the competition's files. Null: synthetic rows, to try things out.")
    spec: str | None = path_option(
        None, "The name of a known data set, or the path of a spec in YAML or JSON. Null: inferred from the files."
    )
    pseudo_labels: str | None = path_option(
        None, "The folder of a finished run on the same rows and folds; rows of the test file that it predicts with confidence are learned."
    )
    limit: int | None = option(None, "Use only this many training rows, for a quick try.", at_least=10)
    prefetch: int = option(2, "The number of batches prepared in advance.", at_least=0)


@_explain_unknown
@frozen(kw_only=True)
class TextConfig:
    """How a row becomes tokens.

    >>> TextConfig(max_length=256).missing
    'drop'
    """

    form: str = option("sentence", "How a row is rendered as text: sentences ('The age is 22.') or key_value ('age: 22;').")
    template: str | None = option(None, "Your own template, used instead of a form: {column} is replaced by the value of the column.")
    missing: Literal["drop", "unknown"] = option("drop", "How a missing value is rendered: its column is left out, or it is 'unknown'.")
    numbers: Literal["raw", "round", "significant", "quantile", "none"] = option(
        "round", "How numbers are rendered; quantiles are computed from the fold's training rows. None: left out, for model.numeric."
    )
    digits: int = option(2, "The digits after the point, the significant digits, or the number of quantiles.", at_least=0, at_most=100)
    column: str = option("text", "The column of the texts of a language model, in files that have columns.")
    tokenizer: str = path_option(
        "wordpiece", "The kind to train on the training rows of each fold (wordpiece, bpe, unigram), or the path of a trained tokenizer."
    )
    vocab_size: int = option(2000, "The vocabulary size of a tokenizer that is trained.", at_least=64)
    max_length: int = option(128, "The most tokens a row may have.", at_least=4)
    overflow: Literal["refuse", "cut"] = option("refuse", "What to do with rows that are too long: refuse to run, or cut off their ends.")
    permute: bool = option(default=False, about="Shuffle the columns of each training row, in every epoch.")
    drop: float = option(0.0, "The fraction of values hidden at random in training.", at_least=0, below=1)


@_explain_unknown
@frozen(kw_only=True)
class MediaConfig:
    """How files become arrays, where the task is images or audio.

    >>> MediaConfig(side=224).rate
    16000
    """

    side: int = option(64, "The height and width that pictures are resized to.", at_least=8)
    rate: int = option(16000, "The samples per second that sounds are resampled to.", at_least=1000)
    seconds: float = option(4.0, "How much of a sound is used; shorter ones are padded.", above=0)
    mels: int = option(64, "The number of bands of a spectrogram.", at_least=8)


@_explain_unknown
@frozen(kw_only=True)
class ModelConfig:
    """The model to train.

    >>> ModelConfig(name="bert", size="small").path is None
    True
    """

    name: str | None = option(
        None,
        "The architecture: one that reads rows as text; a network for tables, which reads columns and brings its own defaults "
        "of training; an estimator by name, or as in sklearn.svm:SVR; auto, which blends several. Null: modernbert; decoder for a language "
        "model; convnet for images and audio.",
    )
    arguments: tuple[tuple[str, Any], ...] = option(
        (),
        "The arguments of an estimator, by the names of its library; of networks for tables, fields of their configs.",
    )
    size: str = option("tiny", "The size, one that models.create or models.create_table_model knows.")
    path: str | None = path_option(None, "A folder with pretrained weights, used instead of name and size.")
    dropout: float | None = option(None, "The dropout rate. Null: the default of the architecture.", at_least=0, below=1)
    numeric: bool = option(default=False, about="Pass numerical columns, scaled by the training rows, directly to the model's head.")


@_explain_unknown
@frozen(kw_only=True)
class OptimizerConfig:
    """How weights are updated.

    >>> OptimizerConfig().name
    'adamw'
    """

    name: str = option("adamw", "The optimizer.")
    learning_rate: float | None = option(
        5e-4,
        "The peak learning rate. Null, for the optimizer of a network for tables: the rate of its authors.",
        above=0,
    )
    weight_decay: float = option(
        0.01, "Weight decay of matrices; norms and biases have none. Adam and SGD add it to the gradient.", at_least=0
    )
    layer_decay: float = option(
        1.0,
        "With pretrained weights, the learning rate of a block as a multiple of that of the block above it; the head has the whole rate.",
        above=0,
        at_most=1,
    )
    clip_norm: float | None = option(1.0, "The largest norm of the gradients; larger ones are scaled down. Null: no clipping.", above=0)


@_explain_unknown
@frozen(kw_only=True)
class ScheduleConfig:
    """How the learning rate changes during the run.

    >>> ScheduleConfig(name="cosine").warmup
    0.1
    """

    name: str = option("linear", "How the learning rate falls after the warmup; polynomial: as (1 - share done) squared.")
    warmup: float = option(0.1, "The fraction of all updates in which the learning rate rises; plateau has none.", at_least=0, at_most=1)
    patience: int = option(2, "plateau: the rate falls after this many evaluations without improvement.", at_least=1)
    factor: float = option(0.5, "plateau: what the rate is multiplied by.", above=0, below=1)


@_explain_unknown
@frozen(kw_only=True)
class TrainingConfig:
    """How long to train, and in what steps.

    >>> TrainingConfig(epochs=3).size
    32
    """

    seed: int = option(0, "The seed of everything random.", at_least=0)
    seeds: int = option(1, "The number of models of each fold, with seed, seed + 1 and so on; their predictions are averaged.", at_least=1)
    epochs: int = option(10, "The number of passes over the training rows.", at_least=1)
    size: int = option(32, "The number of rows in a batch.", at_least=1)
    accumulate: int = option(1, "The number of batches whose gradients make one update.", at_least=1)
    compute_dtype: Literal["float32", "bfloat16", "float16"] = option("float32", "The dtype of the computation; weights stay float32.")
    checkpoint_blocks: bool = option(default=False, about="Recompute blocks in the backward pass, to save memory.")
    skip_nonfinite: bool = option(default=False, about="Skip updates with infinite or NaN gradients, instead of ending the run.")
    ema: float | None = option(
        None, "The decay of an exponential moving average of the weights, such as 0.999; the average predicts.", above=0, below=1
    )


@_explain_unknown
@frozen(kw_only=True)
class ObserversConfig:
    """What is logged, saved and watched while a run trains.

    >>> ObserversConfig(patience=3).keep
    1
    """

    progress: bool = option(default=True, about="Show a progress bar.")
    every: int = option(10, "The number of steps between two log entries.", at_least=1)
    evaluate_every: int | None = option(None, "The number of steps between two evaluations. Null: after each epoch.", at_least=1)
    patience: int | None = option(None, "Stop a fold after this many evaluations without improvement. Null: never.", at_least=1)
    checkpoint_every: int = option(50, "The number of steps between two checkpoints.", at_least=1)
    keep: int = option(1, "The number of recent checkpoints to keep, not counting the best one.", at_least=1)
    minutes: float | None = option(None, "The time limit in minutes: of a fold or, with model.name=auto, of all models.", above=0)
    mlflow: str | None = option(None, "The URI of an MLflow store, such as sqlite:///mlflow.db. Null: none.")
    mlflow_model: str | None = option(None, "Register the models of the run in MLflow under this name. Null: they are not registered.")
    trackio: str | None = option(None, "The project in Trackio that the run is logged to. Null: none.")
    tensorboard: str | None = option(None, "The folder of TensorBoard; the run gets a folder of event files in it. Null: none.")
    plots: bool = option(default=True, about="Plot the run when it ends, and write its report.")


@_explain_unknown
@frozen(kw_only=True)
class ValidationConfig:
    """How the model is evaluated.

    >>> ValidationConfig(folds=10).repeats
    1
    """

    method: str = option("auto", "How rows are assigned to folds; auto: by time or by group if the spec names one, else stratified.")
    folds: int = option(5, "The number of folds; each validates once.", at_least=2)
    repeats: int = option(1, "How often cross-validation is repeated, each time with other folds.", at_least=1)
    seed: int = option(0, "The seed of the folds.", at_least=0)


@_explain_unknown
@frozen(kw_only=True)
class CompetitionConfig:
    """How the run is scored, and what is made of its predictions.

    >>> CompetitionConfig().submission
    'submission.csv'
    """

    metric: str | None = option(None, "The metric of the competition. Null: that of the spec.")
    ensemble: str = option("mean", "How the folds' predictions of the test rows are combined.")
    views: int = option(1, "The number of column orders that predictions are averaged over.", at_least=1)
    threshold: bool = option(default=False, about="Tune the threshold of a binary decision, nested in the folds.")
    submission: str = option("submission.csv", "The file name of the submission.")


@_explain_unknown
@frozen(kw_only=True)
class OwnConfig:
    """Parts of your own, each named as module:name; they are imported only with `--code FOLDER`, from that folder or as a package.

    >>> OwnConfig(loss="my_parts:focal").loss
    'my_parts:focal'
    """

    model: str | None = code_option(None, "A function of (recipe, seed) to a model, used instead of model.name.")
    loss: str | None = code_option(None, "A function of (outputs, labels) to (sum, weight), as those of fp.losses.")
    spec: str | None = code_option(None, "A DatasetSpec, used instead of data.spec.")
    rows: str | None = code_option(
        None, "A function of (data.path, 'train', 'valid' or 'test') to a dataset of rows, or None, used instead of files."
    )
    observers: tuple[str, ...] = code_option((), "Functions from a fold's events to events, added to the observers.")


@_explain_unknown
@frozen(kw_only=True)
class RunConfig:
    """A whole run.

    >>> RunConfig(name="first").training.epochs
    10

    See also: `load_config`, which reads one from a file; `PRESETS`.
    """

    name: str = option("run", "The name of the run, and of its folder.")
    output: str = path_option("runs", "The folder that contains the folders of runs.")
    task: Literal["competition", "images", "audio", "language_model"] = option(
        "competition", "What is learned: rows of tables and texts, in folds; classes of images or of audio in class folders; texts."
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


@frozen(kw_only=True)
class BlendConfig:
    """A blend of finished runs, as a file for `mlxfp blend`.

    >>> BlendConfig(runs=("runs/first", "runs/second"), out="runs/both").method
    'mean'

    See also: `runs.blend`, which says what each value means.
    """

    runs: tuple[str, ...]
    out: str
    method: Literal["mean", "rank", "vote", "greedy"] = "mean"


def option_paths() -> tuple[str, ...]:
    """Return the paths of all options of a run, such as `training.epochs`."""
    inner = ((each.name, fields(each.type) if each.type is not None and has(each.type) else ()) for each in fields(RunConfig))
    return tuple(path for name, parts in inner for path in ([f"{name}.{part.name}" for part in parts] or [name]))


def meant(name: str) -> tuple[str, ...]:
    """Return the options that an unknown name means: those of this name in other sections, or what other libraries call so.

    >>> meant("batch_size"), meant("epochs"), meant("size"), meant("unheard")
    (('training.size',), ('training.epochs',), ('model.size', 'training.size'), ())
    """
    paths, wanted = option_paths(), plain(name)
    same = tuple(path for path in paths if plain(path.rpartition(".")[2]) == wanted)
    common = COMMON_NAMES.get(wanted)
    return same or ((common,) if common in paths else ())


def hint(name: str) -> str | None:
    """Say what an unknown key of a configuration means, if it is known.

    >>> hint("lr"), hint("unheard")
    ("did you mean 'optimizer.learning_rate'?", None)
    """
    paths = meant(name)
    return f"did you mean {' or '.join(map(repr, paths))}?" if paths else COMMON_NAMES.get(plain(name))


def _call(path: str) -> str:
    """Return how an option is set in Python."""
    section, _, name = path.rpartition(".")
    kinds: dict[str, Any] = {each.name: each.type for each in fields(RunConfig)}
    return f"{kinds[section].__name__ if section else RunConfig.__name__}({name}=...)"
