"""The settings of an optimizer as plain values. Checkpoints store the settings, because the optimizer state lacks them."""

from collections.abc import Mapping
from typing import Any

from mlx import optimizers

_PLAIN = (bool, int, float, str, type(None))


def hyperparameters(optimizer: optimizers.Optimizer) -> dict[str, Any]:
    """Return the class name and the settings of an optimizer. The learning rate is excluded, because it is part of the state.

    >>> hyperparameters(optimizers.Lion(1e-3, weight_decay=0.1))
    {'class': 'Lion', 'betas': [0.9, 0.99], 'weight_decay': 0.1}
    """
    if isinstance(optimizer, optimizers.MultiOptimizer):
        parts = enumerate(map(hyperparameters, optimizer.optimizers))
        return {f"optimizers[{index}].{name}": value for index, part in parts for name, value in part.items()}
    settings = {
        name: list(value) if isinstance(value, list | tuple) else value for name, value in vars(optimizer).items() if name[0] != "_"
    }
    plain = {
        name: value
        for name, value in settings.items()
        if all(isinstance(element, _PLAIN) for element in (value if isinstance(value, list) else [value]))
    }
    return {"class": type(optimizer).__name__, **plain}


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return a warning that names the settings changed since a checkpoint. Return None if the settings are equal or were not stored."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)] if before and now else []
    if not names:
        return None
    old, new = (", ".join(f"{name}={settings.get(name)!r}" for name in names) for settings in (before, now))
    return (
        f"The optimizer of the checkpoint has {old}, but the optimizer of the step has {new}. The run continues with the settings of the "
        "step and the moments of the checkpoint. To keep the old settings, build the step with the old optimizer."
    )
