"""Find the characters that each engine may encode: `python -m benchmarks.fuzz_tokens [--texts N] [--write]`.

An engine is cleared for a character and a kind of tokenizer if the ids equal those of the `tokenizers` package in all tests. The first
test puts each assigned character next to letters, digits, punctuation and white space, and uses tokenizers that show every split. The
second test encodes random texts of the remaining characters with real and trained tokenizers. A text with different ids is shortened as
far as possible, and its characters are no longer cleared. If the text contains only visible ASCII, the engine is refused for this kind.
Results are stored in a file. Start the program again to continue with other texts.
"""

import argparse
import json as jsons
import random
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tokenizers as hf

from benchmarks.fuzz_kinds import KINDS, subjects, transparent
from mlxfp.text.engines.choosing import ENGINES
from mlxfp.text.engines.cleared import kind_of, read_ranges, to_table
from mlxfp.text.engines.gates import make_gate
from mlxfp.text.engines.probes import spelled_pieces
from mlxfp.text.engines.protocol import Engine, EngineKind
from mlxfp.text.tokenizers.configuration import read_configuration

_CLEARED = Path(__file__).parents[1] / "mlxfp/text/engines/cleared.json"
_REPORT = Path(__file__).with_suffix(".md")
_AT_ONCE = 20_000
_SWEPT = 8000  # characters in the vocabulary of a transparent tokenizer
# Contexts of a character. In the first text, the character follows each partner character; in other texts it precedes the partner.
_SIGHTS = ("{c}a{c} {c}1{c}.{c}'{c}\n{c}A{c}{c}", "x{c}'s  {c}  {c}b", "{c}a {c}1", "{c}A {c}.", "{c} {c}'ll{c}\r\n{c}\t")
_TRIED = (range(0x10000), range(0x1D400, 0x1D800), range(0x1F000, 0x1FB00), range(0x20000, 0x31350))  # without historic scripts
_IDEOGRAPHS = (range(0x3400, 0xA000), range(0xAC00, 0xD7A4), range(0x20000, 0x31350))  # only every 32nd character is tested
_HARD = (
    *(
        "'s",
        "'t",
        "'re",
        "'ve",
        "'m",
        "'ll",
        "'d",
        "'S",
        "'LL",
        " 's",
        "\t's",
        "\n's",
        "  ",
        "   ",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\t",
        " \n",
        "\n ",
    ),
    *(
        "0",
        "12",
        "123",
        "1234",
        "3.14",
        "1,000",
        "...",
        "--",
        "//",
        "!?",
        "\u2019s",
        "\u00a0",
        "\u3000",
        "x" * 120,
        "\x0b",
        "\x0c",
        "\x1f",
        "\x7f",
        "\0",
    ),
    *(
        "[MASK]",
        " [MASK] ",
        "<tool> ",
        "Zqx",
        "[mask]",
        "<|endoftext|>",
        "[CLS]",
        "<s>",
        "<unk>",
        "##",
        "\u2581",
        "\u0120",
        "<0x0A>",
        "[UNK]",
    ),
)
_SEEN = frozenset([*map(chr, range(32, 127)), *"\t\r\n"])  # characters of almost every text


