"""first-epoch and cached-epoch: from a file of text, and from kept tokens, to padded batches of 32 as MLX arrays."""

import csv
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

import mlxfp as fp
from benchmarks.measuring import Row, absent, best, peer

_SENTENCE = "A {age} year old {sex} from {city} travelling in class {pclass} with {family} relatives paid {fare:.2f}, cabin {cabin}."
_CITIES = ("Bergen", "Cork", "Dover", "Genoa", "Hamburg", "Lisbon", "London", "Naples", "Oslo", "Porto", "Riga", "Vigo")
_COLUMNS = ["age", "sex", "city", "pclass", "family", "fare", "cabin", "survived"]


def rows() -> list[Row]:
    """Measure both epochs against every library that is installed."""
    with tempfile.TemporaryDirectory() as folder:
        return [*_first(Path(folder)), *_cached(Path(folder))]


def _first(folder: Path) -> list[Row]:
    path, count = folder / "rows.csv", 20_000
    _write_table(path, count)
    tokenizer = fp.train_tokenizer(fp.pipe(fp.read_csv(path), fp.template(_SENTENCE)), kind="wordpiece", vocab_size=2000)
    tokenizer.save(folder / "tokenizer")

    def ours() -> None:
        batches = fp.pipe(
            fp.read_csv(path),
            fp.template(_SENTENCE),
            fp.tokenize(tokenizer, max_length=128),
            fp.shuffle(seed=0),
            fp.batch(32),
            fp.collate(fp.collators.text(pad_id=tokenizer.pad_id, label="survived")),
        )
        _consume(batches)

    work = f"CSV of {count:,} rows to template, tokens, shuffle, batches of 32"
    if peer("datasets") is None or peer("torch") is None:
        (mine,) = best([ours], repeats=5)
        return [absent("first-epoch", work, f"{count / mine:,.0f} rows/s", "datasets + torch", 8)]
    mine, other = best([ours, partial(_datasets_epoch, path, folder / "tokenizer" / "tokenizer.json")], repeats=5)
    return [Row("first-epoch", work, f"{count / mine:,.0f} rows/s", f"datasets + DataLoader {count / other:,.0f}", other / mine, 8)]


def _datasets_epoch(path: Path, tokenizer_file: Path) -> None:
    """Map a template and a tokenizer over the rows with datasets, then batches from a DataLoader whose collator pads."""
    import datasets
    import tokenizers
    import torch

    datasets.disable_progress_bars()
    datasets.disable_caching()
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_file))
    tokenizer.enable_truncation(128)

    def encode(batch: dict[str, list[Any]]) -> dict[str, Any]:
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        encodings = tokenizer.encode_batch_fast([_SENTENCE.format(**row) for row in rows])
        return {"input_ids": [encoding.ids for encoding in encodings]}

    def pad(examples: list[dict[str, Any]]) -> dict[str, mx.array]:
        longest = max(len(example["input_ids"]) for example in examples)
        ids = np.zeros((len(examples), longest), np.int32)
        mask = np.zeros((len(examples), longest), np.int32)
        for row, example in enumerate(examples):
            ids[row, : len(example["input_ids"])] = example["input_ids"]
            mask[row, : len(example["input_ids"])] = 1
        labels = np.array([example["survived"] for example in examples], np.int32)
        return {"input_ids": mx.array(ids), "attention_mask": mx.array(mask), "labels": mx.array(labels)}

    with tempfile.TemporaryDirectory() as cache:
        table = datasets.Dataset.from_csv(str(path), cache_dir=cache, keep_in_memory=True)
        encoded = table.map(encode, batched=True, remove_columns=[name for name in _COLUMNS if name != "survived"], keep_in_memory=True)
        _consume(torch.utils.data.DataLoader(encoded, batch_size=32, shuffle=True, collate_fn=pad))


