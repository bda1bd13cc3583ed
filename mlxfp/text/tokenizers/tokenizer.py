"""Class `Tokenizer`, defined by the JSON of a tokenizer and the roles of its special tokens."""

import json as jsons
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from operator import index
from os import PathLike
from pathlib import Path
from sys import intern
from typing import Any, Literal

import tokenizers as hf
from attrs import evolve, field, frozen

from mlxfp.support.atomic_files import write_whole
from mlxfp.support.checks import check_choice, check_text, check_types
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.text.tokenizers.chat_templates import ChatTemplate
from mlxfp.text.tokenizers.configuration import Configuration, read_configuration
from mlxfp.text.tokenizers.json_checks import is_panic, malformed, read_json
from mlxfp.text.tokenizers.literal_text import find_names, rename_tokens

EngineName = Literal["auto", "tokenizers", "gigatoken", "tokie"]

ENGINE_NAMES = ("auto", "tokenizers", "gigatoken", "tokie")
ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")


class _NoTokenError(ArgumentError, AttributeError):
    """Error for a role without a token. The base class `AttributeError` makes `hasattr(tokenizer, "eos_id")` return False."""


def _canonical(text: str) -> str:
    check_text(json=text)
    return _canonical_json(text)


@lru_cache(maxsize=32)
def _canonical_json(text: str) -> str:
    """Remove the settings for padding, truncation and dropout from the JSON of a tokenizer.

    The stages `pad` and `tokenize` have arguments for padding and truncation. Dropout would make ids random.
    """
    data = read_json(text)
    model = {**data["model"], "dropout": None} if "dropout" in data["model"] else data["model"]
    data = {**data, "padding": None, "truncation": None, "model": model}
    # The JSON text is interned, so that cache look-ups of equal texts are fast.
    return intern(jsons.dumps(data, ensure_ascii=False, separators=(",", ":")))


