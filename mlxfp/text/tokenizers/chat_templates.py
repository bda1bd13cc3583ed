"""Chat templates, which render a conversation as text for a model. A chat template is a Jinja program and runs in Jinja's sandbox."""

import datetime as dt
import json as jsons
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from attrs import field, frozen

from mlxfp.support.checks import check_text, check_types
from mlxfp.support.errors import ArgumentError, DataError, suggest
from mlxfp.support.optional import optional
from mlxfp.text.tokenizers.literal_text import unspellable

Messages = Sequence[Mapping[str, Any]]

CHAT_SETTINGS = "chat_template_settings"  # key of `tokenizer_config.json` under which mlxfp stores template variables and date
BEGIN, END = unspellable("begin"), unspellable("end")  # marks for the begin and end of {% generation %} blocks in a rendered text


def _pairs(variables: Any) -> tuple[tuple[str, Any], ...]:
    return variables if isinstance(variables, tuple) else tuple(sorted(variables.items()))


@frozen(repr=False)
class ChatTemplate:
    """Chat template of a model, which renders a conversation as text with Jinja. Templates can be compared and pickled.

    `load_tokenizer` reads the template of a model folder as `tokenizer.chat_template`. `variables` is a mapping of template variables
    besides the messages: special tokens such as `eos_token`, and settings of the model such as `enable_thinking`. `today`, for example
    "2026-01-31", is the date returned by `strftime_now` in templates. Without `today`, `strftime_now` returns the current date and time, as
    in transformers. Set `today` to get the same ids on every day.

    If a template prints an unknown name, or loops over an unknown name, rendering raises an error.

    The template has the functions and filters of transformers and renders the same text. Null fields of messages are removed, because Arrow
    adds a null field to each message if any message has the field.

    The template runs in the sandbox of Jinja (extra `chat`). The sandbox prevents access to files and Python internals, and limits a
    `range` to 100,000 numbers. Time and memory are not limited: nested loops, macros, powers and repeated texts can run for hours or
    exhaust memory. Use only templates of trusted models.

    >>> template = ChatTemplate("{% for message in messages %}{{ message.role }}: {{ message.content }}{{ end }}{% endfor %}",
    ...     variables={"end": "|"})
    >>> template.render([{"role": "user", "content": "Hello"}])
    'user: Hello|'

    See also: `chat`, for columns of conversations; `load_chat_template`, for a template by its name.
    """

    text: str
    variables: tuple[tuple[str, Any], ...] = field(default=(), converter=_pairs, kw_only=True)
    today: str | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_text(text=self.text)
        check_types((str, type(None)), today=self.today)
        if self.today is not None:
            _as_date(self.today)

    def check(self) -> None:
        """Raise `DataError` for a malformed template, and `MissingExtraError` without Jinja. `render` raises the same errors."""
        _compiled(self.text)

    @property
    def marks_answers(self) -> bool:
        """True if the template marks the text written by the model with {% generation %} blocks."""
        return "generation" in _compiled(self.text).mlxfp_tags

    def render(self, messages: Messages, *, tools: Any = None, generation_prompt: bool = False) -> str:
        """Return a conversation as text. `generation_prompt=True` adds the beginning of an answer.

        `tools` are function descriptions in the format of the template, usually JSON schemas. Raises `DataError` if the template raises an
        error for the conversation.
        """
        return self.render_marked(messages, tools, generation_prompt=generation_prompt).replace(BEGIN, "").replace(END, "")

    def render_marked(self, messages: Messages, tools: Any = None, *, generation_prompt: bool = False) -> str:
        """Return a conversation as text, with the marks `BEGIN` and `END` around the text inside {% generation %}."""
        given: dict[str, Any] = {"messages": without_nulls(messages), "tools": without_nulls(tools) or None, "documents": None}
        given["strftime_now"] = (dt.datetime.now().astimezone() if self.today is None else _as_date(self.today)).strftime
        template = _compiled(self.text).template
        known = {*dict(self.variables), *given, "add_generation_prompt"}
        try:
            text: str = template.render(**dict(self.variables) | given, add_generation_prompt=generation_prompt)
        except Exception as error:  # A template is a program and may raise any error.
            unknown = re.match(r"'(\w+)' is undefined", str(error))
            similar = suggest(unknown[1], sorted(known)) if unknown else ""
            raise DataError(
                f"The chat template rejects a conversation: {error}.{similar} Correct or remove the conversation. If the template "
                f"needs a variable, use attrs.evolve(template, variables={{...}}). To set the date, use attrs.evolve(template, today=...)."
            ) from error
        return text

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings to save with the tokenizer: the template variables and the date `today`.

        The dict is empty if `today` is None and the variables are exactly the special tokens in `config`.
        """
        given = {"variables": dict(self.variables), "today": self.today}
        return {} if given == {"variables": special_tokens(config), "today": None} else {CHAT_SETTINGS: given}

    def __repr__(self) -> str:
        return f"ChatTemplate({len(self.text)} characters)"


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return all special tokens of a tokenizer_config.json: the keys that end in `_token` and have a string value."""
    return {key: value for key, value in config.items() if key.endswith("_token") and isinstance(value, str)}


