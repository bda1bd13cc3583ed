"""Tokenizers as values, defined by their JSON and the roles of their special tokens."""

import json as jsons
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from os import PathLike
from pathlib import Path
from sys import intern
from typing import Any, Literal

import tokenizers as hf
from attrs import evolve, field, frozen

from mlxfp.support.checks import check_choice, check_text, check_types
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.text.tokenizers.chat_templates import ChatTemplate
from mlxfp.text.tokenizers.configuration import Configuration, read_configuration
from mlxfp.text.tokenizers.json_checks import is_panic, malformed, read_json
from mlxfp.text.tokenizers.literal_text import find_names, rename_tokens

EngineName = Literal["auto", "tokenizers", "gigatoken", "tokie"]

ENGINE_NAMES = ("auto", "tokenizers", "gigatoken", "tokie")
ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")


def _canonical(text: str) -> str:
    check_text(json=text)
    return _canonical_json(text)


@lru_cache(maxsize=32)
def _canonical_json(text: str) -> str:
    """Remove padding and truncation, which are arguments of stages here, and dropout, which would make encoding random."""
    data = read_json(text)
    model = {**data["model"], "dropout": None} if "dropout" in data["model"] else data["model"]
    data = {**data, "padding": None, "truncation": None, "model": model}
    return intern(jsons.dumps(data, ensure_ascii=False, separators=(",", ":")))  # interned: equal texts are found in caches at once


