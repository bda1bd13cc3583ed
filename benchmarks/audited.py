"""Loaders under audit, each used as its documentation recommends.

A `stream` runs a loader epoch after epoch: `stream(function, seed, epoch, workers, state)` yields triples of the epoch, an item and the
state after the item. `function` is applied to each row by the loader's own means. A loader reads its rank from the environment, as in a
run started by torchrun. Rows are the numbers 0 to `ROWS` - 1, in batches of four.
"""

import os
import warnings
from collections.abc import Callable, Generator, Sequence
from functools import partial
from importlib import import_module
from itertools import count, islice
from pathlib import Path
from typing import Any

from attrs import frozen

ROWS = 50
Stream = Generator[tuple[int, Any, Any], None, None]
Function = Callable[[int], Any]


def _rank() -> tuple[int, int]:
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _batch() -> int:
    """Return the rows of a batch of this rank. Global batches have equally many rows on every number of ranks."""
    return int(os.environ.get("GLOBAL_BATCH", "4")) // _rank()[1]


def _folder() -> Path:
    return Path(os.environ["AUDIT_FOLDER"])


def _row(function: Function, row: dict[str, Any]) -> dict[str, Any]:
    return {"x": function(int(row["x"]))}


def same(number: int) -> int:
    """Return the number."""
    return number


def mlxfp(function: Function, seed: int, epoch: int, workers: int, state: Any) -> Stream:
    """Shuffle and shard a table; map and batch, with worker processes."""
    import pyarrow as pa

    import mlxfp as fp

    rank, ranks = _rank()
    rows = fp.pipe(fp.from_table(pa.table({"x": range(ROWS)})), fp.shuffle(seed=seed), fp.map(partial(_row, function)))
    batches = fp.pipe(rows, fp.shard(rank, ranks), fp.batch(_batch()), fp.prefetch(2, workers=max(1, workers)))
    for number in count(epoch):
        for item, cursor in fp.iterate(batches, state, epoch=number):
            yield number, item, cursor
        state = None


def datasets(function: Function, seed: int, epoch: int, workers: int, state: Any) -> Stream:
    """Stream with a shuffle buffer, in a StatefulDataLoader, as the docstring of `IterableDataset.state_dict` shows."""
    hf, stateful = import_module("datasets"), import_module("torchdata.stateful_dataloader")
    rows = hf.Dataset.from_dict({"x": range(ROWS)}).to_iterable_dataset(num_shards=4)
    rows = rows.shuffle(seed=seed, buffer_size=10).map(partial(_row, function))
    rank, ranks = _rank()
    rows = import_module("datasets.distributed").split_dataset_by_node(rows, rank=rank, world_size=ranks) if ranks > 1 else rows
    loader = stateful.StatefulDataLoader(rows, batch_size=_batch(), num_workers=workers)
    if state is not None:
        loader.load_state_dict(state)
    for number in count(epoch):
        rows.set_epoch(number)
        for item in loader:
            yield number, item, loader.state_dict()


