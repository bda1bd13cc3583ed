"""tokenize-table and tokenize-text: to ids, against `encode_batch_fast` of the tokenizers package alone on the same texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import mlxfp as fp
from benchmarks.inputs import SENTENCE, hard_texts, natural_text, passengers, short_texts, tokenizers
from benchmarks.measuring import Row, best
from mlxfp.text.encoding.encoding import forget_words
from mlxfp.text.tokenizers.tokenizer import engine

_AT_ONCE = 10_000  # texts in a call of the peer: calls for all of them at once are slower, as their results fill the memory


def table(*, small: bool) -> list[Row]:
    """Write 200,000 rows of a table as sentences and encode them."""
    rows = fp.from_table(passengers(10_000 if small else 200_000))
    texts = fp.pipe(rows, fp.template(SENTENCE), fp.batch(100_000))
    sentences = [sentence for group in texts for sentence in group.column("text").to_pylist()]
    out = []
    for name, tokenizer in tokenizers().items():
        length = np.mean([len(encoded.ids) for encoded in engine(tokenizer.json).encode_batch_fast(sentences[:1000])])
        work = f"{len(sentences):,} sentences of {length:.0f} tokens to ids, {name}"
        out.append(_compared("tokenize-table", work, tokenizer, sentences, 5))
        groups = fp.pipe(rows, fp.template(SENTENCE), fp.tokenize(tokenizer), fp.select_columns(["input_ids"]), fp.batch(_AT_ONCE))
        out.append(
            _compared("tokenize-table", f"the same from the columns, to be written first, {name}", tokenizer, sentences, 5, groups=groups)
        )
    return out


def text(*, small: bool) -> list[Row]:
    """Encode 22 MB of natural text; then texts on which words do not help; then few texts at a time."""
    texts = natural_text(2_000_000 if small else 22_000_000)
    size = sum(map(len, texts)) / 1e6
    out = [
        _compared("tokenize-text", f"{size:.0f} MB of natural text to ids, {name}", tokenizer, texts, 4)
        for name, tokenizer in tokenizers().items()
    ]
    hard = hard_texts(400_000 if small else 4_000_000)
    for name, tokenizer in tokenizers().items():
        out += [_compared("tokenize-text", f"{kind}, {name}", tokenizer, some, 0.95, read=True) for kind, some in hard.items()]
        few = {"natural text": texts[: 200 if small else 4000], "texts of 60 characters": short_texts(texts, 200 if small else 16_000)}
        out += [
            _compared("tokenize-text", f"{kind}, {size} at a time, {name}", tokenizer, some, 0.5, size=size, read=True)
            for kind, some in few.items()
            for size in (1, 8)
        ]
    return out


def _compared(  # noqa: PLR0913  # the columns of a row
    row: str,
    work: str,
    tokenizer: fp.Tokenizer,
    texts: Sequence[str],
    bar: float,
    *,
    groups: Any = None,
    size: int = _AT_ONCE,
    read: bool = False,
) -> Row:
    """Compare a stage, or `groups`, with calls of the tokenizer; both have `size` texts at once.

    The words that were met are forgotten each time. The calls alone leave ids inside the package; with `read`, as any use of them needs,
    they also become Python lists.
    """
    stage: Any = fp.tokenize(tokenizer)  # typed for examples, and takes groups as well
    groups = groups or fp.pipe(fp.from_table({"text": texts}), fp.batch(size), stage)
    lists = [texts[first : first + size] for first in range(0, len(texts), size)]
    call = engine(tokenizer.json).encode_batch_fast

    def ours() -> int:
        forget_words()  # those of the last time
        return sum(len(group.column("input_ids").values) for group in groups)

    def theirs() -> None:
        for some in lists:
            encoded = call(some)
            if read:
                [each.ids for each in encoded]

    for group, some in zip(groups, lists, strict=True):
        if group.column("input_ids").to_pylist() != [encoded.ids for encoded in call(some)]:
            raise AssertionError(f"{work}: the ids are not the tokenizer's own.")
    mine, other = best([ours, theirs])
    count = ours()
    return Row(row, work, f"{count / mine / 1e6:.1f}M tokens/s", f"encode_batch_fast {count / other / 1e6:.2f}M", other / mine, bar)
