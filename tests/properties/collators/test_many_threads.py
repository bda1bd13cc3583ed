"""Many threads iterate over one value at once: each gets what one thread alone gets. Nothing here needs Python's lock."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlxfp.collators import masked, text, vision
from mlxfp.collators.collating import collate
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import iterate
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.data.lengths.bucketing import bucket_by_length
from mlxfp.data.lengths.packing import pack
from mlxfp.data.rows.map_filter import filter, map
from mlxfp.data.rows.mixing import mix
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.caching import cache, load
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.csv_files import read_csv
from mlxfp.data.sources.in_memory import from_table
from mlxfp.testing.comparing import assert_same
from mlxfp.text.templates.templates import template
from mlxfp.text.tokenizers.training import train_tokenizer
from mlxfp.text.tokenizing import tokenize

_THREADS = 8


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    """Let threads take turns so often that they meet in the middle of things."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def sentences(folder: Path) -> Dataset[Any]:
    path = folder / "people.csv"
    path.write_text("name,age,y\n" + "".join(f'"P{n * 7919 % 613}, {n}",{n % 90},{n % 2}\n' for n in range(300)))
    return pipe(read_csv(path), template("{name} is {age} years old."))


def pipelines(folder: Path) -> dict[str, Dataset[Any]]:
    rows = sentences(folder)
    tokenizer = train_tokenizer(rows, kind="wordpiece", vocab_size=120)
    tokens = pipe(rows, tokenize(tokenizer))
    numbers = from_table({"x": np.arange(400), "image": np.zeros((400, 2, 2, 3), np.uint8)})
    texts = collate(text(pad_id=tokenizer.pad_id, label="y"))
    hidden = masked(pad_id=0, mask_id=1, special_ids={0, 1}, vocab_size=tokenizer.vocab_size, seed=0)
    return {
        "texts": pipe(tokens, shuffle(seed=0), batch(16), texts),
        "buckets": pipe(tokens, bucket_by_length([8, 16, 64], size=8), collate(hidden)),
        "packed": pipe(tokens, pack(32), batch(4)),
        "loaded": pipe(tokens, load(), shuffle(seed=1), batch(16), texts),
        "cached": pipe(tokens, cache(folder / "cache"), batch(16), texts),
        "table": pipe(numbers, shuffle(seed=2), batch(16), collate(vision(carry=["x"]))),
        "mixed": pipe(mix([numbers, pipe(numbers, filter(lambda row: row["x"] % 3 == 0))], [2, 1], stop="all"), batch(8)),
        "workers": pipe(numbers, map(lambda row: {"x": row["x"] + 1}), shuffle(seed=3), batch(16), prefetch(2, workers=2)),
    }


@pytest.mark.parametrize("name", ["texts", "buckets", "packed", "loaded", "cached", "table", "mixed", "workers"])
def test_many_threads_get_what_one_gets(name: str, tmp_path: Path):
    (tmp_path / "alone").mkdir()
    (tmp_path / "shared").mkdir()
    alone = list(iterate(pipelines(tmp_path / "alone")[name]))
    shared = pipelines(tmp_path / "shared")[name]
    found: list[Any] = [None] * _THREADS
    together = threading.Barrier(_THREADS)

    def run(place: int) -> None:
        together.wait(20)
        try:
            found[place] = list(iterate(shared, epoch=0))
        except BaseException as error:  # noqa: BLE001  # told below, in the thread of the test
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for items in found:
        if isinstance(items, BaseException):
            raise items
        assert_same([item for item, _ in items], [item for item, _ in alone], "a thread among others gets what one alone gets")