@frozen(repr=False)
class Tokenizer:
    """Converter between text and token ids. Tokenizers are compared and pickled by their JSON and the roles of special tokens.

    Created by `load_tokenizer` and `train_tokenizer`, or from the text of a `tokenizer.json`. Settings for padding, truncation and dropout
    in the JSON are removed. Thread-safe.

    `pad_token`, `unk_token` and so on are None for a role without a token (GPT-2 has no padding token). `pad_id`, `unk_id`, `cls_id`,
    `sep_id`, `mask_id`, `bos_id` and `eos_id` are ints. Without a token for the role, the property raises `ArgumentError`: for example,
    `hasattr(tokenizer, "pad_id")` is False. `attrs.evolve(tokenizer, pad_token="<pad>")` assigns a token of the vocabulary to a role.
    `chat_template` is the template used by `chat`, or None if the tokenizer has no template.

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
    # The hash ignores the chat template, because template variables may be lists, and lists have no hash.
    chat_template: ChatTemplate | None = field(default=None, kw_only=True, hash=False)
    engine: EngineName = field(default="auto", kw_only=True, eq=False)  # ignored in comparisons, because ids are equal with all engines

    def __attrs_post_init__(self) -> None:
        """Raise an error for wrong arguments, and for JSON that is not a valid tokenizer."""
        check_types((str, type(None)), **self._roles)
        check_types((ChatTemplate, type(None)), chat_template=self.chat_template)
        check_choice(ENGINE_NAMES, engine=self.engine)
        engine(self.json)

    def encode(self, text: str, *, special: bool = True, literal: bool = False) -> list[int]:
        """Return the ids of a text. `special=True` adds the special tokens around a text, for example `[CLS] ... [SEP]`.

        A special token spelled in the text, such as "</s>", is encoded as the special token. `literal=True` encodes special tokens in the
        text as ordinary text (`split_special_tokens` in transformers). Use `literal=True` for text from untrusted sources.
        """
        check_text(text=text)
        return self._encode(text, special=special, literal=literal).ids  # type: ignore[no-any-return]

    def encode_pair(self, first: str, second: str, *, special: bool = True, literal: bool = False) -> tuple[list[int], list[int]]:
        """Return the ids of two texts joined to one row, and for each id the index of its text (0 or 1)."""
        check_text(first=first, second=second)
        encoding = self._encode(first, second, special=special, literal=literal)
        return encoding.ids, encoding.type_ids

    def _encode(self, *texts: str, special: bool, literal: bool) -> Any:
        tokenizer = engine(for_literal_text(self).json if literal else self.json)
        try:
            return tokenizer.encode(*texts, add_special_tokens=special)
        except BaseException as error:
            raise cannot_encode(error) from error

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """Return the text for the ids of a row. `special=True` keeps special tokens.

        Raises `ArgumentError` for an id outside the vocabulary, and `ArgumentTypeError` for a number that is not an integer.
        """
        known = self._known(ids)
        try:
            text: str = engine(self.json).decode(known, skip_special_tokens=not special)
        except BaseException as error:
            if not is_panic(error):
                raise
            raise DataError(
                f"The tokenizer cannot decode {known!r:.60}: {error}. Check the decoder in the JSON of the tokenizer."
            ) from error
        return text

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the token of each id. Raises the errors of `decode`."""
        token = engine(self.json).id_to_token
        return [token(number) for number in self._known(ids)]

    @property
    def vocab_size(self) -> int:
        """Number of embedding rows needed by a model: the largest id plus one, including added tokens."""
        return _vocab_size(self.json)

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of all special tokens, also of special tokens without a role."""
        return frozenset(number for number, token in engine(self.json).get_added_tokens_decoder().items() if token.special)

    @property
    def pad_id(self) -> int:
        """Id for padding."""
        return self._role("pad")

    @property
    def unk_id(self) -> int:
        """Id for unknown text."""
        return self._role("unk")

    @property
    def cls_id(self) -> int:
        """Id of the token at the start of a text for classification."""
        return self._role("cls")

    @property
    def sep_id(self) -> int:
        """Id after each text."""
        return self._role("sep")

    @property
    def mask_id(self) -> int:
        """Id that replaces masked tokens."""
        return self._role("mask")

    @property
    def bos_id(self) -> int:
        """Id of the token at the start of generated text."""
        return self._role("bos")

    @property
    def eos_id(self) -> int:
        """Id of the token at the end of generated text."""
        return self._role("eos")

    def save(self, folder: str | PathLike[str]) -> None:
        """Write `tokenizer.json`, `tokenizer_config.json` and, if present, `chat_template.jinja`.

        `load_tokenizer(folder)` returns an equal tokenizer.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_whole(Path(folder, "tokenizer.json"), self.json.encode())
        # The class name in `tokenizer_config.json` lets transformers load the saved files.
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **self._roles}
        if self.chat_template is not None:
            write_whole(Path(folder, "chat_template.jinja"), self.chat_template.text.encode())
            config |= self.chat_template.settings(config)
        write_whole(Path(folder, "tokenizer_config.json"), jsons.dumps(config, indent=2, ensure_ascii=False).encode())

    def __repr__(self) -> str:
        return f"Tokenizer({type(engine(self.json).model).__name__}, vocab_size={self.vocab_size})"

    @property
    def _roles(self) -> dict[str, str | None]:
        return {f"{role}_token": getattr(self, f"{role}_token") for role in ROLES}

    def _role(self, role: str) -> int:
        token = getattr(self, f"{role}_token")
        number: int | None = None if token is None else engine(self.json).token_to_id(token)
        if number is None:
            problem = f"has no {role} token" if token is None else f"lacks the configured {role} token {token!r}"
            raise _NoTokenError(
                f"The vocabulary {problem}: {self!r}. "
                f'Set a token with attrs.evolve(tokenizer, {role}_token="..."), or replace tokenizer.{role}_id in your code by a number.'
            )
        return number

    def _known(self, ids: Iterable[int]) -> list[int]:
        try:
            numbers = list(map(index, ids))
        except TypeError as error:
            raise ArgumentTypeError(f"ids must be integers such as [5, 7], got {ids!r:.60}. Pass the ids of a single row.") from error
        token, size = engine(self.json).id_to_token, self.vocab_size
        wrong = next((number for number in numbers if not 0 <= number < size or token(number) is None), None)
        if wrong is not None:
            raise ArgumentError(f"The id {wrong} is not in the vocabulary of {self!r}. Remove padding and ignored labels first.")
        return numbers


