"""How others write models of ours: what a format is, and how it is read and written. The tables are in `huggingface.py`.

All is by name: fields of a config against keys of `config.json`, modules against modules; `{}` in a module's name stands for the number
of a block, and `weight` and `bias` mean the same on both sides.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import asdict, evolve, field, frozen

from mlxfp.core.errors import DataError, unknown_name

Json = Mapping[str, Any]
Names = Mapping[str, str]
Settings = Mapping[str, Any]

SECTION = "mlxfp"  # of config.json, where its usual keys do not say everything
_OWN_HEAD = "mlxfp_head."  # before the names of weights of a head that others do not have: they must not take it for theirs


@frozen
class HeadFormat:
    """How a head is written."""

    kinds: tuple[str, ...]  # what it may be, in HEADS
    modules: Names
    read: Callable[[Json], tuple[str, dict[str, Any]]]  # which of them it is, and all its arguments but the body


@frozen(kw_only=True)
class Format:
    """How a body and its heads are written."""

    model_type: str
    classes: str  # how the names of its classes begin
    prefix: str  # of the names of the body's weights in a model with a head
    config: Callable[..., Any]
    keys: Names  # by field of the config
    defaults: Json  # what an absent key stands for, by field, where that is not the config's own default
    fixed: Mapping[str, tuple[Any, ...]]  # keys that can have these values only; an absent one stands for the first
    modules: Names
    heads: Mapping[str, HeadFormat]  # by how the names of their classes end
    read_rest: Callable[[Json, Collection[str]], dict[str, Any]]  # fields without a key of their own, from keys and names of weights
    write_rest: Callable[[Any], dict[str, Any]]
    renamed: Names = field(factory=dict)  # patterns in names of weights, and what stands there now
    dropped: tuple[str, ...] = ()  # patterns in names of weights that say what others say, or that no model here has

    def read(self, json: Json, weights: Collection[str]) -> "Blueprint":
        """Say which model `config.json` describes; `weights` are the names in the files. Raises `DataError` for what cannot be."""
        body, section = self.read_body(json, weights), json.get(SECTION, {})
        if "head" in section:
            return evolve(body, kind=section["head"], settings=section["settings"], own_head=True, numbers=section.get("numbers"))
        kind, settings = self._read_head(json)
        # A head that needs the pooler has one, also where its weights are missing: that will be said.
        config = evolve(body.config, pooler=True) if settings.get("pooling") == "pooler" else body.config
        return evolve(body, config=config, kind=kind, settings=settings)

    def read_body(self, json: Json, weights: Collection[str]) -> "Blueprint":
        """Say which body there is, as `read`, and leave the head."""
        section = json.get(SECTION)
        config = self.config(**section["config"]) if section else self.read_config(json, weights)
        return Blueprint(self, config, self.prefix if any(name.startswith(self.prefix) for name in weights) else "")

    def read_config(self, json: Json, weights: Collection[str]) -> Any:
        """Make the body's config. Raises `DataError` that says all that is wrong with it."""
        given = {key: json.get(key, values[0]) for key, values in self.fixed.items()}
        wrong = [f"{key} is {value!r}, not {self.fixed[key][0]!r}" for key, value in given.items() if value not in self.fixed[key]]
        given = {name: json.get(key, self.defaults.get(name)) for name, key in self.keys.items()}
        try:
            given |= self.read_rest(json, weights)
        except DataError as error:
            wrong.append(str(error))
        if given.get("activation", "gelu") not in _ACTIVATIONS:
            wrong.append(f"{self.keys['activation']} is {given['activation']!r}, not one of {', '.join(_ACTIVATIONS)}")
        if wrong:
            raise DataError(f"This is not the {self.model_type} that mlxfp has: {'; '.join(wrong)}.")
        if "activation" in given:
            given["activation"] = _ACTIVATIONS[given["activation"] or "gelu"]
        return self.config(**{name: value for name, value in given.items() if value is not None})

    def write(self, config: Any, kind: str | None, settings: Settings, numbers: Settings | None) -> tuple["Blueprint", dict[str, Any]]:
        """Describe a model: a blueprint, and `config.json`, with a section of ours if it would not be read back as it is."""
        suffix = next((suffix for suffix, head in self.heads.items() if kind in head.kinds), None)
        json: dict[str, Any] = {"model_type": self.model_type, "architectures": [self.classes + (suffix or "Model")]}
        json |= {key: values[0] for key, values in self.fixed.items()} | {key: getattr(config, name) for name, key in self.keys.items()}
        if "activation" in self.keys:
            json[self.keys["activation"]] = activation_name(config.activation)
        json |= self.write_rest(config) | (write_head(settings) if suffix else {})
        found = self.read(json, ())
        own_head = numbers is not None or (found.kind, found.settings) != (kind, settings)
        if own_head:
            json |= {"architectures": [], SECTION: {"config": asdict(config), "head": kind, "settings": dict(settings)}}
            json[SECTION] |= {} if numbers is None else {"numbers": dict(numbers)}
        elif found.config != config:
            json[SECTION] = {"config": asdict(config)}
        return Blueprint(self, config, "" if kind is None else self.prefix, kind, settings, own_head, numbers), json

    def _read_head(self, json: Json) -> tuple[str | None, dict[str, Any]]:
        name = next(iter(json.get("architectures") or ()), None)
        if name is None:
            raise DataError("config.json names no architecture, so it does not say what head there is. Read the body with load_body.")
        if name == f"{self.classes}Model":
            return None, {}
        known = {f"{self.classes}{suffix}": head for suffix, head in self.heads.items()}
        if name not in known:
            raise unknown_name(f"{self.model_type} model", name, [f"{self.classes}Model", *known])
        return known[name].read(json)


