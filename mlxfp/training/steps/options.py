"""The options of a step of training, and what they keep in a state."""

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
    """The options of a step, as `train_step` takes them, and how the model is divided."""

    clip_norm: float | None
    accumulate: int
    compute_dtype: mx.Dtype | None
    checkpoint_blocks: bool
    skip_nonfinite: bool
    ema: float | None
    ranks: Ranks | None
    compile: bool
    shards: Shards | None

    @property
    def divided(self) -> bool:
        """Whether ranks hold other numbers than this one: then a decision by its gradients must be one of all."""
        return self.ranks is not None and (self.shards is not None or self.ranks.world.tensor > 1)

    @property
    def fully(self) -> bool:
        """Whether gradients of parts are sums over all ranks already."""
        return self.shards is not None and bool(self.shards.wrapped)

    @property
    def scaled(self) -> bool:
        """Whether the loss is scaled."""
        return self.compute_dtype is not None and self.compute_dtype == mx.float16  # comparing a Dtype to None raises

    @property
    def summed(self) -> bool:
        """Whether gradients are those of a sum, up to the update."""
        return self.accumulate > 1 or self.ranks is not None

    def kept(self, params: Any) -> dict[str, Any]:
        """Make what the options keep in a state, before the first step."""
        extra: dict[str, Any] = {}
        if self.accumulate > 1:
            extra["sums"] = zero_sums(params)
        if self.scaled:
            extra["scale"] = first_scale()
        if self.ema is not None:
            extra["average"] = first_average(params)
        return extra
