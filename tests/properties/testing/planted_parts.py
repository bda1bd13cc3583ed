"""Parts as people write them: some with a planted bug, some correct but unusual."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen
from hypothesis import strategies as st
from mlx import nn, optimizers

import mlxfp as fp
from mlxfp.testing import audit, laws

IDS = st.lists(
    st.fixed_dictionaries({"input_ids": st.lists(st.integers(1, 50_000), min_size=1, max_size=6), "label": st.integers(0, 3)}),
    min_size=1,
    max_size=4,
)
MASKS = {"attention_mask": "input_ids"}


def padded(rows: Any, width: int | None = None) -> Any:
    width = max(map(len, rows)) if width is None else width
    return np.array([[*row[:width], *[0] * (width - len(row))] for row in rows], np.int32)


def ids_and_mask(examples: Any, width: int | None = None) -> dict[str, Any]:
    rows = [example["input_ids"] for example in examples]
    return {"input_ids": padded(rows, width), "attention_mask": padded([[1] * len(row) for row in rows], width)}


# --- collators with a bug


def ids_truncated_and_padded(examples: Any) -> Any:
    rows = [example["input_ids"] for example in examples]
    width = max(map(len, rows))
    return {**ids_and_mask(examples), "input_ids": padded([row[:4] for row in rows], width)}


def ids_narrower_than_mask(examples: Any) -> Any:
    return {**ids_and_mask(examples), "input_ids": padded([example["input_ids"][:4] for example in examples])}


def ids_of_16_bits(examples: Any) -> Any:
    batch = ids_and_mask(examples)
    return {**batch, "input_ids": batch["input_ids"].astype(np.int16)}


def ids_of_16_bits_in_mlx(examples: Any) -> Any:
    return {"input_ids": mx.array(ids_and_mask(examples)["input_ids"]).astype(mx.int16)}


def one_hot_of_the_batch(examples: Any) -> Any:
    labels = np.array([example["label"] for example in examples])
    return {"labels": np.eye(labels.max() + 1, dtype=np.float32)[labels]}


def labels_in_another_order(examples: Any) -> Any:
    return {**ids_and_mask(examples), "labels": np.sort([example["label"] for example in examples])}


def mask_of_nonzero_embeddings(examples: Any) -> Any:
    batch = ids_and_mask(examples)
    return {**batch, "attention_mask": (batch["input_ids"] % 7 > 0).astype(np.int32)}


# --- sources with a bug


@frozen(repr=False)
class ReusedBuffer(fp.Source):
    """A source that reads all chunks into one buffer."""

    count: int
    buffer: Any = field(factory=lambda: np.zeros(16, np.int64), eq=False)

    def schema(self) -> pa.Schema:
        return pa.schema({"n": pa.int64()})

    def read(self, epoch: int, position: Any) -> Iterator[tuple[pa.RecordBatch, Any]]:
        for first in range(position or 0, self.count, 16):
            self.buffer[:] = np.arange(first, first + 16)
            size = min(16, self.count - first)
            column = pa.Array.from_buffers(pa.int64(), size, [None, pa.py_buffer(self.buffer)])
            yield pa.record_batch([column], names=["n"]), first + size


@frozen(repr=False)
class PrunedInOrder(fp.Source):
    """A source that, restricted to some columns, reads the first columns of the file under their names."""

    columns: tuple[str, ...] = ("a", "b", "c")

    def schema(self) -> pa.Schema:
        return pa.schema({name: pa.int64() for name in self.columns})

    def read(self, epoch: int, position: Any) -> Iterator[tuple[pa.RecordBatch, Any]]:
        for row in range(position or 0, 5):
            values = {"a": row, "b": 10 + row, "c": 20 + row}
            stored = sorted(values)[: len(self.columns)]
            yield pa.record_batch({name: [values[old]] for name, old in zip(self.columns, stored, strict=True)}), row + 1

    @property
    def traits(self) -> fp.parts.SourceTraits:
        return fp.parts.SourceTraits(restricted=lambda columns, conditions: PrunedInOrder(tuple(columns)))


# --- stages with a bug


@frozen(repr=False)
class Scaled(fp.RowWise):
    """Multiply a column of floats, as on the page about own parts."""

    column: str
    factor: float

    def apply(self, chunk: pa.RecordBatch) -> pa.RecordBatch:
        index = chunk.schema.get_field_index(self.column)
        return chunk.set_column(index, self.column, pc.multiply(chunk[self.column], self.factor))

    @property
    def traits(self) -> fp.parts.Traits:
        return fp.parts.Traits(row_wise=True, columns_read=(self.column,), fuse=self.fused)

    def fused(self, before: Any, needed: Any) -> Any:
        if isinstance(before, Scaled) and before.column == self.column:
            return Scaled(self.column, before.factor * self.factor)
        return None


@frozen(repr=False)
class FusedBySum(Scaled):
    """Two factors fuse to their sum."""

    def fused(self, before: Any, needed: Any) -> Any:
        return FusedBySum(self.column, before.factor + self.factor) if isinstance(before, FusedBySum) else None


@frozen(repr=False)
class TotalOfTwo(fp.RowWise):
    """Add two columns. The traits name only the first column."""

    def apply(self, chunk: pa.RecordBatch) -> pa.RecordBatch:
        other = chunk["b"] if "b" in chunk.schema.names else pa.array([0] * len(chunk), pa.int32())
        total = pc.add_checked(pc.cast(chunk["a"], pa.int64()), pc.cast(other, pa.int64()))
        return chunk.append_column("total", total)

    def schema(self, schema: pa.Schema) -> pa.Schema:
        return schema.append(pa.field("total", pa.int64()))

    @property
    def traits(self) -> fp.parts.Traits:
        return fp.parts.Traits(row_wise=True, columns_read=("a",))


@frozen(repr=False)
class Bucket(fp.RowWise):
    """Number texts with Python's hash, which differs between processes."""

    def apply(self, chunk: pa.RecordBatch) -> pa.RecordBatch:
        return chunk.append_column("bucket", pa.array([hash(text) % 1000 for text in chunk["text"].to_pylist()], pa.int64()))

    def schema(self, schema: pa.Schema) -> pa.Schema:
        return schema.append(pa.field("bucket", pa.int64()))


