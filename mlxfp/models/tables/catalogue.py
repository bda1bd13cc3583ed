"""Registry of neural networks for tables, with functions that create, save, load and apply the networks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import Factory, fields, frozen
from mlx import nn
from numpy.typing import NDArray

from mlxfp.core.chunks import HIDDEN, one_chunk
from mlxfp.core.datasets import Dataset, to_table
from mlxfp.core.describing import schema
from mlxfp.data.rows.columns import select_columns
from mlxfp.models.tables.columns import TableColumns
from mlxfp.models.tables.realmlp import RealMLP, RealMLPConfig
from mlxfp.models.tables.tabm import TabM, TabMConfig
from mlxfp.models.tables.targets import TableTarget
from mlxfp.support.checks import check_columns, check_types
from mlxfp.support.errors import ArgumentTypeError, DataError
from mlxfp.support.registries import Registry
from mlxfp.support.structuring import structure, unstructure

_ROWS_AT_ONCE = 2048
_OPTIONS = ("columns", "target", "dropout", "steps")


@frozen
class GroupedRates:
    """Learning rates for a network trained with `optimizers.fading_adam`.

    `peaks` holds the peak learning rate for each kind of target: "class", "labels" or "value". `groups` holds the groups of parameters for
    `fading_adam`, as tuples: name patterns, factor of the learning rate, factor of the weight decay.

    >>> GroupedRates(peaks={"class": 0.04, "value": 0.2}, groups=((["*.bias"], 0.1, 0.0),)).peaks["class"]
    0.04
    """

    peaks: Mapping[str, float]
    groups: Sequence[tuple[Sequence[str], float, float]]


@frozen(kw_only=True)
class QuickTraining:
    """Settings for training a network within minutes, used by `model.name=auto`.

    - `values`: options for regression, which replace defaults of the network.
    - `slow`: options for machines without a GPU, which replace defaults of the network.
    - `rows`: maximum number of table rows on machines without a GPU; None means no limit.
    - `updates`: maximum number of updates per fold on machines without a GPU; None means no limit.

    >>> QuickTraining(slow={"model": {"size": "tiny"}}, rows=5000).updates is None
    True
    """

    values: Mapping[str, Mapping[str, Any]] = Factory(dict)
    slow: Mapping[str, Mapping[str, Any]] = Factory(dict)
    rows: int | None = None
    updates: int | None = None


@frozen(kw_only=True)
class TableModel:
    """Entry of `TABLE_MODELS`: a neural network for tables, with sizes, training settings and search space.

    - `config`, `network`: the class of the config, and the class of the network. If the network is an ensemble, its method `members`
      returns the output of each member, and each member is trained: see `TabM`.
    - `sizes`: maps the name of a size, such as "tiny", to the config fields of the size.
    - `bins`: the number of bins of a numeric column; 0 for a network without bins.
    - `adapts`: True if the config has a field `steps` (training steps), and the network accepts `examples` (rows for scaling weights).
    - `smoothing`: label smoothing in training, if the metric compares class labels. With other metrics, label smoothing is off.
    - `defaults`: maps a section of a run's configuration to the published training settings.
    - `rates`: learning rates of the network's own optimizer, such as "realmlp". None if the network has no such optimizer.
    - `space`: the search space of tuning. Each option of a configuration has a range, ("float" or "log" or "int", low, high), or a list of
      values, ("choice", ...).
    - `quick`: settings for training within minutes.

    >>> TABLE_MODELS["tabm"].bins, sorted(TABLE_MODELS["tabm"].sizes), TABLE_MODELS["tabm"].arguments
    (48, ['base', 'small', 'tiny'], ('members', 'hidden_size', 'num_hidden_layers', 'number_size'))
    """

    config: type
    network: Callable[..., nn.Module]
    sizes: Registry[dict[str, Any]]
    bins: int = 0
    adapts: bool = False
    smoothing: float = 0.0
    defaults: Mapping[str, Mapping[str, Any]] = Factory(dict)
    rates: GroupedRates | None = None
    space: Mapping[str, tuple[Any, ...]] = Factory(dict)
    quick: QuickTraining = QuickTraining()

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the config fields that the option `model.arguments` of a configuration accepts."""
        return tuple(attribute.name for attribute in fields(self.config) if attribute.name not in _OPTIONS)


