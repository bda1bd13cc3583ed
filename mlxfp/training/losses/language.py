"""Losses of language models, for `train_step` as they are: they take a model and a batch of our collators."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxfp.evaluation.rows import add, broadcast_weights, surprise
from mlxfp.support.checks import explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, listed
from mlxfp.training.losses.classification import cross_entropy


@explain_call
def causal_lm(model: nn.Module, batch: Mapping[str, Any]) -> tuple[mx.array, mx.array]:
    """Add up the cross-entropy of the next tokens in a batch of `collators.causal`: (sum, tokens predicted), two float32 scalars.

    The collator has shifted the labels, and set them to -100, which does not count, on padding, on prompts and between documents. The
    model is called like `models.CausalLM`, with `segment_ids` and `positions` of packed rows. Each row counts as much as the `weight` of
    the batch says, if it has one.

    >>> import mlxfp as fp
    >>> model = fp.models.create("decoder", size="tiny", head="causal_lm", vocab_size=20)
    >>> total, weight = fp.losses.causal_lm(model, fp.collators.causal(pad_id=0)([{"input_ids": [5, 6, 7]}, {"input_ids": [5, 9]}]))
    >>> weight.item()
    3.0

    See also: `linear_cross_entropy`, which needs less memory where the vocabulary is large.
    """
    return _of_tokens(model, batch, ("segment_ids", "positions"))


@explain_call
def masked_lm(model: nn.Module, batch: Mapping[str, Any]) -> tuple[mx.array, mx.array]:
    """Add up the cross-entropy of the hidden tokens in a batch of `collators.masked`: (sum, tokens predicted), two float32 scalars.

    The labels are -100, which does not count, except for the tokens that were chosen. The model is called like `models.MaskedLM`,
    with `token_type_ids` where the batch has them. Each row counts as much as the `weight` of the batch says, if it has one.

    >>> import mlxfp as fp
    >>> model = fp.models.create("bert", size="tiny", head="masked_lm", vocab_size=20)
    >>> batch = {"input_ids": mx.array([[5, 4, 7]]), "attention_mask": mx.array([[1, 1, 1]]), "labels": mx.array([[-100, 6, -100]])}
    >>> total, weight = fp.losses.masked_lm(model, batch)
    >>> weight.item()
    1.0
    """
    return _of_tokens(model, batch, ("token_type_ids",))


@explain_call
def answer_log_probabilities(model: nn.Module, batch: Mapping[str, Any]) -> tuple[mx.array, mx.array]:
    """Give the log-probabilities of the answers in a batch of `collators.preference`: (chosen, rejected), float32[B] each.

    That of an answer is the sum of those of its tokens, after the prompt and the tokens before. The model is called once, with all chosen
    rows and then all rejected ones. `predict` computes both for all batches, with a reference model for `dpo`.

    >>> from mlxfp.collators import preference
    >>> from mlxfp.models import create
    >>> model = create("decoder", size="tiny", head="causal_lm", vocab_size=20)
    >>> chosen, rejected = answer_log_probabilities(model, preference(pad_id=0)([{"prompt": [5, 6], "chosen": [7, 8], "rejected": [9]}]))
    >>> chosen.shape, bool((chosen < rejected).item())
    ((1,), True)
    """
    ids, mask, labels = (
        mx.concatenate([batch[f"chosen_{name}"], batch[f"rejected_{name}"]]) for name in ("input_ids", "attention_mask", "labels")
    )
    counted = labels != -100
    each = mx.where(counted, -surprise(model(ids, mask), mx.where(counted, labels, 0)), 0).sum(axis=-1)
    chosen, rejected = mx.split(each, 2)
    return chosen, rejected


@explain_call
def dpo(
    model: nn.Module,
    batch: Mapping[str, Any],
    *,
    beta: float = 0.1,
    chosen: str = "reference_chosen",
    rejected: str = "reference_rejected",
) -> tuple[mx.array, mx.array]:
    """Add up the loss of direct preference optimization for a batch of `collators.preference`: (sum, rows), two float32 scalars.

    That of a row is `-log sigmoid(beta * (c - r))`: c and r are by how much the log-probabilities of the chosen and of the rejected
    answer exceed those under a reference model, usually the model before training. These are two columns of numbers, computed once by
    `answer_log_probabilities` and carried by the collator; `chosen` and `rejected` are their names. Each row counts as much as the `weight`
    of the batch says, if it has one. For another `beta`, pass `partial(dpo, beta=0.3)` to `train_step`.

    Raises `ArgumentError` for a batch without the two columns, and for a `beta` that is not above 0. Rafailov et al., "Direct Preference
    Optimization: Your Language Model is Secretly a Reward Model", 2023, equation 7.

    >>> import mlxfp as fp
    >>> model = fp.models.create("decoder", size="tiny", head="causal_lm", vocab_size=20)
    >>> batch = fp.collators.preference(pad_id=0)([{"prompt": [5, 6], "chosen": [7, 8], "rejected": [9]}])
    >>> reference = fp.losses.answer_log_probabilities(model, batch)
    >>> total, weight = fp.losses.dpo(model, batch | {"reference_chosen": reference[0], "reference_rejected": reference[1]})
    >>> round(total.item(), 4), weight.item()  # log 2, as the model is its own reference
    (0.6931, 1.0)
    """
    if not beta > 0:
        raise ArgumentError(f"beta must be above 0, got beta={beta!r}.")
    if missing := [name for name in (chosen, rejected) if name not in batch]:
        raise ArgumentError(
            f"dpo needs the log-probabilities of a reference model, and the batch has no {missing[0]!r}, got {listed(map(repr, batch))}. "
            f"Compute them with answer_log_probabilities, and carry them: preference(..., carry=[{chosen!r}, {rejected!r}])."
        )
    ours = answer_log_probabilities(model, batch)
    margin = (ours[0] - batch[chosen]) - (ours[1] - batch[rejected])
    return add(mx.logaddexp(0, -beta * margin), broadcast_weights("dpo", batch.get("weight"), margin.shape))


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
