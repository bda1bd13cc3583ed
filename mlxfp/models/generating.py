"""Text generation: continuation of token sequences with a causal language model."""

from collections.abc import Callable, Collection, Sequence
from numbers import Integral
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

from mlxfp.models.decoder import Decoder
from mlxfp.models.heads import CausalLM
from mlxfp.models.layers import random_key
from mlxfp.support.checks import check_not_negative, check_positive, check_types
from mlxfp.support.errors import ArgumentError, ArgumentTypeError


def generate(  # noqa: PLR0913
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int = 100,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop_ids: Collection[int] = (),
    seed: int = 0,
) -> list[list[int]]:
    """Continue each prompt, a list of token ids, with up to `max_tokens` new tokens. Return the new tokens.

    A continuation ends with the first id in `stop_ids`, which is included. `temperature=0` selects the likeliest token. Otherwise, tokens
    are sampled from the softmax of logits / temperature, restricted to the `top_k` likeliest tokens (Fan et al., "Hierarchical Neural
    Story Generation", 2018) and to the likeliest tokens with a total probability of `top_p` (Holtzman et al., "The Curious Case of Neural
    Text Degeneration", 2020). A sample depends only on the seed, the prompt index and the token index, so prompts do not influence each
    other.

    The model is a `CausalLM` on a `Decoder`. Call `model.eval()` first to disable dropout. Keys and values are cached, so each new token
    needs one forward pass over one token. Raises `ArgumentError` for an empty prompt, for an id outside the vocabulary, and if a prompt
    with its continuation exceeds `max_position_embeddings`.

    >>> import mlxfp as fp
    >>> model = fp.models.CausalLM(fp.models.Decoder(fp.models.DecoderConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1), seed=0))
    >>> [len(new) for new in fp.models.generate(model, [[5, 6], [7]], max_tokens=3)]
    [3, 3]

    See also: `Decoder.extend` for custom generation loops.
    """
    check_types(CausalLM, model=model)
    check_types(Decoder, **{"the body of the model": model.body})
    check_positive(max_tokens=max_tokens, **({} if top_k is None else {"top_k": top_k}))
    check_not_negative(seed=seed)
    check_types((int, float), temperature=temperature)
    check_types((int, float, type(None)), top_p=top_p)
    check_types(Collection, stop_ids=stop_ids)
    stops: Collection[Any] = stop_ids
    if wrong := [stop_id for stop_id in stops if not isinstance(stop_id, Integral)]:
        raise ArgumentTypeError(f"stop_ids must be token ids, got {wrong[0]!r}. Pass integers, such as tokenizer.eos_id.")
    if not temperature >= 0:
        raise ArgumentError(f"temperature must be at least 0, got temperature={temperature!r}.")
    if top_p is not None and not 0 < top_p <= 1:
        raise ArgumentError(f"top_p must be above 0 and at most 1, got top_p={top_p!r}.")
    if temperature == 0 and not top_k is top_p is None:
        raise ArgumentError(
            f"temperature=0 does not sample, got top_k={top_k} and top_p={top_p}. Set a temperature, such as 1.0, or leave out "
            f"top_k and top_p."
        )
    ids, mask = _padded(prompts, model.body.config.vocab_size)
    longest, most = ids.shape[1] + max_tokens - 1, model.body.config.max_position_embeddings
    if longest > most:
        raise ArgumentError(
            f"The model has {most} positions, and a prompt of {ids.shape[1]} tokens with max_tokens={max_tokens} needs {longest} "
            f"positions. Shorten the prompts, or pass max_tokens={max(1, most - ids.shape[1] + 1)}."
        )
    if not len(prompts):
        return []

    def choose(logits: mx.array, step: int) -> mx.array:
        """Choose the next token of each row: logits, float32[B, V], become token ids, int[B]."""
        if temperature == 0:
            return mx.argmax(logits, axis=-1)
        kept = likeliest(logits / temperature, top_k=top_k, top_p=top_p)
        return mx.stack(
            [mx.random.categorical(row_logits, key=random_key(seed, "generate", row, step)) for row, row_logits in enumerate(kept)]
        )

    return _continuations(model, ids, mask, max_tokens, frozenset(stop_ids), choose)


def likeliest(logits: mx.array, *, top_k: int | None, top_p: float | None) -> mx.array:
    """Set all logits except those of the likeliest tokens to minus infinity. If tokens tie for the last place, all of them are kept."""
    if top_k is not None and top_k < logits.shape[-1]:
        logits = mx.where(logits < mx.topk(logits, top_k, axis=-1).min(axis=-1, keepdims=True), -mx.inf, logits)
    if top_p is not None:
        falling = -mx.sort(-logits, axis=-1)
        chances = mx.softmax(falling, axis=-1)
        before = mx.cumsum(chances, axis=-1) - chances
        least = mx.where(before < top_p, falling, mx.inf).min(axis=-1, keepdims=True)
        logits = mx.where(logits < least, -mx.inf, logits)
    return logits


def _continuations(  # noqa: PLR0913, PLR0917
    model: nn.Module, ids: mx.array, mask: mx.array, max_tokens: int, stop_ids: frozenset[int], choose: Callable[[mx.array, int], mx.array]
) -> list[list[int]]:
    """Return the generated tokens of each row. A row ends with its first stop id, or after `max_tokens` tokens."""
    new: list[list[int]] = [[] for _ in range(len(ids))]
    going = set(range(len(ids)))
    cache = model.body.cache(len(ids), ids.shape[1] + max_tokens - 1)
    real: mx.array | None = mask
    for step in range(max_tokens):
        hidden, cache = model.body.extend(ids, cache, real)
        ids, real = choose(model.logits(hidden[:, -1]).astype(mx.float32), step)[:, None], None
        tokens: Any = ids[:, 0].tolist()
        for row in going:
            new[row].append(tokens[row])
        going = {row for row in going if tokens[row] not in stop_ids}
        if not going:
            break
    return new


def _padded(prompts: Sequence[Sequence[int]], vocabulary: int) -> tuple[mx.array, mx.array]:
    """Pad prompts on the left, so that the last token is in the last column. Return ids and mask, int32[B, L]."""
    for row, prompt in enumerate(prompts):
        if np.ndim(prompt) != 1 or (len(prompt) and np.asarray(prompt).dtype.kind not in "iu"):
            raise ArgumentTypeError(
                f"Prompt {row} must be a list of token ids, got {type(prompt).__name__}: {prompt!r:.80}. "
                "Encode texts with the model's tokenizer, and pass a list of prompts, also for a single prompt."
            )
        if not len(prompt):
            raise ArgumentError(f"Prompt {row} is empty. Start the prompt with a token, such as tokenizer.bos_id.")
        wrong = next((token for token in prompt if not 0 <= token < vocabulary), None)
        if wrong is not None:
            raise ArgumentError(
                f"Prompt {row} has the id {wrong}, but the model's vocabulary has {vocabulary} tokens. Use the tokenizer of the model."
            )
    length = max(map(len, prompts), default=0)
    ids, mask = np.zeros((2, len(prompts), length), np.int32)
    for row, prompt in enumerate(prompts):
        ids[row, length - len(prompt) :], mask[row, length - len(prompt) :] = prompt, 1
    return mx.array(ids), mx.array(mask)
