"""How others write models of ours: what a format is, and how it is read and written. The tables are in `huggingface.py`.

All is by name: fields of a config against keys of `config.json`, modules against modules; `{}` in a module's name stands for the number
of a block, and `weight` and `bias` mean the same on both sides.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import asdict, evolve, frozen

from mlxfp.core.errors import DataError, unknown_name
from mlxfp.models.activations import ACTIVATIONS

Json = Mapping[str, Any]
Names = Mapping[str, str]
Settings = Mapping[str, Any]

SECTION = "mlxfp"  # of config.json, where its usual keys do not say everything
_OWN_HEAD = "mlxfp_head."  # before the names of weights of a head that others do not have: they must not take it for theirs


@frozen
class HeadFormat:
    """How a head is written: the end of the class's name, the names of its modules, its settings."""

    suffix: str
    names: Names
    read: Callable[[Json], dict[str, Any]]  # all arguments of the head but the body
    write: Callable[[Settings], dict[str, Any]]


@frozen
class Format:
    """How a body and its heads are written."""

    model_type: str
    classes: str  # how the names of its classes begin
    prefix: str  # of the names of the body's weights, in a model with a head
    config: Callable[..., Any]
    keys: Names  # by field of the config
    defaults: Json  # what an absent key stands for, by field, where that is not the config's own default
    fixed: Mapping[str, Collection[Any]]  # keys that can have these values only; the first is what an absent one stands for
    modules: Names  # by name of ours
    heads: Mapping[str, HeadFormat]  # by name in HEADS; the first that fits a class's name reads it
    read_rest: Callable[[Json, Collection[str]], dict[str, Any]]  # fields that are in no key of their own, from keys and weights
    write_rest: Callable[[Any], dict[str, Any]]
    renamed: Names = {}  # patterns in the names of weights, and what stands there now
    dropped: tuple[str, ...] = ()  # patterns of names of weights that say what others say, or that nothing here needs

    def read(self, json: Json, weights: Collection[str]) -> "Blueprint":
        """Say which model `config.json` describes; `weights` are the names in the files. Raises `DataError`, saying all that is wrong."""
        section = json.get(SECTION, {})
        config = self.config(**section["config"]) if "config" in section else self.read_config(json, weights)
        if "head" in section:
            return Blueprint(self, config, section["head"], section["settings"], own_head=True)
        kind = self._kind(json)
        settings = {} if kind is None else self.heads[kind].read(json)
        if settings.get("pooling") == "pooler":
            config = evolve(config, pooler=True)  # also where its weights are missing: that will be said
        return Blueprint(self, config, kind, settings)

    def read_config(self, json: Json, weights: Collection[str]) -> Any:
        """Make the body's config."""
        wrong = [
            f"{key} is {json[key]!r}, not {' or '.join(map(repr, values))}"
            for key, values in self.fixed.items()
            if key in json and json[key] not in values
        ]
        given = {name: json.get(key, self.defaults.get(name)) for name, key in self.keys.items()}
        settings = {name: value for name, value in given.items() if value is not None}
        try:
            settings |= self.read_rest(json, weights)
        except DataError as error:
            wrong.append(str(error))
        if "activation" in settings and settings["activation"] not in _ACTIVATIONS:
            wrong.append(f"{self.keys['activation']} is {settings['activation']!r}, not one of {', '.join(_ACTIVATIONS)}")
        if wrong:
            raise DataError(f"This is not the {self.model_type} that mlxfp has: {'; '.join(wrong)}.")
        if "activation" in settings:
            settings["activation"] = _ACTIVATIONS[settings["activation"]]
        return self.config(**settings)

    def write(self, config: Any, kind: str | None, settings: Settings, weights: Collection[str]) -> tuple["Blueprint", dict[str, Any]]:
        """Describe a model: what `read` makes of it, and `config.json`. It gets a section of ours if it would not be read back as it is."""
        json = {"model_type": self.model_type, **{key: next(iter(values)) for key, values in self.fixed.items()}}
        json |= {key: getattr(config, name) for name, key in self.keys.items()} | self.write_rest(config)
        if "activation" in self.keys:
            json[self.keys["activation"]] = _ACTIVATION_NAMES[config.activation]
        head = self.heads.get(kind or "")
        json |= {"architectures": [self.classes + ("Model" if head is None else head.suffix)]} | ({} if head is None else head.write(settings))
        meant = Blueprint(self, config, kind, settings)
        found = self.read(json, weights)
        if (found.kind, found.settings) != (kind, settings):
            meant = evolve(meant, own_head=True)
            json |= {"architectures": [], SECTION: {"config": asdict(config), "head": kind, "settings": dict(settings)}}
        elif found.config != config:
            json[SECTION] = {"config": asdict(config)}
        return meant, json

    def _kind(self, json: Json) -> str | None:
        name = next(iter(json.get("architectures") or ()), None)
        if name is None:
            raise DataError("config.json names no architecture, so it does not say which head there is. Read the body alone with load_body.")
        if name == f"{self.classes}Model":
            return None
        known = {f"{self.classes}{head.suffix}": kind for kind, head in reversed(self.heads.items())}
        if name not in known:
            raise unknown_name(f"head of {self.model_type}", name, [f"{self.classes}Model", *known])
        kinds = [kind for kind, head in self.heads.items() if f"{self.classes}{head.suffix}" == name]
        return next((kind for kind in kinds if kind != "regressor" or is_regression(json)), kinds[0])


@frozen
class Blueprint:
    """Which model there is to make, and what its weights are called."""

    format: Format
    config: Any
    kind: str | None  # of head; None: the body alone
    settings: Settings
    own_head: bool = False  # a head that others do not have

    def name_of(self, weight: str, prefix: str) -> str:
        """Return the name in a file of one of our weights; `prefix` is that of the body's names."""
        module, _, leaf = weight.removeprefix("scores.").rpartition(".")
        if self.kind is None or module.startswith("body."):
            return f"{prefix}{_look_up(self.format.modules, module.removeprefix('body.'))}.{leaf}"
        if self.own_head or self.kind not in self.format.heads:
            return f"{_OWN_HEAD}{module}.{leaf}" if module else _OWN_HEAD + leaf
        return f"{self.format.heads[self.kind].names[module]}.{leaf}"

    def current_name(self, name: str) -> str:
        """Return the name that a weight has now."""
        for pattern, now in self.format.renamed.items():
            name = re.sub(pattern, now, name)
        return name

    def drops(self, name: str) -> bool:
        """Tell whether a weight that no module has may be left out."""
        return any(re.search(pattern, name) for pattern in self.format.dropped)


# Of names for one function, the first is written.
_ACTIVATIONS = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
_ACTIVATION_NAMES = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
assert set(_ACTIVATION_NAMES) == set(ACTIVATIONS)


def count_labels(json: Json) -> int:
    """Count the labels of a classifier of transformers: 2 unless it says otherwise."""
    names = json.get("id2label")
    return int(json.get("num_labels") or 2) if names is None else len(names)


def is_regression(json: Json) -> bool:
    """Tell whether a sequence classifier of transformers predicts numbers: with one label it does, unless it says otherwise."""
    kind = json.get("problem_type")
    return kind == "regression" or (kind is None and count_labels(json) == 1)


def _look_up(names: Names, module: str) -> str:
    if not names:  # a body of our own
        return module
    number = re.search(r"\.(\d+)\.", module)
    return names[module] if number is None else names[module.replace(number[0], ".{}.", 1)].replace("{}", number[1])
