"""Tables, texts and tokenizers for the benchmarks: real data from the folder MLXFP_DATA (or ../shared/data), else synthetic data."""

import os
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import evolve

import mlxfp as fp

SENTENCE = (
    "Passenger: a {age} year old {sex} from {city}, travelling in class {pclass} with {family} relatives on board, paid {fare:.2f} for "
    "cabin {cabin} with ticket {ticket} on the {day} of April."
)
_CITIES = ("Bergen", "Cork", "Dover", "Genoa", "Hamburg", "Lisbon", "London", "Naples", "Oslo", "Porto", "Riga", "Vigo")
_SYLLABLES = ("ba", "den", "fal", "gor", "ka", "lum", "mi", "no", "pre", "ra", "sis", "tor", "us", "ver", "win", "zel")


def data_folder() -> Path | None:
    """Return the folder of real data, or None if the folder is missing."""
    folder = Path(os.environ.get("MLXFP_DATA", Path(__file__).parents[2] / "shared/data"))
    return folder if folder.is_dir() else None


def passengers(count: int) -> pa.Table:
    """Return a passenger list with 10 columns. The number of distinct tickets is half the number of rows."""
    rng = np.random.default_rng(0)
    cabins = [f"{'ABCDEF'[deck]}{number}" for deck, number in zip(rng.integers(0, 6, count), rng.integers(1, 130, count), strict=True)]
    return pa.table(
        {
            "age": rng.integers(1, 80, count),
            "sex": rng.choice(["male", "female"], count),
            "city": rng.choice(_CITIES, count),
            "pclass": rng.integers(1, 4, count),
            "family": rng.integers(0, 6, count),
            "fare": rng.lognormal(3, 0.8, count).round(2),
            "cabin": cabins,
            "ticket": rng.integers(10_000, 10_000 + count // 2, count),
            "day": rng.integers(1, 31, count),
            "survived": rng.integers(0, 2, count),
        }
    )


def natural_text(size: int) -> list[str]:
    """Return about `size` characters of text in lines, with a natural rate of new words.

    Repeats the lines of the validation split of wikitext-2. Every "<unk>" (a rare word) is replaced by another word, and half of the
    replacements are new words: 22 MB have 125,000 distinct words among 4.1 million. Without the file, lines consist of synthetic words with
    the word frequencies of English.
    """
    rng = np.random.default_rng(0)
    new_words, made = _new_words(), ["unk"]
    lines = _known_lines(new_words)
    texts: list[str] = []
    length = 0
    while length < size:
        for line in lines:
            first, *rest = line.split("<unk>")
            parts = [first]
            for part in rest:
                if rng.random() < 0.5:
                    made.append(next(new_words))
                    parts += [made[-1], part]
                else:
                    parts += [made[rng.integers(len(made))], part]
            texts.append("".join(parts))
            length += len(texts[-1])
    return texts


def _known_lines(new_words: Iterator[str]) -> list[str]:
    folder = data_folder()
    if folder is not None:
        return [line for line in (folder / "wikitext2/valid.txt").read_text("utf-8").split("\n") if line.strip()]
    rng = np.random.default_rng(1)
    words = np.array([*(next(new_words) for _ in range(12_000)), "<unk>"])
    rates = 1 / (10.0 + np.arange(len(words)))
    rates[-1] = 0.06 * rates[:-1].sum()  # rate of "<unk>" in wikitext-2
    return [" ".join(rng.choice(words, rng.geometric(0.012), p=rates / rates.sum())) + " ." for _ in range(2500)]


def _new_words() -> Iterator[str]:
    """Yield distinct synthetic words."""
    rng, seen = np.random.default_rng(2), set[str]()
    while True:
        name = "".join(_SYLLABLES[place] for place in rng.integers(0, len(_SYLLABLES), rng.integers(2, 6)))
        if name not in seen:
            seen.add(name)
            yield name


def hard_texts(size: int) -> dict[str, list[str]]:
    """Return texts of about `size` characters with few repeated words or unclear word boundaries."""
    rng = np.random.default_rng(0)
    letters = rng.integers(97, 123, (size // 8, 7)).astype(np.uint8)
    fresh = [" ".join(word.tobytes().decode() for word in part) for part in np.array_split(letters, max(1, size // 400))]
    points = rng.integers(0x20, 0x3000, size // 2)
    odd = ["".join(map(chr, part)) for part in np.array_split(points, max(1, size // 200))]
    runs = [line.replace(" ", " " * int(rng.integers(2, 9))) for line in natural_text(size // 4)]
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[: max(1, size // 20_000)]
    code = [file.read_text("utf-8", errors="replace") for file in files]
    return {"words that never repeat": fresh, "random Unicode": odd, "runs of spaces": runs, "source code": code}


def short_texts(texts: Iterable[str], count: int, size: int = 60) -> list[str]:
    """Split texts at spaces into pieces of at most `size` characters, and return the first `count` pieces."""
    lines = (line for text in texts for line in wrap(text, size))
    return list(islice(lines, count))


@cache
def tokenizers(engine: Any = "auto") -> dict[str, fp.Tokenizer]:
    """Return the tokenizers of BERT and GPT-2. Without the files, train two tokenizers of the same kinds."""
    folder = data_folder()
    if folder is not None:
        files = {"BERT": folder / "tokenizers/bert-base-uncased", "GPT-2": folder / "tokenizers/gpt2"}
        return {name: fp.load_tokenizer(file, engine=engine) for name, file in files.items()}
    rows = fp.from_table({"text": natural_text(1_000_000)})
    trained = {
        "trained WordPiece": fp.train_tokenizer(rows, kind="wordpiece", vocab_size=30_000, lowercase=True),
        "trained BPE": fp.train_tokenizer(rows, kind="bpe", vocab_size=30_000),
    }
    return {name: evolve(tokenizer, engine=engine) for name, tokenizer in trained.items()}


def token_rows(count: int, *, median: float, spread: float, longest: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return token rows with lognormal lengths: concatenated ids, int32[N], and row offsets, int64[count + 1]."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(median), spread, count), 5, longest).astype(np.int64)
    offsets = np.append(0, np.cumsum(lengths))
    return rng.integers(1, 30_000, offsets[-1]).astype(np.int32), offsets
