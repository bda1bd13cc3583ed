"""first-epoch: from a CSV file to padded batches of 32 as MLX arrays, compared with datasets and torch's DataLoader."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow.csv

import mlxfp as fp
from benchmarks.inputs import SENTENCE, passengers
from benchmarks.measuring import Row, against, installed


def rows(*, small: bool) -> list[Row]:
    """Read rows, render sentences, tokenize, shuffle, and pad batches of 32."""
    count = 2000 if small else 40_000
    with passenger_file(count) as (path, tokenizer):
        theirs = [partial(_datasets_epoch, path, path.with_name("tokenizer.json"))] if installed("datasets", "torch") else None
        work = f"CSV of {count:,} rows: template, tokens, shuffle, batches"
        compared = against(work, "datasets + torch", ours=lambda: consume(epoch(path, tokenizer)), theirs=theirs, rows=count)
        return [Row("first-epoch", *compared, 8)]


@contextmanager
def passenger_file(count: int) -> Iterator[tuple[Path, fp.Tokenizer]]:
    """Write a passenger list as CSV and a tokenizer, trained on the sentences, into the same folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        pyarrow.csv.write_csv(passengers(count), path)
        tokenizer = fp.train_tokenizer(fp.pipe(fp.read_csv(path), fp.template(SENTENCE)), kind="wordpiece", vocab_size=2000)
        tokenizer.save(folder)
        yield path, tokenizer


def epoch(path: Path, tokenizer: fp.Tokenizer) -> fp.Dataset[Any]:
    """Return the dataset of padded batches for a passenger file."""
    return fp.pipe(
        fp.read_csv(path),
        fp.template(SENTENCE),
        fp.tokenize(tokenizer, max_length=128),
        fp.shuffle(seed=0),
        fp.batch(32),
        fp.collate(fp.collators.text(pad_id=tokenizer.pad_id, label="survived")),
    )


def consume(batches: fp.Dataset[Any]) -> None:
    """Iterate over all batches."""
    for _ in batches:
        pass


def _datasets_epoch(path: Path, tokenizer_file: Path) -> None:
    """Map template and tokenizer with datasets, then batch with a DataLoader and a padding collator."""
    import datasets
    import tokenizers
    import torch

    datasets.disable_progress_bars()
    datasets.disable_caching()
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_file))
    tokenizer.enable_truncation(128)

    def encode(columns: dict[str, list[Any]]) -> dict[str, Any]:
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return {"input_ids": [encoded.ids for encoded in tokenizer.encode_batch_fast([SENTENCE.format(**row) for row in rows])]}

    with tempfile.TemporaryDirectory() as cache:
        table = datasets.Dataset.from_csv(str(path), cache_dir=cache, keep_in_memory=True)
        dropped = [name for name in table.column_names if name != "survived"]
        encoded = table.map(encode, batched=True, remove_columns=dropped, keep_in_memory=True)
        for _ in torch.utils.data.DataLoader(encoded, batch_size=32, shuffle=True, collate_fn=_pad):
            pass


def _pad(examples: list[dict[str, Any]]) -> dict[str, mx.array]:
    longest = max(len(example["input_ids"]) for example in examples)
    ids = np.zeros((len(examples), longest), np.int32)
    mask = np.zeros((len(examples), longest), np.int32)
    for row, example in enumerate(examples):
        ids[row, : len(example["input_ids"])] = example["input_ids"]
        mask[row, : len(example["input_ids"])] = 1
    labels = np.array([example["survived"] for example in examples], np.int32)
    return {"input_ids": mx.array(ids), "attention_mask": mx.array(mask), "labels": mx.array(labels)}