@lru_cache(maxsize=8)
def special_names(tokenizer: Tokenizer) -> dict[str, str]:
    """Return a random name for each special token. A copy of the tokenizer uses these names, so that "[SEP]" in a text is ordinary text."""
    return find_names(tokenizer.json, [getattr(tokenizer, f"{role}_token") for role in ROLES])


@lru_cache(maxsize=8)
def for_literal_text(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that encodes special tokens in texts as ordinary text.

    The token names of this tokenizer are random: do not show, compare or save the tokenizer.
    """
    return evolve(tokenizer, json=rename_tokens(tokenizer.json, special_names(tokenizer)))


def cannot_encode(error: BaseException) -> DataError:
    """Return a `DataError` for an error or a panic of the `tokenizers` package. Other exceptions, such as Ctrl-C, are raised again."""
    if not isinstance(error, Exception) and not is_panic(error):
        raise error
    if "retry-limit" in str(error):  # error of `tokenizers` after ten million steps of a regular expression
        return DataError(
            f"The tokenizer cannot encode a text: a regular expression in the tokenizer JSON needs too many steps ({error}). "
            "Simplify nested repetitions in the pattern of the normalizer or pre_tokenizer, or remove the text."
        )
    return DataError(
        f"The tokenizer cannot encode a text: {error}. Check that the text is valid Unicode, and that the tokenizer JSON "
        "names a token for unknown text (unk_token, Unigram: unk_id) that is in the vocabulary."
    )


@lru_cache(maxsize=32)
def engine(json: str) -> Any:
    """Return the tokenizer of the `tokenizers` package for a JSON text. The object is cached and shared, so never change its settings."""
    try:
        tokenizer = hf.Tokenizer.from_str(json)
        _probe(tokenizer)
    except BaseException as error:
        if isinstance(error, Exception) or is_panic(error):  # Other exceptions, such as Ctrl-C, are raised unchanged.
            raise malformed(error) from error
        raise
    return tokenizer


@lru_cache(maxsize=1)  # Only one configuration is cached, because a configuration is large. `choose` clears the cache.
def configuration_of(json: str) -> Configuration:
    """Return the components of a tokenizer, with defaults for options missing from older files."""
    return read_configuration(engine(json).to_str())


@lru_cache(maxsize=32)
def _vocab_size(json: str) -> int:
    return max(engine(json).get_vocab().values(), default=-1) + 1


def _probe(tokenizer: Any) -> None:
    """Encode two short texts to detect a defective component when the tokenizer is loaded. Errors other than panics are ignored."""
    for texts in (("a",), ("a", "a")):
        with suppress(Exception):
            tokenizer.encode(*texts)


def check_tokenizer(**values: object) -> None:
    """Raise `ArgumentTypeError` unless every value is a `Tokenizer`. The message explains how to convert tokenizers of other libraries.

    >>> check_tokenizer(tokenizer="bert")
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: tokenizer must be Tokenizer, got str: 'bert'. Pass fp.load_tokenizer("folder").
    """
    for name, value in values.items():
        if not isinstance(value, Tokenizer):
            raise ArgumentTypeError(f"{name} must be Tokenizer, got {type(value).__name__}: {value!r:.60}. {how_to_read(value)}")


def how_to_read(value: object) -> str:
    """Return instructions to convert a tokenizer of another library.

    >>> how_to_read(hf.Tokenizer(hf.models.WordLevel()))
    'Save and load the tokenizer: tokenizer.save("tokenizer.json"), then fp.load_tokenizer("tokenizer.json").'
    """
    if hasattr(value, "save_pretrained"):
        return 'Save and load the tokenizer: tokenizer.save_pretrained("folder"), then fp.load_tokenizer("folder").'
    if isinstance(value, hf.Tokenizer):
        return 'Save and load the tokenizer: tokenizer.save("tokenizer.json"), then fp.load_tokenizer("tokenizer.json").'
    return 'Pass fp.load_tokenizer("folder").'
