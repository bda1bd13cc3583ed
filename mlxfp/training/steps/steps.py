"""One step of training, as a pure function: (state, batch) -> (state, metrics)."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from typing import Any

import mlx.core as mx
from attrs import define, evolve
from mlx import nn, optimizers

from mlxfp.distributed import Ranks
from mlxfp.models.layers import derived_key, random_key
from mlxfp.support.checks import check_callable, check_positive, check_types, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.support.trees import TreeDef, difference, flatten, paths, tree_map, unflatten
from mlxfp.training.optimization.optimizers import start, update
from mlxfp.training.steps.accumulating import (
    all_finite,
    average_over_ranks,
    clip,
    mean_gradients,
    sum_and_weight,
    sum_over_ranks,
    ties,
    weighted_sums,
    where_tree,
    zero_sums,
)
from mlxfp.training.steps.averaging import next_average
from mlxfp.training.steps.batches import add_batch_note, arrays_of, flat_batch
from mlxfp.training.steps.drawing import given_key, refusing_draws, step_key
from mlxfp.training.steps.gathering import add_up_squares, agreed, sum_gradients
from mlxfp.training.steps.modules import changed_arrays, get_arrays, put_arrays, with_arrays
from mlxfp.training.steps.options import Options
from mlxfp.training.steps.precision import cast_floating, check_masters, lower_inputs, next_scale
from mlxfp.training.steps.recomputing import blocks_of, recompute_blocks
from mlxfp.training.steps.sharding import check_shards, parts_in, shards_of
from mlxfp.training.steps.shared_arrays import shared_places, warn_of_tied_arrays, with_shared
from mlxfp.training.steps.state import TrainState, trees_of, with_plain_strides
from mlxfp.training.steps.transforms import Compiler, Functional, functional

Batch = Mapping[str, Any]
Metrics = Mapping[str, mx.array]
Trees = dict[str, Any]  # those of a state, by name
Loss = Callable[[Any, dict[str, Any]], tuple[mx.array, mx.array]] | Callable[[Any, dict[str, Any], mx.array], tuple[mx.array, mx.array]]
Step = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


@explain_call
def train_step(  # noqa: PLR0913  # each is a plain word of the step
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
    """Make a compiled step of training: loss, gradients, clipping, update.

    `loss(model, batch)` returns (sum, weight), two scalars, such as those of `mlxfp.training.losses`; sum / weight is minimised. It
    sees only the MLX arrays of the batch: text in it would be a new trace for every batch. The metrics are float32 scalars: `loss`,
    the mean; `weight`; and with `clip_norm`, `grad_norm`, the norm before clipping. Measuring the norm costs time, so without
    `clip_norm` it is left out; `clip_norm=float("inf")` measures and never clips.

    Models and losses may draw random numbers, as in `mx.random.normal(shape)`: every step draws others, from the seed and the step in
    the state (and the rank) alone, so a run that continues draws what it would have drawn. MLX's global generator, which they draw
    from, stays as it was. A loss with three positional parameters that have no default, `loss(model, batch, key)`, is given a key,
    uint32[2], for `mx.random.normal(shape, key=key)`.

    The step is pure: the same state and batch give the same result, random numbers included, and the old state stays unchanged. It
    only uses the structure of `model` and `optimizer`; weights and moments are in the state. The results are being computed when it
    returns. Raises `ArgumentError` for a state of another model or optimizer, and `DataError` for ids and labels in the batch that are
    outside of the tables that they index. `.variants` counts the compiled variants, one a batch shape.

    A batch of weight 0, such as one without a label that counts, changes nothing but the count of steps: no parameter decays and no
    moment, average, statistic or schedule moves. Its metric `weight` is 0. With `accumulate` the same holds for an update all of
    whose batches weigh 0.

    The options; one that is not used costs nothing:

    - `accumulate=n`: update after every n batches, as one batch of all their rows would; `state.step` counts batches, schedules count
      updates, and `grad_norm` comes with updates. Batches that are left at the end of an epoch are carried into the next.
    - `compute_dtype`: `mx.bfloat16` or `mx.float16` inside the loss, while parameters stay float32. float16 scales the loss
      dynamically, leaves out batches that overflow, and adds the metrics `loss_scale` and `skipped`.
    - `checkpoint_blocks=True`: compute the activations inside repeated blocks (`recomputing.blocks_of`) again in the backward pass.
    - `skip_nonfinite=True`: leave out a batch whose loss or gradients are not finite: only the count of steps changes, and the
      metric `skipped` is 1.
    - `ema=decay`: keep an average of the parameters, which `ema_weights` puts in their place.
    - `ranks`: train together with the other processes (`distributed.connect`), as one process would on all their rows; the state
      and the metrics are the same on all. Models may be divided between them: by `fully_shard` between all, by `shard_linear` between
      those of `ranks.tensor_group`. Then each has a part of the state, optimizers must update each number by itself, and a batch that is
      not finite on one rank is left out on all.
    - `compile=False`: run without `mx.compile`, which is slower, to look inside: `print` in the loss prints numbers, at every step, and
      a debugger shows them. Also for a model that takes too long to compile. The results are the same up to rounding.

    >>> import mlxfp as fp
    >>> model, optimizer = nn.Linear(1, 1), optimizers.SGD(0.1)
    >>> step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"]), optimizer)
    >>> state, metrics = step(fp.train_state(model, optimizer), {"x": mx.ones((4, 1)), "y": mx.ones((4, 1)), "name": ("a", "b", "c", "d")})
    >>> state.step, sorted(metrics), metrics["weight"].item()
    (1, ['loss', 'weight'], 4.0)
    """
    check_callable(loss=loss)
    check_positive(accumulate=accumulate)
    check_types(bool, checkpoint_blocks=checkpoint_blocks, skip_nonfinite=skip_nonfinite, compile=compile)
    check_types((type(None), int, float), clip_norm=clip_norm, ema=ema)
    check_types((type(None), mx.Dtype), compute_dtype=compute_dtype)
    check_types((type(None), Ranks), ranks=ranks)
    if clip_norm is not None and not clip_norm > 0:
        raise ArgumentError(f"clip_norm must be above 0, got clip_norm={clip_norm!r}. To measure without clipping pass float('inf').")
    if compute_dtype is not None and compute_dtype not in (mx.bfloat16, mx.float16):
        raise ArgumentError(f"compute_dtype must be mx.bfloat16 or mx.float16, got compute_dtype={compute_dtype!r}.")
    if ema is not None and not 0 < ema < 1:
        raise ArgumentError(f"ema must be above 0 and below 1, got ema={ema!r}. It is the share of the old average that an update keeps.")
    module = functional(model)
    if not flatten(module.params)[1]:
        raise ArgumentError(
            f"The model, a {type(model).__name__}, has no parameters that train: it has none, or all are frozen. "
            "Unfreeze some: model.unfreeze()."
        )
    warn_of_tied_arrays(model)
    shards = shards_of(model, module.params, module.buffers)
    check_shards(model, shards, module.params, optimizer, ranks)
    check_masters(module.params, compute_dtype)
    if checkpoint_blocks:
        blocks_of(model)  # raises here if there are none
    options = Options(clip_norm, accumulate, compute_dtype, checkpoint_blocks, skip_nonfinite, ema, ranks, compile, shards)
    return TrainStep(module, loss, optimizer, options)


class TrainStep:
    """A step of training; made by `train_step`."""

    def __init__(self, model: Functional, loss: Loss, optimizer: optimizers.Optimizer, options: Options) -> None:
        """Compile nothing yet."""
        self._model = model.emptied()
        self._shared = shared_places(model.bind(model.params, model.buffers), model.params)
        self._loss = loss
        self.optimizer = deepcopy(optimizer)  # the caller may change it, and it is read whenever a new shape is traced
        self._options = options
        trees = {"params": model.params, "buffers": model.buffers, "opt": start(optimizer, model.params), "extra": {}}
        self._plain, _ = flatten(trees)
        self._structure, _ = flatten({**trees, "extra": options.kept(model.params)})
        self._keeps = self._structure != self._plain
        self._ties = ties(self._structure)
        self._copy = None if options.ranks is None else options.ranks.world.copy  # another mask on each
        self._parts = parts_in(options.shards, model.params, model.buffers)
        self._bytes_sent = 0
        self._compiler = Compiler("The loss", loss, 64, lambda key: paths(key[0]))
        self._runs: dict[tuple[TreeDef, bool], Callable[..., tuple[Trees, Metrics]]] = {}

    @property
    def ranks(self) -> Ranks | None:
        """The ranks that train together with this step."""
        return self._options.ranks

    @property
    def bytes_sent(self) -> int:
        """The bytes that this rank sends for sums and parts of parameters in a step (see `Ranks.bytes_sent`); 0 before the first.

        Activations that layers of `shard_linear` send are not among them.
        """
        return self._bytes_sent

    @property
    def variants(self) -> int:
        """How many traces there are: one for each set of batch shapes, and with `accumulate` two."""
        return self._compiler.variants

    def start(self, state: TrainState) -> TrainState:
        """Return the state with what the options of this step keep in it, as before the first step.

        The step does this itself with a state from `train_state`; `load_state` needs such a state to know what to expect in a file.
        """
        extra = self._options.kept(state.params)
        mx.eval(extra)
        return evolve(state, extra=extra)

    def consumer(self, state: TrainState) -> "Consumer":
        """Return a function of a batch that makes the next step and waits for it: `profile(batches, consume=step.consumer(state))`.

        `profile` then tells how long training waits for data, and how many bytes a rank sends in each step.

        >>> import mlxfp as fp
        >>> step = fp.train_step(nn.Linear(1, 1), lambda model, batch: (model(batch["x"]).sum(), len(batch["x"])), optimizers.SGD(0.1))
        >>> train = step.consumer(fp.train_state(nn.Linear(1, 1), optimizers.SGD(0.1)))
        >>> train({"x": mx.ones((4, 1))})
        >>> train.state.step, train.bytes_sent
        (1, 0)
        """
        return Consumer(self, state)

    def __call__(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """Make one step."""
        trees = trees_of(self._checked(state))
        structure, arrays = flat_batch(batch)
        updates = (state.step + 1) % self._options.accumulate == 0
        if not self._runs and self._options.compile:
            self._check_use(state, batch)
        run = self._runs.get((structure, updates)) or self._run(structure, updates=updates)
        try:
            after, metrics = run(trees, step_key(state.seed, state.step, self._copy), arrays)
        except Exception as error:
            if flatten(trees)[0] == self._structure:
                add_batch_note(error, "loss", batch, compiled=self._options.compile)
            raise
        mx.async_eval(after, metrics)
        return TrainState(**after, step=state.step + 1, seed=state.seed, shards=self._options.shards), metrics

    def _run(self, structure: TreeDef, *, updates: bool) -> Callable[..., tuple[Trees, Metrics]]:
        key, run = (structure, updates), partial(self.pure, structure, updates=updates)
        self._runs[key] = self._compiler.get(key, run) if self._options.compile else run
        return self._runs[key]

    def look(self, state: TrainState, batch: Batch) -> None:
        """Apply the loss without compiling it, and compute nothing but the ids and labels that it makes of the batch.

        Raises `BoundError` for those that are outside of their tables. A compiled step sees only those in the batch itself.
        """
        key = random_key(state.seed, "look")
        self._model.apply(given_key(self._loss, key), state.params, state.buffers, arrays_of(batch), key=key)

    def pure(self, structure: TreeDef, trees: Trees, key: mx.array, arrays: list[mx.array], *, updates: bool) -> tuple[Trees, Metrics]:
        """Make one step that is not compiled, from and to `trees_of(state)`; a batch is `arrays` of a `structure`."""
        self._check_trees(trees)
        options, batch = self._options, unflatten(structure, arrays)
        before = 0 if options.ranks is None else options.ranks.bytes_sent
        (total, divisor, weight, buffers, touched), gradients = self._gradients(trees, batch, key)
        mean = mx.where(weight != 0, total / weight, total)  # not the one of the gradients, which is of one kernel with what comes after
        finite: Any = all_finite((mean, weight, gradients)) if options.skip_nonfinite or options.scaled else None
        if options.ranks is not None and options.divided and finite is not None:
            finite = agreed(options.ranks, finite)
        sums: Any = weighted_sums(gradients, divisor, weight, finite) if options.summed else None
        if options.ranks is not None:
            summed = self._parts.params if options.fully else ()
            sums, mean, weight, finite = sum_over_ranks(options.ranks, sums, mean, weight, finite, summed=summed)
        extra, metrics = dict(trees["extra"]), {"loss": mean, "weight": weight}
        weighs = weight != 0
        counts = weighs if finite is None else weighs & finite
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
                gradients, counts = mean_gradients(sums, gradients), sums["weight"] != 0
            if options.clip_norm is not None:
                gradients, metrics["grad_norm"] = clip(gradients, options.clip_norm, add_up=self._add_up_squares)
            after = self._updated(after, gradients, counts)
        if options.ranks is not None:
            self._bytes_sent = options.ranks.bytes_sent - before
        self._check_trees(after)
        return tree_map(with_plain_strides, after), metrics

    def _add_up_squares(self, squares: list[mx.array]) -> mx.array:
        ranks, shards = self._options.ranks, self._options.shards
        if ranks is None or not self._options.divided:
            return mx.stack(squares).sum()
        count = 1 if shards is None else shards.count
        held = [ranks.world.size // (count if place in self._parts.params else 1) for place in range(len(squares))]
        return add_up_squares(ranks, held, squares)

    def _gradients(self, trees: dict[str, Any], batch: dict[str, Any], key: mx.array) -> tuple[Any, Any]:
        """Return ((sum of the loss, divisor, weight, buffers, which of them may have changed), gradients of sum / divisor)."""
        options = self._options
        scale = trees["extra"]["scale"]["factor"] if options.scaled else None

        def objective(params: Any) -> tuple[mx.array, tuple[mx.array, mx.array, mx.array, Any, list[int]]]:
            if options.compute_dtype is not None:
                params = cast_floating(params, options.compute_dtype)
            (result, touched), buffers = self._model.apply(self._measured, params, trees["buffers"], batch, key, key=key)
            total, weight = sum_and_weight(result)
            share, divisor = total, weight
            if options.ranks is not None and options.fully:  # gradients of parts are sums over the ranks, so all divide by the same
                share, divisor = mx.where(weight == 0, 0, total), options.ranks.add_up(mx.stop_gradient(weight))
            mean = share / mx.where(divisor == 0, 1, divisor)
            return mean if scale is None else mean * scale, (total, divisor, weight, buffers, touched)

        with refusing_draws(
            "The model draws random numbers in the backward pass too: mx.checkpoint in it computes a part again, with other numbers, so "
            "its gradients would be wrong. Take mx.checkpoint out, and pass checkpoint_blocks=True, which draws the same ones again."
        ):
            (_, found), gradients = mx.value_and_grad(objective)(trees["params"])
        return found, gradients if scale is None else tree_map(lambda leaf: leaf / scale, gradients)

    def _measured(self, model: Any, batch: dict[str, Any], key: mx.array) -> tuple[Any, list[int]]:
        """Apply the loss to a model that is used only here; return its result, and which buffers it may have changed."""
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
            put_arrays(model, with_arrays(after, average_over_ranks(options.ranks, news, divided=self._parts.buffers)))
        return result, list(news)

    def _updated(self, trees: dict[str, Any], gradients: Any, counts: mx.array) -> dict[str, Any]:
        with refusing_draws(
            f"The optimizer, {type(self.optimizer).__name__}, draws random numbers, which is not supported: the ranks of a run would draw "
            "others, and a step would not be a function of its state. Add noise to the loss instead, which may draw."
        ):
            params, opt = update(self.optimizer, gradients, trees["opt"], trees["params"])
        params = with_shared(params, self._shared)  # the others decayed without a gradient
        after = {**trees, "params": params, "opt": opt}
        if self._options.ema is not None:
            average = next_average(trees["extra"]["average"], params, self._options.ema)
            after["extra"] = {**trees["extra"], "average": average}
        kept: dict[str, Any] = where_tree(counts, after, trees, tied=self._ties)
        return kept

    def _checked(self, state: TrainState) -> TrainState:
        """Return a state that has what the options keep; raise an error if the state is of a model divided in another way."""
        if not isinstance(state, TrainState):
            raise ArgumentTypeError(f"A step takes a TrainState, got {type(state).__name__}. Make one with train_state(model, optimizer).")
        if state.shards != self._options.shards:
            model, given = ("whole" if each is None else each.said for each in (self._options.shards, state.shards))
            raise ArgumentError(
                f"The model of the step is {model}, and the state is {given}. Make both from one model: train_state(model, optimizer) "
                "after shard_linear and fully_shard."
            )
        return self.start(state) if self._keeps and not state.extra else state

    def _check_use(self, state: TrainState, batch: Batch) -> None:
        """Raise `ArgumentError` if the loss calls another module of the model's class and does not depend on the model."""
        kind = self._model.kind
        if self.ranks is not None or not any(type(module) is kind for module in self._compiler.outside.modules):
            return
        nothing = tree_map(lambda array: mx.full(array.shape, float("nan"), array.dtype), state.params)
        key = random_key(state.seed, "look")
        result, _ = self._model.apply(given_key(self._loss, key), nothing, state.buffers, arrays_of(batch), key=key)
        if mx.isfinite(sum_and_weight(result)[0]).item():
            raise ArgumentError(
                f"The loss does not use the model that it is given; it calls another {kind.__name__}. Training would change nothing. "
                "Call the first argument: def loss(model, batch): ... model(batch[...])."
            )

    def _check_trees(self, trees: Trees) -> None:
        structure = flatten(trees)[0]
        if structure == self._structure:
            return
        differs = difference(self._structure, structure)
        if flatten({**trees, "extra": {}})[0] == self._plain:
            raise ArgumentError(
                f"The state holds what a step with other options keeps. {differs} Use the same options, or drop it: step.start(state)."
            )
        raise ArgumentError(f"The state does not belong to the model and optimizer of this step. {differs}")


@define(eq=False)
class Consumer:
    """Trains with one batch after the other, and waits for each step; made by `TrainStep.consumer`. `state` is that after the last step."""

    step: TrainStep
    state: TrainState

    @property
    def bytes_sent(self) -> int:
        """The bytes that this rank sends in a step."""
        return self.step.bytes_sent

    def __call__(self, batch: Batch) -> None:
        """Make one step. Where other ranks train too, all must be given equally many batches; see `connect(limit=)`."""
        ranks = self.step.ranks
        with nullcontext() if ranks is None else ranks.waiting():
            self.state, metrics = self.step(self.state, batch)
            mx.eval(trees_of(self.state), metrics)
