"""What a run can be told: frozen classes, one for each part of it."""

from typing import Literal

from attrs import field, frozen

from mlxfp.config.options import above, at_least, at_most, below, option, place


@frozen(kw_only=True)
class DataConfig:
    """Where the rows come from.

    >>> DataConfig(path="data/titanic").prefetch
    2
    """

    path: str | None = place(None, "The folder of the competition: its train and test file. Null: rows made up for a try.")
    spec: str | None = place(None, "The name of a known data set, or the path of a spec in YAML or JSON. Null: what the file looks like.")
    limit: int | None = option(None, "So many of the training rows and no more, for a quick try.", at_least(10))
    prefetch: int = option(2, "How many batches are prepared ahead.", at_least(0))


@frozen(kw_only=True)
class TextConfig:
    """How a row becomes tokens.

    >>> TextConfig(max_length=256).missing
    'drop'
    """

    form: Literal["sentence", "key_value"] = option("sentence", "Sentences ('The age is 22.') or names with values ('age: 22;').")
    template: str | None = option(None, "A template of your own in place of a form, with {column} for a value.")
    missing: Literal["drop", "unknown"] = option("drop", "What is said of a value that is missing: nothing, or that it is unknown.")
    numbers: Literal["raw", "round", "significant", "quantile", "none"] = option(
        "round", "How numbers are written; quantiles are those of the fold. None: they are not, and model.numeric has them."
    )
    digits: int = option(2, "Digits after the point, or significant ones; or the number of quantiles.", at_least(0), at_most(100))
    tokenizer: str = place("wordpiece", "A kind to train on the rows of each fold (wordpiece, bpe, unigram), or the path of one that is.")
    vocab_size: int = option(2000, "Tokens of a tokenizer that is trained.", at_least(64))
    max_length: int = option(128, "Tokens of a row at most.", at_least(4))
    overflow: Literal["refuse", "cut"] = option("refuse", "What happens if rows are longer: nothing runs, or their ends are cut off.")
    permute: bool = option(default=False, about="Whether each row has its columns in another order in every epoch.")
    drop: float = option(0.0, "The share of values left out at random in training.", at_least(0), below(1))


@frozen(kw_only=True)
class ModelConfig:
    """What is trained.

    >>> ModelConfig(name="bert", size="small").path is None
    True
    """

    name: Literal["bert", "encoder", "modernbert"] = option("modernbert", "The architecture.")
    size: str = option("tiny", "Its size, as models.create knows it.")
    path: str | None = place(None, "A folder with pretrained weights in place of a name and a size.")
    dropout: float | None = option(None, "The share that dropout takes. Null: as the architecture has it.", at_least(0), below(1))
    numeric: bool = option(default=False, about="Whether numbers also reach the head directly, scaled by the training rows.")


@frozen(kw_only=True)
class OptimizerConfig:
    """How weights change.

    >>> OptimizerConfig().name
    'adamw'
    """

    name: Literal["adamw", "adam", "sgd", "lion", "adafactor"] = option("adamw", "The method.")
    learning_rate: float = option(5e-4, "The highest rate.", above(0))
    weight_decay: float = option(
        0.01, "Decay, of matrices only: not of norms and biases. Adam and SGD add it to the gradient.", at_least(0)
    )
    clip_norm: float | None = option(1.0, "The norm that gradients are cut to. Null: they are not.", above(0))


@frozen(kw_only=True)
class ScheduleConfig:
    """How the rate changes over the run.

    >>> ScheduleConfig(name="cosine").warmup
    0.1
    """

    name: Literal["constant", "linear", "cosine"] = option("linear", "How the rate falls after the warmup.")
    warmup: float = option(0.1, "The share of all steps in which it rises.", at_least(0), at_most(1))


@frozen(kw_only=True)
class TrainingConfig:
    """How long, and in what steps.

    >>> TrainingConfig(epochs=3).size
    32
    """

    seed: int = option(0, "What everything random derives from.", at_least(0))
    epochs: int = option(10, "Times that every row is seen.", at_least(1))
    size: int = option(32, "Rows of a batch.", at_least(1))
    accumulate: int = option(1, "Batches of an update.", at_least(1))
    compute_dtype: Literal["float32", "bfloat16", "float16"] = option("float32", "What the model computes in; weights stay float32.")
    checkpoint_blocks: bool = option(default=False, about="Whether blocks are computed again for their gradients, to save memory.")
    skip_nonfinite: bool = option(default=False, about="Whether an update with infinite gradients is left out, or ends the run.")
    ema: float | None = option(
        None, "How slowly the average of the weights follows, such as 0.999; it is what predicts.", above(0), below(1)
    )


@frozen(kw_only=True)
class ObserversConfig:
    """What watches a run.

    >>> ObserversConfig(patience=3).keep
    1
    """

    progress: bool = option(default=True, about="Whether a bar is shown.")
    every: int = option(10, "Steps between two entries in the log.", at_least(1))
    patience: int | None = option(None, "Evaluations without a better one after which a fold ends. Null: it never does.", at_least(1))
    checkpoint_every: int = option(50, "Steps between two checkpoints.", at_least(1))
    keep: int = option(1, "How many of the last checkpoints are kept, the best one aside.", at_least(1))
    minutes: float | None = option(None, "The time that a fold may take.", above(0))
    mlflow: str | None = option(None, "The address of an MLflow store, such as sqlite:///mlflow.db. Null: no tracking.")
    plots: bool = option(default=True, about="Whether the run is drawn at the end.")


@frozen(kw_only=True)
class ValidationConfig:
    """How the model is judged.

    >>> ValidationConfig(folds=10).repeats
    1
    """

    method: Literal["auto", "kfold", "stratified", "grouped", "stratified_grouped", "time"] = option(
        "auto", "How rows are dealt to folds; auto: by groups or time if the spec has such, else stratified by class."
    )
    folds: int = option(5, "Parts, each of which validates once.", at_least(2))
    repeats: int = option(1, "Times that the rows are dealt anew.", at_least(1))
    seed: int = option(0, "What the dealing derives from.", at_least(0))


@frozen(kw_only=True)
class CompetitionConfig:
    """What is made of the predictions.

    >>> CompetitionConfig().submission
    'submission.csv'
    """

    metric: str | None = option(None, "The metric that counts. Null: that of the spec.")
    ensemble: Literal["mean", "rank", "vote"] = option("mean", "How the folds' predictions of the test rows become one.")
    views: int = option(1, "Orders of the columns that predictions are averaged over.", at_least(1))
    threshold: bool = option(default=False, about="Whether the threshold of a binary decision is tuned, nested in the folds.")
    submission: str = option("submission.csv", "The name of the file to hand in.")


@frozen(kw_only=True)
class RunConfig:
    """A whole run.

    >>> RunConfig(name="first").training.epochs
    10

    See also: `load_config`, which reads one from a file; `PRESETS`.
    """

    name: str = option("run", "The name of the run, and of its folder.")
    output: str = place("runs", "The folder that holds the folders of runs.")
    data: DataConfig = field(factory=DataConfig)
    text: TextConfig = field(factory=TextConfig)
    model: ModelConfig = field(factory=ModelConfig)
    optimizer: OptimizerConfig = field(factory=OptimizerConfig)
    schedule: ScheduleConfig = field(factory=ScheduleConfig)
    training: TrainingConfig = field(factory=TrainingConfig)
    observers: ObserversConfig = field(factory=ObserversConfig)
    validation: ValidationConfig = field(factory=ValidationConfig)
    competition: CompetitionConfig = field(factory=CompetitionConfig)
