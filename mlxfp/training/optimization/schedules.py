"""Schedules: pure functions of the step, for the argument `learning_rate` of an optimizer.

The step is the number of previous updates, so the first update has step 0. The optimizer state includes the step, so a run continued
from a checkpoint continues its schedule. With a warmup of w updates, update i (from 0) has the rate `rate * (i + 1) / w`, so the first
rate is small but not zero. To offer another schedule in configurations, add an entry to `SCHEDULES`.
"""

from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from math import inf, pi
from numbers import Real

import mlx.core as mx
from attrs import frozen

from mlxfp.support.checks import check_not_negative, check_positive, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.support.registries import Registry

__all__ = [
    "SCHEDULES",
    "Schedule",
    "by_name",
    "check_rate",
    "constant",
    "cosine_decay",
    "coslog",
    "flat_cosine",
    "linear_decay",
]


def __dir__() -> list[str]:
    return __all__


Schedule = Callable[[mx.array | int], mx.array]


def by_name(name: str, rate: float, *, steps: int, warmup: float = 0.0) -> Schedule:
    """Return a schedule of the table `SCHEDULES` for a run of `steps` updates. `warmup` is the share of updates with a rising rate.

    >>> by_name("cosine", 1e-3, steps=100, warmup=0.1)
    cosine_decay(rate=0.001, steps=100, warmup=10)
    """
    check_positive(steps=steps)
    check_rate(rate=rate)
    return SCHEDULES[name](rate, steps, round(warmup * steps))


@explain_call
def constant(rate: float, *, warmup: int = 0) -> Schedule:
    """Rise linearly for `warmup` updates, then stay at `rate`.

    >>> [round(constant(1.0, warmup=4)(step).item(), 2) for step in (0, 1, 3, 9)]
    [0.25, 0.5, 1.0, 1.0]
    """
    check_not_negative(warmup=warmup)
    check_rate(rate=rate)
    return _Schedule(_constant, (rate, warmup))


