"""Losses of language models, for `train_step` as they are: they take a model and a batch of our collators."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxfp.core.errors import ArgumentTypeError
from mlxfp.training.losses.classification import cross_entropy


def causal_lm(model: nn.Module, batch: Mapping[str, Any]) -> tuple[mx.array, mx.array]:
    """Add up the cross-entropy of the next tokens in a batch of `collators.causal`: (sum, tokens predicted), two float32 scalars.

    The collator has shifted the labels, and set them to -100, which does not count, on padding, on prompts and between documents. The
    model is called like `models.CausalLM`, with `segment_ids` and `positions` of packed rows. Each row counts as much as the `weight` of
    the batch says, if it has one.

    >>> from mlxfp.collators import causal
    >>> from mlxfp.models import create
    >>> model = create("decoder", size="tiny", head="causal_lm", vocab_size=20)
    >>> total, weight = causal_lm(model, causal(pad_id=0)([{"input_ids": [5, 6, 7]}, {"input_ids": [5, 9]}]))
    >>> weight.item()
    3.0

    See also: `linear_cross_entropy`, which needs less memory where the vocabulary is large.
    """
    return _of_tokens(model, batch, ("segment_ids", "positions"))


def masked_lm(model: nn.Module, batch: Mapping[str, Any]) -> tuple[mx.array, mx.array]:
    """Add up the cross-entropy of the hidden tokens in a batch of `collators.masked`: (sum, tokens predicted), two float32 scalars.

    The labels are -100, which does not count, except for the tokens that were chosen. The model is called like `models.MaskedLM`,
    with `token_type_ids` where the batch has them. Each row counts as much as the `weight` of the batch says, if it has one.

    >>> from mlxfp.models import create
    >>> model = create("bert", size="tiny", head="masked_lm", vocab_size=20)
    >>> batch = {"input_ids": mx.array([[5, 4, 7]]), "attention_mask": mx.array([[1, 1, 1]]), "labels": mx.array([[-100, 6, -100]])}
    >>> total, weight = masked_lm(model, batch)
    >>> weight.item()
    1.0
    """
    return _of_tokens(model, batch, ("token_type_ids",))


def _of_tokens(model: nn.Module, batch: Mapping[str, Any], names: tuple[str, ...]) -> tuple[mx.array, mx.array]:
    more = {name: batch[name] for name in names if name in batch}
    try:
        logits = model(batch["input_ids"], batch["attention_mask"], **more)
    except TypeError as error:
        if "segment_ids" not in more or not any(f"'{name}'" in str(error) for name in more):
            raise
        raise ArgumentTypeError(
            f"The batch has {', '.join(more)}, and the model takes no such argument: {error}. Without segment_ids and positions the "
            "documents of a packed row would see each other. Use rows that are not packed, or a model of mlxfp.models that takes them."
        ) from error
    return cross_entropy(logits, batch["labels"], example_weights=batch.get("weight"))