def bucket(row: Any) -> Any:
    return {"bucket": hash(row["text"]) % 1000}


CODES: dict[str, int] = {}


def code(row: Any) -> Any:
    """Number texts in the order of their first occurrence."""
    return {"code": CODES.setdefault(row["text"], len(CODES))}


@frozen(repr=False)
class NumberedInChunk(fp.RowWise):
    """Number the rows from 0 in each chunk."""

    def apply(self, chunk: pa.RecordBatch) -> pa.RecordBatch:
        return chunk.append_column("number", pa.array(range(len(chunk)), pa.int64()))

    def schema(self, schema: pa.Schema) -> pa.Schema:
        return schema.append(pa.field("number", pa.int64()))


INTEGERS = pa.schema({"a": pa.int32(), "b": pa.int32()})
TEXTS = st.lists(st.fixed_dictionaries({"text": st.text("abc", min_size=1, max_size=3)}), min_size=1, max_size=6)
FLOATS = pa.schema({"price": pa.float64()})


# --- training with a bug

POINTS = [{"x": [float(row), 1.0], "y": [2.0 * row]} for row in range(6)]
BATCHES = fp.pipe(fp.from_examples(POINTS), fp.batch(2), fp.collate(fp.collators.default()))
MODEL, OTHER = nn.Linear(2, 1), nn.Sequential(nn.Linear(2, 1))


def squared(model: Any, batch: Any) -> Any:
    return fp.losses.mse(model(batch["x"]), batch["y"])


def of_another_model(model: Any, batch: Any) -> Any:
    return squared(OTHER, batch)


class Doubling(nn.Module):
    """A module of another class than the model."""

    def __call__(self, x: Any) -> Any:
        return 2 * x[:, :1]


DOUBLING = Doubling()


def of_another_module(model: Any, batch: Any) -> Any:
    return fp.losses.mse(DOUBLING(batch["x"]), batch["y"])


