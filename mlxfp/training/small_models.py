"""Training of small models on rows in memory. The folds of a cross-validation train one after another, or all at the same time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import frozen
from mlx import nn, optimizers
from numpy.typing import NDArray

from mlxfp.core.datasets import Dataset
from mlxfp.data.rows.selecting import Splits
from mlxfp.evaluation.metrics.totals import to_numpy
from mlxfp.models.layers import random_key
from mlxfp.support.checks import check_callable, check_positive
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.support.randomness import fold_in, generator
from mlxfp.support.trees import flatten, tree_map
from mlxfp.training.steps.state import TrainState, evaluate_state, train_state, trees_of
from mlxfp.training.steps.steps import Loss, TrainStep, Trees, train_step
from mlxfp.training.steps.transforms import Functional, functional, jit

Arrays = Mapping[str, NDArray[Any]]
Encode = Callable[[Dataset[Any]], Arrays]
Prepare = Callable[[Dataset[Any]], Encode]
Predict = Callable[[Dataset[Any]], NDArray[Any]]  # function from rows to predictions


def small_fit(  # noqa: PLR0913  # independent training settings
    model: nn.Module,
    loss: Loss,
    optimizer: optimizers.Optimizer,
    *,
    prepare: Prepare,
    outputs: Callable[[Any, dict[str, mx.array]], mx.array],
    steps: int,
    size: int,
    seed: int = 0,
) -> "SmallFit":
    """Return a `fit` function that trains a model for `steps` updates on batches of `size` rows. All folds can train together.

    - `prepare(rows)` learns from the training rows, for example means or a vocabulary. The result is a second function, from rows to NumPy
      arrays by name, with one entry per row. The second function is also called for rows without the target.
    - `loss(model, batch)` returns (sum, weight), as in `train_step`.
    - `outputs(model, batch)` returns the predictions, an array of the shape [n] or [n, C].

    Every epoch has a different order of rows. Batches may span two epochs, so every batch is full. Each fold starts from the weights of
    `model`, and `model` stays unchanged.

    `cross_validate(..., together=True)` stacks the parameters of all folds and trains all folds at once with `mx.vmap`. Training is then
    faster if a single model is too small to fill the device. The models equal separately trained models up to float precision. `mx.vmap`
    does not support convolutions. In MLX 0.32.4, `mx.vmap` computes `&`, `|` and `^` wrongly between integers of a fold and integers shared
    by all folds.

    >>> import mlxfp as fp
    >>> def prepare(rows):
    ...     return lambda rows: {name: np.float32(values)[:, None] for name, values in fp.to_table(rows).to_pydict().items()}
    >>> def loss(model, batch):
    ...     return fp.losses.mse(model(batch["x"]), batch["y"])
    >>> def outputs(model, batch):
    ...     return model(batch["x"])[:, 0]
    >>> fit = small_fit(nn.Linear(1, 1), loss, optimizers.SGD(0.1), prepare=prepare, outputs=outputs, steps=200, size=4)
    >>> rows = fp.from_table({"x": np.linspace(-1, 1, 12), "y": np.linspace(-1, 1, 12) * 3})
    >>> run = fp.kaggle.cross_validate(fp.kaggle.folds.kfold(12, count=3, seed=0), rows, fit, target="y", together=True)
    >>> bool(np.abs(run.oof.predictions - run.oof.targets).max() < 0.01)
    True

    See also: `train_step` and `fit` for models of any size.
    """
    check_callable(loss=loss, prepare=prepare, outputs=outputs)
    check_positive(steps=steps, size=size)
    first = train_state(model, optimizer, seed=seed)
    return SmallFit(functional(model).emptied(), train_step(model, loss, optimizer), prepare, outputs, steps, size, first)


@frozen(eq=False, repr=False)
class SmallFit:
    """Function that trains a small model on the training rows of a fold. `small_fit` returns this function.

    >>> import mlxfp as fp
    >>> fit = small_fit(
    ...     nn.Linear(1, 1), lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"]), optimizers.SGD(0.1),
    ...     prepare=lambda rows: (lambda rows: {}), outputs=lambda model, batch: model(batch["x"]), steps=3, size=4,
    ... )
    >>> isinstance(fit, SmallFit), fit.steps
    (True, 3)
    """

    module: Functional
    step: TrainStep
    prepare: Prepare
    outputs: Callable[[Any, dict[str, mx.array]], mx.array]
    steps: int
    size: int
    first: TrainState

    def __call__(self, parts: Splits) -> Predict:
        """Train on the rows of one fold. Return a function from rows to predictions."""
        encode, batches = self._batches(parts)
        state = self.first
        for batch in batches:
            state, _ = self.step(state, tree_map(mx.array, batch))
        return self._trained(state, encode)

    def together(self, parts: Sequence[Splits]) -> tuple[Predict, ...]:
        """Train all folds at the same time. Raises `ArgumentError` for a model with operations that `mx.vmap` does not support."""
        encodes, batches = zip(*map(self._batches, parts), strict=True)
        trees = tree_map(lambda leaf: mx.broadcast_to(leaf[None], (len(parts), *leaf.shape)), trees_of(self.first))
        step = jit(self._step_of_all)
        for number, fold_batches in enumerate(zip(*batches, strict=True)):
            batch = {name: mx.array(np.stack([fold_batch[name] for fold_batch in fold_batches])) for name in fold_batches[0]}
            trees = step(trees, batch, random_key(self.first.seed, "step", number))
            mx.async_eval(trees)
        states = [TrainState(**tree_map(itemgetter(fold), trees), step=self.steps, seed=self.first.seed) for fold in range(len(parts))]
        return tuple(map(self._trained, states, encodes))

    def _step_of_all(self, trees: Trees, batch: dict[str, mx.array], key: mx.array) -> Trees:
        structure, arrays = flatten(batch)

        def step(trees: Trees, arrays: list[mx.array]) -> Trees:
            return self.step.pure(structure, trees, key, arrays, updates=True)[0]

        try:
            stepped: Trees = mx.vmap(step)(trees, arrays)
        except ValueError as error:
            if not any(word in str(error) for word in ("vmap", "[conv]")):
                raise
            raise ArgumentError(
                f"Folds of this model cannot be trained together: {error} mx.vmap does not support convolutions and some other functions. "
                "Remove together=True."
            ) from error
        return stepped

    def _batches(self, parts: Splits) -> tuple[Encode, Iterator[Arrays]]:
        if parts.valid is not None:
            raise ArgumentError("A small model trains for a given number of steps and cannot stop early. Remove stopping, and set steps.")
        encode = self.prepare(parts.train)
        arrays = _check_arrays(encode(parts.train))
        count = len(next(iter(arrays.values())))
        epochs = range(-(-self.steps * self.size // count))
        orders = [generator(fold_in(0, "small_fit", self.first.seed, epoch)).permutation(count) for epoch in epochs]
        order = np.concatenate(orders)[: self.steps * self.size].reshape(self.steps, self.size)
        return encode, ({name: array[rows] for name, array in arrays.items()} for rows in order)

    def _trained(self, state: TrainState, encode: Encode) -> Predict:
        evaluate_state(state)
        return partial(self._predict, state, encode)

    def _predict(self, state: TrainState, encode: Encode, rows: Dataset[Any]) -> NDArray[Any]:
        batch = {name: mx.array(array) for name, array in _check_arrays(encode(rows)).items()}
        return np.asarray(to_numpy(self.module.apply(self.outputs, state.params, state.buffers, batch)[0]))


def _check_arrays(arrays: Mapping[str, Any]) -> Arrays:
    kinds = {name: type(array).__name__ for name, array in arrays.items() if not isinstance(array, np.ndarray)}
    if kinds or not arrays:
        raise ArgumentTypeError(f"The function that prepare returns must return a dict of NumPy arrays, got {kinds or 'none'}.")
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1 or not min(sizes.values()):
        raise ArgumentError(f"Arrays must have the same length, at least one row, got {sizes}.")
    return arrays
