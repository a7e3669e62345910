#!/usr/bin/env python3
"""Write tests/fixtures/chat/cases.json: what Jinja makes of chat templates.

    pip install jinja2        (3.1.6 was used)
    python scripts/make_chat_cases.py

Jinja is set up as transformers sets it up for chat templates: sandboxed, blocks trimmed, loop
controls, `tojson` without HTML escapes, `raise_exception`, and `{% generation %}` blocks that print
what they hold. The templates are written for this project; each uses what a family of published
templates uses.
"""

import json
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

USER = [{"role": "user", "content": "Hi there"}]
TALK = [
    {"role": "system", "content": "  Be brief. \n"},
    {"role": "user", "content": "What is 6 × 7?"},
    {"role": "assistant", "content": "<think>\n6·7\n</think>\n\n42 🙂"},
    {"role": "user", "content": "Thanks & <bye>'\"\n"},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Say <the> weather & more",
            "parameters": {
                "type": "object",
                "required": ["city"],
                "properties": {"days": {"type": "integer", "default": 1},
                               "city": {"type": "string", "enum": ["Zürich", "東京"]}},
            },
        },
    }
]
CALLS = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": None,
     "tool_calls": [{"type": "function",
                     "function": {"name": "weather", "arguments": {"city": "東京", "days": 2}}}]},
    {"role": "tool", "name": "weather", "content": "{\"sky\": \"clear\"}"},
]

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
Help.<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

HEADERS = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: tools\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

INSTRUCTIONS = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("roles must alternate: user, assistant, user, ...") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
"""

THINKING = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
            {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

MACROS = """{% macro turn(role, text='') -%}
<|{{ role }}|>{{ text | trim | replace('\\n', ' ') }}
{%- endmacro -%}
{% for m in messages if m.role != 'system' -%}
{{ turn(m.role, m.content) }}{{ eos_token }}
{% if loop.index == 2 %}{% break %}{% endif %}
{% endfor -%}
{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}[{{ loop.index }}:{{ m.role|upper }}]{% endfor %}
    {% if add_generation_prompt %}
{{ turn('assistant') }}
    {% endif %}
"""

GENERATION = """{% for m in messages %}
{% if m.role == 'assistant' %}
{{ m.role }}: {% generation %}{{ m.content }}{%- endgeneration %}

{%- else %}
{{ m.role }}: {{ m.content }}
{%- endif %}

{% endfor %}"""

PRINTING = """{{ true }} {{ none }} {{ 1.0 }} {{ 0.00001 }} {{ 1e22 }} {{ 7 // 2 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ -7 % 3 }}
{{ [1, 'a', "it's", none, true] }} {{ {'k': 1.5, 'b': [false]} }}
{{ missing }}|{{ missing is defined }}|{{ tools is none }}|{{ messages | length }}|{{ messages[-1].role }}
{{ messages | map(attribute='role') | join(', ') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{{ {'b': 1, 'a': 'ü<&'} | tojson }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ [] | tojson }} {{ {} | tojson(indent=2) }}
{{ ['x', {'y': [1, 2]}] | tojson(indent=2) }} {{ [1, 2] | tojson(separators=(',', ':')) }} {{ 'é\\n' | tojson(ensure_ascii=true) }}
{{ 'a,b,,c'.split(',') }} {{ ' x '.strip() ~ '|' }} {{ 'xxabxx'.strip('x') }} {{ 'hello world'.title() }} {{ 'A-b'.lower().replace('-', '_') }}
{{ 'abc'[1:] }} {{ 'abc'[::-1] }} {{ 'b' in 'abc' }} {{ 'x' if false else 'y' }} {{ 'n' * 3 }} {{ '%05.2f' | format(3.14159) }}
{{ 'lines\\nmore' | indent(2) }} {{ [3, 1, 2] | sort | first }} {{ {'a': 1}.get('z', 'none') }} {% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}
"""

WHITESPACE = """  {% if true %}
    {%+ if true %}x{% endif %}
  y
  {% endif %}
{# a comment #}
	{% set a = 1 %}
z {{ a }}
 {%- if a %} w {% endif -%}
  end
"""


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_print")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def main():
    cases, templates = [], {}
    for name, template, variants in [
        ("chatml", CHATML, [{"messages": USER}, {"messages": TALK}]),
        ("headers", HEADERS, [{"messages": USER}, {"messages": TALK},
                              {"messages": CALLS, "tools": TOOLS},
                              {"messages": USER, "date_string": "1 Jan 2030"}]),
        ("instructions", INSTRUCTIONS, [{"messages": USER}, {"messages": TALK},
                                        {"messages": TALK + USER}]),
        ("thinking", THINKING, [{"messages": USER}, {"messages": TALK},
                                {"messages": TALK[:3]},
                                {"messages": CALLS, "tools": TOOLS},
                                {"messages": USER, "enable_thinking": False}]),
        ("macros", MACROS, [{"messages": TALK}]),
        ("generation", GENERATION, [{"messages": TALK}]),
        ("printing", PRINTING, [{"messages": TALK}]),
        ("whitespace", WHITESPACE, [{"messages": USER}]),
    ]:
        templates[name] = template
        compiled = environment().from_string(template)
        for i, variables in enumerate(variants):
            for add in [False, True]:
                context = {"bos_token": "<s>", "eos_token": "</s>", "tools": None,
                           "documents": None, **variables, "add_generation_prompt": add}
                case = {"name": f"{name}-{i}{'-open' if add else ''}", "template": name,
                        "variables": {**variables, "add_generation_prompt": add}}
                try:
                    case["text"] = compiled.render(**context)
                except jinja2.exceptions.TemplateError as e:
                    case["raises"] = str(e)
                cases.append(case)
    out = Path(__file__).parent.parent / "tests/fixtures/chat/cases.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    document = {"templates": templates, "cases": cases}
    out.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    print(f"{len(cases)} cases in {out}")


if __name__ == "__main__":
    main()
