"""Statements that run, and that type checkers once reported as errors; `make check` holds mypy to them. Nothing here runs."""

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import mlx.core as mx
import pyarrow as pa
from mlx import nn, optimizers

import mlxfp as fp
from mlxfp.testing import laws

rows = fp.from_examples([{"x": 1}])
model, optimizer = nn.Linear(1, 1), optimizers.SGD(0.1)


def mean_of_numbers(model: Any, batch: dict[str, Any]) -> tuple[float, int]:
    """Return numbers instead of arrays."""
    return 0.5, 4


def array_and_number(model: Any, batch: Mapping[str, mx.array]) -> tuple[mx.array, int]:
    """Return the number of rows as a number."""
    return model(batch["x"]).sum(), len(batch["x"])


def with_key(model: Any, batch: dict[str, Any], key: mx.array) -> tuple[mx.array, float]:
    """Draw random numbers with a key."""
    return model(batch["x"] + mx.random.normal((1,), key=key)).sum(), 1.0


step = fp.train_step(model, mean_of_numbers, optimizer)
fp.train_step(model, array_and_number, optimizer)
fp.train_step(model, with_key, optimizer)
fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"]), optimizer)

batches = fp.pipe(rows, fp.batch(2), fp.collate(fp.collators.default()))
laws.check(step, state=fp.train_state(model, optimizer), batches=batches)


def weights(examples: list[dict[str, Any]]) -> dict[str, mx.array]:
    """Collate one array from a list of dicts."""
    return {"weights": mx.array([example["w"] for example in examples])}


collator = fp.collators.multimodal([weights, fp.collators.text(pad_id=0)])
fp.collate(weights)


class Numbers(fp.Source):
    """A source of three numbers."""

    def schema(self) -> pa.Schema:
        """Return the schema."""
        return pa.schema({"n": pa.int64()})

    def read(self, epoch: int, position: Any) -> Iterator[tuple[pa.RecordBatch, Any]]:
        """Yield the numbers after a position."""
        for n in range(position or 0, 3):
            yield pa.record_batch({"n": [n]}), n + 1


numbers = fp.Dataset(Numbers())
for number in numbers:
    value = number["n"]

parts = fp.train_valid_test(rows, seed=0, valid=0.2)
fp.pipe(parts.valid, fp.batch(2))
three = fp.train_valid_test(rows, seed=0, valid=0.1, test=0.1)
fp.pipe(three.test, fp.batch(2))
fp.pipe(fp.Splits(rows, valid=rows).valid, fp.batch(2))

fp.pipe(fp.train_valid_batches(three, fp.collators.default(), size=2, seed=0).test, fp.prefetch(2))

config = fp.runs.load_config("titanic.yaml").config
*_, end = fp.runs.run(config)
score = end.score
*_, best = fp.runs.tune(config)
score = best.score


def measure(model: Any, batch: dict[str, Any]) -> dict[str, tuple[mx.array, mx.array]]:
    """Return one metric of a batch."""
    return {"accuracy": fp.metrics.accuracy(model(batch["x"]), batch["y"])}


def share_of_ones(model: Any, batch: dict[str, Any]) -> dict[str, tuple[float, int]]:
    """Return numbers instead of arrays."""
    return {"ones": (0.5, 4)}


fp.metrics.compute(fp.metrics.merge(measure(model, batch) for batch in batches))
fp.metrics.compute(measure(model, {}))
fp.evaluate(model, measure)
fp.evaluate(model, share_of_ones)

carrying = attrs.evolve(fp.collators.text(pad_id=0), carry=("text",))
fp.models.RealMLPConfig(columns=fp.models.TableColumns(()), target=fp.models.TableTarget("class", 2), hidden_sizes=(64, 64))
fp.models.ConvNetConfig(outputs=2, hidden_sizes=[8], depths=[1])


class RunningTotal(fp.Stage):
    """A stage with names of its author for the arguments of `step`."""

    def step(self, total: int, rows: pa.RecordBatch) -> tuple[int, tuple[pa.RecordBatch, ...]]:
        """Add the number of rows."""
        return total + rows.num_rows, (rows,)


row: dict[str, Any] = rows[0]