TABLE_MODELS: Registry[TableModel] = Registry(
    "network for tables",
    {
        "realmlp": TableModel(
            config=RealMLPConfig,
            network=RealMLP,
            sizes=Registry("size", {name: {"hidden_sizes": (width,) * 3} for name, width in (("tiny", 64), ("small", 128), ("base", 256))}),
            adapts=True,
            smoothing=0.1,
            # The patience equals the number of epochs, so training never stops early. Predictions use the weights of the best epoch.
            defaults={
                "model": {"size": "base"},
                "optimizer": {"name": "realmlp", "learning_rate": None, "weight_decay": 0.02, "clip_norm": None},
                "schedule": {"name": "coslog", "warmup": 0.0},
                "training": {"epochs": 256, "size": 256, "ema": None},
                "observers": {"patience": 256, "checkpoint_every": 500},
            },
            # In the published code of RealMLP, one factor for each parameter group multiplies the learning rate and the weight decay.
            rates=GroupedRates(
                peaks={"class": 0.04, "labels": 0.04, "value": 0.2},
                groups=((("scale",), 6.0, 6.0), (("layers.*.bias",), 0.1, 0.0), (("activations.*", "periodic.*"), 0.1, 0.1)),
            ),
            # Search ranges chosen by mlxfp around the published defaults (Holzmüller et al., 2024).
            space={
                "optimizer.learning_rate": ("log", 0.02, 0.3),
                "optimizer.weight_decay": ("choice", 0.0, 0.02),
                "model.dropout": ("choice", 0.0, 0.15, 0.3),
                "model.arguments.sigma": ("log", 0.05, 3.0),
            },
            # The setting sigma is the standard deviation of the frequencies in the embeddings of numbers. The published value is 0.1.
            # The setting sigma=1 reduces the RMSE on regression data sets: by 5 % on Calhousing, 10 % on Computers, 7 % on Concrete.
            # For classification, the settings sigma=1 and sigma=0.1 are equally good.
            # Training with 3,000 updates takes half a minute on one core.
            # More training hardly reduces the RMSE on the data set Calhousing: 47,783 after 40 epochs, 47,777 after 256 epochs.
            quick=QuickTraining(values={"model": {"arguments": {"sigma": 1.0}}}, updates=3000),
        ),
        "tabm": TableModel(
            config=TabMConfig,
            network=TabM,
            sizes=Registry("size", {name: {"hidden_size": width} for name, width in (("tiny", 128), ("small", 256), ("base", 512))}),
            bins=48,
            defaults={
                "model": {"size": "base"},
                "optimizer": {"name": "adamw", "learning_rate": 2e-3, "weight_decay": 3e-4, "clip_norm": None},
                "schedule": {"name": "constant", "warmup": 0.0},
                "training": {"epochs": 200, "size": 64, "ema": None},
                "observers": {"patience": 16, "checkpoint_every": 500},
            },
            # Search ranges chosen by mlxfp around the published defaults (Gorishniy et al., 2025).
            space={
                "optimizer.learning_rate": ("log", 1e-4, 5e-3),
                "optimizer.weight_decay": ("log", 1e-4, 0.1),
                "model.dropout": ("float", 0.0, 0.5),
            },
            quick=QuickTraining(slow={"model": {"size": "tiny"}}, rows=5000),
        ),
    },
)


