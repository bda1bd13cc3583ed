"""From the parts of a dataset to batches, in one call."""

from collections.abc import Callable
from os import PathLike
from typing import Any

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


@explain_call
def train_valid_batches(  # noqa: PLR0913  # each is a plain word of what is made
    parts: Splits, collator: Collator, *, size: int, seed: int, encode: Encode | None = None, prefetched: int = 2
) -> Splits:
    """Make batches of the parts of a dataset: to train on in another order each epoch, the others in their order.

    `encode` is a stage, or several in `compose`, that every part goes through first, such as `tokenize(...)`. Training batches have exactly
    `size` rows, and the rows that are left over come in another epoch; the other parts lose no row. `prefetched` training batches are
    prepared in advance. The result has datasets of batches in place of datasets of rows.

    >>> import mlxfp as fp
    >>> parts = fp.train_valid_test(fp.from_examples([{"x": place, "label": place % 2} for place in range(50)]), seed=0)
    >>> made = train_valid_batches(parts, fp.collators.default(), size=8, seed=0)
    >>> [batch["x"].shape for batch in made.train], [batch["x"].shape for batch in made.valid]
    ([(8,), (8,), (8,), (8,), (8,)], [(5,)])

    See also: `train_valid_test` and `Splits`, which make the parts; `language_model_batches`.
    """
    check_types(Splits, parts=parts)
    check_callable(collator=collator)
    check_positive(size=size)
    check_not_negative(prefetched=prefetched)
    stages = () if encode is None else (encode,)
    train = pipe(parts.train, *stages, shuffle(seed=seed), batch(size, drop_last=True), collate(collator))
    valid, test = (None if part is None else pipe(part, *stages, batch(size), collate(collator)) for part in (parts.valid, parts.test))
    return Splits(prefetch(prefetched)(train) if prefetched else train, valid=valid, test=test)


@explain_call
def language_model_batches(  # noqa: PLR0913  # each is a plain word of what is made
    parts: Splits,
    tokenizer: Tokenizer,
    *,
    length: int,
    size: int,
    seed: int,
    column: str = "text",
    path: str | PathLike[str] | None = None,
) -> Splits:
    """Make batches for a causal language model of the parts of a dataset of texts: `input_ids` and `labels`, int32[size, length].

    The tokens of all texts, each followed by `eos_id`, or `sep_id` where there is no eos token, are one stream, cut into rows of `length`
    predictions. The label at each place is the next token, and each token is predicted once; the end of a part that fills no row is left
    out. Tokens are held in memory, or, with `path`, in files in that folder, which the next run uses again. Raises `ArgumentError` for a
    tokenizer with neither token.

    >>> import mlxfp as fp
    >>> texts = fp.from_examples([{"text": f"number {place} of many short texts"} for place in range(100)])
    >>> tokenizer = fp.train_tokenizer(texts, kind="bpe", vocab_size=300)
    >>> made = language_model_batches(fp.train_valid_test(texts, seed=0), tokenizer, length=16, size=4, seed=0)
    >>> batch = next(iter(made.train))
    >>> batch["input_ids"].shape, batch["labels"][:, :-1].tolist() == batch["input_ids"][:, 1:].tolist()
    ((4, 16), True)

    See also: `train_valid_batches`, for other models; `windows` and `pack`, the stages for pipelines of your own.
    """
    check_types(Splits, parts=parts)
    check_tokenizer(tokenizer=tokenizer)
    check_positive(length=length)
    end = tokenizer.sep_id if tokenizer.eos_token is None else tokenizer.eos_id
    cut = compose(
        tokenize(tokenizer, column=column, special=False),
        windows(length + 1, stride=length, separator=end, drop_last=True),
    )
    hold = load() if path is None else cache(path)
    rows = (None if part is None else hold(cut(part)) for part in (parts.valid, parts.test))
    kept = Splits(hold(cut(parts.train)), *rows)
    collator = causal(pad_id=end, vocab_size=tokenizer.vocab_size, length=length)  # nothing is padded
    return train_valid_batches(kept, collator, size=size, seed=seed)