def main() -> None:
    """Continue the campaign, and write the cleared ranges and the report with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", choices=[kind.name for kind in ENGINES], help="engines to test (default: all)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="kinds of tokenizers to test (default: all)")
    parser.add_argument("--texts", type=int, default=100_000, help="random texts for each tokenizer and engine (default 100,000)")
    parser.add_argument("--state", type=Path, default=Path("fuzz_tokens.json"), help="file of results (default fuzz_tokens.json)")
    parser.add_argument("--write", action="store_true", help=f"write {_CLEARED.name} of the package and {_REPORT.name}")
    options = parser.parse_args()
    state = jsons.loads(options.state.read_text("utf-8")) if options.state.is_file() else {}
    for kind in ENGINES:
        if options.engines and kind.name not in options.engines:
            continue
        record = state.setdefault(kind.name, {})
        versions = {kind.name: kind.version, "tokenizers": hf.__version__, "Unicode": unicodedata.unidata_version}
        if record.get("versions") != versions:
            record.clear()
            record.update(versions=versions, kinds={}, subjects={})
        for step in (
            sweep_all(kind, record, options.kinds),
            fuzz_all(kind, record, options.kinds, options.texts, options.state.with_suffix("")),
        ):
            for line in step:
                print(f"{time.strftime('%H:%M:%S', time.gmtime())} {kind.name}: {line}", flush=True)
                options.state.write_text(jsons.dumps(state, ensure_ascii=False, indent=1), "utf-8")
    if options.write:
        write(state)


class RefusedError(Exception):
    """Different ids for visible ASCII."""


def sweep_all(engine: EngineKind, record: dict[str, Any], kinds: Sequence[str]) -> Iterator[str]:
    """Test every assigned character in every untested kind of tokenizer. Yield a line per kind."""
    for name in kinds:
        key = kind_of(read_configuration(hf.Tokenizer.from_str(transparent(name, "")).to_str()))
        if key in record["kinds"]:
            continue
        entry: dict[str, Any] = {"name": name, "cleared": "", "refused": "", "swept": 0, "found": []}
        record["kinds"][key] = entry
        try:
            entry["cleared"], entry["swept"] = sweep(engine, name)
        except RefusedError as error:
            entry["refused"] = str(error)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit | AttributeError | NameError):
                raise
            entry["refused"] = (
                f"cannot load the tokenizer: {str(error).strip().splitlines()[0][:100] if str(error).strip() else type(error).__name__}"
            )
        yield f"{name}: {entry['refused'] or str(len(to_codes(entry['cleared']))) + ' characters cleared'}"


def sweep(engine: EngineKind, name: str) -> tuple[str, int]:
    """Return the ranges of characters with equal ids in all contexts, and the number of tested texts."""
    assigned = [code for code in chain(*_TRIED) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    chosen = [code for code in assigned if code % 32 == 0 or not any(code in block for block in _IDEOGRAPHS)]
    wrong, tried = set[int](), 0
    for first in [0, *range(256, len(chosen), _SWEPT)]:  # few characters first: many engines fail on ASCII
        some = chosen[first : first + _SWEPT] if first else chosen[:256]
        json = transparent(name, map(chr, some))
        reference, built = hf.Tokenizer.from_str(json), engine.build(json)
        if first == 0:
            hard = [text for text in map("".join, product(_HARD, repeat=2)) if _SEEN.issuperset(text)]
            different = np.flatnonzero(differences(reference, built, hard)).tolist()
            if different:
                raise RefusedError(f"different ids for {min((hard[index] for index in different), key=len)!r}")
        for sight in _SIGHTS:
            texts = [sight.format(c=chr(code)) for code in some]
            tried += len(texts)
            different = np.flatnonzero(differences(reference, built, texts)).tolist()
            seen = [texts[index] for index in different if chr(some[index]) in _SEEN]
            if seen:
                raise RefusedError(f"different ids for {seen[0]!r}")
            wrong.update(code for index in different for code in _alike(some[index]))
    marks = [chr(code) for code in assigned if unicodedata.combining(chr(code))]
    json = transparent(name, marks)
    texts = _marks_in_order(marks)
    different = np.flatnonzero(differences(hf.Tokenizer.from_str(json), engine.build(json), texts)).tolist()
    wrong.update(ord(marks[index]) for index in different)
    tried += len(marks)
    return to_ranges(code for code in assigned if code not in wrong), tried


def to_ranges(codes: Iterable[int]) -> str:
    """Format sorted code points as hexadecimal ranges.

    >>> to_ranges([32, 33, 34, 160])
    '20-22 a0'
    """
    numbers = np.fromiter(codes, np.int64)
    breaks = [0, *(np.flatnonzero(np.diff(numbers) > 1) + 1).tolist(), len(numbers)]
    pairs = [(int(numbers[first]), int(numbers[end - 1])) for first, end in pairwise(breaks) if end > first]
    return " ".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in pairs)


def _marks_in_order(marks: Sequence[str]) -> list[str]:
    """Combine each combining mark with a mark of each class, in both orders. The sort order of marks depends on the Unicode version."""
    classes = {unicodedata.combining(mark): mark for mark in reversed(marks)}
    return ["".join(f"a{mark}{other}a{other}{mark}" for other in classes.values()) for mark in marks]


def _alike(code: int) -> range:
    """Return the characters represented by a tested character."""
    return range(code, code + (32 if any(code in block for block in _IDEOGRAPHS) else 1))


def encode(reference: Any, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the concatenated ids of the `tokenizers` package and the number of ids per text."""
    encodings = reference.encode_batch_fast(texts, add_special_tokens=False)
    lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
    return np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int64, int(lengths.sum())), lengths


