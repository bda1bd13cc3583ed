"""Labels of tokens: those of a table by hand, and spans that come back from the labels of real tokenizers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, DataError, SchemaError
from tests.text.configurations import known

# [CLS] Ada Love ##lace met Charles [SEP], in "Ada Lovelace met Charles"
ROW = {"input_ids": [2, 7, 8, 9, 5, 6, 3], "token_starts": [0, 0, 4, 8, 13, 17, 0], "token_ends": [0, 3, 8, 12, 16, 24, 0]}
PEOPLE = [{"start": 17, "end": 24, "label": 1}, {"start": 0, "end": 12, "label": 1}]
WORDS = {"input_ids": [2, 7, 8, 9, 5, 6, 3], "word_ids": [-1, 0, 1, 1, 2, 3, -1]}


def labels_of(collator, row):
    return collator([row])["labels"].tolist()[0]


@pytest.mark.parametrize(("scheme", "expected"), [("all", [-100, 1, 1, 1, 0, 1, -100]), ("bio", [-100, 1, 2, 2, 0, 1, -100])])
def test_spans_give_their_labels_to_the_tokens_that_touch_them(scheme, expected):
    assert labels_of(fp.collators.tokens(pad_id=0, spans="names", scheme=scheme), {**ROW, "names": PEOPLE}) == expected


@pytest.mark.parametrize(
    ("scheme", "tags", "expected"),
    [
        ("first", [1, 3, 0, 2], [-100, 1, 3, -100, 0, 2, -100]),
        ("all", [1, 3, 0, 2], [-100, 1, 3, 3, 0, 2, -100]),
        ("bio", [1, 3, 0, 2], [-100, 1, 3, 4, 0, 2, -100]),
        ("bio", [1, 2, 0, -100], [-100, 1, 2, 2, 0, -100, -100]),
    ],
)
def test_words_give_their_labels_to_their_tokens(scheme, tags, expected):
    assert labels_of(fp.collators.tokens(pad_id=0, words="tags", scheme=scheme, classes=5), {**WORDS, "tags": tags}) == expected


def test_a_span_without_a_token_is_left_out_and_a_token_of_two_spans_belongs_to_the_first():
    near = [{"start": 0, "end": 2, "label": 1}, {"start": 2, "end": 3, "label": 2}, {"start": 99, "end": 100, "label": 3}]
    assert labels_of(fp.collators.tokens(pad_id=0, spans="names", scheme="all"), {**ROW, "names": near}) == [-100, 1, 0, 0, 0, 0, -100]


def test_rows_of_a_batch_keep_their_own_spans_and_padding_has_no_label():
    rows = [{**ROW, "names": []}, {name: ROW[name][:3] for name in ROW} | {"names": [{"start": 4, "end": 8, "label": 2}]}]
    batch = fp.collators.tokens(pad_id=0, spans="names", scheme="bio")(rows)
    assert batch["labels"].tolist() == [[-100, 0, 0, 0, 0, 0, -100], [-100, 0, 3, -100, -100, -100, -100]]
    assert batch["attention_mask"].sum(axis=1).tolist() == [7, 3]


@st.composite
def marked_texts(draw):
    """Draw words, and which of them are entities of one word or two."""
    words = draw(st.lists(st.sampled_from(["Ada", "Lovelace", "café", "in", "class", "x"]), min_size=1, max_size=6))
    kinds = draw(st.lists(st.integers(0, 2), min_size=len(words), max_size=len(words)))
    spans, start = [], 0
    for word, kind in zip(words, kinds, strict=True):
        if kind:
            spans.append({"start": start, "end": start + len(word), "label": kind})
        start += len(word) + 1
    return " ".join(words), spans


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
@settings(max_examples=25)
@given(marked_texts())
def test_labels_of_spans_turn_back_into_the_spans(name, marked):
    text, spans = marked
    (row,) = fp.pipe(fp.from_examples([{"text": text}]), fp.tokenize(known()[name], offsets=True))
    found = labels_of(fp.collators.tokens(pad_id=0, spans="names", scheme="bio"), {**row, "names": spans})
    assert fp.collators.character_spans(text, found, row["token_starts"], row["token_ends"], scheme="bio") == spans


def test_labels_that_no_one_would_write_give_spans_all_the_same():
    starts, ends = [0, 2, 4, 6], [1, 3, 5, 7]
    assert fp.collators.character_spans("a b c d", [2, 2, 4, 0], starts, ends, scheme="bio") == [
        {"start": 0, "end": 3, "label": 1},
        {"start": 4, "end": 5, "label": 2},
    ]
    assert fp.collators.character_spans("a b c d", [1, 1, 0, 1], starts, ends, scheme="all") == [
        {"start": 0, "end": 3, "label": 1},
        {"start": 6, "end": 7, "label": 1},
    ]
    assert fp.collators.character_spans("", [], [], [], scheme="all") == []
    assert fp.collators.character_spans("a b", [1, -100, 2], [0, 0, 1], [1, 0, 3], scheme="bio") == [{"start": 0, "end": 3, "label": 1}]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("names", [{"start": 4, "end": 4, "label": 1}], r"column 'names' of .* has a span from 4 to 4, without any character"),
        ("names", [{"start": 0, "end": 4, "label": 0}], r"has a span with label 0\. Span labels start at 1"),
        ("names", [{"start": 0, "end": 4, "label": 3}], r"has the label 6, but token labels must be from 0 to 5"),
        ("names", [*PEOPLE, {"start": 11, "end": 13, "label": 1}], r"has overlapping spans: 0 to 12 and 11 to 13"),
        ("tags", [0, 0, 0, 7], r"has the label 7, but token labels must be from 0 to 5"),
        ("tags", [0, 0, 0], r"has 3 labels, but word_ids contains word 3\. Give each word a label"),
    ],
)
def test_labels_that_cannot_be_are_refused(column, value, message):
    collator = fp.collators.tokens(pad_id=0, scheme="bio", classes=6, **({"spans": "names"} if column == "names" else {"words": "tags"}))
    with pytest.raises(DataError, match=message):
        collator([{**ROW, **WORDS, "names": PEOPLE, "tags": [0, 0, 0, 0], column: value}])


def test_arguments_and_columns_that_cannot_be_are_refused():
    with pytest.raises(ArgumentError, match=r"needs exactly one of three columns: labels \(a label per token\), words"):
        fp.collators.tokens(pad_id=0, scheme="all")
    with pytest.raises(ArgumentError, match='scheme="first" is for labels of words, got spans'):
        fp.collators.tokens(pad_id=0, scheme="first", spans="names")
    with pytest.raises(SchemaError, match=r"must hold lists of objects with integers start, end and label, got list<.*int64>"):
        fp.collators.tokens(pad_id=0, scheme="all", spans="names")([{**ROW, "names": [1]}])
    with pytest.raises(ArgumentError, match="got 2 labels, 1 starts, 1 ends"):
        fp.collators.character_spans("a", [0, 0], [0], [1], scheme="all")


def test_a_token_classifier_learns_names_from_words():
    people, places = ["Ada", "Alan", "Grace", "Emmy"], ["Paris", "London", "Turin", "Bonn"]
    rows = [{"words": [one, "went", "to", two], "tags": [1, 0, 0, 3]} for one in people for two in places]
    text = fp.from_examples([{"text": " ".join(row["words"])} for row in rows])
    tokenizer = fp.train_tokenizer(text, kind="wordpiece", vocab_size=60, lowercase=True)
    collate = fp.collate(fp.collators.tokens(pad_id=tokenizer.pad_id, words="tags", scheme="bio", classes=5, lengths=[24]))
    batches = fp.pipe(fp.from_examples(rows), fp.tokenize(tokenizer, column="words"), fp.batch(16), collate)
    config = fp.models.BertConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    model, optimizer = fp.models.TokenClassifier(fp.models.Bert(config), 5, dropout=0.0), fp.optimizers.adamw(0.01)

    def loss(model, batch):
        return fp.losses.cross_entropy(model(batch["input_ids"], batch["attention_mask"]), batch["labels"])

    step, start = fp.train_step(model, loss, optimizer), fp.train_state(model, optimizer)
    end = fp.last(fp.fit(step, start, fp.pipe(batches, fp.repeat(None)), steps=40))
    model.update(end.state.params)
    model.eval()
    asked = "Grace went to Turin"
    (row,) = fp.pipe(fp.from_examples([{"text": asked}]), fp.tokenize(tokenizer, offsets=True))
    batch = fp.collators.text(pad_id=tokenizer.pad_id)([row])
    predicted = model(batch["input_ids"], batch["attention_mask"]).argmax(axis=-1).tolist()[0]
    assert fp.collators.character_spans(asked, predicted, row["token_starts"], row["token_ends"], scheme="bio") == [
        {"start": 0, "end": 5, "label": 1},
        {"start": 14, "end": 19, "label": 2},
    ]


def test_labels_per_token_are_padded_with_the_ignored_label():
    """A row of five tokens with five labels needs neither words nor spans. Padding has no class."""
    rows = [{"input_ids": [5, 6, 7, 8, 9], "labels": [0, 1, 0, 2, -100]}, {"input_ids": [5], "labels": [2]}]
    batch = fp.collators.tokens(pad_id=0, labels="labels", classes=3)(rows)
    assert batch["labels"].tolist() == [[0, 1, 0, 2, -100], [2, -100, -100, -100, -100]]
    assert fp.collators.default()(rows)["labels"].tolist() == batch["labels"].tolist()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 3], r"column 'labels' of .* has the label 3, but token labels must be from 0 to 2"),
        ([0], r"has lists of different lengths: 2 in column 'input_ids' and 1 in column 'labels'"),
    ],
)
def test_invalid_labels_per_token_are_an_error(labels, message):
    """The error names the row and the label."""
    with pytest.raises(DataError, match=message):
        fp.collators.tokens(pad_id=0, labels="labels", classes=3)([{"input_ids": [5, 6], "labels": labels}])


def test_the_default_collator_pads_other_columns_and_real_labels_with_its_pad_id():
    """Only integer lists named `labels` are labels per token."""
    batch = fp.collators.default(pad_id=7)([{"labels": [0.5], "tags": [1]}, {"labels": [0.5, 1.5], "tags": [1, 2]}])
    assert (batch["labels"].tolist(), batch["tags"].tolist()) == ([[0.5, 7.0], [0.5, 1.5]], [[1, 7], [1, 2]])


def test_labels_per_token_of_packed_rows_keep_the_documents():
    """The batch has the columns of `pack`. Rows of `pack` without `packed=True`, and labels of words or spans, are refused."""
    rows = fp.from_examples([{"input_ids": [5, 6], "labels": [0, 1]}, {"input_ids": [7], "labels": [2]}])
    packed = fp.pipe(rows, fp.pack(4, aligned=["labels"]), fp.batch(1))
    made = next(iter(fp.pipe(packed, fp.collate(fp.collators.tokens(pad_id=0, labels="labels", packed=True, length=4)))))
    assert {name: made[name].tolist() for name in ("labels", "segment_ids", "positions")} == {
        "labels": [[0, 1, 2, -100]],
        "segment_ids": [[1, 1, 2, 0]],
        "positions": [[0, 1, 0, 0]],
    }
    with pytest.raises(SchemaError, match=r"Write tokens\(\.\.\., packed=True\)"):
        next(iter(fp.pipe(packed, fp.collate(fp.collators.tokens(pad_id=0, labels="labels")))))
    with pytest.raises(ArgumentError, match=r"packed=True needs the argument `labels`, .* Write pack\(\.\.\., aligned="):
        fp.collators.tokens(pad_id=0, words="tags", packed=True)