def create_table_model(  # noqa: PLR0913
    name: str,
    columns: TableColumns,
    target: TableTarget,
    *,
    size: str = "base",
    dropout: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    examples: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Create a table network by its name in `TABLE_MODELS`, with weights initialized from `seed`. Size "base" is the published size.

    Only `RealMLP` uses `steps`, the number of training steps, and `examples`, a batch of training rows. `arguments` are other config
    fields, such as `sigma` of `RealMLP`. Raises `UnknownNameError` for unknown names, and `ConfigError` for invalid arguments.

    >>> import mlxfp as fp
    >>> columns = fp.models.TableColumns((fp.models.NumberColumn("age", median=40.0, factor=0.1),))
    >>> fp.models.create_table_model("realmlp", columns, fp.models.TableTarget("class", 2), size="tiny")(mx.zeros((3, 1))).shape
    (3, 2)

    See also: `RealMLP` and `TabM` for more options.
    """
    known = TABLE_MODELS[name]
    given = {**known.sizes[size], **({} if dropout is None else {"dropout": dropout}), **({"steps": steps} if known.adapts else {})}
    config = known.config(columns=columns, target=target, **given)
    if arguments:
        config = structure({**unstructure(config), **arguments}, known.config, what=f"model.arguments of {name}")
    return known.network(config, seed=seed, examples=examples) if known.adapts else known.network(config, seed=seed)


def predict_table(model: nn.Module, rows: Dataset[Any]) -> NDArray[np.float64]:
    """Predict rows with a table network: probabilities float64[N, C], values float64[N], or values of several targets float64[N, T].

    The model, a `RealMLP` or a `TabM`, stores the conversion of columns and outputs, also after `save` and `load`. Prediction uses
    evaluation mode. Raises `SchemaError` for rows with missing columns, and `ArgumentTypeError` for other models.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"age": 22.0}, {"age": 38.0}])
    >>> model = RealMLP(RealMLPConfig(columns=fp.models.fit_columns(rows, numbers=["age"]), target=TableTarget("class", 2)))
    >>> predict_table(model, rows).shape
    (2, 2)
    """
    check_types(Dataset, rows=rows)
    config = model.config if is_table_model(model) else None
    if config is None:
        raise ArgumentTypeError(f"predict_table needs a table network, got {type(model).__name__}. Use a RealMLP or a TabM.")
    check_columns(config.columns.names, [name for name in schema(rows).names if name not in HIDDEN], "predict_table")
    table = one_chunk(to_table(select_columns(list(config.columns.names))(rows)))
    config.columns.schema(table.schema)  # `schema` raises an error for a column of the wrong type, such as text in a numeric column
    arrays, training = config.columns.arrays(table), model.training
    model.eval()
    try:
        answers = [
            np.asarray(_answers(model, {name: mx.array(array[start : start + _ROWS_AT_ONCE]) for name, array in arrays.items()}))
            for start in range(0, table.num_rows, _ROWS_AT_ONCE)
        ]
    finally:
        model.train(training)
    shape = (0,) if config.target.kind == "value" and config.target.outputs == 1 else (0, config.target.outputs)
    target: TableTarget = config.target
    return target.read(np.concatenate([np.empty(shape), *answers]).astype(np.float64))


def _answers(model: nn.Module, arrays: Mapping[str, mx.array]) -> mx.array:
    outputs: mx.array = model(**arrays).astype(mx.float32)
    kind = model.config.target.kind
    return outputs if kind == "value" else mx.sigmoid(outputs) if kind == "labels" else mx.softmax(outputs, axis=-1)


def is_table_model(model: object) -> bool:
    """Return True for a table network."""
    return type(model) in {entry.network for entry in TABLE_MODELS.values()}


def table_json(model: nn.Module) -> dict[str, Any]:
    """Return the content of `config.json` for a table network: all constructor arguments except the seed."""
    name = next(name for name, entry in TABLE_MODELS.items() if type(model) is entry.network)
    return {"model_type": name, "architectures": [type(model).__name__], "config": unstructure(model.config)}


def build_table_model(json: Mapping[str, Any], where: str) -> nn.Module:
    """Return the network described by `config.json`, with initial weights."""
    known = TABLE_MODELS[json["model_type"]]
    if not isinstance(json.get("config"), dict):
        raise DataError(f"{where} does not describe a {json['model_type']}: the section config is missing. Save the model again.")
    return known.network(structure(json["config"], known.config, what=where))
