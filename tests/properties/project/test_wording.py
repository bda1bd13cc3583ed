"""Plain English: words that readers stumbled over stay out of the code, its messages and the pages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLACES = sorted(
    [
        *(file.parent for file in ROOT.glob("mlxfp/*/__init__.py")),
        *(ROOT / folder for folder in ("examples", "benchmarks")),
        *(file for pattern in ("mlxfp/*.py", "docs/*.py", "docs/**/*.md", "*.md", "Makefile") for file in ROOT.glob(pattern)),
    ]
)
ENDINGS = {".ipynb", ".md", ".py", ".yaml"}

# What not to write, as a regular expression, and what to write instead. A word begins and ends where letters do, so that the parts of
# an identifier are words too; a space stands for any white space, and may be the end of a line of a comment.
WORDS = {
    r"mend(s|ed|ing)?": "fix",
    r"(is|are|stands?) there twice": "duplicate",
    r"no such names?": "unknown key, unknown name",
    r"elsewhere": "remote, in another place",
    r"(stands?|standing) in for|stand(?:_|-|)ins?|(?-i:StandIn)\w*": "replaces, wrapper",
    r"hand(s|ed|ing)?(?: |_|-)in": "pass, submit",
    r"astray": "wrong, lost",
    r"whoever": "a reader, a caller",
    r"beside": "next to, with, in addition to",
    r"anew": "again, a new one",
    r"in vain": "without effect, wasted",
    r"(its|their) like": "similar",
    r"such as have": "those that have",
    r"so once": "once",
    r"made(?: |-)up(?! of)": "synthetic",
    r"a word for": "the term itself",
}
# "is no X" is "is not an X"; "there is no X", "is no longer" and "is no-op" are plain English.
IS_NO = r"(?<!there)(?<!\s)(?<!#) (is|are) no(?! longer)(?!-)"
SEARCH = {words: rf"(?<![A-Za-z])({words})(?![A-Za-z])" for words in WORDS} | {"is no": rf"{IS_NO}(?![A-Za-z])"}
PATTERNS = {words: re.compile(search.replace(" ", r"\s+(?:#\s+)?"), re.IGNORECASE) for words, search in SEARCH.items()}

# Where one of these is right: the file and the words around it, with the reason.
ALLOWED: dict[tuple[str, str], str] = {
    ("mlxfp/app/kaggle/specs/shipped/house_prices.yaml", ": beside "): "what a code of the data means, in the words of its description",
}


def files_in(place):
    return sorted(file for file in place.rglob("*") if file.suffix in ENDINGS) if place.is_dir() else [place]


def findings(text):
    """Name each place in a text with one of the words: its line, the text of that line, and what to write instead."""
    found = []
    for words, pattern in PATTERNS.items():
        for match in pattern.finditer(text):
            start, line = text.rfind("\n", 0, match.end()) + 1, text.count("\n", 0, match.end()) + 1
            found.append((line, text[start : match.end() + 40].partition("\n")[0].strip(), WORDS.get(words, "is not a")))
    return sorted(found)


def findings_in(place):
    """The same for the files of a place, without what is allowed."""
    return [
        f"{name}:{line}: {excerpt!r}; say: {instead}"
        for file in files_in(place)
        for name in [file.relative_to(ROOT).as_posix()]
        for line, excerpt, instead in findings(file.read_text(encoding="utf-8"))
        if not any(name == where and words in excerpt for where, words in ALLOWED)
    ]


def name_of(place):
    return place.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("place", PLACES, ids=name_of)
def test_the_words_are_plain(place):
    assert findings_in(place) == []


@pytest.mark.parametrize(
    "text",
    [
        "Mend the line.",
        "def _mend_rows():",
        "the name is there twice",
        "No such\n    name",
        "read from elsewhere",
        "a value stands\n# in for another",
        "class StandInStage:",
        "_stand_ins = ()",
        "what was handed in",
        "from mlxfp.app.runs.handing_in import submit",
        "a label that is no class",
        "labels\n    are no\n    classes",
        "made-up rows",
    ],
)
def test_a_word_is_found_in_sentences_and_identifiers_and_across_lines(text):
    assert len(findings(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "amend it, as we recommend",
        "There is no checkpoint.",
        "if there\n    are no rows",
        "if there\n    # are no rows; twice as many",
        "it is no longer there; a stage that is no-op",
        "besides, a standing order is handed over",
        "a batch made up of rows",
        "x is not None; this is None",
        "an outstanding instance",
    ],
)
def test_other_words_are_not_found(text):
    assert findings(text) == []