@explain_call
def linear_decay(rate: float, *, steps: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Rise linearly for `warmup` updates, fall linearly from `rate` to `end` at `steps`, then stay at `end`.

    >>> [round(linear_decay(1.0, steps=6, warmup=2)(step).item(), 2) for step in (0, 1, 2, 4, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.0, 0.0]
    """
    _check_steps(steps, warmup)
    check_rate(rate=rate, end=end)
    return _Schedule(_linear_decay, (rate, steps, warmup, end))


@explain_call
def cosine_decay(rate: float, *, steps: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Rise linearly for `warmup` updates, fall as a half cosine from `rate` to `end` at `steps`, then stay at `end`.

    Source: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017; here without restarts.

    >>> [round(cosine_decay(1.0, steps=4)(step).item(), 2) for step in (0, 1, 2, 4, 9)]
    [1.0, 0.85, 0.5, 0.0, 0.0]
    """
    _check_steps(steps, warmup)
    check_rate(rate=rate, end=end)
    return _Schedule(_cosine_decay, (rate, steps, warmup, end))


@explain_call
def coslog(rate: float, *, steps: int, cycles: int = 4) -> Schedule:
    """Rise from 0 to `rate` and fall to 0 as a cosine, in `cycles` cycles. Each cycle is twice as long as the previous cycle.

    After n updates, the completed share of the run is t = (n + 0.5) / `steps`, so the first update has a rate above 0. With 4 cycles, the
    schedule is "coslog4" of the source: rate * (1 - cos(2 pi log2(1 + 15 t))) / 2. After `steps` updates, the rate stays at 0.

    Source: Holzmüller, Grinsztajn and Steinwart, "Better by Default: Strong Pre-Tuned MLPs and Boosted Trees on Tabular Data", 2024.

    >>> [round(coslog(1.0, steps=150)(step).item(), 2) for step in (0, 4, 10, 19, 45, 100, 149, 150)]
    [0.05, 0.99, 0.01, 0.96, 0.99, 0.99, 0.0, 0.0]
    """
    check_positive(steps=steps, cycles=cycles)
    check_rate(rate=rate)
    return _Schedule(_coslog, (rate, steps, cycles))


@explain_call
def flat_cosine(rate: float, *, steps: int) -> Schedule:
    """Keep `rate` during the first half of `steps`. Decay to 0 along a half cosine during the second half, then stay at 0.

    >>> [round(flat_cosine(1.0, steps=4)(step).item(), 2) for step in (0, 2, 3, 4, 9)]
    [1.0, 1.0, 0.5, 0.0, 0.0]
    """
    check_positive(steps=steps)
    check_rate(rate=rate)
    return _Schedule(_flat_cosine, (rate, steps))


def check_rate(**values: object) -> None:
    """Raise an error unless every value, such as a learning rate, is a finite number of at least 0.

    >>> check_rate(learning_rate="1e-3")
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: learning_rate must be a number, got learning_rate='1e-3'. Remove the quotes: 0.001.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Real):
            hint = ""
            with suppress(ValueError):  # a text that is not a number
                hint = f" Remove the quotes: {float(value):g}." if isinstance(value, str) else ""
            raise ArgumentTypeError(f"{name} must be a number, got {name}={value!r}.{hint}")
        if not 0 <= float(value) < inf:
            raise ArgumentError(f"{name} must be a finite number of at least 0, got {name}={value!r}.")


# Schedules available in configurations: functions of the peak rate, the number of updates, and the number of warmup updates.
SCHEDULES: Registry[Callable[[float, int, int], Schedule]] = Registry(
    "schedule",
    {
        "coslog": lambda rate, steps, warmup: coslog(rate, steps=steps),
        "constant": lambda rate, steps, warmup: constant(rate, warmup=warmup),
        "linear": lambda rate, steps, warmup: linear_decay(rate, steps=steps, warmup=min(warmup, steps - 1)),
        "cosine": lambda rate, steps, warmup: cosine_decay(rate, steps=steps, warmup=min(warmup, steps - 1)),
    },
)


@frozen(repr=False)
class _Schedule:
    """A schedule: a formula and all arguments of the formula except the step. The repr omits default arguments."""

    formula: Callable[..., mx.array]
    arguments: tuple[float, ...]

    def __call__(self, step: mx.array | int) -> mx.array:
        return self.formula(mx.array(step).astype(mx.float32), *self.arguments)

    def __repr__(self) -> str:
        _, *parameters = signature(self.formula).parameters.values()
        given = [
            f"{parameter.name}={value!r}" for parameter, value in zip(parameters, self.arguments, strict=True) if value != parameter.default
        ]
        return f"{self.formula.__name__.removeprefix('_')}({', '.join(given)})"


def _constant(done: mx.array, rate: float, warmup: int = 0) -> mx.array:
    return _after_warmup(done, rate, warmup, mx.array(rate))


def _linear_decay(done: mx.array, rate: float, steps: int, warmup: int = 0, end: float = 0.0) -> mx.array:
    return _after_warmup(done, rate, warmup, _between(end, rate, 1 - _share(done, steps, warmup)))


def _cosine_decay(done: mx.array, rate: float, steps: int, warmup: int = 0, end: float = 0.0) -> mx.array:
    return _after_warmup(done, rate, warmup, _between(rate, end, _half_cosine(_share(done, steps, warmup))))


def _coslog(done: mx.array, rate: float, steps: int, cycles: int = 4) -> mx.array:
    share = mx.where(done < steps, (done + 0.5) / steps, 1.0)
    return 0.5 * rate * (1 - mx.cos(2 * pi * mx.log2(1 + (2**cycles - 1) * share)))


def _flat_cosine(done: mx.array, rate: float, steps: int) -> mx.array:
    return _between(rate, 0.0, _half_cosine(mx.clip(2 * done / steps - 1, 0, 1)))


def _after_warmup(done: mx.array, rate: float, warmup: int, after: mx.array) -> mx.array:
    return mx.where(done < warmup, rate * (done + 1) / max(warmup, 1), after)


def _share(done: mx.array, steps: int, warmup: int) -> mx.array:
    """Return the completed fraction of the steps after the warmup, from 0 to 1."""
    return mx.clip((done - warmup) / (steps - warmup), 0, 1)


def _between(start: float, end: float, share: mx.array) -> mx.array:
    return start + (end - start) * share


def _half_cosine(share: mx.array) -> mx.array:
    """Return a number that rises from 0 to 1 along a half cosine while `share` rises from 0 to 1."""
    return 0.5 * (1 - mx.cos(pi * share))


def _check_steps(steps: int, warmup: int) -> None:
    check_positive(steps=steps)
    check_not_negative(warmup=warmup)
    if warmup >= steps:
        raise ArgumentError(f"warmup must be less than steps, got warmup={warmup} and steps={steps}.")
