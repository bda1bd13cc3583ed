"""Test texts for engines: all pieces of the vocabulary, and difficult texts. An engine must encode these texts correctly before use."""

import json as jsons
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from mlxfp.text.engines.gates import Gate
from mlxfp.text.engines.protocol import Engine
from mlxfp.text.tokenizers.configuration import MARK

_PIECES = 64_000  # Approximate maximum number of tested vocabulary pieces, spread evenly over the vocabulary. Testing takes up to a second.
_LINE = 40  # number of vocabulary pieces in each test text
# Byte-level BPE writes each byte as one visible character. Bytes without a visible Latin-1 character get characters from U+0100 on.
_SEEN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _SEEN]
_BYTES = {chr(byte): bytes([byte]) for byte in _SEEN} | {chr(0x100 + index): bytes([byte]) for index, byte in enumerate(_OTHERS)}

_HARD = (
    "",
    " ",
    "   ",
    "\n",
    "\r\n\r\n \t x",
    "I'm he's we'd they'll don't you've we're 'Tis O'CLOCK I'M HE'S WE'D THEY'LL DON'T '' ' s '\u2019s",
    "0 1 22 333 4444 55555 666666 7777777 3.14 1,000,000 -5 +7 1e-9 0x1F 2024-02-30 12:34:56 \u0663\u0664 \u00bd\u00b2\u2167",
    "a.b,c;d:e!f?g(h)i[j]k{l}m<n>o/p\\q|r@s#t$u%v^w&x*y-z_a+b=c~d`e\"f'g",
    "...   ---  ?!?! $$$ 5% #tag @name user@example.org https://example.org/a?b=c&d=e#f C++ C# .NET x=y*z",
    "Word word WORD wOrD CamelCase snake_case kebab-case x" + "ab" * 80 + " " + "z" * 250,
    "na\u00efve caf\u00e9 cafe\u0301 \u00dcber stra\u00dfe \u0130stanbul \u0131 \ufb01ne \u00c5ngstr\u00f6m",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u03c3\u03c2",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u6f22\u5b57\u4eee\u540d\u3042\u3044\u30a2\u30a4 \u4f60\u597d\u3002\u4e16\u754c\uff01 \ud55c\uad6d\uc5b4 \uff21\uff22\uff23",
    "\u2013\u2014\u2018\u2019\u201c\u201d\u2026\u20ac\u00a3\u00a5\u00a9\u2122 \u2190\u2192 \u221e\u2260 \u00a0x\u2003y\u3000z\u200b",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd",
)
# Characters that together use each possible byte of UTF-8, because vocabularies may lack some bytes.
_CODES = (*range(0x100), *range(0x100, 0x800, 0x40), 0x800, *range(0x1000, 0x10000, 0x1000), *range(0x10000, 0x110000, 0x10000))
_LETTERS = tuple(map(chr, _CODES))


def probe_texts(tokenizer: Any, gate: Gate) -> list[str]:
    """Return the test texts for a tokenizer of the `tokenizers` package. The order is the same in every process."""
    pieces = spelled_pieces(tokenizer)
    # Leave out vocabulary entries that `gate` rejects, because `gate` would reject each test text with such an entry.
    closed = set(gate.closed(pa.array(["", *pieces])).tolist())
    passed = [piece for index, piece in enumerate(pieces, 1) if index not in closed]
    chosen = passed[:: max(1, len(passed) // _PIECES)]
    lines = [chosen[first : first + _LINE + 1] for first in range(0, len(chosen), _LINE)]
    # In the test texts, each vocabulary piece occurs twice: after a space, and after another piece.
    joined = [" ".join(f"{second}{first}" for first, second in pairwise(line)) for line in lines]
    tokens = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    return [*_HARD, *_LETTERS, *joined, *tokens, *(f"a {token}b {token} " for token in tokens)]


def spelled_pieces(tokenizer: Any) -> list[str]:
    """Return the plain text of each token in the vocabulary, ordered by id."""
    vocab = tokenizer.get_vocab(with_added_tokens=False)
    bytewise = tokenizer.pre_tokenizer is not None and "ByteLevel" in jsons.dumps(jsons.loads(tokenizer.pre_tokenizer.__getstate__()))
    spell = _from_bytes if bytewise else _from_marks
    return [spell(piece) for piece in sorted(vocab, key=vocab.__getitem__)]


def _from_bytes(piece: str) -> str:
    return b"".join(_BYTES.get(letter, letter.encode()) for letter in piece).decode(errors="ignore")


def _from_marks(piece: str) -> str:
    return piece.removeprefix("##").replace(MARK, " ")


def find_difference(engine: Engine, tokenizer: Any, gate: Gate, texts: Iterable[str]) -> str | None:
    """Return the first text with different ids from engine and tokenizer, or None if all ids are equal. Skip texts that `gate` rejects."""
    column = pa.array(texts, pa.string())
    passed = column.take(pa.array(np.setdiff1d(np.arange(len(column)), gate.closed(column))))
    if not len(passed):
        return None
    spelled = passed.to_pylist()
    ids, ends = engine.encode(passed)
    for index, encoding in enumerate(tokenizer.encode_batch_fast(spelled, add_special_tokens=False)):
        if encoding.ids != ids[ends[index] : ends[index + 1]].tolist():
            return str(spelled[index])
    return None