class CountingSgd(optimizers.Optimizer):
    """Gradient descent with a rate that falls with a count, which is a Python attribute."""

    def __init__(self, rate: float = 0.1, every: int = 1) -> None:
        super().__init__()
        self.rate, self.count, self.every = rate, 0, every

    def init_single(self, parameter: Any, state: Any) -> None:
        pass

    def apply_gradients(self, gradients: Any, parameters: Any) -> Any:
        self.count += 1
        return super().apply_gradients(gradients, parameters)

    def apply_single(self, gradient: Any, parameter: Any, state: Any) -> Any:
        return parameter - self.rate / (1 + self.count // self.every) * gradient


def check_step(loss: Any = squared, optimizer: Any = None, **options: Any) -> None:
    optimizer = optimizers.SGD(0.01) if optimizer is None else optimizer
    step = fp.train_step(MODEL, loss, optimizer, **options)
    laws.check(step, state=fp.train_state(MODEL, optimizer), batches=BATCHES)


def weight_of_all_labels(logits: Any, labels: Any) -> Any:
    total, _ = fp.losses.cross_entropy(logits, labels)
    return total, mx.array(labels.size)


def weight_of_all_rows(values: Any, targets: Any, mask: Any) -> Any:
    return (((values - targets) ** 2) * mask).sum(), mx.array(float(mask.size))


def mean_of_batch(values: Any, targets: Any) -> Any:
    return ((values - targets) ** 2).mean(), mx.array(1.0)


def drawn_arrays(size: int, *, classes: bool, seed: int) -> Any:
    random = np.random.default_rng(seed)
    logits, targets = (mx.array(random.normal(size=shape).astype(np.float32)) for shape in ((size, 3, 4), (size, 3, 4)))
    labels = np.where(random.random((size, 3)) < 0.3, -100, random.integers(0, 4, (size, 3))).astype(np.int32)
    return (logits, mx.array(labels)) if classes else (logits, targets)


LABELLED = st.builds(partial(drawn_arrays, classes=True), st.integers(2, 5), seed=st.integers(0, 99))
NUMBERS = st.builds(partial(drawn_arrays, classes=False), st.integers(2, 5), seed=st.integers(0, 99))
MASKED = NUMBERS.map(lambda arrays: (*arrays, mx.array(np.arange(arrays[0].size).reshape(arrays[0].shape) % 3 > 0).astype(mx.float32)))


# --- loaders


def loader(order: Callable[[Any], Any]) -> audit.Loader:
    """Return a loader whose batches are the result of `order` for a random generator of seed and epoch."""

    def run(seed: int, epoch: int, workers: int, state: Any) -> Iterator[Any]:
        items = order(np.random.default_rng([seed, epoch]))
        for index in range(state or 0, len(items)):
            yield items[index], index + 1

    return audit.Loader("planted", 24, run)


def in_batches(order: Any, size: int) -> list[list[int]]:
    return [list(map(int, order[first : first + size])) for first in range(0, len(order), size)]


def same_rows_in_each_batch(random: Any) -> Any:
    items = in_batches(np.arange(24), 4)
    return [items[index] for index in random.permutation(len(items))]


def without_last_batch(random: Any) -> Any:
    return in_batches(random.permutation(24), 5)[:-1]


def short_rows_first(random: Any) -> Any:
    return in_batches(np.arange(24), 4)


# --- correct collators


def with_a_count(examples: Any) -> Any:
    return {**ids_and_mask(examples), "count": len(examples)}


def with_a_scalar(examples: Any) -> Any:
    batch = ids_and_mask(examples)
    return {**batch, "longest": mx.array(batch["input_ids"].shape[1])}


def time_first(examples: Any) -> Any:
    return {name: values.T for name, values in ids_and_mask(examples).items()}


def with_a_product(examples: Any) -> Any:
    batch = ids_and_mask(examples)
    table = np.random.default_rng(0).normal(size=(257, 33)).astype(np.float32)
    rows = table[[[token % 257 for token in (example["input_ids"] * 6)[:6]] for example in examples]].sum(axis=1)
    return {**batch, "projected": mx.array(rows @ table.T @ table)}


def of_fixed_width(examples: Any) -> Any:
    return ids_and_mask(examples, 4)


# --- the two tables of the test: (name, call)

BUGS: dict[str, Callable[[], Any]] = {
    "ids truncated, mask not": lambda: laws.check(ids_truncated_and_padded, examples=IDS, masks=MASKS),
    "ids narrower than the mask": lambda: laws.check(ids_narrower_than_mask, examples=IDS, masks=MASKS),
    "ids cast to int16": lambda: laws.check(ids_of_16_bits, examples=IDS),
    "ids cast to int16 in MLX": lambda: laws.check(ids_of_16_bits_in_mlx, examples=IDS),
    "one-hot labels as wide as the largest class": lambda: laws.check(one_hot_of_the_batch, examples=IDS),
    "labels in another order": lambda: laws.check(labels_in_another_order, examples=IDS),
    "mask by value": lambda: laws.check(mask_of_nonzero_embeddings, examples=IDS, masks=MASKS),
    "one buffer for all chunks": lambda: laws.check(ReusedBuffer(50)),
    "pruned columns mixed up": lambda: laws.check(PrunedInOrder()),
    "wrong fuse": lambda: laws.check(FusedBySum("price", 3.0), schema=FLOATS),
    "wrong columns_read": lambda: laws.check(TotalOfTwo(), schema=INTEGERS),
    "hash of a text in a stage": lambda: laws.check(Bucket(), examples=TEXTS),
    "hash of a text in map": lambda: laws.check(fp.map(bucket), examples=TEXTS),
    "codes by first occurrence in map": lambda: laws.check(fp.map(code), examples=TEXTS),
    "rows numbered within chunks": lambda: laws.check(NumberedInChunk(), schema=INTEGERS),
    "a loss calls another model": lambda: check_step(of_another_model),
    "a loss calls a module of another class": lambda: check_step(of_another_module),
    "an optimizer counts in Python": lambda: check_step(optimizer=CountingSgd()),
    "an optimizer counts to five in Python": lambda: check_step(optimizer=CountingSgd(every=5)),
    "ignored labels count in the weight": lambda: laws.check(weight_of_all_labels, arrays=LABELLED),
    "masked rows count in the weight": lambda: laws.check(weight_of_all_rows, arrays=MASKED, padding={"2": 0}),
    "a mean of means": lambda: laws.check(mean_of_batch, arrays=NUMBERS),
}
LOADER_BUGS: dict[str, tuple[audit.Loader, dict[str, bool]]] = {
    "batches of the same rows": (loader(same_rows_in_each_batch), {}),
    "batches of the same rows, last dropped": (loader(lambda random: same_rows_in_each_batch(random)[:-1]), {"drop_last": True}),
    "more rows lost than fit a batch": (loader(lambda random: without_last_batch(random)[:-1]), {"drop_last": True}),
    "the last batch dropped without a statement": (loader(without_last_batch), {}),
}
CORRECT: dict[str, Callable[[], Any]] = {
    "an int next to arrays": lambda: laws.check(with_a_count, examples=IDS, masks=MASKS),
    "a 0-d array next to arrays": lambda: laws.check(with_a_scalar, examples=IDS, masks=MASKS),
    "time first": lambda: laws.check(time_first, examples=IDS, masks=MASKS, padding={"input_ids": 0}),
    "a matrix product": lambda: laws.check(with_a_product, examples=IDS),
    "fixed width": lambda: laws.check(of_fixed_width, examples=IDS, masks=MASKS),
    "scaled, not nullable": lambda: laws.check(Scaled("price", 2.0), schema=pa.schema([pa.field("price", pa.float64(), nullable=False)])),
    "accumulated steps": lambda: check_step(accumulate=2),
    "averaged weights": lambda: check_step(ema=0.9),
    "float16": lambda: check_step(compute_dtype=mx.float16),
    "ignored labels": lambda: laws.check(fp.losses.cross_entropy, arrays=LABELLED),
    "a loss in which no label is ignored": lambda: laws.check(fp.losses.mse, arrays=NUMBERS),
}
CORRECT_LOADERS: dict[str, tuple[audit.Loader, dict[str, bool]]] = {
    "last batch dropped": (loader(without_last_batch), {"drop_last": True}),
    "curriculum": (loader(short_rows_first), {"curriculum": True}),
}
