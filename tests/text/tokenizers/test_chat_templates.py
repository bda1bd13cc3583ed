"""Chat templates give the text that transformers gives: its own environment, written out here, is the reference."""

import datetime as dt
import json as jsons
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, DataError, MissingExtraError, MissingFileError
from mlxfp.text.tokenizers import chat_templates
from mlxfp.text.tokenizers.chat_templates import BEGIN, END, ChatTemplate
from mlxfp.text.tokenizers.tokenizer import ROLES, Tokenizer
from tests.text.chat_templates import CHATML, LLAMA2, LLAMA3, MARKED, QWEN, TEMPLATES, VARIABLES
from tests.text.corpora import trained

jinja2 = pytest.importorskip("jinja2", reason="chat templates need Jinja: pip install 'mlxfp[chat]'")

TEXTS = st.text(max_size=12) | st.sampled_from(
    ["<|im_end|>", "a <b> & 'c' \"d\"", "  two  ", "{{ 7 * 7 }}", "{% raw %}", "漢字 é", "</think>x"]
)
TURNS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3)
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def messages_of(turns: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"role": role, "content": text} for turn in turns for role, text in zip(("user", "assistant"), turn, strict=True)]


def reference(template: str, messages: Any, tools: Any = None, *, generation_prompt: bool = False, **more: Any) -> str:
    """Render as transformers does (utils/chat_template_utils.py), without its tracker of answers."""
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        return jsons.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def refuse(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = refuse
    plain = template.replace("{%- generation %}", "{%- if true %}").replace("{%- endgeneration %}", "{%- endif %}")
    given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": generation_prompt}
    clock = {"strftime_now": dt.datetime.now().strftime}
    return str(made.from_string(plain).render(**clock | given | VARIABLES | more))


@given(st.sampled_from(sorted(TEMPLATES)), TURNS, st.booleans())
def test_the_text_is_that_of_transformers(name: str, turns: list[tuple[str, str]], generation_prompt: bool):
    template, messages = ChatTemplate(TEMPLATES[name], variables=VARIABLES), messages_of(turns)
    expected = reference(TEMPLATES[name], messages, generation_prompt=generation_prompt)
    assert template.render(messages, generation_prompt=generation_prompt) == expected
    from_arrow = [{**message, "tool_calls": None, "name": None} for message in messages]
    assert template.render(from_arrow, generation_prompt=generation_prompt) == expected


def test_templates_write_what_their_models_expect():
    messages = messages_of([("Hi", "Ho")])
    assert ChatTemplate(CHATML).render(messages, generation_prompt=True) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ChatTemplate(LLAMA2, variables=VARIABLES).render(messages) == "<|begin_of_text|>[INST] Hi [/INST] Ho<|end_of_text|>"
    assert (
        ChatTemplate(QWEN).render(messages).startswith("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHi")
    )


def test_tools_and_their_calls_are_written():
    call = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich"}}}
    messages = [
        {"role": "user", "content": "How is it?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "<b>sunny</b>"},
    ]
    found = ChatTemplate(QWEN).render(messages, tools=[WEATHER], generation_prompt=True)
    assert found == reference(QWEN, messages, [WEATHER], generation_prompt=True)
    assert '\n<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call><|im_end|>' in found
    assert jsons.dumps(WEATHER) in found


def test_strftime_now_is_the_current_date_or_the_given_day():
    """Without `today`, templates write the current date, as in transformers."""
    messages = messages_of([("Hi", "Ho")])
    template = ChatTemplate(LLAMA3, variables=VARIABLES)
    assert re.search(r"Today Date: \d\d \w+ 20\d\d", template.render(messages))
    assert attrs.evolve(template, today="2026-01-31").render(messages) == reference(
        LLAMA3, messages, strftime_now=dt.date(2026, 1, 31).strftime
    )
    dated = attrs.evolve(template, variables=VARIABLES | {"date_string": "never"})
    assert "Today Date: never" in dated.render(messages)
    with pytest.raises(ArgumentError, match=r"today must be a date such as '2026-01-31', got today='now'"):
        ChatTemplate(LLAMA3, today="now")
    assert ChatTemplate("{{ strftime_now('%Y') }}").render(messages).isdecimal()


@pytest.mark.parametrize(
    "text",
    ["{% for m in mesages %}{{ m.content }}{% endfor %}", "{{ mesages | length }}", "{{ 'a' ~ mesages }}", "{{ mesages[0] }}"],
)
def test_a_misspelled_variable_of_a_template_is_an_error_with_the_near_name(text: str):
    with pytest.raises(DataError, match=r"'mesages' is undefined\. Did you mean 'messages'\?"):
        ChatTemplate(text).render(messages_of([("Hi", "Ho")]))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{% if enable_thinking %}t{% endif %}", ""),
        ("{{ x is defined }}", "False"),
        ("{{ x | default('d') }}", "d"),
        ("{% if tools %}{% set s = 'a' %}{% endif %}<{{ s }}>", "<>"),
        ("<{{ messages[0].name }}>", "<>"),
    ],
)
def test_optional_variables_and_absent_fields_of_a_template_remain_allowed(text: str, result: str):
    assert ChatTemplate(text).render(messages_of([("Hi", "Ho")])) == result


