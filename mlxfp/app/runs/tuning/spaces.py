"""Search spaces of tuning: tuples of parameters, each an option of a configuration with a range of values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from attrs import field, fields, frozen

from mlxfp.app.runs.from_config.planning import changed, plan_problem
from mlxfp.app.runs.from_config.problems import ARGUMENTS, check_tunable_option
from mlxfp.app.runs.plans import Plan
from mlxfp.models import MODELS, TABLE_MODELS
from mlxfp.support.errors import ConfigError, suggest
from mlxfp.support.registries import Registry
from mlxfp.support.structuring import flatten
from mlxfp.support.yaml_files import read_value

Kind = Literal["float", "log", "int", "choice"]


@frozen
class Parameter:
    """Option path and values of a parameter of the search space.

    `kind` is "float", "log" (numbers on a logarithmic scale), "int" or "choice". `values` has the lowest and the highest value, or the
    choices. Raises `ConfigError` for values that do not fit the kind.

    >>> Parameter("model.dropout", "float", (0.0, 0.3)).values
    (0.0, 0.3)
    >>> Parameter("model.dropout", "float", (0.3, 0.0))
    Traceback (most recent call last):
    mlxfp.support.errors.ConfigError: model.dropout: float needs a lowest and a highest value, got [0.3, 0.0]. ...
    """

    key: str
    kind: Kind
    values: tuple[Any, ...] = field(converter=tuple[Any, ...])

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
            needs = "a lowest and a highest value" + (", both above 0" if self.kind == "log" else "")
            example = "{int: [4, 64]}" if self.kind == "int" else f"{{{self.kind}: [0.1, 0.5]}}"
        if not fits:
            raise ConfigError(f"{self.key}: {self.kind} needs {needs}, got {list(self.values)}. Write {example}.")

    def allows(self, value: Any) -> bool:
        """Return True if the value is in the range or among the choices."""
        if self.kind == "choice":
            return value in self.values
        return type(value) in ((int,) if self.kind == "int" else (int, float)) and self.values[0] <= value <= self.values[1]


_KINDS = f"Known: {', '.join(get_args(Kind))}."
Space = tuple[Parameter, ...]


def _space(prefix: str, **parameters: tuple[Any, ...]) -> Space:
    return tuple(Parameter(f"{prefix}{name}", kind, values) for name, (kind, *values) in parameters.items())


_TEXTS = (
    *_space("optimizer.", learning_rate=("log", 1e-4, 3e-3), weight_decay=("log", 1e-3, 0.3)),
    *_space("model.", dropout=("float", 0.0, 0.3)),
)

# Search spaces by model name.
SPACES: Registry[Space] = Registry(
    "search space",
    {
        "lightgbm": _space(
            ARGUMENTS,
            learning_rate=("log", 0.005, 0.2),
            n_estimators=("int", 100, 2000),
            num_leaves=("int", 3, 128),
            min_child_samples=("int", 2, 60),
            subsample=("float", 0.5, 1.0),
            colsample_bytree=("float", 0.2, 1.0),
            reg_lambda=("log", 0.01, 30.0),
        ),
        "catboost": _space(
            ARGUMENTS,
            learning_rate=("log", 0.01, 0.3),
            iterations=("int", 100, 2000),
            depth=("int", 3, 9),
            l2_leaf_reg=("log", 0.5, 30.0),
            rsm=("float", 0.3, 1.0),
        ),
        "kernel": _space(ARGUMENTS, C=("log", 0.1, 100.0), gamma=("log", 1e-4, 1.0)),
        "tfidf": _space(ARGUMENTS, C=("log", 0.1, 100.0)),
        "tfidf of values": _space(ARGUMENTS, alpha=("log", 0.01, 100.0)),
        **{name: _space("", **network.space) for name, network in TABLE_MODELS.items()},
        **dict.fromkeys(MODELS, _TEXTS),
        "pretrained": (*_space("optimizer.", learning_rate=("log", 5e-6, 2e-4)), *_TEXTS[1:]),
    },
)


def space_of(plan: Plan, vary: Sequence[str] = ()) -> Space:
    """Return the search space for the model of a run. Each text in `vary` changes one option of the search space.

    The text `model.dropout={float: [0.0, 0.3]}` sets the range of an option, and the text `model.dropout=null` removes an option. Raises
    `ConfigError` for a text in another form, or if no option remains.
    """
    name = "pretrained" if plan.models.pretrained else plan.models.name or "modernbert"
    name = "tfidf of values" if name == "tfidf" and not plan.data.spec.task.has_classes else name
    parameters = {parameter.key: parameter for parameter in SPACES.get(name, ())}
    for text in vary:
        key, changed = _parsed(text)
        parameters = {old: parameter for old, parameter in parameters.items() if old != key} | ({} if changed is None else {key: changed})
    if not parameters:
        raise ConfigError(
            f"There is no search space for model.name={name}. Define a range for an option, as in --vary "
            f"'{ARGUMENTS}alpha={{log: [0.01, 100]}}'."
        )
    return tuple(parameters.values())


def _parsed(text: str) -> tuple[str, Parameter | None]:
    key, equals, value = text.partition("=")
    check_tunable_option(key)
    read: Any = read_value(value, where=text) if equals else ""
    if read is None:
        return key, None
    if not isinstance(read, Mapping) or len(read) != 1 or not isinstance(next(iter(read.values())), list):
        raise ConfigError(
            f"{text!r} is not of the form KEY={{KIND: [...]}}. Write, for example, model.dropout={{float: [0.0, 0.3]}}. {_KINDS}"
        )
    ((kind, values),) = read.items()
    return key, Parameter(key, kind, values)


def check_space(plan: Plan, space: Space) -> None:
    """Raise `ConfigError` if the search space contains a value that the run does not accept. Limits and choices are checked."""
    for parameter in space:
        check_tunable_option(parameter.key)
        for value in parameter.values:
            trial = changed(plan, {parameter.key: value})
            if invalid := plan_problem(trial):
                option, problem = invalid
                raise ConfigError(f"{parameter.key}={value!r} is not a valid value for tuning. {option}: {problem}.")
            if trial.models.estimator is not None:
                trial.models.estimator(plan.data.spec, rows=_rows(plan), seed=0)


def values_of(plan: Plan, space: Space) -> dict[str, Any]:
    """Return the current value of each option in a search space. The result omits options with an unknown or unsuitable value."""
    known = flatten(plan.settings)
    if plan.models.estimator is not None:
        model = plan.models.estimator(plan.data.spec, rows=_rows(plan), seed=0).model
        known = {f"{ARGUMENTS}{name}": value for name, value in _arguments(model)} | known
    elif (name := plan.models.name) is not None and name in TABLE_MODELS:
        usual = {option.name: option.default for option in fields(TABLE_MODELS[name].config)}
        known = {f"{ARGUMENTS}{name}": value for name, value in usual.items()} | known
    return {parameter.key: known[parameter.key] for parameter in space if parameter.allows(known.get(parameter.key))}


def _arguments(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of nested arguments, then of the estimator's own arguments. For equal names, a dict keeps the own value."""
    arguments = model.get_params()
    yield from ((name.rpartition("__")[2], value) for name, value in arguments.items() if "__" in name)
    yield from ((name, value) for name, value in arguments.items() if "__" not in name)


def _rows(plan: Plan) -> int:
    return len(next(iter(plan.folds)).train)
