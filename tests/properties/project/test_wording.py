"""Plain English: pronouns and relative words, question openings and long sentences stay rare. The limits may only fall."""

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import NamedTuple

import mlxfp as fp

PACKAGE = Path(fp.__file__).parent
ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks/README.md", *ROOT.glob("docs/**/*.md")]
# A reader needs the sentence before to understand these words.
WORDS = {"what", "it", "one", "ones", "that", "those", "such", "so", "which", "where", "its", "them", "they", "these", "then", "too"}


class Gauge(NamedTuple):
    rate: float  # words of `WORDS` in 1,000 words
    questions: float  # texts in 100 that begin with a question word
    length: float  # words in a sentence


def gauge(texts: list[str]) -> Gauge:
    words = re.findall(r"[a-z']+", " ".join(texts).lower())
    sentences = [sentence.split() for text in texts for sentence in re.split(r"(?<=[.!?])\s+", re.sub(r"\|.*\|", "", text))]
    lengths = [len(sentence) for sentence in sentences if len(sentence) > 2]
    questions = sum(bool(re.match(r"(What|Whether|How|Where|Who|Which)\b", text)) for text in texts)
    return Gauge(
        1000 * sum(word in WORDS for word in words) / max(1, len(words)),
        100 * questions / max(1, len(texts)),
        sum(lengths) / max(1, len(lengths)),
    )


def docstrings_and_comments(code: str) -> tuple[list[str], list[str]]:
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docstrings = [re.split(r"\n\s*>>>", text)[0] for node in nodes if (text := ast.get_docstring(node))]
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    comments = [token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT]
    return docstrings, [comment for comment in comments if not re.match(r"(noqa|type:|pragma)", comment)]


def test_docstrings_and_comments_are_plain():
    files = [docstrings_and_comments(file.read_text(encoding="utf-8")) for file in PACKAGE.rglob("*.py")]
    docstrings, comments = ([text for file in files for text in file[index]] for index in (0, 1))
    assert gauge(docstrings + comments).rate <= 28
    assert gauge(docstrings + comments).length <= 12
    assert gauge(docstrings).questions <= 0.1


def test_pages_are_plain():
    pages = [re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL) for page in PAGES]
    measured = gauge([re.sub(r"`[^`]*`", "X", page) for page in pages])
    assert measured.rate <= 19
    assert measured.length <= 13.5


def test_a_vague_text_is_measured_as_vague():
    assert gauge(["Whether it is one of those."]) == Gauge(500, 100, 6)
    assert gauge(["Return the index of the row."]) == Gauge(0, 0, 6)
