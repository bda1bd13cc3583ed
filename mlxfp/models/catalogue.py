"""Registries of architectures and file formats, and creation of models by name."""

from collections.abc import Mapping
from typing import Any

from attrs import evolve, fields_dict
from mlx import nn

from mlxfp.models.bert import BERT
from mlxfp.models.convolutional.text_cnn import TEXT_CNN
from mlxfp.models.decoder import DECODER
from mlxfp.models.encoder import ENCODER
from mlxfp.models.formats import Architecture, Format
from mlxfp.models.heads import HEADS
from mlxfp.models.modernbert import MODERNBERT
from mlxfp.models.numeric_features import WithNumbers
from mlxfp.support.checks import check_choice, check_not_negative, check_positive, explain_call
from mlxfp.support.errors import ArgumentError
from mlxfp.support.registries import Registry

_ROWS, _TOKENS, _LANGUAGE = ("classifier", "multi_label", "regressor"), ("token_classifier",), ("masked_lm", "causal_lm")

MODELS: Registry[Architecture] = Registry(
    "model", {"bert": BERT, "decoder": DECODER, "encoder": ENCODER, "modernbert": MODERNBERT, "text_cnn": TEXT_CNN}
)

FORMATS: Registry[Format] = Registry(
    "model_type", {format.model_type: format for architecture in MODELS.values() for format in architecture.formats}
)


def configure(
    name: str,
    *,
    size: str,
    vocab_size: int | None = None,
    max_position_embeddings: int | None = None,
    models: Mapping[str, Architecture] = MODELS,
) -> Any:
    """Return the config of a model without its head, by the names of an architecture and a size.

    Change fields of the frozen config with `attrs.evolve`. `vocab_size` is usually `tokenizer.vocab_size`; the default is the
    vocabulary size of the architecture's best known tokenizer. `max_position_embeddings` is the maximum number of tokens per row.
    Raises `UnknownNameError` for unknown names.

    >>> configure("bert", size="tiny", vocab_size=600).hidden_size
    128

    See also: `create`.
    """
    architecture = models[name]
    given = {"vocab_size": architecture.vocab_size, **architecture.sizes[size]}
    given |= {} if vocab_size is None else {"vocab_size": vocab_size}
    given |= {} if max_position_embeddings is None else {"max_position_embeddings": max_position_embeddings}
    for field in given:
        check_choice(fields_dict(architecture.config), **{f"field of {architecture.config.__name__}": field})
    return architecture.config(**given)


@explain_call
def create(  # noqa: PLR0913
    name: str,
    *,
    size: str,
    head: str = "classifier",
    labels: int | None = None,
    numbers: int = 0,
    vocab_size: int | None = None,
    max_position_embeddings: int | None = None,
    dropout: float | None = None,
    seed: int = 0,
    models: Mapping[str, Architecture] = MODELS,
) -> nn.Module:
    """Create a model with a head by name, with weights initialized from `seed`.

    `name` is a key of `MODELS`. `models=MODELS | {"mine": Architecture(...)}` adds architectures. `head` is a key of `HEADS`:
    "classifier" and "multi_label" classify rows, "token_classifier" classifies tokens; all three have one output per label. "regressor"
    predicts one number or `labels` numbers per row. "masked_lm" and "causal_lm" predict tokens.

    `numbers` is the count of additional numeric features per row. With `numbers`, the head is wrapped in `WithNumbers`, which does not
    support heads for tokens. `dropout` replaces all dropout rates of the model. See `configure` for the other arguments. Raises
    `UnknownNameError` for unknown names.

    >>> import mlx.core as mx
    >>> model = create("modernbert", size="tiny", labels=2, vocab_size=600)
    >>> model(mx.array([[5, 6, 7]])).shape
    (1, 2)

    See also: `load` for pretrained models; the classes of bodies and heads for more options.
    """
    config = configure(name, size=size, vocab_size=vocab_size, max_position_embeddings=max_position_embeddings, models=models)
    make = HEADS[head]
    check_not_negative(numbers=numbers)
    settings = {**models[name].rows} if head in _ROWS else {**models[name].tokens} if head in _TOKENS else {}
    if labels is not None:
        check_positive(labels=labels)
        settings["outputs"] = labels
    if (labels is not None and head in _LANGUAGE) or (labels is None and head not in (*_LANGUAGE, "regressor")):
        wanted = "predicts tokens and has no labels" if head in _LANGUAGE else "needs the number of labels"
        raise ArgumentError(
            f'A "{head}" {wanted}, got labels={labels}. Pass labels=2 for two labels, or choose another head: {", ".join(HEADS)}.'
        )
    if settings.get("pooling") == "pooler":
        config = evolve(config, pooler=True)
    rates: dict[str, Any] = {} if dropout is None else {"dropout": dropout}
    if dropout is not None:
        config = with_dropout(config, dropout)
        settings |= {} if head in _LANGUAGE else rates
    model: nn.Module = make(models[name].body(config, seed=seed), **settings, seed=seed)
    return WithNumbers(model, numbers, outputs=labels or 1, seed=seed, **rates) if numbers else model


def with_dropout(config: Any, rate: float) -> Any:
    """Return a config with the same rate in all dropout fields.

    >>> import mlxfp as fp
    >>> with_dropout(fp.models.EncoderConfig(vocab_size=10), 0.2).hidden_dropout_prob
    0.2
    """
    return evolve(config, **{name: rate for name in fields_dict(type(config)) if "dropout" in name})
