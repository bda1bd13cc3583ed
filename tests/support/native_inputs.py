"""Drawn and mutated inputs for native code: trainers and engines of tokenizers, and readers of images, sound and columns.

`try_inputs` runs in a child process. The child prints the seed of each input, so the last line names an input that ends the process.
"""

import json
import random
import resource
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mlxfp as fp
from tests.support.damage import damaged

LETTERS = "abcde  .,'12\n\t\u00e9\u0301\u4e2d\u200d\U0001f468\0\ufeff\u0130\u00df"
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    7,
    2**31,
    2**63,
    1e300,
    "",
    "x",
    "\u0301",
    "a" * 5000,
    [],
    [[]],
    [["a", -1e300]],
    {},
    {"a": 1},
    {"type": "BPE"},
)
_MEMORY = 24 << 30


def text(chance: random.Random) -> str:
    """Return a text of ordinary words, repeated patterns, odd characters, or one very long word."""
    match chance.randrange(6):
        case 0:
            return chance.choice("ab\u00e9\u4e2d") * chance.choice([1, 99, 101, 5000, 50_000])
        case 1:
            return "".join(
                chr(chance.choice([chance.randrange(0xD800), chance.randrange(0xE000, 0x110000)])) for _ in range(chance.randrange(30))
            )
        case 2:
            return "[CLS] [MASK] \u2581 ##a <s> </s> " * chance.randrange(3)
        case _:
            return "".join(chance.choices(LETTERS, k=chance.choice([0, 1, 10, 200])))


def texts(chance: random.Random) -> Any:
    """Return rows with drawn texts."""
    return fp.from_table(pa.table({"text": [text(chance) for _ in range(chance.choice([1, 3, 24, 80]))]}))


def trained(chance: random.Random, rows: Any, sizes: Sequence[int] = (400, 1000, 5000)) -> Any:
    """Train a tokenizer of a drawn kind and size on texts."""
    kind, size = chance.choice(["bpe", "wordpiece", "unigram"]), chance.choice(sizes)
    return fp.train_tokenizer(rows, kind=kind, vocab_size=size, lowercase=chance.random() < 0.3)  # type: ignore[arg-type]


def train(folder: Path, chance: random.Random) -> None:
    """Train a tokenizer, and encode the same and other texts."""
    rows = texts(chance)
    tokenizer = trained(chance, rows, (1, 30, 262, 300, 1000, 5000, 1 << 20))
    for some in (rows, texts(chance)):
        list(fp.pipe(some, fp.tokenize(tokenizer, max_length=chance.choice([8, 64, 5000]))))


def engines(folder: Path, chance: random.Random) -> None:
    """Encode texts with each engine. The ids are those of the tokenizers package."""
    tokenizer, rows = trained(chance, texts(chance)), texts(chance)
    ids = []
    for engine in ("tokenizers", "auto", "gigatoken", "tokie"):
        path = folder / "tokenizer.json"
        path.write_text(tokenizer.json)
        ids.append([row["input_ids"] for row in fp.pipe(rows, fp.tokenize(fp.load_tokenizer(path, engine=engine)))])  # type: ignore[arg-type]
    assert all(other == ids[0] for other in ids)


