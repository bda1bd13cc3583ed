"""Conversations to token ids, with a mask of what is trained on."""

import json as jsons
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa
from attrs import evolve, frozen

from mlxfp.core.chunks import HIDDEN, Example, RecordBatch, Schema, set_column, set_field
from mlxfp.core.datasets import Dataset
from mlxfp.core.row_names import row_at
from mlxfp.core.stages import CACHE_ADVICE, RowWise, Traits
from mlxfp.support.arrow_types import is_list_like, is_text, value_type
from mlxfp.support.checks import check_choice, check_columns, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError, DataError, SchemaError
from mlxfp.text.tokenizers.chat_templates import BEGIN, END, ChatTemplate, Messages, without_nulls
from mlxfp.text.tokenizers.literal_text import unspellable
from mlxfp.text.tokenizers.tokenizer import Tokenizer, cannot_encode, check_tokenizer, engine, for_literal_text, special_names

TrainOn = Literal["assistant", "last", "all"]

_TRAIN_ON = ("assistant", "last", "all")
_TOOLS = "tools"


@explain_call
def chat(  # noqa: PLR0913  # all have defaults but one, and are named
    tokenizer: Tokenizer,
    *,
    messages: str = "messages",
    tools: str | None = _TOOLS,
    train_on: TrainOn = "assistant",
    template: ChatTemplate | None = None,
    into: str = "input_ids",
    prompt: str = "prompt",
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Turn a column of conversations into token ids by a model's chat template, with a mask of the prompt.

    A conversation is a list of messages with `role`, `content` and what else the template knows. `tools` names a column of descriptions of
    functions; the column "tools" need not be there. Both may also be text in JSON. The template is that of the tokenizer's folder, or
    `template`.

    Adds the columns `into` (list<int32>): the ids of the whole conversation; and `prompt` (list<bool>): false on what is trained on, true
    on everything else. `collators.causal(prompt_mask="prompt")` takes both. Trained on are the assistant's messages with the token that
    ends each; with `train_on="last"`, only the last of them; with `train_on="all"`, all tokens.

    The ids are those of transformers' `apply_chat_template`, except that a message that spells a special token is ordinary text: it cannot
    end a turn. What the model writes is what the template marks with `{% generation %}`; without such marks, it is what stands behind the
    prompt for an answer, and the template must write the messages before an answer in the same way whether or not others follow.

    Raises `ArgumentError` for a tokenizer without a template; `SchemaError` when the pipeline is built if a column is missing or has
    another type; `DataError`, naming the row, where the template refuses a conversation or answers cannot be found. Needs the extra `chat`.

    >>> import mlxfp as fp
    >>> tokenizer = fp.train_tokenizer(fp.from_examples([{"text": "user: assistant: hi ho"}] * 2), kind="wordpiece", vocab_size=40)
    >>> text = "{% for m in messages %}{{ m.role }}: {% generation %}{{ m.content }}[SEP]{% endgeneration %}{% endfor %}"
    >>> chats = fp.from_examples([{"messages": [{"role": "assistant", "content": "hi [SEP]"}]}])
    >>> (row,) = fp.pipe(chats, fp.chat(tokenizer, template=fp.ChatTemplate(text)))
    >>> tokenizer.tokens(row["input_ids"])
    ['assistant', ':', 'hi', '[UNK]', '[UNK]', '[UNK]', '[SEP]']
    >>> row["prompt"]
    [True, True, False, False, False, False, False]

    See also: `encode_chat`, for one conversation; `pack`, which puts several into a row.
    """
    check_tokenizer(tokenizer=tokenizer)
    check_text(messages=messages, into=into, prompt=prompt)
    check_types((str, type(None)), tools=tools)
    check_choice(_TRAIN_ON, train_on=train_on)
    if {into, prompt} & {*HIDDEN, ""} or into == prompt:
        raise ArgumentError(f"into={into!r} and prompt={prompt!r} cannot name the columns of ids and of the mask; choose two other names.")
    found = _template_of(tokenizer, template)
    return _Chat(tokenizer, found, messages=messages, tools=tools, train_on=train_on, into=into, prompt=prompt)


@explain_call
def encode_chat(tokenizer: Tokenizer, messages: Messages, *, tools: Any = None, template: ChatTemplate | None = None) -> list[int]:
    """Return the ids of a conversation and of the beginning of an answer, as `models.generate` takes them.

    The template is that of the tokenizer's folder, or `template`. A message that spells a special token is ordinary text. Raises
    `ArgumentError` for a tokenizer without a template, `DataError` where the template refuses the conversation.

    >>> import mlxfp as fp
    >>> tokenizer = fp.train_tokenizer(fp.from_examples([{"text": "user: hi, assistant:"}] * 2), kind="wordpiece", vocab_size=40)
    >>> template = fp.ChatTemplate("user: {{ messages[0].content }}[SEP]{% if add_generation_prompt %}assistant:{% endif %}")
    >>> tokenizer.tokens(fp.encode_chat(tokenizer, [{"role": "user", "content": "hi"}], template=template))
    ['user', ':', 'hi', '[SEP]', 'assistant', ':']
    """
    check_tokenizer(tokenizer=tokenizer)
    guarded = _guard(tokenizer, _template_of(tokenizer, template), _as_json(messages), _as_json(tools))
    return _encode(tokenizer, guarded.whole(generation_prompt=True))[0]


def _template_of(tokenizer: Tokenizer, template: ChatTemplate | None) -> ChatTemplate:
    found = tokenizer.chat_template if template is None else template
    if found is None:
        raise ArgumentError(
            f"{tokenizer!r} has no chat template: its folder has neither chat_template.jinja nor a chat_template in tokenizer_config.json. "
            'Give template=fp.ChatTemplate("..."), in the form that the model expects.'
        )
    check_types(ChatTemplate, template=found)
    found.check()
    return found


@frozen(repr=False)
class _Chat(RowWise):
    tokenizer: Tokenizer
    template: ChatTemplate
    messages: str
    tools: str | None
    train_on: TrainOn
    into: str
    prompt: str

    def infer(self, schema: Schema, rows: Callable[[], Iterator[RecordBatch]]) -> "_Chat":
        return evolve(self, tools=None) if self.tools == _TOOLS and _TOOLS not in schema.names else self

    def schema(self, schema: Schema) -> Schema:
        columns = self._columns
        check_columns(columns, [name for name in schema.names if name not in HIDDEN], "chat")
        for name in columns:
            kind = schema.field(name).type
            if not (is_list_like(kind) or is_text(value_type(kind)) or pa.types.is_null(kind)):
                raise SchemaError(f"chat needs lists of objects, or text in JSON, in column {name!r}, got {kind}.")
        return set_field(set_field(schema, self.into, pa.list_(pa.int32())), self.prompt, pa.list_(pa.bool_()))

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, columns_read=self._columns, decoders={self.into: self.tokenizer}, advice=CACHE_ADVICE)

    @property
    def _columns(self) -> tuple[str, ...]:
        return (self.messages,) if self.tools is None else (self.messages, self.tools)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        chats = chunk.column(self.messages).to_pylist()
        tools = [None] * len(chats) if self.tools is None else chunk.column(self.tools).to_pylist()
        rows = [self._row(chunk, place, *pair) for place, pair in enumerate(zip(chats, tools, strict=True))]
        out = set_column(chunk, self.into, pa.array([ids for ids, _ in rows], pa.list_(pa.int32())))
        return set_column(out, self.prompt, pa.array([mask for _, mask in rows], pa.list_(pa.bool_())))

    def _row(self, chunk: RecordBatch, place: int, chat: Any, tools: Any) -> tuple[list[int], list[bool]]:
        try:
            guarded = _guard(self.tokenizer, self.template, _as_json(chat), _as_json(tools))
            return _encode(self.tokenizer, guarded.marked(self.train_on))
        except DataError as error:
            raise DataError(f"chat: column {self.messages!r} of {row_at(chunk, place)}: {error}") from error


@frozen
class _Guarded:
    """A conversation in whose messages special tokens have other names, so that in its text only those of the template are left."""

    template: ChatTemplate
    words: "_Words"
    given: tuple[Any, Any]  # the messages and the tools
    messages: Any
    tools: Any

    def whole(self, *, generation_prompt: bool = False) -> str:
        """Return the text of the conversation."""
        text = self.template.render_marked(self.messages, self.tools, generation_prompt=generation_prompt)
        if (self.messages, self.tools) != self.given:
            self._check_same(text, self.template.render_marked(*self.given, generation_prompt=generation_prompt))
        return text

    def _check_same(self, text: str, plain: str) -> None:
        for token, guard in self.words.guards.items():
            text = text.replace(guard, token)
        if text != plain:
            raise DataError(
                "The chat template looks for special tokens in the messages, and a message spells one, so it is unclear what is text. "
                "Remove it from the message."
            )

    def marked(self, train_on: TrainOn) -> str:
        """Return the text of the conversation with `BEGIN` and `END` around what is trained on."""
        whole = self.whole()
        if train_on == "all":
            return BEGIN + whole.replace(BEGIN, "").replace(END, "") + END
        if self.template.marks_answers:
            begin = whole.rfind(BEGIN) if train_on == "last" else 0
            return whole[:begin].replace(BEGIN, "").replace(END, "") + whole[begin:]
        out, last = "", 0
        for begin, end in self._spans(whole, train_on):
            out += whole[last:begin] + BEGIN + whole[begin:end] + END
            last = end
        return out + whole[last:]

    def _spans(self, whole: str, train_on: TrainOn) -> Iterator[tuple[int, int]]:
        """Yield where what the model writes begins and ends: behind the prompt for an answer, up to the special token that ends it."""
        places = [place for place, message in enumerate(self.messages) if message["role"] == "assistant"]
        for place in places[-1:] if train_on == "last" else places:
            prompt = self._render(self.messages[:place], generation_prompt=True)
            written = self._render(self.messages[: place + 1])
            ended = written.rstrip()
            ended = ended if ended.endswith(tuple(self.words.guards)) else written
            if not ended.startswith(prompt) or not whole.startswith(ended):
                other = "" if train_on == "last" else 'Choose train_on="last", with a row for each answer, or '
                advice = f"{other}mark answers in the template with {{% generation %}} and {{% endgeneration %}}."
                raise DataError(
                    f"The chat template writes the messages up to the answer in message {place} in another way when others follow, "
                    f"so it is unclear what the model writes. {advice[0].upper()}{advice[1:]}"
                )
            yield len(prompt), len(ended)

    def _render(self, messages: list[Any], *, generation_prompt: bool = False) -> str:
        return self.template.render_marked(messages, self.tools, generation_prompt=generation_prompt)


@frozen
class _Words:
    """The special tokens of a tokenizer: how they are found in a text, and what they are called in messages while a template runs."""

    found: Any  # a pattern, or None where there are none
    parts: Any  # a pattern for all that is not text in what a template made
    guards: dict[str, str]


@lru_cache(maxsize=8)
def _words(tokenizer: Tokenizer) -> _Words:
    tokens = sorted(special_names(tokenizer), key=len, reverse=True)  # of two that begin in one place, the longer one is found
    guards = {token: unspellable(f"text-{place}") for place, token in enumerate(tokens)}
    special = "|".join(map(re.escape, tokens)) or r"(?!)"
    return _Words(re.compile(special), re.compile("|".join(map(re.escape, [BEGIN, END, *guards.values()])) + f"|{special}"), guards)


def _guard(tokenizer: Tokenizer, template: ChatTemplate, messages: Any, tools: Any) -> _Guarded:
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) and "role" in message for message in messages):
        raise DataError(f"A conversation is a list of messages with a role, got {messages!r:.80}.")
    words, given = _words(tokenizer), (without_nulls(messages), without_nulls(tools))
    return _Guarded(template, words, given, *(_replaced(words.guards, words.found, each) for each in given))


def _encode(tokenizer: Tokenizer, marked: str) -> tuple[list[int], list[bool]]:
    """Return the ids of a text that a template made, and for each whether it belongs to the prompt."""
    words, names = _words(tokenizer), special_names(tokenizer)
    spelled = {guard: token for token, guard in words.guards.items()} | names | {BEGIN: "", END: ""}
    pieces, bounds, size, last = [], [], 0, 0
    for match in words.parts.finditer(marked):
        pieces += [marked[last : match.start()], spelled[match[0]]]
        size, last = size + len(pieces[-2]) + len(pieces[-1]), match.end()
        if match[0] in (BEGIN, END):
            bounds.append(size)
    try:
        found = engine(for_literal_text(tokenizer).json).encode("".join(pieces) + marked[last:], add_special_tokens=False)
    except BaseException as error:
        raise cannot_encode(error) from error
    spans = list(zip(bounds[::2], bounds[1::2], strict=True))
    return found.ids, [not any(start < end and max(stop, start + 1) > begin for begin, end in spans) for start, stop in found.offsets]


def _replaced(names: Mapping[str, str], pattern: Any, value: Any) -> Any:
    """Give special tokens in all texts of a value other names."""
    if isinstance(value, str):
        return pattern.sub(lambda match: names[match[0]], value)
    if isinstance(value, Mapping):
        return {key: _replaced(names, pattern, inner) for key, inner in value.items()}
    return [_replaced(names, pattern, inner) for inner in value] if isinstance(value, list) else value


def _as_json(value: Any) -> Any:
    """Read a value that is text in JSON, or a list of such texts."""
    try:
        if isinstance(value, str):
            return jsons.loads(value)
        if isinstance(value, Sequence):
            return [jsons.loads(each) if isinstance(each, str) else each for each in value]
    except (ValueError, RecursionError) as error:
        raise DataError(f"A conversation, or tools, as text must be JSON: {error}, got {value!r:.80}.") from error
    return value
