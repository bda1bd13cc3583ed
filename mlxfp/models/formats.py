"""File formats of architectures in the library transformers: `config.json` and the names of weights.

The config fields of mlxfp have the names of the keys in `config.json`. A format lists only differences between mlxfp and transformers. In
names of modules, `{}` stands for the block number. The last parts of weight names, `weight` and `bias`, are the same in both libraries.
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

SECTION = "mlxfp"  # key of config.json for heads that the library transformers does not have
_OWN_HEAD = "mlxfp_head."  # prefix for weight names of heads that the library transformers does not have


@frozen
class HeadFormat:
    """File format of a head."""

    kinds: tuple[str, ...]  # names of the heads that use this file format; keys of HEADS
    modules: Names  # maps module names of the head to names in transformers
    read: Callable[[Json], tuple[str, dict[str, Any]]]  # maps the content of config.json to a name in HEADS and the head's arguments


@frozen(kw_only=True)
class Format:
    """File format of a backbone and its heads."""

    model_type: str
    classes: str  # prefix of the class names in transformers
    prefix: str  # prefix of the names of the backbone's weights in a model with a head
    config: type
    modules: Mapping[str, str] = {}  # maps module names of the backbone to names in transformers; empty if the names are equal
    heads: Mapping[str, HeadFormat] = {}  # maps the suffix of a class name in transformers, such as ForMaskedLM, to the format of the head
    defaults: Mapping[str, Any] = {}  # values for keys missing in config.json; they take precedence over the defaults of `config`
    allowed: Mapping[str, tuple[Any, ...]] = {}  # supported values of keys in config.json; the first value applies if the key is missing
    constants: Mapping[str, Any] = {}  # config fields with a fixed value for this model type; config.json has no keys for these fields
    detected: Mapping[str, str] = {}  # maps a boolean config field to a suffix: the field is true if a weight name ends with the suffix
    read_more: Callable[[Json], dict[str, Any]] = lambda json: {}  # function that computes config fields from several keys of config.json
    write_more: Callable[[Any], dict[str, Any]] = lambda config: {}  # function that computes further keys of config.json from a config
    renamed: Mapping[str, str] = {}  # maps regular expressions for weight names in older files to replacements
    dropped: tuple[str, ...] = ()  # name patterns of ignored weights: duplicates or unsupported parts

    def read(self, json: Json, weights: Collection[str]) -> "Blueprint":
        """Return the description of the model in `config.json`.

        `weights` are the weight names in the files. Raises `DataError` for unsupported models.
        """
        body, section = self.read_body(json, weights), _section(json)
        if "head" in section:
            return evolve(body, kind=section["head"], settings=section["settings"], own_head=True, numbers=section.get("numbers"))
        kind, settings = self._read_head(json)
        # With pooling="pooler", the backbone always gets a pooler. Without weights for a pooler in the files, loading reports an error.
        config = evolve(body.config, pooler=True) if settings.get("pooling") == "pooler" else body.config
        return evolve(body, config=config, kind=kind, settings=settings)

    def read_body(self, json: Json, weights: Collection[str]) -> "Blueprint":
        """Return the description of the backbone in `config.json`, without a head. Raises `DataError` with all unsupported values."""
        given = {key: json.get(key, values[0]) for key, values in self.allowed.items()}
        wrong = [f"{key} is {value!r}, not {_one_of(self.allowed[key])}" for key, value in given.items() if value not in self.allowed[key]]
        settings = {**self.defaults, **{name: json[name] for name in fields_dict(self.config) if json.get(name) is not None}}
        try:
            settings |= self.read_more(json)
        except DataError as error:
            wrong.append(str(error))
        if wrong:
            raise DataError(f"mlxfp does not support this {self.model_type} model: {'; '.join(wrong)}.")
        settings |= {name: any(weight.endswith(end) for weight in weights) for name, end in self.detected.items()}
        prefix = self.prefix if any(name.startswith(self.prefix) for name in weights) else ""
        return Blueprint(self, self.config(**{**settings, **self.constants}), prefix)

    def write(self, config: Any, kind: str | None, settings: Settings, numbers: Settings | None) -> tuple["Blueprint", dict[str, Any]]:
        """Return the description of a model, and the content of its `config.json`.

        If transformers does not know the head, the section `mlxfp` of `config.json` describes the head.
        """
        suffix = next((suffix for suffix, head in self.heads.items() if kind in head.kinds), None)
        json: dict[str, Any] = {"model_type": self.model_type, "architectures": [self.classes + (suffix or "Model")]}
        json |= {key: values[0] for key, values in self.allowed.items()}
        json |= asdict(config, filter=lambda attribute, _: attribute.name not in {*self.constants, *self.detected})
        json |= self.write_more(config) | (_write_head(settings) if suffix else {})
        own_head = numbers is not None or self._read_head(json) != (kind, settings)
        if own_head:
            section = {"head": kind, "settings": dict(settings)} | ({} if numbers is None else {"numbers": dict(numbers)})
            json |= {"architectures": [], SECTION: section}
        return Blueprint(self, config, "" if kind is None else self.prefix, kind, settings, own_head, numbers), json

    def _read_head(self, json: Json) -> tuple[str | None, dict[str, Any]]:
        name = next(iter(json.get("architectures") or ()), None)
        if name is None:
            raise DataError("config.json has no architectures: the class of the model is unknown. Read only the body with load_body.")
        if name == f"{self.classes}Model":
            return None, {}
        known = {f"{self.classes}{suffix}": head for suffix, head in self.heads.items()}
        if name not in known:
            raise unknown_name(f"{self.model_type} model", name, [f"{self.classes}Model", *known])
        return known[name].read(json)


@frozen
class Blueprint:
    """Description of a model as read from `config.json`: config, head, and the names of weights in files."""

    format: Format
    config: Any  # config of the body
    prefix: str  # prefix of the names of the backbone's weights
    kind: str | None = None  # name of the head in HEADS; None for a backbone without a head
    settings: Settings = field(factory=dict)  # arguments of the head
    own_head: bool = False  # True for a head unknown to transformers
    numbers: Settings | None = None  # arguments of the wrapper for numeric features, WithNumbers; None without numeric features

    def name_of(self, weight: str) -> str:
        """Convert the name of a weight from mlxfp to transformers."""
        module, _, leaf = weight.removeprefix("head.").removeprefix("scores.").rpartition(".")
        if self.kind is None or module.startswith("body."):
            return f"{self.prefix}{_name_in(self.format.modules, module.removeprefix('body.'))}.{leaf}"
        if self.own_head:
            return _OWN_HEAD + weight
        head = next(head for head in self.format.heads.values() if self.kind in head.kinds)
        return f"{head.modules[module]}.{leaf}"

    def current(self, weights: Mapping[str, mx.array]) -> dict[str, mx.array]:
        """Rename weights of older files. If a weight exists under the old and the new name, use the new name."""
        renamed = {reduce(lambda name, rule: re.sub(rule[0], rule[1], name), self.format.renamed.items(), name): name for name in weights}
        return {now: weights.get(now, weights[name]) for now, name in renamed.items()}

    def drops(self, name: str) -> bool:
        """Return True if a weight in a file of transformers has no counterpart in mlxfp and may be ignored."""
        return any(re.search(pattern, name) for pattern in self.format.dropped)


@frozen
class Architecture:
    """Architecture of models: a backbone, a config class, default settings and file formats.

    - `body`: class of the backbone, or function that creates the backbone. Called as body(config, seed=...).
    - `config`: class of the config.
    - `sizes`: maps the name of a size, such as "base", to config fields.
    - `vocab_size`: default vocabulary size, taken from the tokenizer most used with the architecture.
    - `rows`: default settings of heads with one output per row, such as classifiers of texts.
    - `tokens`: default settings of heads with one output per token.
    - `formats`: file formats for loading and saving.

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
    """Return the file formats of the heads `...ForTokenClassification` and `...ForSequenceClassification` of transformers.

    `tokens` is a function that reads the settings of both heads from config.json. `rows` is a function that reads additional settings of
    `...ForSequenceClassification`.
    """

    def read_tokens(json: Json) -> tuple[str, dict[str, Any]]:
        return "token_classifier", {"outputs": _count_labels(json), "classes": _class_names(json), **tokens(json)}

    def read_rows(json: Json) -> tuple[str, dict[str, Any]]:
        settings, problem = {**read_tokens(json)[1], **rows(json)}, json.get("problem_type")
        if problem == "regression" or (problem is None and settings["outputs"] == 1):  # as in transformers
            return "regressor", {name: value for name, value in settings.items() if name != "classes"}
        return "classifier", settings | {"multi_label": problem == _PROBLEMS[True]}

    return {
        "ForSequenceClassification": HeadFormat(("classifier", "regressor"), modules, read_rows),
        "ForTokenClassification": HeadFormat(("token_classifier",), modules, read_tokens),
    }


