"""A training step as a pure function: (state, batch) -> (state, metrics)."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from typing import Any

import mlx.core as mx
from attrs import define, evolve
from mlx import nn, optimizers

from mlxfp.distributed import Ranks
from mlxfp.models.layers import derived_key, pretrained_in, random_key
from mlxfp.support.checks import check_callable, check_positive, check_returns, check_types, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.support.trees import TreeDef, difference, flatten, paths, tree_map, unflatten
from mlxfp.training.optimization.optimizers import start, update
from mlxfp.training.steps.accumulating import (
    Condition,
    all_finite,
    average_over_ranks,
    clip,
    decided,
    mean_gradients,
    sum_and_weight,
    sum_gradients,
    sum_over_ranks,
    ties,
    weighted_sums,
    where_tree,
    zero_sums,
)
from mlxfp.training.steps.averaging import next_average
from mlxfp.training.steps.batches import add_batch_note, arrays_of, flat_batch
from mlxfp.training.steps.dependence import check_use
from mlxfp.training.steps.drawing import given_key, refusing_draws, step_key
from mlxfp.training.steps.modules import changed_arrays, get_arrays, put_arrays, with_arrays
from mlxfp.training.steps.options import Options
from mlxfp.training.steps.precision import cast_floating, check_masters, lower_inputs, next_scale
from mlxfp.training.steps.recomputing import blocks_of, recompute_blocks
from mlxfp.training.steps.sharding import check_shards, divided_in, shards_of
from mlxfp.training.steps.shared_arrays import shared_indices, warn_of_tied_arrays, with_shared
from mlxfp.training.steps.state import TrainState, check_state, trees_of, with_plain_strides
from mlxfp.training.steps.transforms import Compiler, Functional, functional

Batch = Mapping[str, Any]
Metrics = Mapping[str, mx.array]
Trees = dict[str, Any]  # array trees of a state, by name
Scalar = mx.array | float  # a scalar array or a Python number
Loss = Callable[[Any, dict[str, Any]], tuple[Scalar, Scalar]] | Callable[[Any, dict[str, Any], mx.array], tuple[Scalar, Scalar]]
Step = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


@explain_call
def train_step(  # noqa: PLR0913  # independent options of the step
    model: nn.Module,
    loss: Loss,
    optimizer: optimizers.Optimizer,
    *,
    clip_norm: float | None = None,
    accumulate: int = 1,
    compute_dtype: mx.Dtype | None = None,
    checkpoint_blocks: bool = False,
    skip_nonfinite: bool = False,
    ema: float | None = None,
    ranks: Ranks | None = None,
    compile: bool = True,
) -> "TrainStep":
    """Return a compiled training step: loss, gradients, clipping and update.

    `loss(model, batch)` returns (sum, weight), two scalars, as the functions of `mlxfp.training.losses` do; the step minimises
    sum / weight. The loss receives only the MLX arrays of a batch, because other values, such as text, would need a new trace for every
    batch. The metrics are float32 scalars: `loss` (the mean), `weight`, and with `clip_norm` also `grad_norm` (the norm before clipping).
    To measure the norm without clipping, pass `clip_norm=float("inf")`. The default omits the norm, because measuring costs time.

    Models and losses may draw random numbers, as in `mx.random.normal(shape)`. The numbers depend only on the seed and step in the state
    (and on the rank), so every step draws different numbers, and a continued run repeats the numbers of an uninterrupted run. MLX's global
    generator is restored after the step. A loss with three positional parameters without default, `loss(model, batch, key)`, receives a
    key, uint32[2], for `mx.random.normal(shape, key=key)`.

    The step is pure: the same state and batch give the same result, including random numbers, and the old state stays unchanged. The
    step copies `model` and `optimizer` without their arrays; weights and moments are in the state. Later changes to the module, such as
    `freeze` or another layer, have no effect: make a new state and a new step after such changes. The returned arrays may still be
    computing on the device. Raises `ArgumentError` for the state of another model or optimizer, and `DataError` for ids and labels in the
    batch that are out of range. `.variants` is the number of compiled variants, one per batch shape.

    A batch of weight 0, for example a batch without labels, changes only the step count, and the metric `weight` is 0. With `accumulate`,
    an update is left out if all of its batches have weight 0.

    Unused options cost nothing:

    - `accumulate=n`: update once after n batches, with the gradient of one large batch. `state.step` counts batches, schedules count
      updates, and only updates report `grad_norm`. An incomplete group of batches at the end of an epoch continues in the next epoch.
    - `compute_dtype`: `mx.bfloat16` or `mx.float16` inside the loss; parameters stay float32. float16 uses dynamic loss scaling, skips
      batches that overflow, and adds the metrics `loss_scale` and `skipped`.
    - `checkpoint_blocks=True`: recompute the activations of repeated blocks (`recomputing.blocks_of`) in the backward pass.
    - `skip_nonfinite=True`: skip a batch with a non-finite loss or gradient. Only the step count changes, and the metric `skipped` is 1.
    - `ema=decay`: keep an average of the parameters, to be read with `ema_weights`.
    - `ranks`: train with other processes (`distributed.connect`). The result equals one process for all rows. State and metrics are the
      same on all ranks. All ranks skip a batch that is non-finite on one rank. `fully_shard` divides a model between all ranks, and
      `shard_linear` between the ranks of `ranks.tensor_group`. Each rank has a part of a divided state; the optimizer must be element-wise.
    - `compile=False`: run without `mx.compile`, for debugging: `print` in the loss prints numbers at every step, and debuggers work. Also
      useful for models that take too long to compile. Slower, with equal results up to rounding.

    >>> import mlxfp as fp
    >>> model, optimizer = nn.Linear(1, 1), optimizers.SGD(0.1)
    >>> step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"]), optimizer)
    >>> state, metrics = step(fp.train_state(model, optimizer), {"x": mx.ones((4, 1)), "y": mx.ones((4, 1)), "name": ("a", "b", "c", "d")})
    >>> state.step, sorted(metrics), metrics["weight"].item()
    (1, ['loss', 'weight'], 4.0)
    """
    if isinstance(loss, nn.Module):
        raise ArgumentTypeError("The model comes first, and then the loss. Write train_step(model, loss, optimizer).")
    check_callable(loss=loss)
    check_returns(loss=loss)
    check_positive(accumulate=accumulate)
    check_types(bool, checkpoint_blocks=checkpoint_blocks, skip_nonfinite=skip_nonfinite, compile=compile)
    check_types((type(None), int, float), clip_norm=clip_norm, ema=ema)
    if isinstance(compute_dtype, str):
        raise ArgumentTypeError(f"compute_dtype must be a dtype of MLX, got {compute_dtype!r}. Write mx.bfloat16 or mx.float16.")
    check_types((type(None), mx.Dtype), compute_dtype=compute_dtype)
    check_types((type(None), Ranks), ranks=ranks)
    if clip_norm is not None and not clip_norm > 0:
        raise ArgumentError(f"clip_norm must be above 0, got {clip_norm!r}. Pass float('inf') to measure gradient norms without clipping.")
    if compute_dtype is not None and compute_dtype not in (mx.bfloat16, mx.float16):
        raise ArgumentError(f"compute_dtype must be mx.bfloat16 or mx.float16, got compute_dtype={compute_dtype!r}.")
    if ema is not None and not 0 < ema < 1:
        raise ArgumentError(f"ema must be above 0 and below 1, got ema={ema!r}. A typical value is 0.999, the weight of the old average.")
    module = functional(model)
    if not flatten(module.params)[1]:
        raise ArgumentError(
            f"The model, a {type(model).__name__}, has no parameters that train: the model is empty, or all are frozen. "
            "Unfreeze parameters with model.unfreeze()."
        )
    warn_of_tied_arrays(model)
    shards = shards_of(model, module.params, module.buffers)
    check_shards(model, shards, module.params, optimizer, ranks)
    check_masters(module.params, compute_dtype)
    if checkpoint_blocks:
        blocks_of(model)  # `blocks_of` raises an error if the model has no blocks
    options = Options(
        clip_norm, accumulate, compute_dtype, checkpoint_blocks, skip_nonfinite, ema, ranks, compile, shards, pretrained_in(model)
    )
    return TrainStep(module, loss, optimizer, options)


class TrainStep:
    """A training step, built by `train_step`."""

    def __init__(self, model: Functional, loss: Loss, optimizer: optimizers.Optimizer, options: Options) -> None:
        """Store the arguments. Compilation happens at the first call."""
        self._model = model.emptied()
        self._shared = shared_indices(model.bind(model.params, model.buffers), model.params)
        self._loss = loss
        self.optimizer = deepcopy(optimizer)  # a copy, because later changes of the given optimizer must not affect this step
        self._options = options
        trees = {"params": model.params, "buffers": model.buffers, "opt": start(optimizer, model.params), "extra": {}}
        self._plain, _ = flatten(trees)
        self._structure, _ = flatten({**trees, "extra": options.kept(model.params)})
        self._has_option_values = self._structure != self._plain
        self._ties = ties(self._structure)
        self._copy = None if options.ranks is None else options.ranks.world.copy  # each copy of the model draws different random numbers
        self._divided_params = divided_in(options.shards, {"params": model.params})
        self._divided_buffers = divided_in(options.shards, {"buffers": model.buffers})
        self._holders: list[int] = []  # number of ranks with the same array, for each parameter of a divided model
        if options.ranks is not None and options.divided:
            count = 1 if options.shards is None else options.shards.count
            counts = (count if index in self._divided_params else 1 for index in range(len(flatten(model.params)[1])))
            self._holders = [options.ranks.world.size // count for count in counts]
        self._delayed = not options.compile and options.ranks is None  # ranks communicate in the same order
        self._bytes_sent = 0
        self._compiler = Compiler("The loss", (loss, self._model), 64, lambda key: paths(key[0]))
        self._runs: dict[tuple[TreeDef, bool], Callable[..., tuple[Trees, Metrics]]] = {}

    @property
    def ranks(self) -> Ranks | None:
        """Ranks passed to `train_step`, or None."""
        return self._options.ranks

    @property
    def accumulate(self) -> int:
        """Number of batches per update."""
        return self._options.accumulate

    @property
    def pretrained(self) -> tuple[str, ...]:
        """Models of the Hugging Face hub that provided the initial weights, as `org/name@commit`."""
        return self._options.pretrained

    @property
    def bytes_sent(self) -> int:
        """Number of bytes that this rank sends per step to sum gradients and metrics, and to gather parameters (see `Ranks.bytes_sent`).

        The number is 0 before the first step. Activations sent by layers of `shard_linear` are not counted.
        """
        return self._bytes_sent

    @property
    def variants(self) -> int:
        """Number of traces (compilations). Each new set of batch shapes needs one trace, or two traces if `accumulate` is above 1."""
        return self._compiler.variants

    def start(self, state: TrainState) -> TrainState:
        """Return the state with initial values for options of `train_step`, such as the averages of `ema`.

        The first step does this automatically. To load a checkpoint, call `load_state(path, like=step.start(state))`.
        """
        extra = self._options.kept(state.params)
        mx.eval(extra)
        return evolve(state, extra=extra)

    def consumer(self, state: TrainState) -> "Consumer":
        """Return a function that trains on one batch per call and waits for the result.

        `profile(batches, consume=step.consumer(state))` shows how long training waits for data, and the bytes sent to other ranks per step.

        >>> import mlxfp as fp
        >>> step = fp.train_step(nn.Linear(1, 1), lambda model, batch: (model(batch["x"]).sum(), len(batch["x"])), optimizers.SGD(0.1))
        >>> train = step.consumer(fp.train_state(nn.Linear(1, 1), optimizers.SGD(0.1)))
        >>> train({"x": mx.ones((4, 1))})
        >>> train.state.step, train.bytes_sent
        (1, 0)
        """
        return Consumer(self, state)

    def __call__(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """Return the next state and the metrics of the batch."""
        trees = trees_of(self._checked(state))
        if self._delayed:
            mx.async_eval(trees)  # start to compute the lazy state, because a lazy state keeps the old state in memory
        structure, arrays = flat_batch(batch)
        updates = (state.step + 1) % self._options.accumulate == 0
        if not self._runs and self._options.compile and self.ranks is None:
            check_use(self._model, self._loss, self._compiler.outside.modules, state, batch)
        run = self._runs.get((structure, updates)) or self._run(structure, updates=updates)
        try:
            after, metrics = run(trees, step_key(state.seed, state.step, self._copy), arrays)
        except Exception as error:
            if flatten(trees)[0] == self._structure:
                add_batch_note(error, "loss", batch, compiled=self._options.compile)
            raise
        mx.async_eval(() if self._delayed else after, metrics)
        return TrainState(**after, step=state.step + 1, seed=state.seed, shards=self._options.shards), metrics

    def _run(self, structure: TreeDef, *, updates: bool) -> Callable[..., tuple[Trees, Metrics]]:
        key, run = (structure, updates), partial(self.pure, structure, updates=updates)
        return self._runs.setdefault(key, self._compiler.get(key, run) if self._options.compile else run)

    def look(self, state: TrainState, batch: Batch) -> None:
        """Call the loss without compilation. Raise `BoundError` at the first id or label out of range.

        This method also checks ids and labels that the model or the loss computes from the batch. A compiled step cannot check these.
        """
        key = random_key(state.seed, "look")
        self._model.apply(given_key(self._loss, key), state.params, state.buffers, arrays_of(batch), key=key)

    def pure(self, structure: TreeDef, trees: Trees, key: mx.array, arrays: list[mx.array], *, updates: bool) -> tuple[Trees, Metrics]:
        """Compute one training step without compilation. `trees` contains the state. `structure` and `arrays` contain the batch."""
        self._check_trees(trees)
        options, batch = self._options, unflatten(structure, arrays)
        before = 0 if options.ranks is None else options.ranks.bytes_sent
        (total, divisor, weight, buffers, touched), gradients = self._gradients(trees, batch, key)
        # Dividing here and in `_gradients` is faster than dividing once: MLX can fuse each division with the operations after the division.
        mean = mx.where(weight != 0, total / weight, total)
        finite: Any = all_finite((mean, weight, gradients)) if options.skip_nonfinite or options.scaled else None
        if options.ranks is not None and options.divided and finite is not None:
            finite = options.ranks.add_up_all(finite.astype(mx.float32)) == options.ranks.world.size  # True if true on all ranks
        sums: Any = weighted_sums(gradients, divisor, weight, finite) if options.summed else None
        if options.ranks is not None:
            summed = self._divided_params if options.fully else ()
            sums, mean, weight, finite = sum_over_ranks(options.ranks, sums, mean, weight, finite, summed=summed)
        extra, metrics = dict(trees["extra"]), {"loss": mean, "weight": weight}
        weighs = weight != 0
        counts = decided(weighs if finite is None else weighs & finite, compiled=options.compile)
        buffers = where_tree(counts, buffers, trees["buffers"], only=touched)
        if finite is not None:
            metrics["skipped"] = 1 - finite.astype(mx.float32)
        if options.scaled:
            extra["scale"] = where_tree(weighs, next_scale(extra["scale"], finite), extra["scale"])
            metrics["loss_scale"] = trees["extra"]["scale"]["factor"]
        if options.accumulate > 1:
            sums = tree_map(mx.add, extra["sums"], sums)
            extra["sums"] = zero_sums(trees["params"]) if updates else sums
        after = {**trees, "buffers": buffers, "extra": extra}
        if updates:
            if options.summed:
                gradients, counts = mean_gradients(sums, gradients), decided(sums["weight"] != 0, compiled=options.compile)
            if options.clip_norm is not None:
                gradients, metrics["grad_norm"] = clip(gradients, options.clip_norm, ranks=options.ranks, holders=self._holders)
            after = self._updated(after, gradients, counts)
        if options.ranks is not None:
            self._bytes_sent = options.ranks.bytes_sent - before
        self._check_trees(after)
        return tree_map(with_plain_strides, after), metrics

    def _gradients(self, trees: dict[str, Any], batch: dict[str, Any], key: mx.array) -> tuple[Any, Any]:
        """Return the results of the loss, and the gradients of the mean loss.

        The results are the sum of losses, divisor, batch weight, buffers, and indices of possibly changed buffers. The mean loss is the sum
        of losses divided by the divisor: the batch weight, or with `fully_shard` the total weight of all ranks.
        """
        options = self._options
        scale = trees["extra"]["scale"]["factor"] if options.scaled else None

        def objective(params: Any) -> tuple[mx.array, tuple[mx.array, mx.array, mx.array, Any, list[int]]]:
            if options.compute_dtype is not None:
                params = cast_floating(params, options.compute_dtype)
            (result, touched), buffers = self._model.apply(self._measured, params, trees["buffers"], batch, key, key=key)
            total, weight = sum_and_weight(result)
            share, divisor = total, weight
            if options.ranks is not None and options.fully:  # all ranks divide losses by the total weight of all ranks
                share, divisor = mx.where(weight == 0, 0, total), options.ranks.add_up(mx.stop_gradient(weight))
            mean = share / mx.where(divisor == 0, 1, divisor)
            return mean if scale is None else mean * scale, (total, divisor, weight, buffers, touched)

        with refusing_draws(
            "The model draws random numbers in the backward pass too: mx.checkpoint in the model recomputes activations with different "
            "numbers, so the gradients would be wrong. Remove mx.checkpoint and pass checkpoint_blocks=True, which repeats the numbers."
        ):
            (_, results), gradients = mx.value_and_grad(objective)(trees["params"])
        return results, gradients if scale is None else tree_map(lambda leaf: leaf / scale, gradients)

    def _measured(self, model: Any, batch: dict[str, Any], key: mx.array) -> tuple[Any, list[int]]:
        """Apply the loss to a private copy of the model. Return the result and the indices of possibly changed buffers."""
        options = self._options
        if options.ranks is not None and options.fully:
            sum_gradients(model, options.ranks)
        if options.checkpoint_blocks:
            recompute_blocks(model)
        if options.compute_dtype is not None:
            lower_inputs(model, options.compute_dtype)
        before = get_arrays(model, self._model.buffers)
        result = given_key(self._loss, derived_key(key, "loss"))(model, batch)
        after = get_arrays(model, self._model.buffers)
        news = changed_arrays(before, after)
        if options.ranks is not None:
            put_arrays(model, with_arrays(after, average_over_ranks(options.ranks, news, divided=self._divided_buffers)))
        return result, list(news)

    def _updated(self, trees: dict[str, Any], gradients: Any, counts: Condition) -> Any:
        with refusing_draws(
            f"The optimizer, {type(self.optimizer).__name__}, draws random numbers, which is not supported: ranks would draw different "
            "numbers, and a step would not be a function of its state. Add the noise in the loss, which may draw random numbers."
        ):
            params, opt = update(self.optimizer, gradients, trees["opt"], trees["params"])
        params = with_shared(params, self._shared)  # weight decay also changes unused copies of a shared array; undo this change
        after = {**trees, "params": params, "opt": opt}
        if self._options.ema is not None:
            average = next_average(trees["extra"]["average"], params, self._options.ema)
            after["extra"] = {**trees["extra"], "average": average}
        return where_tree(counts, after, trees, tied=self._ties)

    def _checked(self, state: TrainState) -> TrainState:
        """Add missing initial values for options such as `ema`. Raise `ArgumentError` if ranks divide model and state differently."""
        check_state(state)
        if state.shards != self._options.shards:
            model, given = ("whole" if shards is None else shards.label for shards in (self._options.shards, state.shards))
            raise ArgumentError(
                f"The model of the step is {model}, but the state is {given}. Build both from the same model: call train_state(model, "
                "optimizer) after shard_linear and fully_shard."
            )
        return self.start(state) if self._has_option_values and not state.extra else state

    def _check_trees(self, trees: Trees) -> None:
        structure = flatten(trees)[0]
        if structure == self._structure:
            return
        differs = difference(self._structure, structure)
        if flatten({**trees, "extra": {}})[0] == self._plain:
            raise ArgumentError(
                f"The state belongs to a step with other options. {differs} Use the same options, or pass step.start(state) instead."
            )
        raise ArgumentError(
            f"The state does not belong to the model and optimizer of this step. {differs} Build the state with "
            "train_state(model, optimizer)."
        )


@define(eq=False)
class Consumer:
    """A function that trains on one batch per call and waits for each step. Built by `TrainStep.consumer`. `state` is the latest state."""

    step: TrainStep
    state: TrainState

    @property
    def bytes_sent(self) -> int:
        """Number of bytes that this rank sends to other ranks in one training step."""
        return self.step.bytes_sent

    def __call__(self, batch: Batch) -> None:
        """Train on one batch. If other ranks have no batch left, this process ends after the time limit in `connect(limit=...)`."""
        ranks = self.step.ranks
        with nullcontext() if ranks is None else ranks.waiting():
            self.state, metrics = self.step(self.state, batch)
            mx.eval(trees_of(self.state), metrics)