def _changed(value: Any, chance: random.Random) -> Any:
    """Return JSON with one changed value."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        return {**value, key: _changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return [*value[:at], _changed(value[at], chance), *value[at + 1 :]]
    return chance.choice(ODD)


def load(folder: Path, chance: random.Random) -> None:
    """Load a changed or damaged tokenizer, and encode texts."""
    _only(folder / "tokenizer.json", b"")
    (folder / "tokenizer.json").unlink()
    tokenizer = trained(chance, texts(chance))
    content = json.loads(tokenizer.json)
    match chance.randrange(4):
        case 0:
            (folder / "tokenizer.json").write_bytes(damaged(tokenizer.json.encode(), chance))
        case 1:
            words = "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *text(chance).split(), "a" * chance.choice([1, 5000])])
            (folder / "vocab.txt").write_bytes(damaged(words.encode(), chance) if chance.random() < 0.5 else words.encode())
        case 2 if isinstance(content["model"]["vocab"], dict) and "merges" in content["model"]:
            merges = "\n".join(" ".join(pair) for pair in content["model"]["merges"])
            (folder / "vocab.json").write_bytes(damaged(json.dumps(content["model"]["vocab"]).encode(), chance))
            (folder / "merges.txt").write_bytes(damaged(merges.encode(), chance) if merges else b"")
        case _:
            for _ in range(chance.choice([1, 1, 3])):
                content = _changed(content, chance)
            (folder / "tokenizer.json").write_text(json.dumps(content))
    engine = chance.choice(["auto", "tokenizers", "gigatoken", "tokie"])
    list(fp.pipe(texts(chance), fp.tokenize(fp.load_tokenizer(folder, engine=engine), max_length=64)))  # type: ignore[arg-type]


def _only(path: Path, content: bytes) -> None:
    """Write the only file of a folder."""
    for old in path.parent.iterdir():
        old.unlink()
    path.write_bytes(content)


def images(folder: Path, chance: random.Random) -> None:
    """Decode a damaged image of a drawn format, size and mode."""
    from PIL import Image

    kind, mode = chance.choice(["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM"]), chance.choice(["RGB", "L"])
    pixels = np.random.default_rng(chance.randrange(99)).integers(0, 256, (chance.randrange(1, 40), chance.randrange(1, 40), 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(file := BytesIO(), kind)
    content = file.getvalue()
    for _ in range(chance.choice([0, 1, 1, 4])):
        content = damaged(content, chance) or b"\0"
    _only(folder / f"a.{kind.lower()}", content)
    stages = chance.choice(
        [(), (fp.images.decode(),), (fp.images.resize((8, 8)),), (fp.images.decode(mode="grey"), fp.images.center_crop((4, 4)))]
    )
    list(fp.pipe(fp.read_images(folder), *stages))


def sound(folder: Path, chance: random.Random) -> None:
    """Decode a damaged sound of a drawn format, rate and number of channels."""
    import soundfile

    kind, suffix = chance.choice([("WAV", "wav"), ("FLAC", "flac"), ("OGG", "ogg"), ("MP3", "mp3"), ("AIFF", "aiff")])
    samples = np.random.default_rng(chance.randrange(99)).uniform(-1, 1, (chance.randrange(1, 3000), chance.choice([1, 2])))
    soundfile.write(file := BytesIO(), samples, chance.choice([8000, 16000]), format=kind)
    content = file.getvalue()
    for _ in range(chance.choice([0, 1, 1, 4])):
        content = damaged(content, chance) or b"\0"
    _only(folder / f"a.{suffix}", content)
    list(fp.read_audio(folder, rate=chance.choice([None, 16000])))


def _table(chance: random.Random) -> pa.Table:
    count = chance.choice([1, 30, 300])
    columns: dict[str, Any] = {
        "text": [f"text {i}" if i % 5 else None for i in range(count)],
        "ids": pa.array([list(range(i % 4)) for i in range(count)], pa.list_(pa.int32())),
        "kind": pa.array([str(i % 3) for i in range(count)]).dictionary_encode(),
        "pair": [{"a": i, "b": str(i)} for i in range(count)],
        "pixels": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(3.0 * count)), 3),
        "flag": [None if i % 3 else bool(i % 2) for i in range(count)],
        "large": pa.array([b"x" * (i % 7) for i in range(count)], pa.large_binary()),
    }
    return pa.table({name: columns[name] for name in chance.sample(sorted(columns), chance.randrange(1, 5))})


def _read_all(dataset: Any, chance: random.Random) -> None:
    list(fp.pipe(dataset, fp.shuffle(seed=0)) if chance.random() < 0.4 else dataset)


def arrow(folder: Path, chance: random.Random) -> None:
    """Read a damaged Arrow file or stream."""
    table, path = _table(chance), folder / "a.arrow"
    options = pa.ipc.IpcWriteOptions(compression=chance.choice([None, "zstd", "lz4"]))
    with chance.choice([pa.ipc.new_stream, pa.ipc.new_file])(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=chance.choice([10, 100]))
    path.write_bytes(damaged(path.read_bytes(), chance))
    _read_all(fp.read_arrow(path), chance)


def parquet(folder: Path, chance: random.Random) -> None:
    """Read a damaged Parquet file."""
    path = folder / "a.parquet"
    packing = chance.choice(["none", "snappy", "zstd", "gzip"])
    pq.write_table(
        _table(chance), path, compression=packing, row_group_size=chance.choice([10, 100]), use_dictionary=chance.random() < 0.5,
        write_page_checksum=chance.random() < 0.2, data_page_version=chance.choice(["1.0", "2.0"]),
    )  # fmt: skip
    path.write_bytes(damaged(path.read_bytes(), chance))
    _read_all(fp.read_parquet(path), chance)


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "train_tokenizer": train,
    "engines": engines,
    "load_tokenizer": load,
    "images": images,
    "sound": sound,
    "arrow": arrow,
    "parquet": parquet,
}


def try_inputs(kind: str, first: int, count: int) -> None:
    """Try inputs `first` to `first + count`. An error other than `MlxfpError` ends the process with the seed of the input."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    refused = 0
    with TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            print(kind, seed, flush=True)  # noqa: T201  # shown by a test that fails
            try:
                KINDS[kind](Path(folder), random.Random(f"{kind} {seed}"))
            except fp.MlxfpError:
                refused += 1
    print("end", kind, count, "inputs,", refused, "refused", flush=True)  # noqa: T201
