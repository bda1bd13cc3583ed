"""Fields of classes that files configure: a default, a help text, and the bounds of a value."""

from collections.abc import Callable
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any

from attrs import field, frozen

_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "at least": ("minimum", ge),
    "above": ("exclusiveMinimum", gt),
    "at most": ("maximum", le),
    "below": ("exclusiveMaximum", lt),
}


def option(  # noqa: PLR0913  # bounds are keyword-only
    default: Any,
    about: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> Any:
    """Make a field of a configuration class; a value of None, where the type allows it, passes every check.

    >>> from attrs import frozen
    >>> @frozen(kw_only=True)
    ... class Loop:
    ...     epochs: int = option(3, "How often.", at_least=1)
    >>> Loop(epochs=0)
    Traceback (most recent call last):
    ValueError: expected at least 1
    """
    bounds = {"at least": at_least, "above": above, "at most": at_most, "below": below}
    checks = tuple(Bound(name, bound) for name, bound in bounds.items() if bound is not None)

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
    """A bound of a number: at least, above, at most or below another; `word` is its keyword in a JSON schema."""

    name: str
    bound: float

    @property
    def word(self) -> str:
        """The keyword."""
        return _BOUNDS[self.name][0]

    def __call__(self, value: Any) -> str | None:
        """Return what is expected if the value is out of bounds, else None."""
        return None if _BOUNDS[self.name][1](value, self.bound) else f"{self.name} {self.bound:g}"
