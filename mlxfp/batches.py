"""Batches from the splits of a dataset in a single call."""

from collections.abc import Callable
from os import PathLike
from typing import Any, TypeVar

from mlxfp.collators.causal_lm import causal
from mlxfp.collators.collating import collate
from mlxfp.collators.columns import Collator
from mlxfp.core.datasets import Dataset
from mlxfp.core.pipelines import compose, pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.data.lengths.windowing import windows
from mlxfp.data.rows.selecting import Splits
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.caching import cache, load
from mlxfp.data.running.prefetching import prefetch
from mlxfp.support.checks import check_callable, check_not_negative, check_positive, check_types, explain_call
from mlxfp.text.tokenizers.tokenizer import Tokenizer, check_tokenizer
from mlxfp.text.tokenizing import tokenize

Encode = Callable[[Dataset[Any]], Dataset[Any]]
Valid = TypeVar("Valid")
Test = TypeVar("Test")


@explain_call
def train_valid_batches(  # noqa: PLR0913  # each argument is a plain word
    parts: Splits[Valid, Test], collator: Collator, *, size: int, seed: int, encode: Encode | None = None, prefetched: int = 2
) -> Splits[Valid, Test]:
    """Return batches of dataset splits. Training batches are shuffled in each epoch; validation and test batches keep their order.

    `encode` is a stage, or a `compose` of stages, such as `tokenize(...)`. The stage is applied to every split before batching.

    Training batches have exactly `size` rows. Rows that do not fill a training batch are left out; each epoch leaves out other rows.
    Validation and test batches contain all rows. `prefetched` is the number of training batches prepared in advance. The result holds a
    dataset of batches for each split.

    >>> import mlxfp as fp
    >>> parts = fp.train_valid_test(fp.from_examples([{"x": i, "label": i % 2} for i in range(50)]), seed=0)
    >>> batches = train_valid_batches(parts, fp.collators.default(), size=8, seed=0)
    >>> [batch["x"].shape for batch in batches.train], [batch["x"].shape for batch in batches.valid]
    ([(8,), (8,), (8,), (8,), (8,)], [(5,)])

    See also: `train_valid_test` and `Splits` for the splits; `language_model_batches`.
    """
    check_types(Splits, parts=parts)
    check_callable(collator=collator)
    check_positive(size=size)
    check_not_negative(prefetched=prefetched)
    stages = () if encode is None else (encode,)
    train = pipe(parts.train, *stages, shuffle(seed=seed), batch(size, drop_last=True), collate(collator))
    others: list[Any] = [parts.valid, parts.test]
    others = [None if part is None else pipe(part, *stages, batch(size), collate(collator)) for part in others]
    return Splits(prefetch(prefetched)(train) if prefetched else train, *others)


@explain_call
def language_model_batches(  # noqa: PLR0913  # each argument is a plain word
    parts: Splits[Valid, Test],
    tokenizer: Tokenizer,
    *,
    length: int,
    size: int,
    seed: int,
    column: str = "text",
    path: str | PathLike[str] | None = None,
    prefetched: int = 2,
) -> Splits[Valid, Test]:
    """Return batches for a causal language model from splits of texts: `input_ids` and `labels`, int32[size, length].

    All texts of a split form one token stream, with `eos_id` after each text (`sep_id` if the tokenizer has no eos token). The stream
    is cut into rows of `length` predictions. The label at each position is the next token, and each token is predicted once. Tokens
    after the last full row are dropped.

    Tokens are kept in memory or, with `path`, in files in this folder for the next run. `prefetched` is as in `train_valid_batches`.
    Raises `ArgumentError` if the tokenizer has neither an eos nor a sep token.

    >>> import mlxfp as fp
    >>> texts = fp.from_examples([{"text": f"number {i} of many short texts"} for i in range(100)])
    >>> tokenizer = fp.train_tokenizer(texts, kind="bpe", vocab_size=300)
    >>> batches = language_model_batches(fp.train_valid_test(texts, seed=0), tokenizer, length=16, size=4, seed=0)
    >>> batch = next(iter(batches.train))
    >>> batch["input_ids"].shape, batch["labels"][:, :-1].tolist() == batch["input_ids"][:, 1:].tolist()
    ((4, 16), True)

    See also: `train_valid_batches` for other models; `windows` and `pack` for custom pipelines.
    """
    check_types(Splits, parts=parts)
    check_tokenizer(tokenizer=tokenizer)
    check_positive(length=length)
    end = tokenizer.sep_id if tokenizer.eos_token is None else tokenizer.eos_id
    cut = compose(
        tokenize(tokenizer, column=column, special=False),
        windows(length + 1, stride=length, separator=end, drop_last=True),
    )
    keep = load() if path is None else cache(path)
    others: list[Any] = [parts.valid, parts.test]
    tokens: Splits[Any, Any] = Splits(keep(cut(parts.train)), *(None if part is None else keep(cut(part)) for part in others))
    collator = causal(pad_id=end, vocab_size=tokenizer.vocab_size, length=length)  # rows of equal length need no padding
    return train_valid_batches(tokens, collator, size=size, seed=seed, prefetched=prefetched)
