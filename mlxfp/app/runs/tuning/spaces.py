"""What tuning may change: a search space is a tuple of parameters, each an option of a configuration with the values it may have."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from attrs import field, fields, frozen

from mlxfp.app.config.classes import RunConfig, hint, meant, option_paths
from mlxfp.app.kaggle.specs.specs import CLASSED, DatasetSpec
from mlxfp.app.runs.folders import flat
from mlxfp.app.runs.from_config import CHOICES, estimator_of, is_estimator
from mlxfp.app.runs.plans import Plan
from mlxfp.app.runs.problems import config_problems
from mlxfp.models import MODELS, TABLE_MODELS
from mlxfp.support.errors import ConfigError, suggest
from mlxfp.support.registries import Registry
from mlxfp.support.structuring import structure, unstructure
from mlxfp.support.yaml_files import read_value

Kind = Literal["float", "log", "int", "choice"]
_ARGUMENTS = "model.arguments."
# Other options decide what is scored, on which rows, or nothing at all.
_FIXED = ("model.name", "model.path", "model.arguments", "training.seed", "training.seeds")
TUNABLE = tuple(
    path
    for path in option_paths()
    if path.partition(".")[0] in ("text", "model", "optimizer", "schedule", "training") and path not in _FIXED
)


@frozen
class Parameter:
    """An option that tuning may change, by its path in a configuration, and its values.

    `kind` is "float" or "log" (numbers, the second by their logarithm), "int", or "choice". `values` are the lowest and the highest, or
    those to choose from. Raises `ConfigError` for values that do not fit the kind.

    >>> Parameter("model.dropout", "float", (0.0, 0.3)).values
    (0.0, 0.3)
    >>> Parameter("model.dropout", "float", (0.3, 0.0))
    Traceback (most recent call last):
    mlxfp.support.errors.ConfigError: model.dropout: float needs its lowest and its highest value, got [0.3, 0.0]. ...
    """

    key: str
    kind: Kind
    values: tuple[Any, ...] = field(converter=tuple)

    def __attrs_post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ConfigError(f"{self.key}: {self.kind!r} is not a kind of parameter.{suggest(self.kind, get_args(Kind))} {_KINDS}")
        if self.kind == "choice":
            fits, needs, example = len(self.values) > 1, "two values or more", "{choice: [tiny, small]}"
            fits = fits and all(isinstance(value, int | float | str | bool | None) for value in self.values)
        else:
            types = (int,) if self.kind == "int" else (int, float)
            numbers = len(self.values) == 2 and all(type(value) in types for value in self.values)
            fits = numbers and self.values[0] < self.values[1] and (self.kind != "log" or self.values[0] > 0)
            needs = "its lowest and its highest value" + (", both above 0" if self.kind == "log" else "")
            example = "{int: [4, 64]}" if self.kind == "int" else f"{{{self.kind}: [0.1, 0.5]}}"
        if not fits:
            raise ConfigError(f"{self.key}: {self.kind} needs {needs}, got {list(self.values)}. Write {example}.")

    def allows(self, value: Any) -> bool:
        """Tell whether it may have this value."""
        if self.kind == "choice":
            return value in self.values
        return type(value) in ((int,) if self.kind == "int" else (int, float)) and self.values[0] <= value <= self.values[1]


_KINDS = f"Known: {', '.join(get_args(Kind))}."
Space = tuple[Parameter, ...]


def _space(prefix: str, **parameters: tuple[Any, ...]) -> Space:
    return tuple(Parameter(f"{prefix}{name}", kind, values) for name, (kind, *values) in parameters.items())


_FOREST = {"subsample": ("float", 0.5, 1.0), "colsample_bytree": ("float", 0.2, 1.0), "reg_lambda": ("log", 0.01, 30.0)}
_TEXTS = (
    *_space("optimizer.", learning_rate=("log", 1e-4, 3e-3), weight_decay=("log", 1e-3, 0.3)),
    *_space("model.", dropout=("float", 0.0, 0.3)),
)

# By the name of a model. The ranges of realmlp and tabm are ours, around the defaults of their authors (Holzmüller et al., 2024; Gorishniy
# et al., 2025).
SPACES: Registry[Space] = Registry(
    "search space",
    {
        "lightgbm": _space(
            _ARGUMENTS,
            learning_rate=("log", 0.005, 0.2),
            n_estimators=("int", 100, 2000),
            num_leaves=("int", 3, 128),
            min_child_samples=("int", 2, 60),
            **_FOREST,
        ),
        "catboost": _space(
            _ARGUMENTS,
            learning_rate=("log", 0.01, 0.3),
            iterations=("int", 100, 2000),
            depth=("int", 3, 9),
            l2_leaf_reg=("log", 0.5, 30.0),
            rsm=("float", 0.3, 1.0),
        ),
        "xgboost": _space(
            _ARGUMENTS,
            learning_rate=("log", 0.005, 0.3),
            n_estimators=("int", 100, 2000),
            max_depth=("int", 2, 9),
            min_child_weight=("log", 0.1, 30.0),
            **_FOREST,
        ),
        "kernel": _space(_ARGUMENTS, C=("log", 0.1, 100.0), gamma=("log", 1e-4, 1.0)),
        "tfidf": _space(_ARGUMENTS, C=("log", 0.1, 100.0)),
        "tfidf of values": _space(_ARGUMENTS, alpha=("log", 0.01, 100.0)),
        "realmlp": (
            *_space("optimizer.", learning_rate=("log", 0.02, 0.3), weight_decay=("choice", 0.0, 0.02)),
            *_space("model.", dropout=("choice", 0.0, 0.15, 0.3)),
            *_space(_ARGUMENTS, sigma=("log", 0.05, 3.0)),
        ),
        "tabm": (
            *_space("optimizer.", learning_rate=("log", 1e-4, 5e-3), weight_decay=("log", 1e-4, 0.1)),
            *_space("model.", dropout=("float", 0.0, 0.5)),
        ),
        **dict.fromkeys(MODELS, _TEXTS),
        "pretrained": (*_space("optimizer.", learning_rate=("log", 5e-6, 2e-4)), *_TEXTS[1:]),
    },
)


def space_of(config: RunConfig, spec: DatasetSpec, vary: Sequence[str] = ()) -> Space:
    """Return the search space of the model of a configuration, changed by `vary`: KEY={KIND: [...]} sets a parameter, KEY=null removes one.

    Raises `ConfigError` for a model without a search space of its own where `vary` names no parameter, and for text that is not of this
    form.
    """
    name = "pretrained" if config.model.path is not None else config.model.name or "modernbert"
    name = "tfidf of values" if name == "tfidf" and spec.kind not in CLASSED else name
    found = {parameter.key: parameter for parameter in SPACES.get(name, ())}
    for each in vary:
        key, changed = _parsed(each)
        found = {known: parameter for known, parameter in found.items() if known != key} | ({} if changed is None else {key: changed})
    if not found:
        raise ConfigError(
            f"There is no search space for model.name={name}. Say what may change, as in --vary '{_ARGUMENTS}alpha={{log: [0.01, 100]}}'."
        )
    return tuple(found.values())


def _parsed(text: str) -> tuple[str, Parameter | None]:
    key, equals, value = text.partition("=")
    _check_key(key)
    read: Any = read_value(value, where=text) if equals else ""
    if read is None:
        return key, None
    if not isinstance(read, Mapping) or len(read) != 1 or not isinstance(next(iter(read.values())), list):
        raise ConfigError(
            f"{text!r} is not of the form KEY={{KIND: [...]}}. Write, for example, model.dropout={{float: [0.0, 0.3]}}. {_KINDS}"
        )
    ((kind, values),) = read.items()
    return key, Parameter(key, kind, values)


def _check_key(key: str) -> None:
    if key in TUNABLE or (key.startswith(_ARGUMENTS) and key != _ARGUMENTS):
        return
    if key in option_paths():
        raise ConfigError(
            f"{key} cannot be tuned: it decides what is scored, or nothing. Options of a model can: {', '.join(TUNABLE[-8:])}."
        )
    near = [path for path in meant(key.rpartition(".")[2]) if path in TUNABLE]
    said = f" Did you mean {' or '.join(map(repr, near))}?" if near else suggest(key, TUNABLE)
    raise ConfigError(f"A configuration has no {key!r}, so it cannot be tuned.{said} Those of a library begin with {_ARGUMENTS}")


def check_space(plan: Plan, space: Space) -> None:
    """Raise `ConfigError` for a parameter whose lowest or highest value, or a choice, does not fit the configuration."""
    for parameter in space:
        _check_key(parameter.key)
        for value in parameter.values:
            config = with_values(plan.config, {parameter.key: value})
            if problem := next(config_problems(config), None):
                raise ConfigError(f"{parameter.key}={value!r} cannot be tried. {problem[0]}: {problem[1]}.")
            if is_estimator(config):
                estimator_of(config, plan.data.spec, plan.own, rows=_rows(plan), seed=0)


def with_values(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """Return a configuration with other values, by their paths.

    >>> with_values(RunConfig(), {"training.epochs": 3, "model.arguments.C": 0.5}).model.arguments
    (('C', 0.5),)
    """
    tree = unstructure(config)
    for path, value in values.items():
        *sections, name = path.split(".")
        inner = tree
        for section in sections:
            inner = inner[section]
        inner[name] = value
    return structure(tree, RunConfig, what="a trial", choices=CHOICES, hint=hint)


def values_of(plan: Plan, space: Space) -> dict[str, Any]:
    """Return the values that a configuration has for the parameters of a space, as far as they are known and the space allows them."""
    known = flat(plan.config)
    if is_estimator(plan.config):
        model = estimator_of(plan.config, plan.data.spec, plan.own, rows=_rows(plan), seed=0).model
        known = {f"{_ARGUMENTS}{name}": value for name, value in _arguments(model)} | known
    elif (name := plan.config.model.name) is not None and name in TABLE_MODELS:
        usual = {each.name: each.default for each in fields(TABLE_MODELS[name].config)}
        known = {f"{_ARGUMENTS}{name}": value for name, value in usual.items()} | known
    return {parameter.key: known[parameter.key] for parameter in space if parameter.allows(known.get(parameter.key))}


def _arguments(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of an estimator, and before them those of its parts, by their own names."""
    own = model.get_params()
    yield from ((name.rpartition("__")[2], value) for name, value in own.items() if "__" in name)
    yield from ((name, value) for name, value in own.items() if "__" not in name)


def _rows(plan: Plan) -> int:
    return len(next(iter(plan.folds)).train)
