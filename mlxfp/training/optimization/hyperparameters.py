"""The numbers that an optimizer was made with, as plain values: its state does not have them, so a checkpoint keeps them in addition."""

from collections.abc import Mapping
from typing import Any

from mlx import optimizers

_PLAIN = (bool, int, float, str, type(None))


def hyperparameters(optimizer: optimizers.Optimizer) -> dict[str, Any]:
    """Return the name of the class and the settings of an optimizer, but the learning rate, which is a part of its state.

    >>> hyperparameters(optimizers.Lion(1e-3, weight_decay=0.1))
    {'class': 'Lion', 'betas': [0.9, 0.99], 'weight_decay': 0.1}
    """
    if isinstance(optimizer, optimizers.MultiOptimizer):
        parts = enumerate(map(hyperparameters, optimizer.optimizers))
        return {f"optimizers[{place}].{name}": value for place, part in parts for name, value in part.items()}
    own = {name: list(value) if isinstance(value, list | tuple) else value for name, value in vars(optimizer).items() if name[0] != "_"}
    plain = {
        name: value
        for name, value in own.items()
        if all(isinstance(each, _PLAIN) for each in (value if isinstance(value, list) else [value]))
    }
    return {"class": type(optimizer).__name__, **plain}


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Say which settings are others than those of a checkpoint; None if none are, or the checkpoint has none."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)] if before and now else []
    if not names:
        return None
    old, new = (", ".join(f"{name}={each.get(name)!r}" for name in names) for each in (before, now))
    return (
        f"The checkpoint was trained by an optimizer with {old}, and the step has one with {new}: the run goes on with the settings of the "
        "step, and with moments made by the others. To continue the run as it began, make the step with the same optimizer."
    )
