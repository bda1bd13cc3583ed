"""Many threads iterate over one value at once: each gets what one thread alone gets. Nothing here needs Python's lock."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlxfp as fp
from mlxfp.testing.comparing import assert_same

_THREADS = 8


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    """Let threads take turns so often that they meet in the middle of things."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def sentences(folder: Path) -> fp.Dataset[Any]:
    path = folder / "people.csv"
    path.write_text("name,age,y\n" + "".join(f'"P{n * 7919 % 613}, {n}",{n % 90},{n % 2}\n' for n in range(300)))
    return fp.pipe(fp.read_csv(path), fp.template("{name} is {age} years old."))


def pipelines(folder: Path) -> dict[str, fp.Dataset[Any]]:
    rows = sentences(folder)
    tokenizer = fp.train_tokenizer(rows, kind="wordpiece", vocab_size=120)
    tokens = fp.pipe(rows, fp.tokenize(tokenizer))
    numbers = fp.from_table({"x": np.arange(400), "image": np.zeros((400, 2, 2, 3), np.uint8)})
    texts = fp.collate(fp.collators.text(pad_id=tokenizer.pad_id, label="y"))
    hidden = fp.collators.masked(pad_id=0, mask_id=1, special_ids={0, 1}, vocab_size=tokenizer.vocab_size, seed=0)
    return {
        "texts": fp.pipe(tokens, fp.shuffle(seed=0), fp.batch(16), texts),
        "buckets": fp.pipe(tokens, fp.bucket_by_length([8, 16, 64], size=8), fp.collate(hidden)),
        "packed": fp.pipe(tokens, fp.pack(32), fp.batch(4)),
        "loaded": fp.pipe(tokens, fp.load(), fp.shuffle(seed=1), fp.batch(16), texts),
        "cached": fp.pipe(tokens, fp.cache(folder / "cache"), fp.batch(16), texts),
        "table": fp.pipe(numbers, fp.shuffle(seed=2), fp.batch(16), fp.collate(fp.collators.vision(carry=["x"]))),
        "mixed": fp.pipe(fp.mix([numbers, fp.pipe(numbers, fp.filter(lambda row: row["x"] % 3 == 0))], [2, 1], stop="all"), fp.batch(8)),
        "workers": fp.pipe(numbers, fp.map(lambda row: {"x": row["x"] + 1}), fp.shuffle(seed=3), fp.batch(16), fp.prefetch(2, workers=2)),
    }


@pytest.mark.parametrize("name", ["texts", "buckets", "packed", "loaded", "cached", "table", "mixed", "workers"])
def test_many_threads_get_what_one_gets(name: str, tmp_path: Path):
    (tmp_path / "alone").mkdir()
    (tmp_path / "shared").mkdir()
    alone = list(fp.iterate(pipelines(tmp_path / "alone")[name]))
    shared = pipelines(tmp_path / "shared")[name]
    found: list[Any] = [None] * _THREADS
    together = threading.Barrier(_THREADS)

    def run(place: int) -> None:
        together.wait(20)
        try:
            found[place] = list(fp.iterate(shared, epoch=0))
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
