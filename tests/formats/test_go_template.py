"""Go templates as LocalAI's prompts use them: what comes out, and what is refused."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.formats.go_template import BadTemplate, parse_template
from corral.formats.go_template_functions import GoStruct

CHATML = """<|im_start|>{{ .RoleName }}
{{- if .FunctionCall }}
<tool_call>
{{- else if eq .RoleName "tool" }}
<tool_response>
{{- end }}
{{- if .Content}}
{{.Content }}
{{- end }}
{{- if .FunctionCall}}
{{toJson .FunctionCall}}
</tool_call>
{{- else if eq .RoleName "tool" }}
</tool_response>
{{- end }}<|im_end|>"""

HEADERS = (
    '<|start|>{{if eq .RoleName "assistant"}}assistant{{else if eq .RoleName "system"}}system'
    '{{else if eq .RoleName "tool"}}tool{{else}}user{{end}}<|end|>\n\n'
    '{{ if .FunctionCall -}}\nFunction call:\n{{ else if eq .RoleName "tool" -}}\nFunction response:\n{{ end -}}\n'
    "{{ if .Content -}}\n{{.Content -}}\n{{ end -}}<|eot|>"
)

FUNCTIONS = """You may call:
{{range .Functions}}
{'function': {'name': '{{.Name}}', 'description': '{{.Description}}', 'parameters': {{toJson .Parameters}} }}
{{end}}
{{.Input -}}
<|im_start|>assistant"""


def message(**values: Any) -> dict[str, Any]:
    return {"RoleName": "user", "Content": "", "FunctionCall": None, **values}


@pytest.mark.parametrize(
    ("template", "data", "expected"),
    [
        pytest.param(CHATML, message(Content="hi"), "<|im_start|>user\nhi<|im_end|>", id="chatml"),
        pytest.param(
            CHATML,
            message(RoleName="assistant", FunctionCall={"name": "f", "arguments": {"a": 1}}),
            '<|im_start|>assistant\n<tool_call>\n{"arguments":{"a":1},"name":"f"}\n</tool_call><|im_end|>',
            id="chatml-call",
        ),
        pytest.param(
            CHATML,
            message(RoleName="tool", Content="42"),
            "<|im_start|>tool\n<tool_response>\n42\n</tool_response><|im_end|>",
            id="chatml-tool",
        ),
        pytest.param(HEADERS, message(Content="hi"), "<|start|>user<|end|>\n\nhi<|eot|>", id="headers"),
        pytest.param(
            HEADERS,
            message(RoleName="tool", Content="42"),
            "<|start|>tool<|end|>\n\nFunction response:\n42<|eot|>",
            id="headers-tool",
        ),
        pytest.param(
            FUNCTIONS,
            {"Input": "Q\n", "Functions": [{"Name": "f", "Description": "d", "Parameters": {"b": 1, "a": "<"}}]},
            "You may call:\n\n{'function': {'name': 'f', 'description': 'd', 'parameters':"
            ' {"a":"\\u003c","b":1} }}\n\nQ\n<|im_start|>assistant',
            id="functions",
        ),
        pytest.param(
            "{{range .Functions}}{{.Name}} {{toJson .}}{{end}}",
            {"Functions": [GoStruct(Name="f", Description="d", Parameters={"b": [GoStruct(X=1)], "a": 1})]},
            'f {"name":"f","description":"d","parameters":{"a":1,"b":[{"x":1}]}}',
            id="whole-functions",
        ),
    ],
)
def test_templates_as_they_are_found_in_galleries(template: str, data: dict[str, Any], expected: str) -> None:
    assert parse_template(template).render(data) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain", "plain"),
        ("{{.A}}|{{ .A }}|{{- .A -}} |", "x|x|x|"),
        ("a {{- /* no\nword */ -}} b", "ab"),
        ("{{/* c */}}x", "x"),
        ('{{"}}"}}{{`{{`}}', "}}{{"),
        ('{{"tab\\tu\\u00e9\\x41"}}', "tab\tu\u00e9A"),
        ("{{.N}} {{.F}} {{.T}} {{.L}} {{.M}} {{.None}}", "3 1.5 true [a b] map[k:v n:<nil>] <no value>"),
        ("{{if .E}}yes{{else}}no{{end}}", "no"),
        ("{{if and .A .T (not .E)}}yes{{end}}", "yes"),
        ("{{if or .E .None}}a{{else if eq .N 1 2 3}}b{{else}}c{{end}}", "b"),
        ('{{if and (gt .N 2) (le .N 3) (ne .A "y") (lt .F 2.0) (ge .N 3)}}in{{end}}', "in"),
        ("{{range .L}}<{{.}}>{{end}}", "<a><b>"),
        ("{{range $i, $x := .L}}{{if $i}}, {{end}}{{$i}}={{$x}}{{end}}", "0=a, 1=b"),
        ("{{range $k, $v := .M}}{{$k}};{{end}}", "k;n;"),
        ("{{range .None}}x{{else}}empty{{end}}", "empty"),
        ('{{range $i, $x := .L}}{{if eq $x "b"}}{{break}}{{end}}{{$x}}{{end}}', "a"),
        ('{{range .L}}{{if eq . "a"}}{{continue}}{{end}}{{.}}{{end}}', "b"),
        ("{{range .L}}{{$.A}}{{end}}", "xx"),
        ("{{with .M}}{{.k}}{{end}}{{with .E}}no{{else}}none{{end}}", "vnone"),
        ('{{$x := .A}}{{if .T}}{{$x = "z"}}{{end}}{{$x}}', "z"),
        ('{{$x := .A}}{{if .T}}{{$x := "z"}}{{end}}{{$x}}', "x"),
        ('{{.M.k}} {{(index .L 1)}} {{index .M "k"}} {{len .L}} {{len "\u00e9"}}', "v b v 2 2"),
        ('{{.A | upper | printf "%s-%d-%q" "a" 7}}', 'a-7-"X"'),
        ('{{printf "%5.2f|%-3d|%v|%%" 1.234 5 .L}}', " 1.23|5  |[a b]|%"),
        ('{{trim "  a "}}{{.A | default "d"}}{{.E | default "d"}}', "axd"),
        ('{{contains "b" "abc"}} {{hasPrefix "a" "abc"}} {{replace "a" "b" "aa"}}', "true true bb"),
        ('{{join ", " .L}} {{add 1 2 3}} {{sub 5 .N}} {{add1 1}} {{mod 7 4}}', "a, b 6 2 2 3"),
        ('{{toJson .M}} {{ternary "y" "n" .T}} {{quote .A}}', '{"k":"v","n":null} y "x"'),
        ("{{if not .None}}absent{{end}}", "absent"),
        ("{{ range until 3 }}{{ . }}{{ end }}", "012"),
        ('{{ indent 2 "a\\nb" }}', "  a\n  b"),
    ],
)
def test_what_a_construct_means(template: str, expected: str) -> None:
    data = {"A": "x", "E": "", "N": 3, "F": 1.5, "T": True, "L": ["a", "b"], "M": {"k": "v", "n": None}, "None": None}
    assert parse_template(template).render(data) == expected


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{.A", "not closed"),
        ("{{if .A}}x", "no `end`"),
        ("{{end}}", "without a block"),
        ("{{else}}", "without a block"),
        ("{{if}}x{{end}}", "an operand is missing"),
        ('{{define "x"}}{{end}}', "'define' is not supported"),
        ('{{template "x"}}', "'template' is not supported"),
        ('{{env "HOME"}}', "the function 'env' is not supported"),
        ("{{.A | .L}}", "only a function"),
        ("{{.A .L}}", "unexpected '.L'"),
        ("{{(.A}}", "not closed"),
        ("{{if .A}}{{$x}}{{end}}", "$x is not declared"),
        ("{{if .A}}{{$x := 1}}{{end}}{{$x}}", "$x is not declared"),
        ("{{range .L}}{{else if .A}}{{end}}", "is not valid"),
        ("{{break}}", "outside of a range"),
        ("line\n{{ ~ }}", "line 2: cannot parse"),
        ("{{.Nope}}", "there is no field 'Nope'; the fields are A, L"),
        ("{{range .L}}{{$.Nope}}{{end}}", "there is no field 'Nope'"),
        ("x" * 300_000, "longer than"),
    ],
)
def test_what_is_not_supported_is_refused_when_it_is_parsed(template: str, said: str) -> None:
    with pytest.raises(BadTemplate) as refused:
        parse_template(template, fields=frozenset({"A", "L"}))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "template",
    [
        "{{index .L 9}}",
        "{{len .N}}",
        "{{.A.b}}",
        "{{lt .A .N}}",
        "{{eq .A .N}}",
        "{{div 1 0}}",
        "{{upper .N}}",
        "{{$x = 1}}",
        '{{repeat 100000000 "aaaa"}}',
        "{{range until 100000}}{{range until 100000}}x{{end}}{{end}}",
        "{{range .A}}x{{end}}",
        "{{upper}}",
    ],
)
def test_what_go_would_stop_at_stops_here_too(template: str) -> None:
    with pytest.raises(BadTemplate):
        parse_template(template).render({"A": "x", "N": 3, "L": []})


def test_a_field_below_the_root_is_not_held_to_the_roots_fields() -> None:
    template = parse_template("{{range .L}}{{.Name}}{{end}}", fields=frozenset({"L"}))
    assert template.render({"L": [{"Name": "n"}]}) == "n"


@given(st.text(alphabet='{}-. $|"`()abAifendrgelso:=\n', max_size=60))
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    with suppress(BadTemplate):
        parse_template(text).render({"a": "1", "A": ["x"]})