def differences(reference: Any, engine: Engine, texts: Sequence[str]) -> np.ndarray:
    """Return True for texts with ids different from the `tokenizers` package, bool[N]."""
    ids, lengths = encode(reference, texts)
    theirs, ends = engine.encode(pa.array(texts, pa.string()))
    if np.array_equal(np.diff(ends), lengths) and np.array_equal(ids, theirs):
        return np.zeros(len(texts), bool)
    starts = np.append(0, lengths.cumsum())
    return np.array(
        [ids[starts[row] : starts[row + 1]].tolist() != theirs[ends[row] : ends[row + 1]].tolist() for row in range(len(texts))]
    )


def to_codes(ranges: str) -> list[int]:
    """Return the code points of ranges."""
    return list(chain.from_iterable(read_ranges(ranges)))


def fuzz_all(engine: EngineKind, record: dict[str, Any], kinds: Sequence[str], count: int, folder: Path) -> Iterator[str]:
    """Encode random texts with each tokenizer of a partly cleared kind. Yield a line per tokenizer."""
    for name, json in subjects(kinds, folder):
        key = kind_of(read_configuration(hf.Tokenizer.from_str(json).to_str()))
        entry = record["kinds"].get(key)
        if entry is None or entry["refused"] or entry["name"] not in kinds:
            continue
        subject = record["subjects"].setdefault(
            name, {"name": name, "kind": entry["name"], "drawn": 0, "texts": 0, "characters": 0, "found": 0}
        )
        yield f"{name}: {fuzz(engine, entry, subject, json, count)}"