def masked_head(modules: Names) -> HeadFormat:
    """Return the file format of the models `...ForMaskedLM` of transformers."""

    def read(json: Json) -> tuple[str, dict[str, Any]]:
        for key in ("tie_word_embeddings", "decoder_bias"):
            if not json.get(key, True):
                raise DataError(f"{key} is false, but masked language models of mlxfp need tied weights and a bias.")
        return "masked_lm", {}

    return HeadFormat(("masked_lm",), modules, read)


def classifier_dropout(json: Json, default: float) -> float:
    """Return the classifier dropout in config.json, or the default if the key is missing or null."""
    rate = json.get("classifier_dropout")
    return float(default if rate is None else rate)


def rotary_base(rope: Json, given: float | None, default: float) -> float:
    """Return the base of rotary positions: `rope_theta` in `rope`, else `given` (the value in older files), else `default`."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise DataError(f"the type of rotary positions is {kind!r}, not 'default'")
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
    """Convert the settings of a head to entries of `config.json`, as in the library transformers."""
    json: dict[str, Any] = {}
    if "outputs" in settings:
        names = settings.get("classes") or _numbered_names(settings["outputs"])
        json = {"id2label": {str(number): name for number, name in enumerate(names)}}
        json |= {"label2id": {name: number for number, name in enumerate(names)}, "classifier_dropout": settings["dropout"]}
    if "pooling" in settings:
        json |= {"classifier_pooling": {"first": "cls"}.get(settings["pooling"], settings["pooling"])}
        json |= {"problem_type": _PROBLEMS[settings.get("multi_label")]}
    return json | {name: value for name, value in settings.items() if name == "tie_word_embeddings"}


def _count_labels(json: Json) -> int:
    """Return the number of labels in config.json, by default 2."""
    names = json.get("id2label")
    return int(json.get("num_labels") or 2) if names is None else len(names)


def _class_names(json: Json) -> tuple[str, ...]:
    """Return the class names in config.json.

    Returns an empty tuple if config.json has no class names, or if the names are the automatic names of transformers, such as `LABEL_0`.
    """
    names = json.get("id2label") or {}
    ordered = tuple(str(names.get(str(number))) for number in range(len(names)))
    return () if ordered == _numbered_names(len(names)) or len(set(ordered)) < len(ordered) else ordered


def _numbered_names(count: int) -> tuple[str, ...]:
    return tuple(f"LABEL_{number}" for number in range(count))


def _name_in(names: Names, module: str) -> str:
    """Return the name that transformers uses for a module of mlxfp."""
    if not names:
        return module
    number = re.search(r"\.(\d+)\.", module)
    return names[module] if number is None else names[module.replace(number[0], ".{}.", 1)].replace("{}", number[1])