@frozen
class Blueprint:
    """Which model there is to make, and what its weights are called."""

    format: Format
    config: Any  # of the body
    prefix: str  # of the names of the body's weights
    kind: str | None = None  # of head; None: the body alone
    settings: Settings = field(factory=dict)  # of the head
    own_head: bool = False  # one that others do not have
    numbers: Settings | None = None  # of the side channel, if there is one

    def name_of(self, weight: str) -> str:
        """Return the name in a file of one of our weights."""
        module, _, leaf = weight.removeprefix("head.").removeprefix("scores.").rpartition(".")
        if self.kind is None or module.startswith("body."):
            return f"{self.prefix}{_look_up(self.format.modules, module.removeprefix('body.'))}.{leaf}"
        if self.own_head:
            return _OWN_HEAD + weight
        head = next(head for head in self.format.heads.values() if self.kind in head.kinds)
        return f"{head.modules[module]}.{leaf}"

    def current_name(self, name: str) -> str:
        """Return the name that a weight with an old name has now."""
        for pattern, now in self.format.renamed.items():
            name = re.sub(pattern, now, name)
        return name

    def drops(self, name: str) -> bool:
        """Tell whether a weight that no module has may be left out."""
        return any(re.search(pattern, name) for pattern in self.format.dropped)


# Of names for one function, the first is written.
_ACTIVATIONS = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}


def activation_name(ours: str) -> str:
    """Return the name that transformers has for an activation."""
    return next(theirs for theirs, name in _ACTIVATIONS.items() if name == ours)


def read_rows(json: Json, **settings: Any) -> tuple[str, dict[str, Any]]:
    """Read a sequence classifier of transformers. With one label it predicts a number, unless it says otherwise."""
    outputs, problem = count_labels(json), json.get("problem_type")
    if problem == "regression" or (problem is None and outputs == 1):
        return "regressor", {"outputs": outputs, **settings}
    return "classifier", {"outputs": outputs, "multi_label": problem == _PROBLEMS[True], **settings}


def write_head(settings: Settings) -> dict[str, Any]:
    """Say the settings of a head in the keys that transformers has for them."""
    json: dict[str, Any] = {}
    if "outputs" in settings:
        names = [f"LABEL_{number}" for number in range(settings["outputs"])]
        json = {"id2label": {str(number): name for number, name in enumerate(names)}}
        json |= {"label2id": {name: number for number, name in enumerate(names)}, "classifier_dropout": settings["dropout"]}
    if "pooling" in settings:
        json |= {"classifier_pooling": {"first": "cls"}.get(settings["pooling"], settings["pooling"])}
        json |= {"problem_type": _PROBLEMS[settings.get("multi_label")]}
    if "tied" in settings:
        json["tie_word_embeddings"] = settings["tied"]
    return json


def count_labels(json: Json) -> int:
    """Count the labels of a classifier of transformers: 2 unless it says otherwise."""
    names = json.get("id2label")
    return int(json.get("num_labels") or 2) if names is None else len(names)


_PROBLEMS = {True: "multi_label_classification", False: "single_label_classification", None: "regression"}


def _look_up(names: Names, module: str) -> str:
    if not names:  # a body of our own
        return module
    number = re.search(r"\.(\d+)\.", module)
    return names[module] if number is None else names[module.replace(number[0], ".{}.", 1)].replace("{}", number[1])