def test_a_conversation_that_the_template_refuses_says_why():
    with pytest.raises(DataError, match=r"The chat template rejects a conversation: Conversation roles must alternate.*Correct or"):
        ChatTemplate(LLAMA2, variables=VARIABLES).render([{"role": "assistant", "content": "Hi"}])
    with pytest.raises(DataError, match="The chat template rejects a conversation"):
        ChatTemplate("{{ messages[0].content + 1 }}").render(messages_of([("Hi", "Ho")]))


@pytest.mark.parametrize("text", ["{% for %}", "{{ messages", "{% generation %}", "{% nothing %}"])
def test_a_malformed_template_is_refused_before_any_conversation(text: str):
    for use in (ChatTemplate(text).check, lambda: ChatTemplate(text).marks_answers, lambda: ChatTemplate(text).render([])):
        with pytest.raises(DataError, match=r"The chat template is malformed: .*, in line 1 of"):
            use()


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append({'role': 'x'}) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% for i in range(10000000) %}{% endfor %}",
    ],
)
def test_a_template_stays_in_its_sandbox(text: str):
    messages = messages_of([("Hi", "Ho")])
    with pytest.raises(DataError, match="The chat template rejects a conversation"):
        ChatTemplate(text).render(messages)
    assert messages == messages_of([("Hi", "Ho")])


@pytest.mark.parametrize("name", ["recursive macro", "deep brackets", "nested loops"])
def test_a_template_that_python_cannot_nest_is_refused(name: str):
    text = {
        "recursive macro": "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
        "deep brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "nested loops": "{% for i in messages %}" * 30 + "{% endfor %}" * 30,
    }[name]
    with pytest.raises(DataError, match=r"The chat template (rejects a conversation|is malformed): "):
        ChatTemplate(text).render(messages_of([("Hi", "Ho")]))


def test_templates_are_values():
    template = ChatTemplate(CHATML, variables={"b": 1, "a": 2})
    assert pickle.loads(pickle.dumps(template)) == template == ChatTemplate(CHATML, variables={"a": 2, "b": 1})
    assert (
        fp.inspect.fingerprint(template) == fp.inspect.fingerprint(attrs.evolve(template)) != fp.inspect.fingerprint(ChatTemplate(CHATML))
    )
    assert (ChatTemplate(MARKED).marks_answers, template.marks_answers) == (True, False)
    assert repr(template) == f"ChatTemplate({len(CHATML)} characters)"


def write(folder: Path, **files: Any) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_jinja", ".jinja").replace("_json", ".json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else jsons.dumps(content), "utf-8")
    return folder


