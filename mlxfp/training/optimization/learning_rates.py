"""Read and scale the learning rates in the state of any optimizer of MLX, nested ones too."""

from typing import Any

import mlx.core as mx


def learning_rates(opt: Any) -> list[float]:
    """Read the learning rates of an optimizer's state: one, or one for each group of parameters.

    >>> learning_rates({"states": [{"learning_rate": mx.array(0.5), "w": {"m": mx.zeros(2)}}, {"learning_rate": mx.array(0.25)}]})
    [0.5, 0.25]
    """
    if isinstance(opt, dict):
        own = [float(opt["learning_rate"].item())] if _has_rate(opt) else []
        return own + [rate for part in opt.values() for rate in learning_rates(part)]
    return [rate for part in opt for rate in learning_rates(part)] if isinstance(opt, list | tuple) else []


def scaled_rates(opt: Any, factor: float) -> Any:
    """Return an optimizer's state with every learning rate multiplied and the rest unchanged.

    >>> scaled_rates({"step": mx.array(3), "learning_rate": mx.array(0.5)}, 0.5)
    {'step': array(3, dtype=int32), 'learning_rate': array(0.25, dtype=float32)}
    """
    if isinstance(opt, dict):
        parts = {name: scaled_rates(part, factor) for name, part in opt.items()}
        return parts | {"learning_rate": opt["learning_rate"] * factor} if _has_rate(opt) else parts
    return type(opt)(scaled_rates(part, factor) for part in opt) if isinstance(opt, list | tuple) else opt


def _has_rate(opt: dict[str, Any]) -> bool:
    return isinstance(opt.get("learning_rate"), mx.array)  # the state of a parameter of that name is a dict
