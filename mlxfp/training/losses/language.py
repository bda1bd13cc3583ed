"""Language model losses for `train_step`. The arguments are a model and a batch of the collators.

The model is a model of `mlxfp.models` or of mlx-lm. For mlx-lm, rows must be padded on the right.
"""

from collections.abc import Mapping
from inspect import signature
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxfp.evaluation.rows import add, broadcast_weights, negative_log_likelihood
from mlxfp.models.banded import call_packed
from mlxfp.support.checks import check_number, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, listed
from mlxfp.training.losses.classification import cross_entropy


@explain_call
def causal_lm(model: nn.Module, batch: Mapping[str, Any], *, longest: int | None = None) -> tuple[mx.array, mx.array]:
    """Sum the cross-entropy of the next tokens in a batch of `collators.causal`: (sum, predicted tokens), two float32 scalars.

    The collator shifts the labels, and sets labels to -100 (not counted) for padding, prompts and document boundaries. The model is
    called like `models.CausalLM`, with `segment_ids` and `positions` for packed rows. If the batch has a column `weight`, the loss of
    each row is multiplied by the weight of the row.

    `longest` is the largest number of tokens of a document in packed rows. With this number, attention to long rows takes less time and
    memory, with equal results: pass `partial(causal_lm, longest=512)` to `train_step`. A longer document raises `BoundError`, a
    `DataError`.

    >>> import mlxfp as fp
    >>> model = fp.models.create("decoder", size="tiny", head="causal_lm", vocab_size=20)
    >>> total, weight = fp.losses.causal_lm(model, fp.collators.causal(pad_id=0)([{"input_ids": [5, 6, 7]}, {"input_ids": [5, 9]}]))
    >>> weight.item()
    3.0

    See also: `linear_cross_entropy`, which needs less memory where the vocabulary is large.
    """
    return _token_loss(model, batch, ("segment_ids", "positions"), longest=longest)


@explain_call
def masked_lm(model: nn.Module, batch: Mapping[str, Any]) -> tuple[mx.array, mx.array]:
    """Sum the cross-entropy of the masked tokens in a batch of `collators.masked`: (sum, predicted tokens), two float32 scalars.

    The labels are -100 (not counted) for all tokens that were not selected for prediction. The model is called like `models.MaskedLM`, with
    `token_type_ids` if present, and with `segment_ids` and `positions` for packed rows. If the batch has a column `weight`, the loss of
    each row is multiplied by the weight of the row.

    >>> import mlxfp as fp
    >>> model = fp.models.create("bert", size="tiny", head="masked_lm", vocab_size=20)
    >>> batch = {"input_ids": mx.array([[5, 4, 7]]), "attention_mask": mx.array([[1, 1, 1]]), "labels": mx.array([[-100, 6, -100]])}
    >>> total, weight = fp.losses.masked_lm(model, batch)
    >>> weight.item()
    1.0
    """
    return _token_loss(model, batch, ("token_type_ids", "segment_ids", "positions"))


@explain_call
def answer_log_probabilities(model: nn.Module, batch: Mapping[str, Any]) -> tuple[mx.array, mx.array]:
    """Return the log-probabilities of the answers in a batch of `collators.preference`: (chosen, rejected), float32[B] each.

    The log-probability of an answer is the sum over its tokens, given the prompt and the preceding tokens. The model is called once, with
    all chosen rows followed by all rejected rows. To prepare `dpo`, run `predict` with this function and a reference model.

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
    sums = mx.where(counted, -negative_log_likelihood(_logits(model, ids, mask), mx.where(counted, labels, 0)), 0).sum(axis=-1)
    chosen, rejected = mx.split(sums, 2)
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
    """Sum the loss of direct preference optimization over a batch of `collators.preference`: (sum, rows), two float32 scalars.

    The loss of a row is `-log sigmoid(beta * (c - r))`. c is the log-probability of the chosen answer minus its log-probability under a
    reference model, usually the model before training. r is the same difference for the rejected answer.

    The reference log-probabilities are the batch columns named by `chosen` and `rejected`. Compute both columns once with
    `answer_log_probabilities`, and keep them with `carry` of the collator. If the batch has a column `weight`, the loss of each row is
    multiplied by the weight of the row. For another `beta`, pass `partial(dpo, beta=0.3)` to `train_step`.

    Raises `ArgumentError` if a column is missing or `beta` is not positive. Rafailov et al., "Direct Preference Optimization: Your Language
    Model is Secretly a Reward Model", 2023, equation 7.

    >>> import mlxfp as fp
    >>> model = fp.models.create("decoder", size="tiny", head="causal_lm", vocab_size=20)
    >>> batch = fp.collators.preference(pad_id=0)([{"prompt": [5, 6], "chosen": [7, 8], "rejected": [9]}])
    >>> reference = fp.losses.answer_log_probabilities(model, batch)
    >>> total, weight = fp.losses.dpo(model, batch | {"reference_chosen": reference[0], "reference_rejected": reference[1]})
    >>> round(total.item(), 4), weight.item()  # log 2, as the model is its own reference
    (0.6931, 1.0)
    """
    check_number(beta=beta)
    if not beta > 0:
        raise ArgumentError(f"beta must be above 0, got beta={beta!r}.")
    if missing := [name for name in (chosen, rejected) if name not in batch]:
        raise ArgumentError(
            f"dpo needs the log-probabilities of a reference model, but the batch has no {missing[0]!r}, got {listed(map(repr, batch))}. "
            f"Compute both columns with answer_log_probabilities, and use collators.preference(..., carry=[{chosen!r}, {rejected!r}])."
        )
    ours = answer_log_probabilities(model, batch)
    margin = (ours[0] - batch[chosen]) - (ours[1] - batch[rejected])
    weights = broadcast_weights("dpo", batch.get("weight"), margin.shape)
    margin = mx.where(weights == 0, 0, margin)  # a missing reference (NaN) would make the gradient NaN
    return add(mx.logaddexp(0, -float(beta) * margin), weights)


def _logits(model: nn.Module, ids: mx.array, mask: mx.array, **more: Any) -> mx.array:
    """Compute the logits of token ids. The mask is passed only to models that accept a mask.

    Models of mlx-lm accept a cache instead of a mask. These models need no mask for padding on the right, because their attention is
    causal.
    """
    parameters = list(signature(type(model).__call__).parameters)
    if "cache" not in parameters[2:3]:
        logits: mx.array = model(ids, mask, **more)
    elif "segment_ids" in more:
        logits = call_packed(model, {"input_ids": ids, **more}, longest=more.get("longest"))
    else:
        logits = model(ids)
    return logits


def _token_loss(
    model: nn.Module, batch: Mapping[str, Any], names: tuple[str, ...], *, longest: int | None = None
) -> tuple[mx.array, mx.array]:
    more = {name: batch[name] for name in names if name in batch}
    try:
        settings = {} if longest is None else {"longest": longest}
        logits = _logits(model, batch["input_ids"], batch["attention_mask"], **more, **settings)
    except TypeError as error:
        if "segment_ids" not in more or not any(f"'{name}'" in str(error) for name in more):
            raise
        raise ArgumentTypeError(
            f"The batch has {', '.join(more)}, but the model does not accept these arguments: {error}. Without segment_ids and positions, "
            "the documents of a packed row would attend to each other. Use rows without packing, or a model of mlxfp.models."
        ) from error
    return cross_entropy(logits, batch["labels"], example_weights=batch.get("weight"))
