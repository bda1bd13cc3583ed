"""Fields of classes that files configure: a default, a help text, and the bounds of a value."""

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
        check_bounds(value, checks)

    return field(default=default, metadata={"about": about, "checks": checks}, validator=check)


def path_option(default: str | None, about: str) -> Any:
    """Make a field that holds a path; `~` becomes the home folder, since a shell does not expand it after a `=`.

    >>> from attrs import frozen
    >>> @frozen(kw_only=True)
    ... class Data:
    ...     path: str | None = path_option(None, "The folder of the data.")
    >>> Data(path="~/titanic").path == str(Path.home() / "titanic"), Data().path
    (True, None)
    """
    return field(default=default, metadata={"about": about, "checks": ()}, converter=_expand_home)


def _expand_home(path: Any) -> Any:
    return f"{Path.home()}{path[1:]}" if isinstance(path, str) and (path == "~" or path.startswith("~/")) else path


def check_bounds(value: Any, checks: tuple[Callable[[Any], str | None], ...]) -> None:
    """Raise `ValueError` for the first check that a value fails; a check returns what it expects instead, or None."""
    expected = None if value is None else next((said for check in checks if (said := check(value)) is not None), None)
    if expected is not None:
        raise ValueError(f"expected {expected}")


@frozen
class Bound:
    """A bound of a number; `word` is its keyword in a JSON schema."""

    word: str
    bound: float
    expected: str
    holds: Callable[[Any, Any], bool]

    def __call__(self, value: Any) -> str | None:
        """Return what is expected if the value is out of bounds, else None."""
        return None if self.holds(value, self.bound) else f"{self.expected} {self.bound:g}"


def at_least(least: float) -> Bound:
    """Require a number of at least `least`."""
    return Bound("minimum", least, "at least", ge)


def above(least: float) -> Bound:
    """Require a number above `least`."""
    return Bound("exclusiveMinimum", least, "above", gt)


def at_most(most: float) -> Bound:
    """Require a number of at most `most`."""
    return Bound("maximum", most, "at most", le)


def below(most: float) -> Bound:
    """Require a number below `most`."""
    return Bound("exclusiveMaximum", most, "below", lt)
