"""tokens-*: texts to ids, compared with the flat calls of the engines and with `encode_batch_fast` of the tokenizers package."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

import mlxfp as fp
from benchmarks.inputs import SENTENCE, hard_texts, natural_text, passengers, short_texts, tokenizers
from benchmarks.measuring import Row, best, installed
from mlxfp.text.encoding.encoding import forget_words
from mlxfp.text.tokenizers.tokenizer import engine

_AT_ONCE = 10_000  # Texts per call of the tokenizers package. A single call for all texts is slower, because the results fill the memory.
_PACKED = 1024  # tokens per row

# Returns for a package the encoding call of a column, and a function that returns the ids as lists.
Prepare = Callable[[fp.Tokenizer, Sequence[str]], tuple[Callable[[], Any], Callable[[], list[list[int]]]]]


def bpe(*, small: bool) -> list[Row]:
    """Encode a column of natural text with the GPT-2 tokenizer, compared with gigatoken on the same column."""
    return _against_engine("tokens-bpe", "gigatoken", list(tokenizers())[1], _gigatoken, small=small)


def wordpiece(*, small: bool) -> list[Row]:
    """Encode a column of natural text with the BERT tokenizer, compared with tokie on the same texts."""
    return _against_engine("tokens-wordpiece", "tokie", next(iter(tokenizers())), _tokie, small=small)


def pipeline(*, small: bool) -> list[Row]:
    """Turn a text file into batches of packed rows, compared with the tokenizers package on the lines of the file."""
    texts = natural_text(2_000_000 if small else 22_000_000)
    with TemporaryDirectory() as folder:
        path = Path(folder, "lines.txt")
        path.write_text("\n".join(texts), "utf-8")
        return [_pipeline(name, tokenizer, path, texts) for name, tokenizer in tokenizers().items()]


def table(*, small: bool) -> list[Row]:
    """Render 200,000 table rows as sentences and encode the sentences, compared with the tokenizers package on finished sentences."""
    return list(_tables("tokens-table", 15, small=small, way="auto"))


def plain(*, small: bool) -> list[Row]:
    """Encode natural text and tables without engines, then texts with few repeated words, then few texts per call."""
    texts = natural_text(2_000_000 if small else 22_000_000)
    size = sum(map(len, texts)) / 1e6
    compared = partial(_compared, "tokens-plain")
    out = [compared(f"{size:.0f} MB of natural text, {name}", each, texts, 3) for name, each in tokenizers("tokenizers").items()]
    out += _tables("tokens-plain", 3, small=small, way="tokenizers")
    hard = hard_texts(400_000 if small else 4_000_000)
    few = {"natural text": texts[: 200 if small else 4000], "texts of 60 characters": short_texts(texts, 200 if small else 16_000)}
    for name, tokenizer in tokenizers("tokenizers").items():
        out += [compared(f"{kind}, {name}", tokenizer, some, 0.9, read=True) for kind, some in hard.items()]
        out += [
            compared(
                f"{kind}, {size} at a time, {name}", tokenizer, some, 0.4 if "60" in kind and name == "GPT-2" else 0.5, size=size, read=True
            )
            for kind, some in few.items()
            for size in (1, 8)
        ]
    return out


def _tables(row: str, bar: float, *, small: bool, way: Any) -> Iterable[Row]:
    rows = fp.from_table(passengers(10_000 if small else 200_000))
    written: Any = fp.pipe(rows, fp.template(SENTENCE))
    texts = fp.pipe(written, fp.batch(100_000))
    written = fp.pipe(written, fp.prefetch(4)) if way == "auto" else written  # renders ahead during encoding
    sentences = [sentence for group in texts for sentence in group.column("text").to_pylist()]
    for name, tokenizer in tokenizers(way).items():
        groups = fp.pipe(written, fp.tokenize(tokenizer), fp.select_columns(["input_ids"]), fp.batch(_AT_ONCE))
        yield _compared(row, f"{len(sentences):,} sentences from the columns, {name}", tokenizer, sentences, bar, groups=groups)


def _against_engine(row: str, package: str, name: str, prepare: Prepare, *, small: bool) -> list[Row]:
    """Compare `tokenize` with a call of the package, with the whole column at once and with the chunks of `from_table`.

    Both sides keep their word caches.
    """
    tokenizer, texts = tokenizers()[name], natural_text(2_000_000 if small else 22_000_000)
    column = f"{sum(map(len, texts)) / 1e6:.0f} MB of natural text, a column to a column of ids"
    work = [f"{column}, {name}", f"{column}, in chunks, {name}"]
    bars = [0.7, 0.5 if package == "gigatoken" else 0.7]  # chunks bound the memory
    if not installed(package):
        return [Row(row, each, "-", f"{package}: not installed", None, bar) for each, bar in zip(work, bars, strict=True)]
    stage: Any = fp.tokenize(tokenizer)  # annotated for examples, but also accepts groups
    rows = fp.from_table({"text": texts})
    whole = fp.pipe(rows, fp.batch(len(texts)), fp.load(), stage)  # one column in memory, as in the peer
    chunks = fp.pipe(rows, stage, fp.select_columns(["input_ids"]), fp.batch(_AT_ONCE))
    theirs, found = prepare(tokenizer, texts)
    expected = found()
    for each, groups in zip(work, (whole, chunks), strict=True):
        _check_equal(each, [ids for group in groups for ids in group.column("input_ids").to_pylist()], expected)
    *mine, other = best([partial(_consume, whole), partial(_consume, chunks), theirs], repeats=7)
    count = sum(map(len, expected))
    peer = f"{package} {count / other / 1e6:.1f}M tokens/s"
    return [
        Row(row, each, f"{count / time / 1e6:.1f}M tokens/s", peer, other / time, bar)
        for each, time, bar in zip(work, mine, bars, strict=True)
    ]


def _gigatoken(tokenizer: fp.Tokenizer, texts: Sequence[str]) -> tuple[Callable[[], Any], Callable[[], list[list[int]]]]:
    own = import_module("gigatoken").Tokenizer.from_json(tokenizer.json)
    column = import_module("awkward").from_arrow(pa.array(texts, pa.large_string()))
    return partial(own.encode_batch, column), lambda: own.encode_batch(column).to_list()


def _tokie(tokenizer: fp.Tokenizer, texts: Sequence[str]) -> tuple[Callable[[], Any], Callable[[], list[list[int]]]]:
    with TemporaryDirectory() as folder:
        path = Path(folder, "tokenizer.json")
        path.write_text(tokenizer.json, "utf-8")
        own = import_module("tokie").Tokenizer.from_json(str(path))

    def found() -> list[list[int]]:
        ids, lengths = own.encode_batch_flat(texts, add_special_tokens=True)
        return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]

    return partial(own.encode_batch_flat, texts, add_special_tokens=True), found


def _pipeline(name: str, tokenizer: fp.Tokenizer, path: Path, texts: Sequence[str]) -> Row:
    collator = fp.collators.causal(pad_id=0, packed=True)
    ids = fp.pipe(fp.read_text(path), fp.tokenize(tokenizer), fp.prefetch(16, workers=1))  # encodes ahead during packing
    batches = fp.pipe(ids, fp.pack(_PACKED), fp.batch(8), fp.collate(collator))
    call = engine(tokenizer.json).encode_batch_fast
    lists = [texts[first : first + _AT_ONCE] for first in range(0, len(texts), _AT_ONCE)]
    mine, other = best([partial(_consume, batches), lambda: [call(some) for some in lists] and None])
    size = sum(map(len, texts)) / 1e6
    work = f"{size:.0f} MB of lines to batches of rows of {_PACKED} tokens, {name}"
    return Row(
        "tokens-pipeline",
        work,
        f"{size / mine:.0f} MB/s",
        f"encode_batch_fast {size / other:.1f} MB/s",
        other / mine,
        9 if name == "BERT" else 15,
    )


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
    """Compare `tokenize`, or `groups`, with calls of the tokenizers package. Both sides get `size` texts at once.

    Without engines, the word cache is cleared before each run. By default the ids of the package stay inside the package. With `read`, the
    ids are also converted to Python lists.
    """
    stage: Any = fp.tokenize(tokenizer)  # annotated for examples, but also accepts groups
    groups = groups or fp.pipe(fp.from_table({"text": texts}), fp.batch(size), stage)
    lists = [texts[first : first + size] for first in range(0, len(texts), size)]
    call = engine(tokenizer.json).encode_batch_fast

    def ours() -> int:
        if tokenizer.engine == "tokenizers":
            forget_words()  # words of the previous run
        return sum(len(group.column("input_ids").values) for group in groups)

    def theirs() -> None:
        for some in lists:
            encoded = call(some)
            if read:
                [each.ids for each in encoded]

    for group, some in zip(groups, lists, strict=True):
        _check_equal(work, group.column("input_ids").to_pylist(), [encoded.ids for encoded in call(some)])
    mine, other = best([ours, theirs])
    count = ours()
    return Row(row, work, f"{count / mine / 1e6:.1f}M tokens/s", f"encode_batch_fast {count / other / 1e6:.2f}M", other / mine, bar)


def _consume(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass


def _check_equal(work: str, ours: list[list[int]], theirs: list[list[int]]) -> None:
    if ours != theirs:
        raise AssertionError(f"{work}: the ids are not the tokenizer's own.")
