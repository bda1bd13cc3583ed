"""Chat templates in the forms that people meet, and a tokenizer that knows their special tokens."""

import json as jsons
from functools import lru_cache

from mlxfp.text.tokenizers.tokenizer import Tokenizer
from tests.text.corpora import trained

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# A default system prompt, tools as JSON, and calls of tools, as in Qwen 2.5.
QWEN = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first)
        or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# Thoughts of earlier answers are left out, and the last answer gets empty ones, as in Qwen 3.
THINKING = """\
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}{%- if message.role == "user" %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- set content = message.content.split('</think>')[-1].lstrip('\\n') if '</think>' in message.content else message.content %}
        {%- if loop.index0 > ns.last %}
            {{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' + content + '<|im_end|>\\n' }}
        {%- else %}
            {{- '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}
        {%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

# A token in front, contents that are trimmed, and a date, as in Llama 3.1.
LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: " + date_string + "\\n\\n<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

# No prompt for an answer, and roles that must alternate, as in Llama 2 and Mistral.
LLAMA2 = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
)

# Roles of its own, a system prompt that stands in the first turn, and contents that are trimmed, as in Gemma 3.
GEMMA = """\
{{- bos_token }}
{%- set first = messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' %}
{%- set turns = messages[1:] if first else messages %}
{%- for message in turns %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif %}
    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' + (first if loop.first else '') }}
    {{- (message.content | trim) + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}
"""

# Tools and the system prompt stand in the last turn of the user, so earlier turns are written anew as the conversation goes on; as in
# Mistral's templates of version 3.
MISTRAL = """\
{{- bos_token }}
{%- set start = 1 if messages[0].role == 'system' else 0 %}
{%- set turns = messages[start:] %}
{%- set users = turns | selectattr('role', 'equalto', 'user') | list %}
{%- for message in turns %}
    {%- if message.role == 'user' %}
        {%- if tools is not none and message == users[-1] %}
            {{- '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST] ' + (messages[0].content + '\\n\\n' if start and loop.last else '') + message.content + '[/INST]' }}
    {%- elif message.tool_calls is defined and message.tool_calls %}
        {{- '[TOOL_CALLS] ' + (message.tool_calls | map(attribute='function') | list | tojson) + eos_token }}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + (message.content | trim) + eos_token }}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS] {"content": ' + (message.content | tojson) + '}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception('Only user, assistant and tool are supported') }}
    {%- endif %}
{%- endfor %}
"""

# Tools in the first turn of the user, and one call in a turn, as in Llama 3.1.
LLAMA3_TOOLS = """\
{{- bos_token }}
{%- set system = messages[0].content | trim if messages[0].role == 'system' else '' %}
{%- set turns = messages[1:] if messages[0].role == 'system' else messages %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools %}{{- 'Environment: ipython\\n' }}{%- endif %}
{{- 'Today Date: ' + (strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024') + '\\n\\n' + system + '<|eot_id|>' }}
{%- for message in turns %}
    {%- if message.role == 'user' and loop.first and tools %}
        {{- '<|start_header_id|>user<|end_header_id|>\\n\\nGiven the following functions:\\n\\n' }}
        {%- for tool in tools %}{{- tool | tojson(indent=4) + '\\n\\n' }}{%- endfor %}
        {{- message.content | trim + '<|eot_id|>' }}
    {%- elif message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}{{- raise_exception('Only one call') }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson + '}<|eot_id|>' }}
    {%- elif message.role in ('tool', 'ipython') %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {{- (message.content | tojson if message.content is mapping else message.content) + '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""

# What the model writes is marked.
MARKED = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}
            {{- message.content + '<|im_end|>' }}
        {%- endgeneration %}
    {%- else %}
        {{- message.content + '<|im_end|>' }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}
"""

VARIABLES = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
TEMPLATES = {"chatml": CHATML, "qwen": QWEN, "thinking": THINKING, "llama3": LLAMA3, "llama2": LLAMA2, "marked": MARKED}
TEMPLATES |= {"gemma": GEMMA, "mistral": MISTRAL, "llama3-tools": LLAMA3_TOOLS}

TURNS = (
    *("<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>"),
    *("[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    *VARIABLES.values(),
)


@lru_cache
def chat_tokenizer(kind: str = "bpe") -> Tokenizer:
    """Add the special tokens of chats to a trained tokenizer."""
    data = jsons.loads(trained(kind).json)  # type: ignore[arg-type]  # one of the kinds
    turns = [{**data["added_tokens"][0], "id": 300 + place, "content": text} for place, text in enumerate(TURNS)]
    return Tokenizer(
        jsons.dumps({**data, "added_tokens": [*data["added_tokens"], *turns]}), bos_token=TURNS[-2], eos_token=TURNS[-1], pad_token="[PAD]"
    )
