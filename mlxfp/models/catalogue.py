"""The architectures and sizes that there are, by name, and models made from names."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, overload

from attrs import evolve, fields, frozen
from mlx import nn

from mlxfp.core.checks import check_not_negative, check_positive
from mlxfp.core.errors import ArgumentError
from mlxfp.models.bert import BERT_SIZES, Bert, BertConfig
from mlxfp.models.decoder import DECODER_SIZES, Decoder, DecoderConfig
from mlxfp.models.encoder import ENCODER_SIZES, Encoder, EncoderConfig
from mlxfp.models.heads import HEADS, CausalLM
from mlxfp.models.modernbert import MODERNBERT_SIZES, ModernBert, ModernBertConfig
from mlxfp.models.numeric_features import WithNumbers
from mlxfp.settings.registries import Registry

_ROWS, _TOKENS, _LANGUAGE = ("classifier", "multi_label", "regressor"), ("token_classifier",), ("masked_lm", "causal_lm")


@frozen
class Architecture:
    """What models of one architecture are made of: a body, called with a config and a seed, and a config, called with sizes.

    `vocabulary` is that of its best known tokenizer. `rows` and `tokens` are the settings that heads customarily have on it: those that
    answer for whole rows, and those that answer for tokens.

    >>> sorted(MODELS["bert"].sizes)[:2]
    ['base', 'large']
    """

    body: Callable[..., nn.Module]
    config: Callable[..., Any]
    sizes: Mapping[str, Mapping[str, int]]
    vocabulary: int
    rows: Mapping[str, Any] = {}
    tokens: Mapping[str, Any] = {}


MODELS: Registry[Architecture] = Registry(
    "model",
    {
        "bert": Architecture(Bert, BertConfig, BERT_SIZES, 30522, {"pooling": "pooler"}),
        "decoder": Architecture(Decoder, DecoderConfig, DECODER_SIZES, 49152, {"pooling": "last", "bias": False, "dropout": 0.0}),
        "encoder": Architecture(Encoder, EncoderConfig, ENCODER_SIZES, 30522),
        "modernbert": Architecture(
            ModernBert, ModernBertConfig, MODERNBERT_SIZES, 50368, {"transform": True, "dropout": 0.0}, {"transform": True, "dropout": 0.0}
        ),
    },
)


def configure(
    name: str,
    *,
    size: str,
    vocabulary: int | None = None,
    max_length: int | None = None,
    models: Mapping[str, Architecture] = MODELS,
) -> Any:
    """Make the config of a body from the names of an architecture and a size: a frozen value, whose fields `attrs.evolve` changes.

    `vocabulary` is how many tokens there are: `tokenizer.vocab_size`, or without it that of the architecture's best known tokenizer.
    `max_length` is how many tokens a row may have. Raises `UnknownNameError` for names that are not there.

    >>> configure("bert", size="tiny", vocabulary=600).width
    128

    See also: `create`.
    """
    architecture = models[name]
    length = {} if max_length is None else {"max_length": max_length}
    known = architecture.vocabulary if vocabulary is None else vocabulary
    return architecture.config(vocabulary=known, **architecture.sizes[size], **length)


@overload
def create(
    name: str,
    *,
    size: str,
    head: Literal["causal_lm"],
    vocabulary: int | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    seed: int = 0,
    models: Mapping[str, Architecture] = MODELS,
) -> CausalLM: ...
@overload
def create(
    name: str,
    *,
    size: str,
    head: str = "classifier",
    labels: int | None = None,
    numbers: int = 0,
    vocabulary: int | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    seed: int = 0,
    models: Mapping[str, Architecture] = MODELS,
) -> nn.Module: ...
def create(  # noqa: PLR0913  # all have defaults but two, and are named
    name: str,
    *,
    size: str,
    head: str = "classifier",
    labels: int | None = None,
    numbers: int = 0,
    vocabulary: int | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    seed: int = 0,
    models: Mapping[str, Architecture] = MODELS,
) -> nn.Module:
    """Make a model with a head from names, its weights drawn from `seed`.

    `name` is in `MODELS`; another registry can take its place: `models=MODELS | {"mine": Architecture(...)}`. `head` is in `HEADS`:
    "classifier" and "multi_label" answer for whole rows and "token_classifier" for each token, all with one output for each of
    `labels`; "regressor" gives one number a row, or `labels` of them; "masked_lm" and "causal_lm" score the vocabulary. `numbers`
    is how many numbers each row has beside its text: a head that answers for whole rows is then put into `WithNumbers`. `dropout` is
    the share that all dropouts take, of body and head, without it each its own. The others are those of `configure`. Raises
    `UnknownNameError` for names that are not there.

    >>> import mlx.core as mx
    >>> model = create("modernbert", size="tiny", labels=2, vocabulary=600)
    >>> model(mx.array([[5, 6, 7]])).shape
    (1, 2)

    See also: `load` for pretrained models; the classes of bodies and heads, which take more than names.
    """
    config = configure(name, size=size, vocabulary=vocabulary, max_length=max_length, models=models)
    make = HEADS[head]
    check_not_negative(numbers=numbers)
    settings = {**models[name].rows} if head in _ROWS else {**models[name].tokens} if head in _TOKENS else {}
    if labels is not None:
        check_positive(labels=labels)
        settings["outputs"] = labels
    if (labels is not None and head in _LANGUAGE) or (labels is None and head not in (*_LANGUAGE, "regressor")):
        wanted = "scores its vocabulary, so it takes no labels" if head in _LANGUAGE else "needs to know how many labels there are"
        raise ArgumentError(f'A "{head}" {wanted}, got labels={labels}. Pass labels=2 for two, or another head: {", ".join(HEADS)}.')
    if settings.get("pooling") == "pooler":
        config = evolve(config, pooler=True)
    if dropout is not None:
        config = evolve(config, **{field.name: dropout for field in fields(type(config)) if field.name.endswith("dropout")})
        settings |= {} if head in _LANGUAGE else {"dropout": dropout}
    model: nn.Module = make(models[name].body(config, seed=seed), **settings, seed=seed)
    rates: dict[str, Any] = {} if dropout is None else {"dropout": dropout}
    return WithNumbers(model, numbers, outputs=labels or 1, seed=seed, **rates) if numbers else model
