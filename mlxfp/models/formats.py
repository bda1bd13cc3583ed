"""Architectures, and the formats in which transformers writes them: `config.json` and the names of weights.

A config has the field names of `config.json`, so a format says only where the two differ. In the names of modules, `{}` is the
number of a block; `weight` and `bias` mean the same in both.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import reduce
from typing import Any

import mlx.core as mx
from attrs import asdict, evolve, field, fields_dict, frozen
from mlx import nn

from mlxfp.support.checks import check_choice
from mlxfp.support.errors import DataError, unknown_name

Json = Mapping[str, Any]
Names = Mapping[str, str]
Settings = Mapping[str, Any]

SECTION = "mlxfp"  # the key of config.json for a head that transformers does not have
_OWN_HEAD = "mlxfp_head."  # prefix of the weights of such a head, so that transformers does not take them for those of its own


@frozen
class HeadFormat:
    """How a head is written."""

    kinds: tuple[str, ...]  # the names in HEADS that are written as this head
    modules: Names  # from names of modules in our head to those of transformers
    read: Callable[[Json], tuple[str, dict[str, Any]]]  # from config.json: its name in HEADS, and all arguments but body and seed


@frozen(kw_only=True)
class Format:
    """How a body and its heads are written."""

    model_type: str
    classes: str  # the beginning of the names of its classes
    prefix: str  # of the names of the body's weights in a model with a head
    config: type
    modules: Mapping[str, str] = {}  # from names of modules in our body to those of transformers; empty where they are the same
    heads: Mapping[str, HeadFormat] = {}  # by the end of the names of their classes
    defaults: Mapping[str, Any] = {}  # of absent keys, where the config has another default or none
    allowed: Mapping[str, tuple[Any, ...]] = {}  # the only values that these keys may have; an absent key has the first
    constants: Mapping[str, Any] = {}  # fields without a key, which have one value in all models of this type
    detected: Mapping[str, str] = {}  # fields without a key, true where the files hold a weight whose name ends as given
    read_more: Callable[[Json], dict[str, Any]] = lambda json: {}  # fields that follow from several keys
    write_more: Callable[[Any], dict[str, Any]] = lambda config: {}  # further keys of config.json, from the config
    renamed: Mapping[str, str] = {}  # patterns in the names of weights of older files, and their replacements
    dropped: tuple[str, ...] = ()  # patterns in the names of weights that repeat others, or that no model here has

    def read(self, json: Json, weights: Collection[str]) -> "Blueprint":
        """Read which model `config.json` describes; `weights` are the names in the files. Raises `DataError` for an impossible one."""
        body, section = self.read_body(json, weights), _section(json)
        if "head" in section:
            return evolve(body, kind=section["head"], settings=section["settings"], own_head=True, numbers=section.get("numbers"))
        kind, settings = self._read_head(json)
        # A head with the pooler needs it even if its weights are missing: then loading reports them as missing.
        config = evolve(body.config, pooler=True) if settings.get("pooling") == "pooler" else body.config
        return evolve(body, config=config, kind=kind, settings=settings)

    def read_body(self, json: Json, weights: Collection[str]) -> "Blueprint":
        """Read which body `config.json` describes, without its head. Raises a `DataError` listing every value that no model here has."""
        given = {key: json.get(key, values[0]) for key, values in self.allowed.items()}
        wrong = [f"{key} is {value!r}, not {_one_of(self.allowed[key])}" for key, value in given.items() if value not in self.allowed[key]]
        found = {**self.defaults, **{name: json[name] for name in fields_dict(self.config) if json.get(name) is not None}}
        try:
            found |= self.read_more(json)
        except DataError as error:
            wrong.append(str(error))
        if wrong:
            raise DataError(f"mlxfp has no {self.model_type} model like this: {'; '.join(wrong)}.")
        found |= {name: any(weight.endswith(end) for weight in weights) for name, end in self.detected.items()}
        prefix = self.prefix if any(name.startswith(self.prefix) for name in weights) else ""
        return Blueprint(self, self.config(**{**found, **self.constants}), prefix)

    def write(self, config: Any, kind: str | None, settings: Settings, numbers: Settings | None) -> tuple["Blueprint", dict[str, Any]]:
        """Describe a model: a blueprint and `config.json`, with a section for a head that transformers does not have."""
        suffix = next((suffix for suffix, head in self.heads.items() if kind in head.kinds), None)
        json: dict[str, Any] = {"model_type": self.model_type, "architectures": [self.classes + (suffix or "Model")]}
        json |= {key: values[0] for key, values in self.allowed.items()}
        json |= asdict(config, filter=lambda each, _: each.name not in {*self.constants, *self.detected})
        json |= self.write_more(config) | (_write_head(settings) if suffix else {})
        own_head = numbers is not None or self._read_head(json) != (kind, settings)
        if own_head:
            section = {"head": kind, "settings": dict(settings)} | ({} if numbers is None else {"numbers": dict(numbers)})
            json |= {"architectures": [], SECTION: section}
        return Blueprint(self, config, "" if kind is None else self.prefix, kind, settings, own_head, numbers), json

    def _read_head(self, json: Json) -> tuple[str | None, dict[str, Any]]:
        name = next(iter(json.get("architectures") or ()), None)
        if name is None:
            raise DataError("config.json names no architecture, so the kind of head is unknown. Read the body alone with load_body.")
        if name == f"{self.classes}Model":
            return None, {}
        known = {f"{self.classes}{suffix}": head for suffix, head in self.heads.items()}
        if name not in known:
            raise unknown_name(f"{self.model_type} model", name, [f"{self.classes}Model", *known])
        return known[name].read(json)


@frozen
class Blueprint:
    """What a model is made of, and what its weights are called in files."""

    format: Format
    config: Any  # of the body
    prefix: str  # of the names of the body's weights
    kind: str | None = None  # of the head, as in HEADS; None: the body alone
    settings: Settings = field(factory=dict)  # of the head
    own_head: bool = False  # whether transformers does not have this head
    numbers: Settings | None = None  # the arguments of WithNumbers, if the model has one

    def name_of(self, weight: str) -> str:
        """Return the name in a file of one of our weights."""
        module, _, leaf = weight.removeprefix("head.").removeprefix("scores.").rpartition(".")
        if self.kind is None or module.startswith("body."):
            return f"{self.prefix}{_name_in(self.format.modules, module.removeprefix('body.'))}.{leaf}"
        if self.own_head:
            return _OWN_HEAD + weight
        head = next(head for head in self.format.heads.values() if self.kind in head.kinds)
        return f"{head.modules[module]}.{leaf}"

    def current(self, weights: Mapping[str, mx.array]) -> dict[str, mx.array]:
        """Give weights of older files their present names. Of a weight with its old and its new name, the latter is taken."""
        renamed = {reduce(lambda name, rule: re.sub(rule[0], rule[1], name), self.format.renamed.items(), name): name for name in weights}
        return {now: weights.get(now, weights[name]) for now, name in renamed.items()}

    def drops(self, name: str) -> bool:
        """Tell whether a weight that belongs to no module may be ignored."""
        return any(re.search(pattern, name) for pattern in self.format.dropped)


@frozen
class Architecture:
    """What models of one architecture are made of: a body, called with a config and a seed, and a config, called with its fields.

    `sizes` are fields of the config by the name of a size, and `vocab_size` is that of the best known tokenizer. `rows` and `tokens` are
    the usual settings of heads on it: of those that answer for whole rows, and of those that answer for each token. `formats` say how
    models are loaded and saved.

    >>> import mlxfp as fp
    >>> sorted(fp.models.MODELS["bert"].sizes)[:2]
    ['base', 'large']
    """

    body: Callable[..., nn.Module]
    config: type
    sizes: Mapping[str, Mapping[str, int]]
    vocab_size: int
    rows: Mapping[str, Any] = {}
    tokens: Mapping[str, Any] = {}
    formats: tuple[Format, ...] = ()


def classifier_heads(modules: Names, tokens: Callable[[Json], Settings], rows: Callable[[Json], Settings]) -> dict[str, HeadFormat]:
    """Make the formats of the classifiers of tokens and rows of transformers.

    `tokens` reads the settings of a token classifier from config.json; `rows` those in which a sequence classifier differs from it.
    """

    def read_tokens(json: Json) -> tuple[str, dict[str, Any]]:
        return "token_classifier", {"outputs": _count_labels(json), **tokens(json)}

    def read_rows(json: Json) -> tuple[str, dict[str, Any]]:
        settings, problem = {**read_tokens(json)[1], **rows(json)}, json.get("problem_type")
        if problem == "regression" or (problem is None and settings["outputs"] == 1):  # as in transformers
            return "regressor", settings
        return "classifier", settings | {"multi_label": problem == _PROBLEMS[True]}

    return {
        "ForSequenceClassification": HeadFormat(("classifier", "regressor"), modules, read_rows),
        "ForTokenClassification": HeadFormat(("token_classifier",), modules, read_tokens),
    }


def masked_head(modules: Names) -> HeadFormat:
    """Make the format of a masked language model of transformers."""

    def read(json: Json) -> tuple[str, dict[str, Any]]:
        for key in ("tie_word_embeddings", "decoder_bias"):
            if not json.get(key, True):
                raise DataError(f"{key} is false, but the masked language models of mlxfp have tied weights and a bias.")
        return "masked_lm", {}

    return HeadFormat(("masked_lm",), modules, read)


def classifier_dropout(json: Json, default: float) -> float:
    """Return the dropout of a classifier of transformers, or the default where there is none or it is null."""
    rate = json.get("classifier_dropout")
    return float(default if rate is None else rate)


def rotary_base(rope: Json, given: float | None, default: float) -> float:
    """Return the base of rotary positions: `rope_theta` of `rope_parameters`, else the key of older files, else the default."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise DataError(f"its rotary positions are of the type {kind!r}, not 'default'")
    return float(rope.get("rope_theta", default if given is None else given))


