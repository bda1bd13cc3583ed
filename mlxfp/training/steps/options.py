"""Options of a training step, and the values that options add to the training state."""

from typing import Any

import mlx.core as mx
from attrs import frozen

from mlxfp.distributed import Ranks
from mlxfp.training.steps.accumulating import zero_sums
from mlxfp.training.steps.averaging import first_average
from mlxfp.training.steps.precision import first_scale
from mlxfp.training.steps.sharding import Shards


@frozen
class Options:
    """Options of a step, as in `train_step`, and the sharding of the model."""

    clip_norm: float | None
    accumulate: int
    compute_dtype: mx.Dtype | None
    checkpoint_blocks: bool
    skip_nonfinite: bool
    ema: float | None
    ranks: Ranks | None
    compile: bool
    shards: Shards | None
    pretrained: tuple[str, ...] = ()  # models of the Hugging Face hub with the initial weights, as `org/name@commit`

    @property
    def divided(self) -> bool:
        """True if each rank holds only a part of the model. To keep the parts consistent, all ranks must skip the same batches."""
        return self.ranks is not None and (self.shards is not None or self.ranks.world.tensor > 1)

    @property
    def fully(self) -> bool:
        """True if gradients of divided parameters are already sums over all ranks."""
        return self.shards is not None and bool(self.shards.wrapped)

    @property
    def scaled(self) -> bool:
        """True if the loss is multiplied by a scale, as float16 requires."""
        return self.compute_dtype is not None and self.compute_dtype == mx.float16  # comparing a Dtype to None raises an error

    @property
    def summed(self) -> bool:
        """True if gradients are kept as weighted sums until the update, instead of means."""
        return self.accumulate > 1 or self.ranks is not None

    def kept(self, params: Any) -> dict[str, Any]:
        """Return the initial gradient sums, loss scale and averages for a state. Each entry exists only if its option is set."""
        extra: dict[str, Any] = {}
        if self.accumulate > 1:
            extra["sums"] = zero_sums(params)
        if self.scaled:
            extra["scale"] = first_scale()
        if self.ema is not None:
            extra["average"] = first_average(params)
        return extra
