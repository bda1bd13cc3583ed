"""Chat templates: how a model expects a conversation as text. They are programs in Jinja, and run in its sandbox."""

import datetime as dt
import json as jsons
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from attrs import field, frozen

from mlxfp.support.checks import check_text, check_types
from mlxfp.support.errors import ArgumentError, DataError
from mlxfp.support.optional import optional
from mlxfp.text.tokenizers.literal_text import unspellable

Messages = Sequence[Mapping[str, Any]]

CHAT_SETTINGS = "chat_template_settings"  # in a tokenizer_config.json of ours: variables that are not its special tokens, and today
BEGIN, END = unspellable("begin"), unspellable("end")  # around what a template marks with {% generation %}


def _pairs(variables: Any) -> tuple[tuple[str, Any], ...]:
    return variables if isinstance(variables, tuple) else tuple(sorted(variables.items()))


@frozen(repr=False)
class ChatTemplate:
    """How a model expects a conversation as text: a template in Jinja, as in `chat_template.jinja` and `tokenizer_config.json`. A value.

    `load_tokenizer` reads that of a model's folder, as `tokenizer.chat_template`; it is also made from the text of a template.
    `variables` is a mapping of what a template may use in addition to the messages: special tokens, such as `eos_token`, and settings of
    the model, such as `enable_thinking`. `today`, as in "2026-01-31", is what `strftime_now` of a template sees; without it a template
    has no clock, and most then write a fixed date.

    The template runs in the sandbox of Jinja (extra `chat`), with the functions and filters of transformers, and writes the same text. The
    sandbox gives no access to files or to Python's internals, and a `range` has at most 100,000 numbers. Time and memory are not bounded:
    nested loops, macros, powers and repeated texts can run for hours or fill the memory. Use templates of models that you trust. Null
    fields of a message are left out, because Arrow adds a null field if another message has the field.

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
        """Raise `DataError` for a template that is malformed, and `MissingExtraError` without Jinja; otherwise, rendering does."""
        _compiled(self.text)

    @property
    def marks_answers(self) -> bool:
        """Whether the template says itself what the model writes, by {% generation %}."""
        return "generation" in _compiled(self.text).mlxfp_tags

    def render(self, messages: Messages, *, tools: Any = None, generation_prompt: bool = False) -> str:
        """Return the text of a conversation; with `generation_prompt`, it ends with the beginning of an answer.

        `tools` are descriptions of functions, in the form that the template expects: most take JSON schemas. Raises `DataError` where the
        template refuses the conversation.
        """
        return self.render_marked(messages, tools, generation_prompt=generation_prompt).replace(BEGIN, "").replace(END, "")

    def render_marked(self, messages: Messages, tools: Any = None, *, generation_prompt: bool = False) -> str:
        """Do what `render` does, with `BEGIN` and `END` around what a template marks as written by the model."""
        given: dict[str, Any] = {"messages": without_nulls(messages), "tools": without_nulls(tools) or None, "documents": None}
        if self.today is not None:
            given["strftime_now"] = _as_date(self.today).strftime
        template = _compiled(self.text).template
        try:
            text: str = template.render(**dict(self.variables) | given, add_generation_prompt=generation_prompt)
        except Exception as error:  # a template is a program, and can fail in any way
            raise DataError(
                f"The chat template refuses a conversation: {error}. Correct it, or leave it out; if the template needs another variable, "
                "such as a date, give it with attrs.evolve(template, variables=..., today=...)."
            ) from error
        return text

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return what has to be kept in addition to the text of the template and the configuration of its tokenizer."""
        given = {"variables": dict(self.variables), "today": self.today}
        return {} if given == {"variables": special_tokens(config), "today": None} else {CHAT_SETTINGS: given}

    def __repr__(self) -> str:
        return f"ChatTemplate({len(self.text)} characters)"


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens that a tokenizer_config.json names: those of roles, and others that a template may use."""
    return {key: value for key, value in config.items() if key.endswith("_token") and isinstance(value, str)}


def without_nulls(value: Any) -> Any:
    """Leave out the fields of objects that are null, at any depth; the objects of a column of structs have the fields of all others."""
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
    """Compile a template as transformers does (utils/chat_template_utils.py)."""
    jinja = optional("jinja2", extra="chat", needed_by="A chat template")
    loops = optional("jinja2.ext", extra="chat", needed_by="A chat template").loopcontrols
    sandbox = optional("jinja2.sandbox", extra="chat", needed_by="A chat template")
    found: set[str] = set()

    class Generation(jinja.ext.Extension):  # type: ignore[misc, name-defined]  # of a package that is imported here only
        tags = frozenset({"generation"})

        def parse(self, parser: Any) -> Any:
            found.add("generation")
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

        def _mark(self, caller: Any) -> str:
            return f"{BEGIN}{caller()}{END}"

    made = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loops])
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _raise
    try:
        return _Compiled(made.from_string(text), frozenset(found))
    except (jinja.TemplateError, RecursionError, SyntaxError) as error:  # RecursionError: deep brackets; SyntaxError: 21 nested loops
        raise DataError(f"The chat template is malformed: {error}, in line {getattr(error, 'lineno', '?')} of {text!r:.60}.") from error


def _to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002  # templates may pass it by place
    indent: int | None = None,
    separators: Iterable[str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002  # the same
) -> str:
    """Write JSON as it is; Jinja's own filter escapes it for HTML."""
    pair: Any = None if separators is None else tuple(separators)
    return jsons.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=pair, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise ValueError(message)