def _cached(folder: Path) -> list[Row]:
    rng, count = np.random.default_rng(0), 20_000
    lengths = np.clip(rng.lognormal(3.8, 0.5, count), 5, 128).astype(int)
    tokens = [rng.integers(0, 30_000, length).astype(np.int32) for length in lengths]
    kept = fp.pipe(fp.from_examples([{"input_ids": row, "label": 1} for row in tokens]), fp.cache(folder / "cache"))
    fp.length(kept)  # writes the file
    batches = fp.pipe(kept, fp.shuffle(seed=0), fp.batch(32), fp.collate(fp.collators.text(pad_id=0, label="label")))
    work = f"{count:,} kept rows of tokens to shuffle, padding, batches of 32"
    peers: list[tuple[str, str, float, Callable[[], Any]]] = [
        ("mlx.data", "mlx-data", 1.5, partial(_mlx_data_epochs, tokens)),
        ("torch", "torch DataLoader", 4, partial(_torch_epoch, tokens)),
        ("grain", "grain", 50, partial(_grain_epoch, tokens[: count // 10])),
    ]
    out = []
    for module, name, bar, run in peers:
        if peer(module) is None:
            (mine,) = best([partial(_consume, batches)], repeats=5)
            out.append(absent("cached-epoch", work, f"{count / mine:,.0f} rows/s", name, bar))
            continue
        mine, other = best([partial(_consume, batches), run], repeats=5)
        other *= 10 if module == "grain" else 1  # grain is given a tenth of the rows
        out.append(Row("cached-epoch", work, f"{count / mine:,.0f} rows/s", f"{name} {count / other:,.0f}", other / mine, bar))
    return out


def _mlx_data_epochs(tokens: list[Any]) -> None:
    """Take the best of mlx-data's thread counts by running with the one found best beforehand."""
    threads = _best_threads(tokens)
    _consume(_mlx_data(tokens, threads))


_THREADS: dict[int, int] = {}


def _best_threads(tokens: list[Any]) -> int:
    if id(tokens) not in _THREADS:
        choices = (0, 1, 2, 4)
        times = best([partial(_consume, _mlx_data(tokens, threads)) for threads in choices], repeats=2)
        _THREADS[id(tokens)] = choices[int(np.argmin(times))]
    return _THREADS[id(tokens)]


class _MlxData:
    """One pass of mlx-data over the rows, made anew each time it is iterated."""

    def __init__(self, tokens: list[Any], threads: int) -> None:
        import mlx.data as dx

        self._buffer = dx.buffer_from_vector([{"input_ids": row, "label": np.int32(1), "length": np.int32(len(row))} for row in tokens])
        self._threads = threads

    def __iter__(self) -> Iterator[dict[str, mx.array]]:
        stream = self._buffer.shuffle().to_stream().batch(32, pad={"input_ids": 0})
        if self._threads:
            stream = stream.prefetch(8, self._threads)
        for batch in stream:
            ids = mx.array(batch["input_ids"])
            mask = mx.arange(ids.shape[1])[None] < mx.array(batch["length"])[:, None]
            arrays = {"input_ids": ids, "attention_mask": mask.astype(mx.int32), "labels": mx.array(batch["label"])}
            mx.eval(arrays)
            yield arrays


def _mlx_data(tokens: list[Any], threads: int) -> Iterable[Any]:
    return _MADE.setdefault((id(tokens), threads), _MlxData(tokens, threads))


_MADE: dict[tuple[int, int], _MlxData] = {}


def _pad(examples: Any) -> dict[str, mx.array]:
    longest = max(map(len, examples))
    ids = np.zeros((len(examples), longest), np.int32)
    mask = np.zeros((len(examples), longest), np.int32)
    for row, example in enumerate(examples):
        ids[row, : len(example)] = example
        mask[row, : len(example)] = 1
    return {"input_ids": mx.array(ids), "attention_mask": mx.array(mask), "labels": mx.array(np.ones(len(examples), np.int32))}


def _torch_epoch(tokens: list[Any]) -> None:
    import torch

    _consume(torch.utils.data.DataLoader(tokens, batch_size=32, shuffle=True, collate_fn=_pad))


def _grain_epoch(tokens: list[Any]) -> None:
    import grain

    _consume(grain.MapDataset.source(tokens).shuffle(seed=0).batch(32, batch_fn=_pad).to_iter_dataset())


def _consume(batches: Iterable[Any]) -> None:
    for batch in batches:
        with suppress(AttributeError):
            batch["input_ids"].shape  # noqa: B018  # touch it


def _write_table(path: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for _ in range(count):
            cabin = f"{'ABCDEF'[rng.integers(6)]}{rng.integers(1, 130)}"
            fare = round(float(rng.lognormal(3, 0.8)), 2)
            person = [int(rng.integers(1, 80)), ("male", "female")[rng.integers(2)], _CITIES[rng.integers(len(_CITIES))]]
            writer.writerow([*person, int(rng.integers(1, 4)), int(rng.integers(0, 6)), fare, cabin, int(rng.integers(2))])
