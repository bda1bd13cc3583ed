"""A template and a chunk of rows to ids, without writing the sentences: each distinct text of each part is encoded once.

A pattern is cut in the text between two fields, where the tokenizer's rule has a cut. A cut is recognized by the two characters around it,
and both are the pattern's own, so it is there in every sentence. What lies between two such cuts is a *part*, and its words are words of
the sentence. A part with one field has one text for each distinct value of a column.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.ragged import Ragged
from mlxfp.core.arrow.types import decoded
from mlxfp.core.chunks import RecordBatch
from mlxfp.text.encoding.boundary_rules import Rule
from mlxfp.text.encoding.encoding import encode_parts, encode_rows, find_memo, replace_rows
from mlxfp.text.encoding.framing import gather
from mlxfp.text.engines.columns import text_offsets
from mlxfp.text.templates.formatting import can_encode, format_column
from mlxfp.text.templates.random_templates import Field, Piece, join_texts, parse
from mlxfp.text.templates.templates import Template, concat
from mlxfp.text.tokenizers.tokenizer import Tokenizer


@frozen
class Limits:
    """Where this way is faster than writing the sentences, as measured with BERT and GPT-2 over tables."""

    rows: int = 1024  # of a chunk, at least
    distinct: float = 0.4  # texts of parts, at most, for each part of each row
    whole: float = 0.5  # rows, at most, that have to be written after all, as a cut may change their ids
    new: float = 0.5  # of the bytes of all sentences, at most, those of words that are new


_LIMITS = Limits()


@frozen
class Layout:
    """The parts of a pattern, and the text between them: `between[i]` may end `parts[i]` or begin `parts[i + 1]`."""

    parts: tuple[tuple[Piece, ...], ...]
    between: tuple[str, ...]


@lru_cache(maxsize=64)
def find_layout(pattern: str, rule: Rule) -> Layout:
    """Cut a pattern, of one field or more, where its own text has cuts."""
    pieces = join_texts(piece for phrase in parse(pattern) for piece in (*phrase.pieces, phrase.end))
    fields = [place for place, piece in enumerate(pieces) if isinstance(piece, Field)]
    parts: list[list[Piece]] = [[]]
    between: list[str] = []
    for place, piece in enumerate(pieces):
        data = piece.encode() if isinstance(piece, str) and fields[0] < place < fields[-1] else b""
        cuts = np.flatnonzero(rule.find(data)).tolist()
        if cuts:
            parts[-1].append(data[: cuts[0]].decode())
            between.append(data[cuts[0] : cuts[-1]].decode())
            parts.append([data[cuts[-1] :].decode()])
        else:
            parts[-1].append(piece)
    return Layout(tuple(map(tuple, parts)), tuple(between))


def encode_sentences(tokenizer: Tokenizer, template: Template, chunk: RecordBatch, limits: Limits = _LIMITS) -> Ragged | None:
    """Return the ids of what the template writes of each row, with nothing around them, or None where writing may be faster.

    Raises `DataError` for a value that its format does not fit; which row has it is not known here.
    """
    memo, count = find_memo(tokenizer), chunk.num_rows
    if memo is None or count < limits.rows or not template.columns:
        return None
    found = find_texts(template, find_layout(template.pattern, memo.rule), chunk, limits.distinct)
    if found is None:
        return None
    texts, places = found
    known = encode_parts(memo, texts, int(np.diff(text_offsets(texts))[places].sum()), most_new=limits.new)
    if known is None:
        return None
    ids, changed = known
    held = changed[places].any(axis=1)
    if memo.rule.cuts.lead:
        held |= pc.starts_with(texts, " ").to_numpy(zero_copy_only=False)[places[:, 0]]
    whole = np.flatnonzero(held)
    if len(whole) > limits.whole * count:
        return None
    lengths = ids.lengths[places]
    sizes = lengths.sum(axis=1)
    rows = Ragged(gather(ids.values, ids.starts[places].ravel(), lengths.ravel()), sizes.cumsum() - sizes, sizes)
    return replace_rows(rows, whole, encode_rows(tokenizer, template.render(chunk.take(pa.array(whole))))) if len(whole) else rows


def find_texts(
    template: Template, layout: Layout, chunk: RecordBatch, distinct: float = _LIMITS.distinct
) -> tuple[pa.StringArray, NDArray[np.int64]] | None:
    """Return the texts that the parts have, each once for each part, and which of them each row has in each part: [rows, parts].

    None where there are too many, or where a missing value is not simply written as `template.missing`.
    """
    columns, room = list[Any](), distinct * len(layout.parts) * chunk.num_rows
    for part in layout.parts:
        columns.append(_find_distinct(part, template, chunk))
        room -= len(columns[-1][0])
        if room < 0:
            return None
    counts = [len(values) for values, _ in columns]
    ahead = [count <= other for count, other in pairwise(counts)]  # the text between goes to the part with fewer texts
    behind = [*(text if goes else "" for goes, text in zip(ahead, layout.between, strict=True)), ""]
    before = ["", *("" if goes else text for goes, text in zip(ahead, layout.between, strict=True))]
    texts = [
        concat([start, values if isinstance(values, pa.Array) else _write(part, template, values), end])
        for start, part, (values, _), end in zip(before, layout.parts, columns, behind, strict=True)
    ]
    if any(some.null_count for some in texts):
        return None
    firsts = np.cumsum([0, *counts[:-1]])
    return pa.concat_arrays(texts), np.stack([which + first for (_, which), first in zip(columns, firsts, strict=True)], axis=1)


def _find_distinct(part: Sequence[Piece], template: Template, chunk: RecordBatch) -> tuple[RecordBatch | pa.StringArray, NDArray[np.int32]]:
    """Find the distinct values of a part's only column, or write a part of several columns; and return which of them each row has."""
    columns = {piece.name: decoded(chunk.column(piece.name)) for piece in part if isinstance(piece, Field)}
    (name, column), *more = columns.items()
    if not more and can_encode(column.type):
        encoded = column.dictionary_encode("encode")
        return pa.record_batch({name: encoded.dictionary}), encoded.indices.to_numpy()
    encoded = _write(part, template, pa.record_batch(columns)).dictionary_encode("encode")
    return encoded.dictionary, encoded.indices.to_numpy()


def _write(part: Sequence[Piece], template: Template, values: RecordBatch) -> pa.StringArray:
    texts = [piece if isinstance(piece, str) else format_column(values, piece) for piece in part]
    return concat([text if isinstance(text, str) or template.policy != "say" else text.fill_null(template.missing) for text in texts])