def fuzz(engine: EngineKind, entry: dict[str, Any], subject: dict[str, Any], json: str, count: int) -> str:
    """Encode random texts, and remove the characters of texts with different ids from the cleared characters."""
    reference, added = hf.Tokenizer.from_str(json), read_configuration(json).added_tokens
    built = engine.build(json)
    pieces = [piece for piece in spelled_pieces(reference) if piece and "\ufffd" not in piece]
    cleared = to_table(read_ranges(entry["cleared"]))

    def compared(some: Sequence[str]) -> list[str]:
        closed = set(make_gate(cleared, added).closed(pa.array(some, pa.string())).tolist())
        return [text for index, text in enumerate(some) if index not in closed]

    def wrong(some: Sequence[str]) -> list[str]:
        passed = compared(some)
        return [passed[index] for index in np.flatnonzero(differences(reference, built, passed)).tolist()] if passed else []

    for _ in range(0, count, _AT_ONCE):
        rng = random.Random(f"{engine.name} {subject['name']} {subject['drawn']}")  # noqa: S311
        letters = [chr(code) for code in np.flatnonzero(cleared)]
        texts = compared([draw(rng, letters, pieces) for _ in range(min(count, _AT_ONCE))])
        subject["drawn"] += _AT_ONCE
        subject["texts"] += len(texts) + 1
        texts.append("".join(texts[: len(texts) // 4]))  # some engines split long texts
        subject["characters"] += sum(map(len, texts))
        for text in wrong(texts):
            if not wrong([text]):  # its characters were removed meanwhile
                continue
            short = shorten(text, lambda shorter: bool(wrong([shorter])))
            subject["found"] += 1
            entry["found"].append(f"{subject['name']}: {short!r}")
            culprits = set(short) - _SEEN
            if not culprits:
                entry["refused"] = f"different ids for {short!r}"
                return f"refused: {short!r}"
            cleared[[ord(letter) for letter in culprits]] = False
            entry["cleared"] = to_ranges(np.flatnonzero(cleared).tolist())
    return f"{subject['texts']:,} texts, {subject['found']} with different ids"


def draw(rng: random.Random, letters: Sequence[str], pieces: Sequence[str]) -> str:
    """Draw a text from vocabulary pieces, neighbouring Unicode characters, and strings known to be difficult for tokenizers."""
    number = rng.random  # three times as fast as randrange and choice
    near = letters[int(number() * len(letters)) :][:64]
    parts = []
    for _ in range(1 + int(11 * number())):
        kind = number()
        if kind < 0.45:
            parts.append((" " if kind < 0.15 else "") + pieces[int(number() * len(pieces))])
        elif kind < 0.6:
            parts.append(_HARD[int(number() * len(_HARD))])
        elif kind < 0.8:
            parts.append("".join([near[int(number() * len(near))] for _ in range(1 + int(4 * number()))]))
        elif kind < 0.93:
            parts.append("".join([chr(32 + int(95 * number())) for _ in range(1 + int(5 * number()))]))
        else:
            parts.append(letters[int(number() * len(letters))])
    return "".join(parts)


def shorten(text: str, wrong: Callable[[str], bool]) -> str:
    """Remove ever smaller parts of a text while the ids stay different."""
    size = len(text) // 2
    while size:
        start = 0
        while start < len(text):
            shorter = text[:start] + text[start + size :]
            if shorter and wrong(shorter):
                text = shorter
            else:
                start += size
        size //= 2
    return text


def write(state: dict[str, Any]) -> None:
    """Write the cleared ranges of the package, and the report."""
    trials = {
        name: {
            "versions": {key: record["versions"][key] for key in (name, "tokenizers")},
            "kinds": {key: entry["cleared"] for key, entry in record["kinds"].items() if not entry["refused"]},
        }
        for name, record in state.items()
    }
    _CLEARED.write_text(jsons.dumps(trials, ensure_ascii=False, indent=1) + "\n", "utf-8")
    _REPORT.write_text("\n".join(report(state)), "utf-8")


def report(state: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the report."""
    yield "# Engines compared with `tokenizers`\n"
    yield "Written by `python -m benchmarks.fuzz_tokens --write`; `benchmarks/fuzz_tokens.py` describes the method.\n"
    for engine, record in state.items():
        kinds, tokenizers = record["kinds"].values(), record["subjects"].values()
        swept, texts, characters = (
            sum(entry[key] for entry in some) for some, key in ((kinds, "swept"), (tokenizers, "texts"), (tokenizers, "characters"))
        )
        yield f"## {engine}\n"
        yield f"Versions: {', '.join(f'{name} {version}' for name, version in record['versions'].items())}."
        yield f"Texts with single characters: {swept:,}."
        yield f"Random texts for {len(tokenizers)} tokenizers: {texts:,} texts with {characters:,} characters.\n"
        yield "| kind of tokenizer | cleared characters | reason for refusal |\n| --- | ---: | --- |"
        for kind in kinds:
            yield f"| {kind['name']} | {0 if kind['refused'] else len(to_codes(kind['cleared'])):,} | {_cell(kind['refused'])} |"
        yield "\n| tokenizer | kind | random texts | characters | texts with different ids |\n| --- | --- | ---: | ---: | ---: |"
        for subject in tokenizers:
            yield f"| {subject['name']} | {subject['kind']} | {subject['texts']:,} | {subject['characters']:,} | {subject['found']} |"
        examples = [_cell(text) for kind in kinds for text in kind["found"][:5]]
        yield "\nShortest texts with different ids. The characters of these texts are not cleared:\n" if examples else ""
        yield from (f"- {example}" for example in examples)
        yield ""


def _cell(text: str) -> str:
    return f"`` {text} ``".replace("|", "\\|") if text else ""


if __name__ == "__main__":
    main()
