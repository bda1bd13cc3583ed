"""Fields of configuration classes: a default, a sentence about it, and what a value must be."""

from collections.abc import Callable
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any

from attrs import field, frozen


def option(default: Any, about: str, *checks: "Bound") -> Any:
    """Make a field of a configuration class; a value of None, where the type allows it, passes every check.

    >>> from attrs import frozen
    >>> @frozen(kw_only=True)
    ... class Loop:
    ...     epochs: int = option(3, "How often.", at_least(1))
    >>> Loop(epochs=0)
    Traceback (most recent call last):
    ValueError: expected at least 1
    """

    def check(_: Any, __: Any, value: Any) -> None:
        for each in checks:
            expected = None if value is None else each(value)
            if expected is not None:
                raise ValueError(f"expected {expected}")

    return field(default=default, metadata={"about": about, "checks": checks}, validator=check)


def place(default: str | None, about: str) -> Any:
    """Make a field of a configuration class that says where something is: `~` is the home folder, as no shell says behind a `=`.

    >>> from attrs import frozen
    >>> @frozen(kw_only=True)
    ... class Data:
    ...     path: str | None = place(None, "Where they are.")
    >>> Data(path="~/titanic").path == str(Path.home() / "titanic"), Data().path
    (True, None)
    """
    return field(default=default, metadata={"about": about, "checks": ()}, converter=_at_home)


def _at_home(path: Any) -> Any:
    return f"{Path.home()}{path[1:]}" if isinstance(path, str) and (path == "~" or path.startswith("~/")) else path


@frozen
class Bound:
    """A number that values are compared with; `word` is how a JSON schema says so."""

    word: str
    bound: float
    expected: str
    holds: Callable[[Any, Any], bool]

    def __call__(self, value: Any) -> str | None:
        """Return what is expected instead, if the value will not do."""
        return None if self.holds(value, self.bound) else f"{self.expected} {self.bound:g}"


def at_least(least: float) -> Bound:
    """Ask for a number of at least `least`."""
    return Bound("minimum", least, "at least", ge)


def above(least: float) -> Bound:
    """Ask for a number above `least`."""
    return Bound("exclusiveMinimum", least, "above", gt)


def at_most(most: float) -> Bound:
    """Ask for a number of at most `most`."""
    return Bound("maximum", most, "at most", le)


def below(most: float) -> Bound:
    """Ask for a number below `most`."""
    return Bound("exclusiveMaximum", most, "below", lt)