_PROBLEMS = {True: "multi_label_classification", False: "single_label_classification", None: "regression"}


def _section(json: Json) -> Json:
    section = json.get(SECTION, {})
    if not isinstance(section, dict):
        raise DataError(f"{SECTION!r} must be an object, got {type(section).__name__}.")
    for name in section:
        check_choice(("head", "settings", "numbers"), **{f"key of {SECTION!r}": name})
    return section


def _one_of(values: tuple[Any, ...]) -> str:
    return repr(values[0]) if len(values) == 1 else f"one of {', '.join(map(repr, values))}"


def _write_head(settings: Settings) -> dict[str, Any]:
    """Write the settings of a head under the keys that transformers has for them."""
    json: dict[str, Any] = {}
    if "outputs" in settings:
        names = [f"LABEL_{number}" for number in range(settings["outputs"])]
        json = {"id2label": {str(number): name for number, name in enumerate(names)}}
        json |= {"label2id": {name: number for number, name in enumerate(names)}, "classifier_dropout": settings["dropout"]}
    if "pooling" in settings:
        json |= {"classifier_pooling": {"first": "cls"}.get(settings["pooling"], settings["pooling"])}
        json |= {"problem_type": _PROBLEMS[settings.get("multi_label")]}
    return json | {name: value for name, value in settings.items() if name == "tie_word_embeddings"}


def _count_labels(json: Json) -> int:
    """Count the labels of a classifier of transformers: 2 unless config.json has another number."""
    names = json.get("id2label")
    return int(json.get("num_labels") or 2) if names is None else len(names)


def _name_in(names: Names, module: str) -> str:
    """Return the name of a module of ours in transformers."""
    if not names:
        return module
    number = re.search(r"\.(\d+)\.", module)
    return names[module] if number is None else names[module.replace(number[0], ".{}.", 1)].replace("{}", number[1])