class _Rows:
    """Map-style dataset."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        return self.function(index)


def torchdata(function: Function, seed: int, epoch: int, workers: int, state: Any) -> Stream:
    """Shuffle a map-style dataset with a seeded generator; several ranks have a StatefulDistributedSampler."""
    torch, stateful = import_module("torch"), import_module("torchdata.stateful_dataloader")
    rank, ranks = _rank()
    rows = _Rows(function)
    options: dict[str, Any] = {"shuffle": True, "generator": torch.Generator().manual_seed(seed)}
    if ranks > 1:
        sampler = import_module("torchdata.stateful_dataloader.sampler").StatefulDistributedSampler
        options = {"sampler": sampler(rows, num_replicas=ranks, rank=rank, seed=seed)}
    loader = stateful.StatefulDataLoader(rows, batch_size=_batch(), num_workers=workers, **options)
    if state is not None:
        loader.load_state_dict(state)
    for number in count(0 if state is None else epoch):
        if ranks > 1:
            options["sampler"].set_epoch(number)
        for item in loader:
            yield number, item, loader.state_dict()


def grain(function: Function, seed: int, epoch: int, workers: int, state: Any) -> Stream:
    """Shuffle a MapDataset, map, batch and repeat; worker processes by `mp_prefetch`."""
    library = import_module("grain")
    rank, ranks = _rank()
    rows = library.MapDataset.source(range(ROWS))[rank::ranks].seed(seed).shuffle().map(function).batch(_batch())
    length = len(rows)
    rows = rows.repeat().to_iter_dataset()
    iterator = iter(rows.mp_prefetch(library.MultiprocessingOptions(num_workers=workers)) if workers else rows)
    seen = 0
    if state is not None:
        seen, saved = state
        iterator.set_state(saved)
    for index in count(seen):
        yield index // length, next(iterator), (index + 1, iterator.get_state())


def mosaic(function: Function, seed: int, epoch: int, workers: int, state: Any) -> Stream:
    """Shuffle MDS shards; a StreamingDataLoader."""
    library = import_module("streaming")
    folder = _folder() / "mosaic"
    if not folder.exists():
        with library.MDSWriter(out=str(folder), columns={"x": "int"}, size_limit=200) as writer:
            for number in range(ROWS):
                writer.write({"x": number})

    class Rows(library.StreamingDataset):  # type: ignore[name-defined,misc]  # streaming has no types
        def __getitem__(self, index: int) -> Any:
            return function(super().__getitem__(index)["x"])

    rows = Rows(local=str(folder), shuffle=True, shuffle_seed=seed, batch_size=_batch())
    loader = library.StreamingDataLoader(rows, batch_size=_batch(), num_workers=workers)
    if state is not None:
        loader.load_state_dict(state)
    for number in count(0 if state is None else epoch):
        for item in loader:
            yield number, item, loader.state_dict()


def webdataset(function: Function, seed: int, epoch: int, workers: int, state: Any) -> Stream:
    """Shuffle shards and samples deterministically (`detshuffle`); a WebLoader."""
    wds = import_module("webdataset")
    folder = _folder() / "webdataset"
    if not folder.exists():
        folder.mkdir()
        with wds.ShardWriter(str(folder / "rows-%02d.tar"), maxcount=13, verbose=0) as writer:
            for number in range(ROWS):
                writer.write({"__key__": f"{number:04}", "cls": number})
    shards = sorted(map(str, folder.glob("*.tar")))
    rows = wds.WebDataset(shards, shardshuffle=4, detshuffle=True, seed=seed, nodesplitter=wds.split_by_node)
    rows = rows.compose(wds.detshuffle(10, seed=seed)).decode().to_tuple("cls").map_tuple(function).batched(_batch())
    loader = wds.WebLoader(rows, batch_size=None, num_workers=workers)
    for number in count(0):
        for item in loader:
            yield number, item, None


def litdata(function: Function, seed: int, epoch: int, workers: int, state: Any) -> Stream:
    """Shuffle optimized chunks; a StreamingDataLoader."""
    library = import_module("litdata")
    folder = _folder() / "litdata"
    if not folder.exists():
        library.optimize(fn=same, inputs=list(range(ROWS)), output_dir=str(folder), chunk_size=13, num_workers=1)
    if _rank()[1] > 1 and not import_module("torch.distributed").is_initialized():
        import_module("torch.distributed").init_process_group("gloo")
    equal = "GLOBAL_BATCH" in os.environ  # the README asks for `drop_last=True` on several ranks
    rows = library.StreamingDataset(str(folder), shuffle=True, seed=seed, transform=function, drop_last=equal)
    loader = library.StreamingDataLoader(rows, batch_size=_batch(), num_workers=workers)
    if state is not None:
        loader.load_state_dict(state)
    while True:
        for item in loader:
            yield loader.current_epoch - 1, item, loader.state_dict()


def _column(function: Function, batch: Any) -> list[Any]:
    return [function(number) for number in batch.column("x").to_pylist()]


def lancedb(function: Function, seed: int, epoch: int, workers: int, state: Any) -> Stream:
    """Shuffle a table in four splits. An item is a global step: the rows of a step may be in any order."""
    library, streaming = import_module("lancedb"), import_module("lancedb.streaming")
    database = library.connect(str(_folder() / "lancedb"))
    if "rows" not in database.table_names():
        database.create_table("rows", [{"x": number} for number in range(ROWS)])
    rank, ranks = _rank()
    parts, context = max(1, workers), "spawn" if workers else None  # LanceDB is not safe after a fork
    for number in count(epoch):
        rows = streaming.StreamingDataset(
            database.open_table("rows"),
            num_splits=4,
            shuffle_seed=seed,
            epoch=number,
            rank=rank,
            world_size=ranks,
            transform=partial(_column, function),
        )
        if state is not None:
            rows.load_state_dict(state)
            state = None
        loader = iter(
            streaming.StreamingDataLoader(rows, batch_size=2 * _batch() // parts, num_workers=workers, multiprocessing_context=context)
        )
        while parts_of_step := list(islice(loader, parts)):
            step = import_module("torch").cat(parts_of_step)
            yield number, step.sort(dim=0).values, rows.state_dict()


def ray(function: Function, seed: int, epoch: int, workers: int, state: Any) -> Stream:
    """Shuffle anew in each execution (`RandomSeedConfig`), map with `workers` tasks, and iterate over batches."""
    library = import_module("ray")
    data = import_module("ray.data")
    if not library.is_initialized():
        library.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="error", object_store_memory=200_000_000)
        data.DataContext.get_current().enable_progress_bars = False
    numbers = data.range(ROWS).random_shuffle(seed=data.RandomSeedConfig(seed=seed, reseed_after_execution=True))
    rows = numbers.map(partial(_id, function), compute=data.TaskPoolStrategy(size=max(1, workers)))
    for number in count(0):
        for item in rows.iter_batches(batch_size=_batch()):
            yield number, item, None


def _id(function: Function, row: dict[str, Any]) -> dict[str, Any]:
    return {"x": function(int(row["id"]))}


def mlx_data(function: Function, seed: int, epoch: int, workers: int, state: Any) -> Stream:
    """Shuffle a buffer, with threads by `ordered_prefetch`, and reset the stream before each epoch."""
    dx = import_module("mlx.data")
    rank, ranks = _rank()
    dx.core.set_state(seed)
    rows = dx.buffer_from_vector([{"x": number} for number in range(ROWS)]).shuffle().partition(ranks, rank)
    rows = rows.key_transform("x", lambda x: function(int(x)))
    stream = (rows.ordered_prefetch(8, workers) if workers else rows.to_stream()).batch(_batch())
    for number in count(0):
        stream.reset()
        for item in stream:
            yield number, item["x"], None


def spdl(function: Function, seed: int, epoch: int, workers: int, state: Any) -> Stream:
    """Sample by a DistributedRandomSampler, shuffled per epoch; threads that keep the order of their inputs."""
    pipeline, source = import_module("spdl.pipeline"), import_module("spdl.source")
    rank, ranks = _rank()
    sampler = source.DistributedRandomSampler(ROWS, rank=rank, world_size=ranks)
    for number in count(epoch):
        sampler.shuffle(seed=hash((seed, number)) % (1 << 32))
        threads = max(1, workers)
        builder = pipeline.PipelineBuilder().add_source(sampler).pipe(function, concurrency=threads, output_order="input")
        running = builder.aggregate(_batch()).add_sink(3).build(num_threads=threads)
        with running.auto_stop():
            for item in running:
                yield number, item, None


def merge_lancedb(states: Sequence[Any], ranks: int) -> list[Any]:
    """Return the merged state, as the documentation of LanceDB asks for."""
    merged = import_module("lancedb.streaming").StreamingDataset.merge_state_dicts(list(states))
    return [merged] * ranks


def merge(states: Sequence[Any], ranks: int) -> list[Any]:
    """Return the state of each rank. Another number of ranks starts from the state of rank 0."""
    return list(states) if len(states) == ranks else [states[0]] * ranks


@frozen
class Audited:
    """A loader under audit: title, names of packages (the first must be importable as `module`), stream, and documented limits."""

    title: str
    module: str
    packages: tuple[str, ...]
    stream: Callable[[Function, int, int, int, Any], Stream]
    stateful: bool = True
    ranked: bool = True
    merge: Callable[[Sequence[Any], int], list[Any]] = merge


LOADERS = {
    "mlxfp": Audited("mlxfp", "mlxfp", ("mlxfp", "pyarrow"), mlxfp),
    "datasets": Audited("datasets", "datasets", ("datasets", "torchdata", "torch"), datasets),
    "torchdata": Audited("torchdata StatefulDataLoader", "torchdata", ("torchdata", "torch"), torchdata),
    "grain": Audited("grain MapDataset", "grain", ("grain",), grain),
    "mosaic": Audited("mosaicml-streaming", "streaming", ("mosaicml-streaming", "torch"), mosaic),
    "webdataset": Audited("webdataset", "webdataset", ("webdataset", "torch"), webdataset, stateful=False),
    "litdata": Audited("litdata", "litdata", ("litdata", "torch"), litdata),
    "lancedb": Audited("LanceDB StreamingDataset", "lancedb", ("lancedb", "torch"), lancedb, merge=merge_lancedb),
    "ray": Audited("Ray Data", "ray.data", ("ray",), ray, stateful=False, ranked=False),
    "mlx-data": Audited("mlx-data", "mlx.data", ("mlx-data",), mlx_data, stateful=False),
    "spdl": Audited("SPDL", "spdl.pipeline", ("spdl",), spdl, stateful=False),
}
LIMITS = {  # documented limits by loader and law
    ("datasets", "resume"): "examples in shuffle buffers are lost when resuming (docstring of `IterableDataset.state_dict`).",
    ("datasets", "other ranks"): "torchdata distributes state among workers, but not across ranks (documentation of `StatefulDataLoader`).",
    (
        "torchdata",
        "other ranks",
    ): "torchdata distributes state among workers, but not across ranks (documentation of `StatefulDataLoader`).",
    ("grain", "memory"): "`to_iter_dataset` reads up to 500 items ahead by default (docstring of `ReadOptions`).",
    ("mosaic", "other ranks"): "rows are repeated if the ranks do not divide the rows (mosaicml/streaming, pull request 706).",
    ("litdata", "ranks"): "`drop_last` drops the rows that do not divide evenly (docstring of `StreamingDataset`).",
    ("lancedb", "permutation"): "surplus rows are dropped if `num_splits` does not divide the rows (docstring of `StreamingDataset`).",
    ("lancedb", "ranks"): "surplus rows are dropped if `num_splits` does not divide the rows (docstring of `StreamingDataset`).",
    ("ray", "workers"): "the order of blocks is preserved only with `preserve_order` (docstring of `ExecutionOptions`).",
    ("spdl", "ranks"): "the last incomplete round is dropped by default (docstring of `DistributedRandomSampler`).",
    ("spdl", "errors"): "failed items are logged and dropped unless `max_failures` is set (docstring of `PipelineBuilder.build`).",
    ("webdataset", "workers"): "workers read different shards, hence batches depend on the number of workers (`split_by_worker`).",
}
warnings.filterwarnings("ignore")