@frozen(repr=False)
class Tokenizer:
    """Text to token ids and back. A value: equality, hash and pickling are by its JSON and the roles of its special tokens.

    Made by `load_tokenizer` and `train_tokenizer`, or from the text of a `tokenizer.json`. Settings for padding, truncation and dropout in
    the JSON are removed. Safe to use from several threads.

    `pad_id`, `unk_id`, `cls_id`, `sep_id`, `mask_id`, `bos_id` and `eos_id` are ints. Where a tokenizer has no token for a role (GPT-2
    has none for padding), they raise `ArgumentError`; `pad_token` and so on are then None. `attrs.evolve(tokenizer, pad_token="<pad>")`
    gives a role to a token of the vocabulary. `chat_template` is how a model writes conversations, for `chat`; most models have none.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"text": "A cat, a hat."}, {"text": "A cat in a hat."}])
    >>> tokenizer = fp.train_tokenizer(rows, kind="wordpiece", vocab_size=40, lowercase=True)
    >>> tokenizer.tokens(tokenizer.encode("A cat!"))
    ['[CLS]', 'a', 'cat', '[UNK]', '[SEP]']
    >>> tokenizer.decode(tokenizer.encode("A cat")), tokenizer.pad_id
    ('a cat', 0)
    """

    json: str = field(converter=_canonical)
    pad_token: str | None = field(default=None, kw_only=True)
    unk_token: str | None = field(default=None, kw_only=True)
    cls_token: str | None = field(default=None, kw_only=True)
    sep_token: str | None = field(default=None, kw_only=True)
    mask_token: str | None = field(default=None, kw_only=True)
    bos_token: str | None = field(default=None, kw_only=True)
    eos_token: str | None = field(default=None, kw_only=True)
    chat_template: ChatTemplate | None = field(default=None, kw_only=True, hash=False)  # its variables may be lists
    engine: EngineName = field(default="auto", kw_only=True, eq=False)  # it never shows in ids, so two values that differ in it are equal

    def __attrs_post_init__(self) -> None:
        """Check the roles, and build the tokenizer once: a value that exists works."""
        check_types((str, type(None)), **self._roles)
        check_types((ChatTemplate, type(None)), chat_template=self.chat_template)
        check_choice(ENGINE_NAMES, engine=self.engine)
        engine(self.json)

    def encode(self, text: str, *, special: bool = True, literal: bool = False) -> list[int]:
        """Return the ids of a text; `special` adds the special tokens around a text, as in `[CLS] ... [SEP]`.

        A text that spells a special token, such as "</s>", becomes this token. With `literal`, it is ordinary text (`split_special_tokens`
        in transformers): use it for what others wrote.
        """
        check_text(text=text)
        return self._encode(text, special=special, literal=literal).ids  # type: ignore[no-any-return]

    def encode_pair(self, first: str, second: str, *, special: bool = True, literal: bool = False) -> tuple[list[int], list[int]]:
        """Return the ids of two texts joined, and for each id whether it belongs to the first (0) or the second (1)."""
        check_text(first=first, second=second)
        found = self._encode(first, second, special=special, literal=literal)
        return found.ids, found.type_ids

    def _encode(self, *texts: str, special: bool, literal: bool) -> Any:
        own = engine(for_literal_text(self).json if literal else self.json)
        try:
            return own.encode(*texts, add_special_tokens=special)
        except BaseException as error:
            raise cannot_encode(error) from error

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """Return the text of ids; `special` keeps special tokens in it. Raises `ArgumentError` for an id that is not in the vocabulary."""
        known = self._known(ids)
        try:
            text: str = engine(self.json).decode(known, skip_special_tokens=not special)
        except BaseException as error:
            if not is_panic(error):
                raise
            raise DataError(f"The tokenizer cannot decode {known!r:.60}: {error}. The decoder in its JSON is damaged.") from error
        return text

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the token of each id. Raises `ArgumentError` for an id that is not in the vocabulary."""
        token = engine(self.json).id_to_token
        return [token(number) for number in self._known(ids)]

    @property
    def vocab_size(self) -> int:
        """How many rows a model's embedding needs: one more than the largest id, added tokens included."""
        return _vocab_size(self.json)

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids of all special tokens, with and without a role."""
        return frozenset(number for number, token in engine(self.json).get_added_tokens_decoder().items() if token.special)

    @property
    def pad_id(self) -> int:
        """The id that fills short rows."""
        return self._role("pad")

    @property
    def unk_id(self) -> int:
        """The id of text that the vocabulary cannot write."""
        return self._role("unk")

    @property
    def cls_id(self) -> int:
        """The id in front of a text to classify."""
        return self._role("cls")

    @property
    def sep_id(self) -> int:
        """The id after each text."""
        return self._role("sep")

    @property
    def mask_id(self) -> int:
        """The id in the place of a token to guess."""
        return self._role("mask")

    @property
    def bos_id(self) -> int:
        """The id that begins a text to generate."""
        return self._role("bos")

    @property
    def eos_id(self) -> int:
        """The id that ends a generated text."""
        return self._role("eos")

    def save(self, folder: str | PathLike[str]) -> None:
        """Write `tokenizer.json`, `tokenizer_config.json` and, if there is one, `chat_template.jinja`.

        `load_tokenizer(folder)` reads them back to an equal value.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "tokenizer.json").write_text(self.json, encoding="utf-8")
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **self._roles}  # read by transformers too
        if self.chat_template is not None:
            Path(folder, "chat_template.jinja").write_text(self.chat_template.text, encoding="utf-8", newline="")
            config |= self.chat_template.settings(config)
        Path(folder, "tokenizer_config.json").write_text(jsons.dumps(config, indent=2, ensure_ascii=False), encoding="utf-8")

    def __repr__(self) -> str:
        return f"Tokenizer({type(engine(self.json).model).__name__}, vocab_size={self.vocab_size})"

    @property
    def _roles(self) -> dict[str, str | None]:
        return {f"{role}_token": getattr(self, f"{role}_token") for role in ROLES}

    def _role(self, role: str) -> int:
        token = getattr(self, f"{role}_token")
        number: int | None = None if token is None else engine(self.json).token_to_id(token)
        if number is None:
            found = f"has no {role} token" if token is None else f"has no token {token!r}, its {role} token"
            raise ArgumentError(
                f"The vocabulary {found}: {self!r}. "
                f'Choose one with attrs.evolve(tokenizer, {role}_token="..."), or write a number instead of tokenizer.{role}_id.'
            )
        return number

    def _known(self, ids: Iterable[int]) -> list[int]:
        numbers = [int(number) for number in ids]
        token = engine(self.json).id_to_token
        wrong = next((number for number in numbers if number < 0 or token(number) is None), None)
        if wrong is not None:
            raise ArgumentError(f"The id {wrong} is not in the vocabulary of {self!r}. Leave padding and ignored labels out.")
        return numbers