def test_templates_are_found_where_transformers_finds_them(tmp_path: Path):
    roles = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": None, "add_bos_token": True}
    write(tmp_path, tokenizer_config_json={**roles, "chat_template": "one {{ bos_token }}{{ eos_token }}{% if pad_token %}pad{% endif %}"})
    assert fp.load_chat_template(tmp_path).render([]) == "one <s></s>"
    write(tmp_path, tokenizer_config_json={"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]})
    assert [fp.load_chat_template(tmp_path, name=name).text for name in ("default", "tool_use")] == ["a", "b"]
    write(tmp_path, chat_template_jinja="file", additional_chat_templates__rag_jinja="rag", special_tokens_map_json={"eos_token": "</s>"})
    assert [fp.load_chat_template(tmp_path, name=name).text for name in ("default", "tool_use", "rag")] == ["file", "b", "rag"]
    assert fp.load_chat_template(tmp_path).variables == (("eos_token", "</s>"),)


@pytest.mark.parametrize("settings", [{}, {"variables": {"enable_thinking": False, "names": ["a", "b"]}, "today": "2026-01-31"}])
def test_a_tokenizer_keeps_the_template_of_its_folder(tmp_path: Path, settings: dict[str, Any]):
    trained("wordpiece").save(tmp_path)
    assert fp.load_tokenizer(tmp_path).chat_template is None
    write(tmp_path, chat_template_jinja="{% for\r\n %}")  # a tokenizer that is not used for chats does not need a good one
    tokenizer = fp.load_tokenizer(tmp_path)
    assert tokenizer.chat_template == ChatTemplate("{% for\r\n %}", variables=_tokens(tokenizer))
    given = attrs.evolve(tokenizer, chat_template=ChatTemplate(CHATML, **settings))
    assert given != tokenizer
    assert hash(given) == hash(tokenizer)
    given.save(tmp_path / "copy")
    assert fp.load_tokenizer(tmp_path / "copy") == given
    assert fp.load_tokenizer(tmp_path / "copy").chat_template == fp.load_chat_template(tmp_path / "copy")


def _tokens(tokenizer: Tokenizer) -> dict[str, str]:
    return {f"{role}_token": token for role in ROLES if (token := getattr(tokenizer, f"{role}_token")) is not None}


def test_a_folder_without_a_template_is_named(tmp_path: Path):
    with pytest.raises(MissingFileError, match=r"has no chat template named 'default'\. Models without a chat template are not"):
        fp.load_chat_template(tmp_path)
    write(tmp_path, chat_template_jinja="x")
    with pytest.raises(MissingFileError, match=r"has no chat template named 'tool_use'\. Choose name= from: 'default'"):
        fp.load_chat_template(tmp_path, name="tool_use")
    write(tmp_path, chat_template_jinja="{% for %}")
    with pytest.raises(DataError, match="The chat template is malformed"):
        fp.load_chat_template(tmp_path)
    write(tmp_path, tokenizer_config_json={"chat_template": [{"name": 5}]})
    with pytest.raises(DataError, match=r"chat_template of tokenizer_config.json in .* must be text, or a list of names and texts"):
        fp.load_chat_template(tmp_path)


def test_without_jinja_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    chat_templates._compiled.cache_clear()
    for name in ("jinja2", "jinja2.sandbox", "jinja2.ext"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r'A chat template needs jinja2\. Install it with: pip install "mlxfp\[chat\]"'):
        ChatTemplate(CHATML).check()


def marked_spans(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text without its marks, and where the marked parts begin and end."""
    plain, bounds = "", []
    for piece in re.split(f"({BEGIN}|{END})", text):
        if piece in (BEGIN, END):
            bounds.append(len(plain))
        else:
            plain += piece
    return plain, list(zip(bounds[::2], bounds[1::2], strict=True))


@pytest.mark.parametrize("name", TEMPLATES)
def test_transformers_itself_gives_the_same_text_and_answers(name: str):
    package = pytest.importorskip(
        "transformers.utils.chat_template_utils", reason="the reference is transformers: pip install transformers"
    )
    template = attrs.evolve(ChatTemplate(TEMPLATES[name], variables=VARIABLES), today=dt.datetime.now().date().isoformat())
    for turns in ([("Hi", "Ho")], [(" a ", "<|im_end|>\n"), ('"<b>" é', "</think>x")]):
        for generation_prompt in (False, True):
            given = {"add_generation_prompt": generation_prompt, "return_assistant_tokens_mask": name == "marked"}
            (expected,), spans = package.render_jinja_template([messages_of(turns)], chat_template=template.text, **given, **VARIABLES)
            found = template.render_marked(messages_of(turns), generation_prompt=generation_prompt)
            assert marked_spans(found)[0] == expected
            if name == "marked":
                assert marked_spans(found)[1] == [tuple(span) for span in spans[0]]


CITY = {"name": "weather", "arguments": {"city": "Zürich </s> <|im_end|>", "days": 3, "exact": 1.0}}
CALLS = [
    {"role": "user", "content": "How is it?"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "a1b2c3d4e", "type": "function", "function": CITY}]},
    {"role": "tool", "name": "weather", "tool_call_id": "a1b2c3d4e", "content": '{"sky": "blue <b>"}'},
    {"role": "assistant", "content": " Blue. "},
]
SYSTEM = {"role": "system", "content": " Be brief.\n"}
CASES = {
    "system": ([SYSTEM, *messages_of([("Hi", "Ho"), ("a ", " b")])], None),
    "tools": (messages_of([("Hi", "Ho"), ("a ", " b")]), [WEATHER, WEATHER]),
    "calls": (CALLS, [WEATHER]),
    "system and calls": ([SYSTEM, *CALLS], [WEATHER]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", sorted(set(TEMPLATES) - {"llama2", "marked"}))
def test_system_prompts_and_tools_are_written_as_transformers_does(name: str, case: str):
    package = pytest.importorskip(
        "transformers.utils.chat_template_utils", reason="the reference is transformers: pip install transformers"
    )
    template = attrs.evolve(ChatTemplate(TEMPLATES[name], variables=VARIABLES), today=dt.datetime.now().date().isoformat())
    messages, tools = CASES[case]
    for generation_prompt in (False, True):
        try:
            (expected,), _ = package.render_jinja_template(
                [messages], tools=tools, chat_template=template.text, add_generation_prompt=generation_prompt, **VARIABLES
            )
        except jinja2.TemplateError:
            with pytest.raises(DataError, match="rejects a conversation"):
                template.render(messages, tools=tools, generation_prompt=generation_prompt)
        else:
            assert template.render(messages, tools=tools, generation_prompt=generation_prompt) == expected
