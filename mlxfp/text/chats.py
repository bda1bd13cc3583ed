"""Stage `chat`, which tokenizes conversations and marks the prompt, so that a model is not trained on the prompt."""

import json as jsons
import re
import warnings
from collections import defaultdict
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
from mlxfp.support.errors import ArgumentError, DataError, SchemaError, listed
from mlxfp.text.tokenizers.chat_templates import BEGIN, END, ChatTemplate, Messages, without_nulls
from mlxfp.text.tokenizers.literal_text import unspellable
from mlxfp.text.tokenizers.tokenizer import ROLES, Tokenizer, cannot_encode, check_tokenizer, engine, for_literal_text, special_names

TrainOn = Literal["assistant", "last", "all"]

_TRAIN_ON = ("assistant", "last", "all")
_TOOLS = "tools"
_ASSISTANT = "assistant"
_ALIASES = (_ASSISTANT, "model", "gpt", "bot", "chatbot", "ai")  # names that other data sets use for the role "assistant", in lower case
_OTHERS = ("system", "developer", "user", "tool", "function")  # known roles of messages that are not answers
_WORD = re.compile(r"\S+")


@explain_call
def chat(  # noqa: PLR0913  # only the tokenizer is positional
    tokenizer: Tokenizer,
    *,
    messages: str = "messages",
    tools: str | None = _TOOLS,
    train_on: TrainOn = "assistant",
    template: ChatTemplate | None = None,
    into: str = "input_ids",
    prompt: str = "prompt",
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Convert a column of conversations to token ids with a chat template, and add a prompt mask.

    A conversation is a list of messages with the keys `role`, `content` and any further keys known to the template. `tools` names a
    column of function descriptions. The default column "tools" may be absent. Both columns may also contain JSON text. The default
    template is `tokenizer.chat_template`.

    Adds two columns for `collators.causal(prompt_mask="prompt")`: `into` (list<int32>) holds the ids of the conversation, and `prompt`
    (list<bool>) is false for tokens to train on and true for all other tokens. By default, a model is trained on all messages of the
    assistant, including the end token of each message. `train_on="last"` selects only the last message of the assistant,
    `train_on="all"` selects all tokens.

    The ids equal the result of `apply_chat_template` in transformers, with one exception: special tokens spelled in a message are encoded
    as ordinary text and cannot end a turn. Answers are the parts marked with `{% generation %}` in the template. In a template without
    marks, an answer is the text after the generation prompt. In this case the rendering of earlier messages must not depend on later
    messages.

    Raises `ArgumentError` if the tokenizer has no template. Raises `SchemaError` at construction of the pipeline if a column is missing or
    has another type. Raises `DataError` with the row if the template raises an error for a conversation or writes no text of
    the messages, or if answers cannot be located. Needs the extra `chat`.

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
        raise ArgumentError(
            f"into={into!r} and prompt={prompt!r} must be two different names, neither empty nor reserved. Choose other names."
        )
    return _Chat(tokenizer, _template_of(tokenizer, template), messages=messages, tools=tools, train_on=train_on, into=into, prompt=prompt)


@explain_call
def encode_chat(tokenizer: Tokenizer, messages: Messages, *, tools: Any = None, template: ChatTemplate | None = None) -> list[int]:
    """Return the ids of a conversation followed by the generation prompt, as input for `models.generate`.

    The default template is `tokenizer.chat_template`. Special tokens spelled in a message are encoded as ordinary text. Raises
    `ArgumentError` if the tokenizer has no template, and `DataError` if the template raises an error for the conversation or writes no
    text of the messages.

    >>> import mlxfp as fp
    >>> tokenizer = fp.train_tokenizer(fp.from_examples([{"text": "user: hi, assistant:"}] * 2), kind="wordpiece", vocab_size=40)
    >>> template = fp.ChatTemplate("user: {{ messages[0].content }}[SEP]{% if add_generation_prompt %}assistant:{% endif %}")
    >>> tokenizer.tokens(fp.encode_chat(tokenizer, [{"role": "user", "content": "hi"}], template=template))
    ['user', ':', 'hi', '[SEP]', 'assistant', ':']
    """
    check_tokenizer(tokenizer=tokenizer)
    guarded = _guard(tokenizer, _template_of(tokenizer, template), _as_json(messages), _as_json(tools))
    text = guarded.whole(generation_prompt=True)
    guarded.check_texts(text, generation_prompt=True)
    return _encode(tokenizer, text)[0]


def _template_of(tokenizer: Tokenizer, template: ChatTemplate | None) -> ChatTemplate:
    chosen = tokenizer.chat_template if template is None else template
    if chosen is None:
        raise ArgumentError(
            f"{tokenizer!r} has no chat template: its folder has neither chat_template.jinja nor 'chat_template' in "
            'tokenizer_config.json. Pass template=fp.ChatTemplate("...") with the chat template of the model.'
        )
    check_types(ChatTemplate, template=chosen)
    chosen.check()
    roles = {f"{role}_token": getattr(tokenizer, f"{role}_token") for role in ROLES}
    tokens = {name: token for name, token in roles.items() if token is not None}
    return evolve(chosen, variables=tokens | dict(chosen.variables))


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
                raise SchemaError(f"chat needs lists of objects or JSON text in column {name!r}, got {kind}.")
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
        rows = [self._row(chunk, row, *pair) for row, pair in enumerate(zip(chats, tools, strict=True))]
        out = set_column(chunk, self.into, pa.array([ids for ids, _ in rows], pa.list_(pa.int32())))
        return set_column(out, self.prompt, pa.array([mask for _, mask in rows], pa.list_(pa.bool_())))

    def _row(self, chunk: RecordBatch, row: int, chat: Any, tools: Any) -> tuple[list[int], list[bool]]:
        try:
            guarded = _guard(self.tokenizer, self.template, _as_json(chat), _as_json(tools))
            marked = guarded.marked(self.train_on)
            guarded.check_texts(marked)
            if self.train_on != "all":
                guarded.check_texts(marked, role=_ASSISTANT)
                guarded.check_answers(marked)
            return _encode(self.tokenizer, marked)
        except DataError as error:
            raise DataError(f"chat: column {self.messages!r} of {row_at(chunk, row)}: {error}") from error


@frozen
class _Guarded:
    """Conversation in which a random name replaces each special token inside a message.

    Special tokens in the rendered text can therefore only come from the chat template.
    """

    template: ChatTemplate
    words: "_Words"
    given: tuple[Any, Any]  # messages and tools as passed by the user, before special tokens are replaced
    messages: Any
    tools: Any

    def whole(self, *, generation_prompt: bool = False) -> str:
        """Return the rendered conversation."""
        text = self.template.render_marked(self.messages, self.tools, generation_prompt=generation_prompt)
        if (self.messages, self.tools) != self.given:
            self._check_same(text, self.template.render_marked(*self.given, generation_prompt=generation_prompt))
        return text

    def _check_same(self, text: str, plain: str) -> None:
        for token, guard in self.words.guards.items():
            text = text.replace(guard, token)
        if text != plain:
            raise DataError(
                "A message contains a special token as text, and the chat template itself searches messages for special tokens. "
                "Remove the special token from the message."
            )

    def marked(self, train_on: TrainOn) -> str:
        """Return the rendered conversation with the marks `BEGIN` and `END` around each part to train on."""
        whole = self.whole()
        if train_on == "all":
            return BEGIN + _plain(whole) + END
        if self.template.marks_answers:
            begin = whole.rfind(BEGIN) if train_on == "last" else 0
            return _plain(whole[:begin]) + whole[begin:]
        out, last = "", 0
        for begin, end in self._answer_spans(whole, train_on):
            out += whole[last:begin] + BEGIN + whole[begin:end] + END
            last = end
        return out + whole[last:]

    def check_texts(self, text: str, *, role: str | None = None, generation_prompt: bool = False) -> None:
        """Raise `DataError` if the rendered text stays the same with other texts in the messages, or in the messages of one role.

        Such a template names a field that the messages do not have.
        """
        text = _plain(text)
        chosen = [message for message in self.messages if role in (None, message["role"])]
        contents = [content.strip() for message in chosen if isinstance(content := message.get("content"), str)]
        longest = max(contents, key=len, default="")
        if longest and longest in text:  # avoids a second rendering of most conversations
            return
        others = [_with_other_text(message) if message in chosen else message for message in self.messages]
        try:
            same = others != self.messages and _plain(self._render(others, generation_prompt=generation_prompt)) == text
        except DataError:  # the template reads the texts
            return
        if same:
            fields = listed(map(repr, dict.fromkeys(key for message in chosen for key in message)))
            raise DataError(
                f"The chat template {self.template.text!r:.60} writes no text of the messages{f' of the {role}' if role else ''}, which "
                f"have the fields {fields}. Correct the names of fields in the template, for example {{{{ message.content }}}}."
            )

    def check_answers(self, marked: str) -> None:
        """Check the answers in a rendered conversation.

        Raise `DataError` if the answers have a role other than "assistant", such as "model". Warn if no answer ends with an end token.
        """
        answers = [part.partition(END)[0] for part in marked.split(BEGIN)[1:]]
        roles = dict.fromkeys(str(message["role"]) for message in self.given[0])
        unknown = () if answers and self.template.marks_answers else _ALIASES
        folded = {role: role.strip().casefold() for role in roles if role != _ASSISTANT}
        wrong = [role for role, name in folded.items() if name in unknown or not (answers or name in _OTHERS)]
        if wrong:
            raise DataError(
                f"Training needs answers with the role {_ASSISTANT!r}, got the roles {listed(map(repr, roles))}. Rename {wrong[0]!r} to "
                f"{_ASSISTANT!r} in the messages with fp.map before fp.chat."
            )
        if answers and not any(answer.rstrip().endswith(tuple(self.words.guards)) for answer in answers):
            warnings.warn(
                "chat: no answer ends in a special token, so a model does not learn to stop. Let the chat template write an end token "
                "such as {{ eos_token }} after each answer, inside {% generation %} if the template has this block.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _answer_spans(self, whole: str, train_on: TrainOn) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each answer in the rendered text `whole`.

        An answer starts after the generation prompt and ends after its closing special token.
        """
        answers = [index for index, message in enumerate(self.messages) if message["role"] == _ASSISTANT]
        for index in answers[-1:] if train_on == "last" else answers:
            prompt = self._render(self.messages[:index], generation_prompt=True)
            written = self._render(self.messages[: index + 1])
            ended = written.rstrip()
            ended = ended if ended.endswith(tuple(self.words.guards)) else written
            if not ended.startswith(prompt) or not whole.startswith(ended):
                other = "" if train_on == "last" else 'Choose train_on="last" with one row per answer, or '
                advice = f"{other}mark answers in the template with {{% generation %}} and {{% endgeneration %}}."
                raise DataError(
                    f"The chat template renders the messages up to message {index} differently if later messages follow, so the answer in "
                    f"message {index} cannot be located. {advice[0].upper()}{advice[1:]}"
                )
            yield len(prompt), len(ended)

    def _render(self, messages: list[Any], *, generation_prompt: bool = False) -> str:
        return self.template.render_marked(messages, self.tools, generation_prompt=generation_prompt)


@frozen
class _Words:
    """Rules that encode special tokens in messages, such as "</s>", as ordinary text."""

    special: Any  # pattern that finds special tokens in messages
    parts: Any  # pattern for rendered conversations: special tokens, their unique names, and the marks around answers
    guards: dict[str, str]  # dict from each special token to a unique name that replaces the token during rendering


@lru_cache(maxsize=8)
def _words(tokenizer: Tokenizer) -> _Words:
    # Longer tokens come first: if two tokens begin at the same place of a text, the longer token is found.
    tokens = sorted(special_names(tokenizer), key=len, reverse=True)
    guards = {token: unspellable(f"text-{index}") for index, token in enumerate(tokens)}
    special = "|".join(map(re.escape, tokens)) or r"(?!)"
    return _Words(re.compile(special), re.compile("|".join(map(re.escape, [BEGIN, END, *guards.values()])) + f"|{special}"), guards)


def _guard(tokenizer: Tokenizer, template: ChatTemplate, messages: Any, tools: Any) -> _Guarded:
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) and "role" in message for message in messages):
        raise DataError(f"A conversation must be a list of messages with the key 'role', got {messages!r:.80}.")
    words, given = _words(tokenizer), (without_nulls(messages), without_nulls(tools))
    return _Guarded(template, words, given, *(_replaced(words.guards, words.special, value) for value in given))


def _encode(tokenizer: Tokenizer, marked: str) -> tuple[list[int], list[bool]]:
    """Return the ids of a rendered conversation, and for each token True if it belongs to the prompt."""
    words, names = _words(tokenizer), special_names(tokenizer)
    spelled = {guard: token for token, guard in words.guards.items()} | names | {BEGIN: "", END: ""}
    pieces, bounds, size, last = [], [], 0, 0
    for match in words.parts.finditer(marked):
        pieces += [marked[last : match.start()], spelled[match[0]]]
        size, last = size + len(pieces[-2]) + len(pieces[-1]), match.end()
        if match[0] in (BEGIN, END):
            bounds.append(size)
    try:
        encoding = engine(for_literal_text(tokenizer).json).encode("".join(pieces) + marked[last:], add_special_tokens=False)
    except BaseException as error:
        raise cannot_encode(error) from error
    spans = list(zip(bounds[::2], bounds[1::2], strict=True))
    return encoding.ids, [not any(start < end and max(stop, start + 1) > begin for begin, end in spans) for start, stop in encoding.offsets]


def _replaced(names: Mapping[str, str], pattern: Any, value: Any) -> Any:
    if isinstance(value, str):
        return pattern.sub(lambda match: names[match[0]], value)
    if isinstance(value, Mapping):
        return {_replaced(names, pattern, key): _replaced(names, pattern, inner) for key, inner in value.items()}
    return [_replaced(names, pattern, inner) for inner in value] if isinstance(value, list) else value


def _with_other_text(message: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the words of a message: the words of its content, or of all fields but the role if the message has no content."""
    names = {"content"} if "content" in message else message.keys() - {"role"}
    words = defaultdict[str, str](lambda: unspellable("other"))
    return {key: _replaced(words, _WORD, value) if key in names else value for key, value in message.items()}


def _plain(text: str) -> str:
    return text.replace(BEGIN, "").replace(END, "")


def _as_json(value: Any) -> Any:
    """Parse a value that is JSON text, or a list of JSON texts."""
    try:
        if isinstance(value, str):
            return jsons.loads(value)
        if isinstance(value, Sequence):
            return [jsons.loads(item) if isinstance(item, str) else item for item in value]
    except (ValueError, RecursionError) as error:
        raise DataError(f"Conversations and tools given as text must be valid JSON: {error}, got {value!r:.80}.") from error
    return value