@lru_cache(maxsize=8)
def special_names(tokenizer: Tokenizer) -> dict[str, str]:
    """Return the special tokens, each with a name that no text has: the tokenizer for literal text knows them by these names."""
    return find_names(tokenizer.json, [getattr(tokenizer, f"{role}_token") for role in ROLES])


@lru_cache(maxsize=8)
def for_literal_text(tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer that takes no text for one of the special tokens. It is for encoding alone: never show, compare or save it."""
    return evolve(tokenizer, json=rename_tokens(tokenizer.json, special_names(tokenizer)))


def cannot_encode(error: BaseException) -> DataError:
    """Return the error for a text, or a tokenizer, at which the package raises a plain Exception or panics; re-raise others, as Ctrl-C."""
    if not isinstance(error, Exception) and not is_panic(error):
        raise error
    if "retry-limit" in str(error):  # the package gives up after ten million steps at one place of a text
        return DataError(
            f"The tokenizer cannot encode a text: a regular expression in its JSON tries too many ways to match it ({error}). Correct the "
            "pattern of its normalizer or pre_tokenizer, which has a repetition within a repetition, or leave the text out."
        )
    return DataError(
        f"The tokenizer cannot encode a text: {error}. A text must be valid Unicode, and the model needs a token for unknown text: "
        "unk_token (Unigram: unk_id) in its JSON, which must be in the vocabulary."
    )


@lru_cache(maxsize=32)
def engine(json: str) -> Any:
    """Return the tokenizer of the `tokenizers` package for a JSON text. It is shared: never change its settings."""
    try:
        made = hf.Tokenizer.from_str(json)
        _probe(made)
    except BaseException as error:
        if isinstance(error, Exception) or is_panic(error):  # the package raises plain Exception
            raise malformed(error) from error
        raise
    return made


@lru_cache(maxsize=1)  # with the vocabulary: `choose` forgets it, which is the last to ask
def configuration_of(json: str) -> Configuration:
    """Return the parts of a tokenizer with the options that older files leave out, which have their default."""
    return read_configuration(engine(json).to_str())


@lru_cache(maxsize=32)
def _vocab_size(json: str) -> int:
    return max(engine(json).get_vocab().values(), default=-1) + 1


def _probe(made: Any) -> None:
    """Encode a text and a pair, to find parts at which the package panics; other errors are about a text, and wait for one."""
    for texts in (("a",), ("a", "a")):
        with suppress(Exception):
            made.encode(*texts)


def check_tokenizer(**values: object) -> None:
    """Raise `ArgumentTypeError` unless every value is a `Tokenizer`, and say how one of another library becomes one.

    >>> check_tokenizer(tokenizer="bert")
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: tokenizer must be Tokenizer, got str: 'bert'. Read one: fp.load_tokenizer("folder").
    """
    for name, value in values.items():
        if not isinstance(value, Tokenizer):
            raise ArgumentTypeError(f"{name} must be Tokenizer, got {type(value).__name__}: {value!r:.60}. {how_to_read(value)}")


def how_to_read(value: object) -> str:
    """Say how a tokenizer of another library is read; each is written by a method of its own.

    >>> how_to_read(hf.Tokenizer(hf.models.WordLevel()))
    'Write it, and read that: tokenizer.save("tokenizer.json"), fp.load_tokenizer("tokenizer.json").'
    """
    if hasattr(value, "save_pretrained"):
        return 'Write it, and read that: tokenizer.save_pretrained("folder"), fp.load_tokenizer("folder").'
    if isinstance(value, hf.Tokenizer):
        return 'Write it, and read that: tokenizer.save("tokenizer.json"), fp.load_tokenizer("tokenizer.json").'
    return 'Read one: fp.load_tokenizer("folder").'
