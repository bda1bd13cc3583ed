"""Functions that return HTML: elements, tables that fit on phones, and the common style of reports and notebooks.

The functions replace a template engine: function calls need no extra package, and always escape text. Subpackages of mlxfp use the
functions for output in notebooks.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape

# Control characters and surrogates are not allowed in HTML or UTF-8, and bidirectional controls would reorder text and numbers.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_WORD = 60  # maximum length of words that are never broken, such as names of classes
_TEXT = 40  # a table cell with more characters gets a minimum width

# Colours are inherited from the page or half transparent, so that light and dark notebooks work regardless of the system theme.
STYLE = """
.mlxfp{font:14px/1.45 system-ui,sans-serif;color:inherit;max-width:100%;--line:rgba(128,128,128,.35);--soft:rgba(128,128,128,.12);
--c0:#3b78c4;--c1:#d2691e;--c2:#3a9153;--c3:#b8478f;--c4:#7d62c4;--c5:#8d7a1c;--c6:#1f8f96;--c7:#c2484b}
.mlxfp *{box-sizing:border-box}
.mlxfp table{border-collapse:collapse;margin:.4em 0;max-width:100%;font-size:13px;color:inherit}
.mlxfp th,.mlxfp td{text-align:left;vertical-align:top;padding:.25em .6em;border:0;border-bottom:1px solid var(--line);
overflow-wrap:anywhere;unicode-bidi:isolate;background:none;white-space:pre-wrap}
.mlxfp th{font-weight:600}
.mlxfp .n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;overflow-wrap:normal}
.mlxfp th.n{white-space:pre-wrap}
.mlxfp .w{overflow-wrap:normal}
.mlxfp .t{min-width:18em}
.mlxfp .muted{opacity:.75}
.mlxfp .scroll{overflow-x:auto;max-width:100%}
.mlxfp code{font:12.5px ui-monospace,monospace;overflow-wrap:anywhere;background:none;color:inherit}
.mlxfp .parts{list-style:none;margin:.3em 0;padding:0}
.mlxfp .parts>li{border:1px solid var(--line);border-left:4px solid var(--c0);border-radius:5px;margin:1.1em 0 0;padding:.2em .7em;
position:relative;max-width:62em;overflow-wrap:anywhere}
.mlxfp .parts>.first{margin-top:.3em}
.mlxfp .parts>li:not(.first)::before{content:"\\2193";position:absolute;top:-1.25em;left:.8em;opacity:.75}
.mlxfp .parts>.ahead{border-left-color:var(--c1)}
.mlxfp .parts>.shared{border-left-color:var(--c2)}
.mlxfp .place{font-size:12px;border:1px solid var(--line);border-radius:9px;padding:0 .5em;margin-left:.7em;white-space:nowrap}
.mlxfp .column{display:inline-block;background:var(--soft);border-radius:3px;padding:0 .4em;margin:.1em .3em .1em 0;max-width:100%}
.mlxfp .tip{text-decoration:underline dotted;cursor:help}
.mlxfp .bar{display:inline-block;height:.7em;min-width:1px;background:var(--c0);border-radius:2px}
.mlxfp .track{display:inline-block;width:7em;max-width:100%}
@media (max-width:600px){.mlxfp .track{width:3.5em}.mlxfp .t{min-width:12em}}
"""


class Html(str):
    """HTML text that needs no escaping."""

    __slots__ = ()


def element(name: str, *children: object, **attributes: object) -> Html:
    """Return an element. Children and attribute values are escaped unless they are `Html`.

    A trailing `_` of an attribute name is removed, as in `class_`.

    >>> element("p", "a < b", element("b", 1), class_="x")
    '<p class="x">a &lt; b<b>1</b></p>'
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"' for key, value in attributes.items() if value is not None
    )
    return Html(f"<{name}{attribute_text}>{joined(children)}</{name}>")


def joined(children: Iterable[object]) -> Html:
    """Concatenate children. Text other than `Html` is escaped."""
    return Html("".join(child if isinstance(child, Html) else _escaped(child) for child in children))


def clip(value: object, size: int) -> str:
    """Return a value as text, cut to about `size` characters.

    >>> clip("abcdef", 3)
    'abc… (6 characters)'
    """
    text = str(value)
    return text if len(text) <= size else f"{text[:size]}… ({len(text):,} characters)"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """Return a table with right-aligned numbers. A table wider than the page scrolls sideways. Line breaks never split a word of a name.

    >>> table(["name", "size"], [["<a>", 1234]]).count("&lt;a&gt;"), table(["x"], [[0.51234]]).count("0.5123")
    (1, 1)
    """
    numeric, lines = [False] * len(head), []
    for row in rows:
        numeric = [is_numeric or isinstance(cell, int | float) for is_numeric, cell in zip(numeric, row, strict=True)]
        lines.append(element("tr", *map(_cell, row)))
    titles = (
        element("th", name, scope="col", class_=_classes(n=right, w=_fits(name)))
        if name
        else element("td")  # a table heading must not be empty
        for name, right in zip(head, numeric, strict=True)
    )
    return scrolled(element("table", element("thead", element("tr", *titles)), element("tbody", *lines)))


def scrolled(content: Html) -> Html:
    """Wrap content in a box that scrolls sideways, with the mouse or the keyboard, if the content is wider than the page."""
    return element("div", content, class_="scroll", tabindex=0)


def share_bar(share: float) -> Html:
    """Return a horizontal bar for a share between 0 and 1."""
    return element("span", element("span", class_="bar", style=f"width:{100 * min(max(share, 0.0), 1.0):.1f}%"), class_="track")


def fragment(*children: object) -> Html:
    """Return a div element for notebooks that contains the mlxfp stylesheet and `children`."""
    return element("div", element("style", Html(STYLE)), *children, class_="mlxfp")


def number(value: float) -> str:
    """Format a number for readers.

    >>> number(1234), number(0.123456), number(53596.36), number(float("nan"))
    ('1,234', '0.1235', '53,596', 'undefined')
    """
    if value != value:
        return "undefined"
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    return f"{value:.4f}" if 0.001 <= size < 1000 else f"{value:,.{int(size < 10_000)}f}" if 1000 <= size < 1e12 else f"{value:.4g}"


def _cell(value: object) -> Html:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return element("td", number(value), class_="n")
    plain = not isinstance(value, Html)
    return element("td", value, class_=_classes(w=plain and _fits(value), t=plain and len(str(value)) > _TEXT))


def _fits(value: object) -> bool:
    return all(len(word) <= _WORD for word in str(value).split())


def _classes(**used: bool) -> str | None:
    return " ".join(name for name, is_used in used.items() if is_used) or None


def _escaped(value: object) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", str(value)))
