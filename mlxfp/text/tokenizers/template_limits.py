"""The sandbox of chat templates, with an end: a template is a program that came with a model, and may loop or write without one.

Counted are the passes of loops, the calls, and the characters that are written. Values are measured when an operation has made them, and
before it where its operands say how large they will be (`*`, `**`, widths of formats). Not bounded is a single operation of Python on
values that are long already, such as `replace`, and printing a list that holds the same list many times over.
"""

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from attrs import define

from mlxfp.support.optional import optional

# A template that looks at all turns for each turn makes a million passes for a thousand turns.
_STEPS = 2_000_000
_CHARACTERS = 1 << 26  # that are written in all; those that go through a macro are written twice
_BITS = 1 << 16  # of an integer
_WIDTH = 1 << 16  # of a field, and of what is put in front of each line of a text
_WIDE = re.compile(r"%[-+ #0]*(\d*\.)?(\*|\d{6})|:[^{}]*(\{|\d{6})")  # a format with a large width, or with one that is an argument
_PADDING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})  # methods of texts that are given a width
_COUNTER, _PASSED, _WRITTEN, _MEASURED = (f"{what} of mlxfp" for what in ("counter", "passed", "written", "measured"))  # with spaces: no
# template can name them


@define
class _Counter:
    steps: int = 0
    characters: int = 0

    def spend(self, steps: int, characters: int) -> None:
        self.steps += steps
        self.characters += characters
        if self.steps > _STEPS:
            raise OverflowError(f"it makes more than {_STEPS:,} passes of loops and calls")
        if self.characters > _CHARACTERS:
            raise OverflowError(f"it writes more than {_CHARACTERS:,} characters")


def counters() -> dict[str, Any]:
    """Return what a template has to be rendered with besides its variables; a new one for each conversation."""
    return {_COUNTER: _Counter()}


def make_environment(extensions: Sequence[Any]) -> Any:
    """Make the environment of Jinja in which templates run."""
    jinja = optional("jinja2", extra="chat", needed_by="A chat template")
    sandbox = optional("jinja2.sandbox", extra="chat", needed_by="A chat template")

    class Limited(sandbox.ImmutableSandboxedEnvironment):  # type: ignore[misc, name-defined]  # of a package that is imported here only
        intercepted_binops = frozenset({"+", "*", "**", "%"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            _check_operands(operator, left, right)
            return _measured(super().call_binop(context, operator, left, right))

        def call(self, context: Any, function: Any, /, *given: Any, **named: Any) -> Any:
            context.parent[_COUNTER].spend(1, 0)
            method = getattr(function, "__wrapped__", function)  # the sandbox wraps str.format
            if isinstance(text := getattr(method, "__self__", None), str):
                _check_method(text, method.__name__, given)
            return _measured(super().call(context, function, *given, **named))

    @jinja.pass_context  # type: ignore[untyped-decorator]  # of the package too
    def passed(context: Any, steps: int, characters: int) -> str:
        context.parent[_COUNTER].spend(steps, characters)
        return ""

    @jinja.pass_context  # type: ignore[untyped-decorator]
    def written(context: Any, value: Any) -> Any:
        context.parent[_COUNTER].spend(0, len(value) if isinstance(value, str) else 8)
        return value

    made = Limited(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    made.filters |= {_PASSED: passed, _WRITTEN: written, _MEASURED: _measured}
    made.filters |= {name: _narrow(made.filters[name], name) for name in ("center", "format", "indent")}
    made.globals["lipsum"] = _narrow(made.globals["lipsum"], "lipsum")
    return made


def parse_counted(environment: Any, text: str) -> Any:
    """Parse a template, and return its tree with what counts in it."""
    nodes = optional("jinja2", extra="chat", needed_by="A chat template").nodes
    visitor = optional("jinja2.visitor", extra="chat", needed_by="A chat template")

    def call(name: str, value: Any, *given: Any) -> Any:
        return nodes.Filter(value, name, list(given), [], None, None)

    def count(node: Any, steps: int) -> Any:
        """Count each time that the body of a node runs: as a step, and all text that is in it, also in branches that are not taken."""
        constant = sum(len(each.data) for each in node.find_all(nodes.TemplateData))
        counted = call(_PASSED, nodes.Const(steps), nodes.Const(constant))
        node.body.insert(0, nodes.ExprStmt(counted).set_lineno(node.lineno))
        return node

    def write(part: Any) -> Any:
        return part if isinstance(part, nodes.TemplateData) else call(_WRITTEN, part).set_lineno(part.lineno)

    class Counting(visitor.NodeTransformer):  # type: ignore[misc, name-defined]  # of the package too
        def visit_For(self, node: Any) -> Any:  # noqa: N802  # the names of Jinja's nodes
            return count(self.generic_visit(node), 1)

        def visit_Macro(self, node: Any) -> Any:  # noqa: N802
            return count(self.generic_visit(node), 0)  # calls are counted where they are made

        visit_CallBlock = visit_Macro  # noqa: N815

        def visit_Output(self, node: Any) -> Any:  # noqa: N802
            self.generic_visit(node)
            node.nodes = [write(part) for part in node.nodes]
            return node

        def visit_Concat(self, node: Any) -> Any:  # noqa: N802
            self.generic_visit(node)
            node.nodes = [write(part) for part in node.nodes]
            return node

        def visit_Filter(self, node: Any) -> Any:  # noqa: N802
            self.generic_visit(node)
            return node if node.node is None else call(_MEASURED, node).set_lineno(node.lineno)  # None: of a block

        def visit_FilterBlock(self, node: Any) -> Any:  # noqa: N802
            node.body = [self.visit(inner) for inner in node.body]
            return node

        visit_AssignBlock = visit_FilterBlock  # noqa: N815  # its filter, too, must stay one

    return Counting().visit(environment.parse(text)).set_environment(environment)


def _measured(value: Any) -> Any:
    """Return a value that is not too long."""
    if isinstance(value, str | list | tuple) and len(value) > _CHARACTERS:
        raise OverflowError(f"it makes a value of more than {_CHARACTERS:,} characters or items")
    return value


def _check_operands(operator: str, left: Any, right: Any) -> None:
    """Raise `OverflowError` where the result would be too large to be made."""
    if operator == "%" and isinstance(left, str):
        _check_format(left)
    elif operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
        if (left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()) > _BITS:
            raise OverflowError(f"it makes an integer of more than {_BITS:,} bits")
    elif operator == "*":
        items, times = (right, left) if isinstance(left, int) else (left, right)
        if isinstance(items, str | list | tuple) and isinstance(times, int) and len(items) * times > _CHARACTERS:
            raise OverflowError(f"it makes a value of more than {_CHARACTERS:,} characters or items")


def _check_format(text: str) -> None:
    if _WIDE.search(text):
        raise OverflowError(f"the fields of {text!r:.60} are too wide, or their width is not written out")


def _check_method(text: str, name: str, given: Sequence[Any]) -> None:
    if name in ("format", "format_map"):
        _check_format(text)
    elif name in _PADDING:
        _check_width(given)


def _check_width(given: Sequence[Any]) -> None:
    if any(isinstance(value, int) and value > _WIDTH for value in given):
        raise OverflowError(f"a field may be {_WIDTH:,} characters wide, got {given!r:.60}")


def _narrow(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a filter of Jinja that checks the widths that it is given."""

    @wraps(function)
    def narrow(*given: Any, **named: Any) -> Any:
        if name == "format":
            _check_format(str(given[0]))
        else:
            _check_width([*given, *named.values()])
        return function(*given, **named)

    return narrow
