"""Chat templates: how a model expects a conversation as text. They are programs in Jinja, and run in its sandbox."""

import datetime as dt
import json as jsons
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

from attrs import field, frozen

from mlxfp.core._optional import optional
from mlxfp.core.checks import check_text, check_types, explain_call
from mlxfp.core.errors import ArgumentError, DataError, MissingFileError
from mlxfp.text.chat.template_limits import counters, make_environment, parse_counted
from mlxfp.text.tokenizers.files import read_config, read_map
from mlxfp.text.tokenizers.literal_text import unspellable

Messages = Sequence[Mapping[str, Any]]

BEGIN, END = unspellable("begin"), unspellable("end")  # around what a template marks with {% generation %}


def _pairs(variables: Any) -> tuple[tuple[str, Any], ...]:
    return variables if isinstance(variables, tuple) else tuple(sorted(variables.items()))


@frozen(repr=False)
class ChatTemplate:
    """How a model expects a conversation as text: a template in Jinja, as in `chat_template.jinja` and `tokenizer_config.json`. A value.

    Made by `load_chat_template`, or from the text of a template. `variables` is a mapping of what a template may use in addition to the
    messages: special tokens, such as `eos_token`, and settings of the model, such as `enable_thinking`. `today`, as in "2026-01-31", is
    what `strftime_now` of a template sees; without it a template has no clock, and most then write a fixed date.

    The template runs in the sandbox of Jinja (extra `chat`), with the functions and filters that transformers gives it, and the text is the
    same. One that loops or writes without end is stopped, at two million passes of loops or 67 million characters; a single operation on a
    long text is not, so that a template which was made to do harm can still fill the memory. Fields of a message that are null are left
    out, since Arrow fills them in where another message has them.

    >>> template = ChatTemplate("{% for message in messages %}{{ message.role }}: {{ message.content }}{{ end }}{% endfor %}",
    ...     variables={"end": "|"})
    >>> template.render([{"role": "user", "content": "Hello"}])
    'user: Hello|'

    See also: `tokenize_chat`, for columns of conversations.
    """

    text: str
    variables: tuple[tuple[str, Any], ...] = field(default=(), converter=_pairs, kw_only=True)
    today: str | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_text(text=self.text)
        check_types((str, type(None)), today=self.today)
        if self.today is not None:
            _as_date(self.today)
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
            text: str = template.render(**(dict(self.variables) | given | counters()), add_generation_prompt=generation_prompt)
        except Exception as error:  # a template is a program, and can fail in any way
            raise DataError(
                f"The chat template refuses a conversation: {error}. Correct it, or leave it out; if the template needs another variable, "
                "such as a date, give it with attrs.evolve(template, variables=..., today=...)."
            ) from error
        return text

    def __repr__(self) -> str:
        return f"ChatTemplate({len(self.text)} characters)"


@explain_call
def load_chat_template(folder: str | PathLike[str], *, name: str = "default") -> ChatTemplate:
    """Read the chat template of a model's folder, with its special tokens as variables. Nothing is downloaded.

    It is in `chat_template.jinja`, or under `chat_template` in `tokenizer_config.json`, where it may have a `name`. Templates are programs;
    see `ChatTemplate`. Raises `MissingFileError` where the folder has no template, `DataError` for one that is malformed, and
    `MissingExtraError` without Jinja (extra `chat`).

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    ...     _ = Path(folder, "chat_template.jinja").write_text("{{ messages[0].content }}{{ eos_token }}")
    ...     load_chat_template(folder).render([{"role": "user", "content": "Hello"}])
    'Hello</s>'
    """
    check_types((str, PathLike), folder=folder)
    check_text(name=name)
    place = Path(folder)
    config = {**read_config(place / "special_tokens_map.json"), **read_config(place / "tokenizer_config.json")}
    variables = {key: value for key, value in config.items() if key.endswith("_token") and isinstance(value, str)}
    found = _find_templates(place)
    if name not in found:
        known = f"It has {', '.join(map(repr, sorted(found)))}: give one as name=" if found else "Models without one are not for chats"
        raise MissingFileError(f"The folder {str(place)!r} has no chat template named {name!r}. {known}.")
    try:
        return ChatTemplate(found[name], variables=variables)
    except DataError as error:
        error.add_note(f"while reading the chat template {name!r} of {str(place)!r}")
        raise


def _find_templates(folder: Path) -> dict[str, str]:
    """Return the templates by their name. Files of their own come first, as in transformers."""
    listed = read_map(folder / "tokenizer_config.json").get("chat_template") or {}
    if isinstance(listed, list) and all(isinstance(each, dict) for each in listed):
        listed = {each.get("name"): each.get("template") for each in listed}
    found = {"default": listed} if isinstance(listed, str) else listed
    if not isinstance(found, dict) or not all(isinstance(text, str) for pair in found.items() for text in pair):
        raise DataError(
            f"chat_template of tokenizer_config.json in {str(folder)!r} must be text, or a list of names and texts: {listed!r:.80}."
        )
    files = {"default": folder / "chat_template.jinja"} | {path.stem: path for path in folder.glob("additional_chat_templates/*.jinja")}
    return found | {name: path.read_text(encoding="utf-8") for name, path in files.items() if path.is_file()}


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

    made = make_environment([Generation, loops])
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _raise
    try:
        return _Compiled(made.from_string(parse_counted(made, text)), frozenset(found))
    except jinja.TemplateError as error:
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
