"""Formatted numbers, such as prices, are recognized, and the suggested code converts them to the numbers."""

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.support.formatted_numbers import conversion, decimal_mark, gap_words, have_leading_zeros, have_only_commas, units


@given(
    st.lists(st.integers(-(10**7), 10**7), min_size=1, max_size=5),
    st.sampled_from(
        [
            ("", "€"),
            ("$ ", ""),
            ("", " %"),
            ("EUR ", ""),
            ("", "\u00a0€"),
            ("-£", ""),
            ("", ""),
            ("", " kg"),
            ("", "g"),
            ("", "°C"),
            ("", "\u00a0km/h"),
        ]
    ),
    st.sampled_from([(",", "."), (".", ","), (" ", ","), (" ", "."), ("\u202f", ","), ("'", "."), ("", ".")]),
)
def test_the_suggested_code_converts_every_formatted_number(cents, wrapping, marks):
    """Law: if a column of formatted numbers is recognized, the suggested code returns the formatted numbers."""
    before, after = wrapping
    thousands, decimal = marks
    numbers = [abs(number) if before.startswith("-") else number for number in cents]
    texts = [before + f"{number / 100:,.2f}".translate({ord(","): thousands, ord("."): decimal}) + after for number in numbers]
    mark = decimal_mark(pa.array([*texts, None]))
    if mark is None:
        assert all(re.fullmatch(r"[-+]?\d+\.\d+", text) for text in texts)  # plain numbers need no conversion
        return
    assert mark == decimal
    sign = -1 if before.startswith("-") else 1
    assert [eval(conversion("text", mark), {"re": re, "text": text}) for text in texts] == [sign * number / 100 for number in numbers]


@pytest.mark.parametrize(
    "texts",
    [
        ["1.2.1997"],
        ["10.0.0.1"],
        ["030 1234567"],
        ["12"],
        ["1.5", "2"],
        ["12a", "13b", "14"],
        ["12 A", "13 B", "14 C"],
        ["1st", "2nd", "3rd", "4th"],
        ["A 12"],
        ["1,2,3"],
        ["soon"],
        ["€"],
        [""],
        ["01234"],
        [None],
    ],
    ids=str,
)
def test_other_texts_are_no_formatted_numbers(texts):
    """Dates, addresses, lists, codes and plain numbers are not recognized."""
    assert decimal_mark(pa.array(texts, pa.string())) is None


def test_a_factor_converts_each_unit():
    """The code for several units has a factor for each unit, which users set."""
    texts = ["4.9 kg", "2,695 g", "300g", "0.5kg", "7"]
    column = pa.array(texts)
    assert decimal_mark(column) == "."
    assert units(column) == ["", "g", "kg"]
    code = conversion("text", ".", units(column)).replace("'g': 1", "'g': 0.001")
    assert [eval(code, {"re": re, "text": text}) for text in texts] == pytest.approx([4.9, 2.695, 0.3, 0.5, 7])


@given(
    st.lists(st.sampled_from(["-", "k.A.", "unbekannt", "missing", "?"]), max_size=6),
    st.lists(st.integers(-999, 999), min_size=1, max_size=60),
    st.sampled_from(["{}", "{}.5", "{},25", "{} kg", "€{}", "1e{}"]),
)
def test_few_words_among_numbers_are_gaps(words, numbers, form):
    """Law: at most three words in at most a quarter of the texts are gaps, for each format of the numbers."""
    column = pa.array([*(form.format(number) for number in numbers), *words, None])
    few = len(set(words)) <= 3 and 4 * len(words) <= len(words) + len(numbers)
    assert sorted(gap_words(column)) == (sorted(set(words)) if few else [])


_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October")


def test_words_among_other_texts_are_no_gaps():
    """A text with digits that is no number, such as a house number with a letter, shows that the column holds other texts."""
    assert gap_words(pa.array([*["12"] * 20, "12a", "-"])) == []
    assert gap_words(pa.array([*[f"{day} {month}" for month in _MONTHS for day in range(1, 9)], "unknown"])) == []
    assert gap_words(pa.array(["a", None])) == []
    assert gap_words(pa.array([None, None], pa.string())) == []


def test_a_comma_before_three_digits_separates_thousands():
    """If each number has two readings, the first mark is chosen: the point by default. One number with other digits decides."""
    assert decimal_mark(pa.array(["1,234", "5,678"])) == "."
    assert decimal_mark(pa.array(["1,234", "5,6"])) == ","
    assert decimal_mark(pa.array(["1,234", "5,678"]), ",.") == ","
    assert decimal_mark(pa.array(["1,234.5", "5,678"]), ",.") == "."


def test_only_numbers_without_signs_are_left_to_the_decimal_argument():
    """The CSV reader of Arrow parses decimal commas, but neither signs nor thousands separators."""
    assert have_only_commas(pa.array(["12,5", "-3", None]))
    assert not any(have_only_commas(pa.array([text])) for text in ("12,5 %", "1.234,5", "€3"))


def test_a_zero_before_a_digit_is_a_leading_zero():
    """Codes such as 007 have leading zeros. Zero and decimal fractions have none."""
    assert have_leading_zeros(pa.array(["7", "007"]))
    assert not have_leading_zeros(pa.array(["0", "0.07", "70", "-0", None, "2024-01-01"]))
