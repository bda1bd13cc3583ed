"""Generating: the tokens that a causal model puts after others."""

from collections.abc import Collection, Sequence

import mlx.core as mx
import numpy as np

from mlxfp.core.checks import check_not_negative, check_positive, check_types
from mlxfp.core.errors import ArgumentError
from mlxfp.models.heads import CausalLM
from mlxfp.models.layers import random_key


def generate(  # noqa: PLR0913  # all have defaults but two, and are named
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int = 100,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop_ids: Collection[int] = (),
    seed: int = 0,
) -> list[list[int]]:
    """Continue each prompt, token ids, with up to `max_tokens` new ones; return these.

    A continuation ends with the first of `stop_ids`, which is part of it. With `temperature=0` each token is the likeliest one. Above,
    tokens are drawn from the softmax of logits / temperature: among the `top_k` likeliest (Fan et al., 2018), and among the likeliest
    that together have a probability of `top_p` (Holtzman et al., 2020). A draw follows from the seed, the number of the prompt and that
    of the token, so prompts do not change each other's continuations.

    Keys and values are cached: each token costs one pass over one token. The model is used as it is; `model.eval()` turns dropout off.
    Raises `ArgumentError` for an empty prompt, an id outside the vocabulary, and a prompt too long for the model's `max_length`.

    >>> from mlxfp.models.decoder import Decoder, DecoderConfig
    >>> model = CausalLM(Decoder(DecoderConfig(vocabulary=100, width=16, depth=1, feed=32), seed=0))
    >>> [len(new) for new in generate(model, [[5, 6], [7]], max_tokens=3)]
    [3, 3]

    See also: `Decoder.extend`, which it is made of.
    """
    check_types(CausalLM, model=model)
    check_positive(max_tokens=max_tokens, **({} if top_k is None else {"top_k": top_k}))
    check_not_negative(seed=seed)
    if not temperature >= 0:
        raise ArgumentError(f"temperature must be at least 0, got temperature={temperature!r}.")
    if top_p is not None and not 0 < top_p <= 1:
        raise ArgumentError(f"top_p must be above 0 and at most 1, got top_p={top_p!r}.")
    if temperature == 0 and (top_k is not None or top_p is not None):
        raise ArgumentError("temperature=0 always takes the likeliest token, so top_k and top_p say nothing. Set a temperature, such as 1.0.")
    ids, mask = _padded(prompts, model.body.config.vocabulary)
    cache = model.body.cache(len(prompts), ids.shape[1] + max_tokens - 1) if len(prompts) else None
    new: list[list[int]] = [[] for _ in prompts]
    going = [True] * len(prompts)
    for step in range(max_tokens):
        if cache is None or not any(going):
            break
        hidden, cache = model.body.extend(ids, cache, mask)
        logits = model.logits(hidden[:, -1]).astype(mx.float32)
        ids, mask = _next(logits, temperature, top_k, top_p, seed, step)[:, None], None
        for row, token in enumerate(ids[:, 0].tolist()):
            if going[row]:
                new[row].append(token)
                going[row] = token not in stop_ids
    return new


def _padded(prompts: Sequence[Sequence[int]], vocabulary: int) -> tuple[mx.array, mx.array]:
    """Pad prompts on the left, so that the last token of each stands in the last column: ids and mask, int32[B, L]."""
    for row, prompt in enumerate(prompts):
        if not len(prompt):
            raise ArgumentError(f"Prompt {row} is empty, and there is nothing to continue. Begin it with a token, such as tokenizer.bos_id.")
        wrong = next((token for token in prompt if not 0 <= token < vocabulary), None)
        if wrong is not None:
            raise ArgumentError(f"Prompt {row} holds the id {wrong}, outside the model's vocabulary of {vocabulary}. Use its own tokenizer.")
    length = max(map(len, prompts), default=0)
    ids, mask = np.zeros((2, len(prompts), length), np.int32)
    for row, prompt in enumerate(prompts):
        ids[row, length - len(prompt) :], mask[row, length - len(prompt) :] = prompt, 1
    return mx.array(ids), mx.array(mask)


def _next(logits: mx.array, temperature: float, top_k: int | None, top_p: float | None, seed: int, step: int) -> mx.array:
    """Choose one token a row, int[B], from logits, float32[B, V]."""
    if temperature == 0:
        return mx.argmax(logits, axis=-1)
    logits = _among_likeliest(logits / temperature, top_k, top_p)
    keys = [random_key(seed, "generate", row, step) for row in range(len(logits))]
    return mx.stack([mx.random.categorical(row, key=key) for row, key in zip(logits, keys, strict=True)])


def _among_likeliest(logits: mx.array, top_k: int | None, top_p: float | None) -> mx.array:
    """Set the logits of all other tokens to minus infinity. Of equals at the border, all stay."""
    if top_k is not None and top_k < logits.shape[-1]:
        logits = mx.where(logits < mx.topk(logits, top_k, axis=-1).min(axis=-1, keepdims=True), -mx.inf, logits)
    if top_p is not None:
        falling = -mx.sort(-logits, axis=-1)
        chances = mx.softmax(falling, axis=-1)
        before = mx.cumsum(chances, axis=-1) - chances
        least = mx.where(before < top_p, falling, mx.inf).min(axis=-1, keepdims=True)
        logits = mx.where(logits < least, -mx.inf, logits)
    return logits