def without_nulls(value: Any) -> Any:
    """Remove null fields from nested objects. Arrow adds these nulls, because all rows of a struct column have the same fields."""
    if isinstance(value, Mapping):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, Sequence) and not isinstance(value, str | bytes) else value


def _as_date(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:
        raise ArgumentError(f"today must be a date such as '2026-01-31', got today={text!r}.") from error


@frozen
class _Compiled:
    template: Any
    mlxfp_tags: frozenset[str]


@lru_cache(maxsize=32)
def _compiled(text: str) -> _Compiled:
    """Compile a template with the same Jinja settings as transformers (utils/chat_template_utils.py)."""
    jinja = optional("jinja2", extra="chat", needed_by="A chat template")
    loops = optional("jinja2.ext", extra="chat", needed_by="A chat template").loopcontrols
    sandbox = optional("jinja2.sandbox", extra="chat", needed_by="A chat template")
    tags: set[str] = set()

    class Generation(jinja.ext.Extension):  # type: ignore[misc, name-defined]  # base class of an optional package
        tags = frozenset({"generation"})

        def parse(self, parser: Any) -> Any:
            tags.add("generation")
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

        def _mark(self, caller: Any) -> str:
            return f"{BEGIN}{caller()}{END}"

    assigned: set[str] = set()

    class Undefined(jinja.Undefined):  # type: ignore[misc, name-defined]  # the same
        """Stand-in for an undefined template variable. The template may test whether the variable is defined.

        Printing the variable, or a loop over the variable, raises an error. There is one exception: a variable that the template assigns in
        another place is empty.
        """

        def _check(self) -> None:
            if self._undefined_obj is jinja.utils.missing and self._undefined_name not in assigned:
                self._fail_with_undefined_error()

        def __str__(self) -> str:
            self._check()
            return ""

        def __len__(self) -> int:
            self._check()
            return 0

        def __iter__(self) -> Iterator[Any]:
            self._check()
            return iter(())

    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loops], undefined=Undefined
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    try:
        assigned.update(name.name for name in environment.parse(text).find_all(jinja.nodes.Name) if name.ctx != "load")
        return _Compiled(environment.from_string(text), frozenset(tags))
    # Deeply nested brackets raise RecursionError, and 21 nested loops raise SyntaxError.
    except (jinja.TemplateError, RecursionError, SyntaxError) as error:
        raise DataError(f"The chat template is malformed: {error}, in line {getattr(error, 'lineno', '?')} of {text!r:.60}.") from error


def _to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002  # templates may pass positionally
    indent: int | None = None,
    separators: Iterable[str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002  # the same
) -> str:
    """Write JSON without the HTML escapes that Jinja's filter `tojson` adds."""
    pair: Any = None if separators is None else tuple(separators)
    return jsons.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=pair, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise ValueError(message)
