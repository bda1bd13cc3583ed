"""The audit finds what is wrong with loaders, ours to be seen here and others' as they are, and nothing where nothing is."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.testing import audit
from mlxfp.testing.audit.values import numbers_of

ROWS = 24


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [package for package in packages if find_spec(package) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}: pip install 'mlxfp[bench]'")


def laws_broken_by(loader: audit.Loader, *, workers: int = 0) -> dict[str, str]:
    return {finding.law: finding.detail for finding in audit.examine(loader, workers=workers)}


def made(order: Callable[[int, int, int], Any], resume: Callable[[int], int] = lambda place: place, **more: Any) -> audit.Loader:
    """A loader whose epoch is `order(seed, epoch, workers)`, resumed at `resume(place)`."""

    def run(seed: int, epoch: int, workers: int, state: Any) -> Iterator[Any]:
        items = list(order(seed, epoch, workers))
        for place in range(0 if state is None else resume(state), len(items)):
            yield items[place], place + 1

    return audit.Loader("mine", ROWS, run, **more)


def right(seed: int, epoch: int, workers: int) -> list[list[int]]:
    return np.random.default_rng([seed, epoch]).permutation(ROWS).reshape(-1, 4).tolist()


UNSEEDED = np.random.default_rng(0)


def drawn_differently(seed: int, epoch: int, workers: int) -> Any:
    return UNSEEDED.permutation(ROWS)


def without_the_first(seed: int, epoch: int, workers: int) -> Any:
    return right(seed, epoch, workers)[1:]


def with_one_twice(seed: int, epoch: int, workers: int) -> Any:
    return [*right(seed, epoch, workers), [7]]


def of_the_sum(seed: int, epoch: int, workers: int) -> Any:
    return right(seed + epoch, 0, 0)


def of_the_seed(seed: int, epoch: int, workers: int) -> Any:
    return right(seed, 0, 0)


def backwards_with_workers(seed: int, epoch: int, workers: int) -> Any:
    return right(seed, epoch, 0)[:: -1 if workers else 1]


def reversed_in_odd_epochs(seed: int, epoch: int, workers: int) -> Any:
    return [batch[:: (-1) ** epoch] for batch in right(seed, 0, 0)[:: (-1) ** epoch]]


@pytest.mark.parametrize(
    ("loader", "law", "detail"),
    [
        (made(drawn_differently), "determinism", "mine with 2 workers gives other items in a second run: item 0 is"),
        (made(without_the_first), "permutation", r"in epoch 1 of seed 1 loses the rows \[\d+, \d+, \d+, \d+\]$"),
        (made(with_one_twice), "permutation", r"in epoch 1 of seed 1 repeats the rows \[7\]$"),
        (made(of_the_sum), "orders", r"mine has one order for \(seed 0, epoch 1\) and \(seed 1, epoch 0\)$"),
        (made(of_the_seed), "orders", r"\(seed 0, epoch 0\) and \(seed 0, epoch 1\), and for \(seed 1, epoch 0\) and \(seed 1, epoch 1\)$"),
        (
            made(lambda seed, epoch, _: right(seed, min(epoch, 1), 0)),
            "orders",
            r"mine has one order for \(seed 0, epoch 1\) and \(seed 0, epoch 2\)$",
        ),
        (
            made(reversed_in_odd_epochs),
            "orders",
            r"\(seed 1, epoch 0\) and \(seed 1, epoch 1\), rotated or reversed$",
        ),
        (made(backwards_with_workers), "workers", "mine gives other items with 2 workers than with none: item 0 is"),
        (made(right, lambda place: place + (place > 2)), "resume", r"after item 3 of 6, loses the rows \[[^a-z]*\]$"),
        (made(right, lambda place: place - 1), "resume", r"with 2 workers, resumed after item 3 of 6, repeats the rows \["),
        (made(right, lambda place: 1 // (place - 3)), "resume", "mine with 2 workers, resumed after item 3 of 6, raises ZeroDivisionError"),
    ],
)
def test_each_law_catches_what_breaks_it(loader: audit.Loader, law: str, detail: str):
    assert re.search(detail, laws_broken_by(loader, workers=2)[law])


def test_a_loader_that_is_right_breaks_no_law():
    assert audit.examine(made(right)) == ()


def test_our_pipelines_break_no_law_whatever_is_in_them():
    table = pa.table({"x": range(ROWS)})

    def stream(seed: int, workers: int) -> Any:
        return fp.pipe(fp.from_table(table), fp.filter(bool), fp.shuffle(seed=seed, buffer=5), fp.batch(5), fp.prefetch(workers + 1))

    def indexed(seed: int, workers: int) -> Any:
        copied = fp.map(lambda row: {"x": row["x"]})
        return fp.pipe(fp.from_table(table), fp.shuffle(seed=seed), copied, fp.batch(5), fp.prefetch(2, workers=workers or 1))

    for make in (stream, indexed):
        assert audit.examine(audit.pipeline(make, rows=ROWS)) == ()


def test_numbers_are_found_in_whatever_an_item_is():
    for item in (7, np.int64(7), [[7]], {"x": np.array([7])}, ({"x": 7},), pa.scalar(7).as_py()):
        assert numbers_of(item) == (7,)


def test_impossible_loaders_are_refused():
    with pytest.raises(ArgumentError, match="rows must be at least 1, got rows=0"):
        audit.Loader("mine", 0, right)
    with pytest.raises(ArgumentTypeError, match="run"):
        audit.Loader("mine", 1, 3)


def sampled_by_grain(seed: int, workers: int) -> Any:
    import grain

    order = grain.samplers.IndexSampler(ROWS, shuffle=True, seed=seed, num_epochs=3)
    return grain.DataLoader(data_source=range(ROWS), sampler=order, operations=[grain.transforms.Batch(4)], worker_count=workers)


def mapped_by_grain(seed: int, workers: int) -> Any:
    import grain

    return grain.MapDataset.range(ROWS).seed(seed).shuffle().repeat(3).batch(4)


def streamed_by_datasets(seed: int) -> Any:
    import datasets

    return datasets.Dataset.from_dict({"x": range(ROWS)}).to_iterable_dataset().shuffle(seed=seed, buffer_size=5)


def loaded_by_torchdata(seed: int, workers: int) -> Any:
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    order = torch.Generator().manual_seed(seed)
    context = "spawn" if workers else None
    return StatefulDataLoader(
        list(range(ROWS)), batch_size=4, shuffle=True, generator=order, num_workers=workers, multiprocessing_context=context
    )


@needs("grain")
def test_epochs_of_grain_are_those_of_the_next_seed_and_its_batches_depend_on_the_workers():
    broken = laws_broken_by(audit.grain(sampled_by_grain, rows=ROWS), workers=2)
    assert broken.keys() == {"orders", "workers", "other workers"}
    assert broken["orders"] == "grain has one order for (seed 0, epoch 1) and (seed 1, epoch 0)"
    assert "grain gives other items with 2 workers than with none: item 0 is" in broken["workers"]


@needs("grain")
def test_datasets_of_grain_that_are_mapped_break_no_law():
    assert laws_broken_by(audit.grain(mapped_by_grain, rows=ROWS)) == {}


@needs("datasets")
def test_datasets_loses_and_repeats_rows_when_a_shuffled_stream_is_resumed():
    broken = laws_broken_by(audit.datasets(streamed_by_datasets, rows=ROWS))
    assert broken.keys() == {"resume"}
    assert re.search(
        r"datasets with 0 workers, resumed after item \d+ of 24, loses the rows \[\d.*\] and repeats the rows \[\d", broken["resume"]
    )


@needs("torch", "torchdata")
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torch calls what it has deprecated
def test_torchdata_resumes_exactly_and_its_order_depends_on_having_workers():
    broken = laws_broken_by(audit.stateful_dataloader(loaded_by_torchdata, rows=ROWS), workers=1)
    assert broken.keys() == {"workers", "other workers"}  # its shuffling draws another number first where there are workers


def loaded_by_torch(seed: int, workers: int) -> Any:
    import torch

    order = torch.Generator().manual_seed(seed)
    return torch.utils.data.DataLoader(list(range(ROWS)), batch_size=5, shuffle=True, generator=order, num_workers=workers)


def distributed_by_torch(seed: int, workers: int) -> Any:
    import torch

    order = torch.utils.data.DistributedSampler(range(ROWS), num_replicas=1, rank=0, seed=seed)
    return torch.utils.data.DataLoader(range(ROWS), batch_size=4, sampler=order)


def reset_by_mlx_data(seed: int, workers: int) -> Any:
    import mlx.data

    mlx.data.core.set_state(seed)
    return mlx.data.buffer_from_vector([{"x": row} for row in range(ROWS)]).shuffle().to_stream().batch(4)


def streamed_by_mlx_data(seed: int, workers: int) -> Any:
    import mlx.data

    mlx.data.core.set_state(seed)
    return mlx.data.buffer_from_vector([{"x": row} for row in range(ROWS)]).to_stream().shuffle(8).batch(5)


@needs("torch")
def test_a_loader_of_torch_breaks_no_law_and_its_distributed_sampler_that_of_orders():
    assert audit.examine(audit.torch(loaded_by_torch, rows=ROWS), workers=0, uniform=True) == ()
    broken = laws_broken_by(audit.torch(distributed_by_torch, rows=ROWS))
    assert broken == {"orders": "torch has one order for (seed 0, epoch 1) and (seed 1, epoch 0)"}


@needs("mlx.data")
def test_a_buffer_of_mlx_data_has_one_order_for_all_epochs_and_a_shuffled_stream_has_many():
    assert laws_broken_by(audit.mlx_data(reset_by_mlx_data, rows=ROWS)).keys() == {"orders"}
    assert laws_broken_by(audit.mlx_data(streamed_by_mlx_data, rows=ROWS)) == {}


@needs("torch", "torchdata")
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_nothing_follows_the_last_item_of_torchdata():
    assert laws_broken_by(audit.stateful_dataloader(loaded_by_torchdata, rows=ROWS)) == {}


def test_an_order_that_keeps_neighbours_together_is_not_uniform():
    def in_blocks(seed: int, epoch: int, workers: int) -> Any:
        return np.random.default_rng([seed, epoch]).permutation(np.arange(ROWS).reshape(-1, 4)).reshape(-1).tolist()

    (finding,) = audit.examine(made(in_blocks), workers=0, uniform=True)
    assert re.search(r"^uniform: mine moves rows by \d\d% .* and keeps \d\d% of neighbours together; a uniform shuffle", str(finding))
    assert audit.examine(made(in_blocks), workers=0) == ()


def applied(function: Callable[[int], Any], epochs: int, workers: int) -> Iterator[Any]:
    for epoch in range(epochs):
        for row in right(0, epoch, 0):
            yield [function(number) for number in row]


def named_rows(function: Callable[[int], Any], epochs: int, workers: int) -> Iterator[Any]:
    for number in range(ROWS):
        try:
            yield function(number)
        except Exception as error:
            error.add_note(f"row {number}")
            raise


def hidden(function: Callable[[int], Any], epochs: int, workers: int) -> Iterator[Any]:
    with suppress(ValueError):
        yield from applied(function, epochs, workers)


def growing(function: Callable[[int], Any], epochs: int, workers: int, kept: list[Any] | None = None) -> Iterator[Any]:
    kept = []
    for item in applied(function, epochs, workers):
        kept.append(item)
        yield item


def divided(ranks: int, states: Any) -> Any:
    rows = np.random.default_rng(0).permutation(ROWS)[0 if states is None else sum(states) :]
    return [[([row], index + 1) for index, row in enumerate(rows[rank::ranks])] for rank in range(ranks)]


@pytest.mark.parametrize(
    ("loader", "law", "detail"),
    [
        (
            made(right, apply=applied),
            "locations",
            r"with 0 workers raises an error without the row number\. The message is: this row is refused$",
        ),
        (made(right, apply=hidden), "errors", r"hides a ValueError in row 16: the epoch ends, and loses the rows \[.*16.*\]$"),
        (made(right, apply=growing), "memory", r"mine grows by \d+ MB while 151 MB of rows pass$"),
        (made(right, ranks=lambda ranks, states: divided(ranks, states)[:1]), "ranks", r"mine with 2 ranks loses the rows"),
        (
            made(right, ranks=lambda ranks, states: divided(ranks, states and [0])),
            "other ranks",
            r"with 2 ranks, resumed on 2 after 3 items of each rank, repeats the rows",
        ),
        (made(lambda seed, epoch, workers: right(seed, epoch, 0)[: -1 if workers else None]), "other workers", "with 2 workers, then 0,"),
    ],
)
def test_laws_of_errors_memory_and_ranks_catch_broken_loaders(loader: audit.Loader, law: str, detail: str):
    """Each of these laws needs a broken loader that shows that the law can fail."""
    found = [finding.detail for finding in audit.examine(loader) if finding.law == law]
    assert re.search(detail, found[0])


def test_a_loader_that_names_rows_and_divides_them_breaks_no_law():
    """The laws of errors, memory and ranks pass for a loader without a fault."""
    assert audit.examine(made(right, apply=named_rows, ranks=divided)) == ()


def test_a_second_resume_is_checked():
    """A state of a resumed run that forgets the first part breaks the law of resuming."""

    def run(seed: int, epoch: int, workers: int, state: Any) -> Iterator[Any]:
        items = list(right(seed, epoch, workers))
        start, resumed = state or (0, False)
        for index in range(start, len(items)):
            yield items[index], (index + 1 - (start if resumed else 0), True)

    def counted(seed: int, epoch: int, workers: int, state: Any) -> Iterator[Any]:
        for item, (index, _) in run(seed, epoch, workers, state):
            yield item, (index, True)

    broken = {finding.law: finding.detail for finding in audit.examine(audit.Loader("mine", ROWS, counted), workers=0)}
    assert "mine with 0 workers, resumed after item 2, then resumed after item 4 of 6, repeats the rows" in broken["resume"]


class Sampler:
    """Of the sort that is told the epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def test_a_sampler_is_told_the_epoch_and_other_loaders_run_the_earlier_ones():
    class WithSampler:
        def __init__(self, seed: int) -> None:
            self.seed, self.sampler = seed, Sampler()

        def __iter__(self) -> Iterator[Any]:
            return iter(right(self.seed, self.sampler.epoch, 0))

    class Counting:
        def __init__(self, seed: int) -> None:
            self.seed, self.epochs = seed, 0

        def __iter__(self) -> Iterator[Any]:
            self.epochs += 1
            return iter(right(self.seed, self.epochs, 0))

    for kind in (WithSampler, Counting):
        assert audit.examine(audit.torch(lambda seed, workers, kind=kind: kind(seed), rows=ROWS)) == ()


def test_streams_of_mlx_data_are_reset_before_the_next_epoch():
    class Stream:
        def __init__(self, seed: int) -> None:
            self.seed, self.epoch, self.left = seed, 0, iter(right(seed, 0, 0))

        def reset(self) -> None:
            self.epoch += 1
            self.left = iter(right(self.seed, self.epoch, 0))

        def __iter__(self) -> Iterator[Any]:
            return self.left

    assert audit.examine(audit.mlx_data(lambda seed, workers: Stream(seed), rows=ROWS)) == ()
