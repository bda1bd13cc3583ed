"""An engine is proved, or not used."""

import json as jsons

import attrs
import numpy as np
import pyarrow as pa
import pytest
import tokenizers as hf

import mlxfp as fp
from mlxfp.support.errors import UnknownNameError
from mlxfp.text.encoding import encoding
from mlxfp.text.encoding.encoding import describe_engine, encode_chunk, forget_words
from mlxfp.text.engines import choosing
from mlxfp.text.engines.choosing import ENGINES, GIGATOKEN, TOKIE, Choice, choose, prove
from mlxfp.text.engines.cleared import kind_of, read_trials
from mlxfp.text.engines.probes import find_difference, probe_texts, spelled_pieces
from mlxfp.text.engines.protocol import EngineKind
from mlxfp.text.tokenizers.configuration import read_configuration
from mlxfp.text.tokenizers.tokenizer import ENGINE_NAMES, Tokenizer, engine
from tests.text.corpora import SENTENCES, trained

pytest.importorskip("gigatoken")
pytest.importorskip("tokie")

BPE = trained("bpe")
WORDS = trained("wordpiece", lowercase=True)
LONG = pa.array([*SENTENCES, "", "plain words", "[MASK] is special"] * 200)


@pytest.fixture(autouse=True)
def _nothing_chosen(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where proofs are kept
    choose.cache_clear()
    forget_words()
    yield
    choose.cache_clear()
    forget_words()


@attrs.frozen
class Shifted:
    """Gives right ids, but for texts that hold a letter."""

    own: object
    letter: str

    def encode(self, texts):
        ids, ends = self.own.encode(texts)
        wrong = [any(self.letter in text for text in texts.to_pylist())]
        return ids + np.array(wrong, np.int32), ends


@attrs.frozen
class Failing:
    """Passes the probe, and then fails."""

    own: object
    calls: list = attrs.field(factory=list)

    def encode(self, texts):
        self.calls.append(len(texts))
        if len(self.calls) > 1:
            raise RuntimeError("no more")
        return self.own.encode(texts)


def spoilt(kind, build):
    return EngineKind(kind.name, lambda json: build(kind.build(json)))


@pytest.mark.parametrize(("tokenizer", "kind"), [(BPE, GIGATOKEN), (WORDS, TOKIE)])
def test_an_engine_with_other_ids_for_one_letter_of_the_vocabulary_does_not_pass_the_probe(tokenizer, kind):
    assert not isinstance(prove(kind, tokenizer.json), str)
    found = prove(spoilt(kind, lambda own: Shifted(own, "q")), tokenizer.json)
    assert isinstance(found, str)
    assert found.startswith("the ids differ for ")


def test_a_proof_is_kept_for_the_next_process_and_for_nothing_else(monkeypatch):
    probes = []
    monkeypatch.setattr(choosing, "find_difference", lambda *given: probes.append(given) or find_difference(*given))
    for _ in range(3):
        choose.cache_clear()  # as in another process
        assert choose(WORDS.json, "tokie").proved is not None
    assert len(probes) == 1
    others = Tokenizer(trained("wordpiece", lowercase=False).json)
    spoilt_one = spoilt(TOKIE, lambda own: own)
    newer = attrs.make_class("Newer", [], bases=(EngineKind,))("tokie", TOKIE.build)
    monkeypatch.setattr(type(newer), "version", "999")
    for kind, json in ((TOKIE, others.json), (spoilt_one, WORDS.json), (newer, WORDS.json)):
        prove(kind, json)
    assert len(probes) == 4
    gate = prove(TOKIE, WORDS.json).gate
    monkeypatch.setattr(choosing, "make_gate", lambda *_: attrs.evolve(gate, refused=("é",)))
    prove(TOKIE, WORDS.json)
    assert len(probes) == 5


def test_an_engine_is_proved_each_time_where_nothing_can_be_kept(tmp_path, monkeypatch):
    (tmp_path / "mlxfp").write_text("a file, and no folder")
    probes = []
    monkeypatch.setattr(choosing, "find_difference", lambda *given: probes.append(given) or find_difference(*given))
    for _ in range(2):
        assert not isinstance(prove(TOKIE, WORDS.json), str)
    assert len(probes) == 2


def test_an_engine_that_fails_later_is_replaced_by_the_tokenizer(monkeypatch):
    monkeypatch.setattr(choosing, "ENGINES", (spoilt(TOKIE, Failing),))
    tokenizer = attrs.evolve(WORDS, engine="tokie")
    proved = choose(encoding._encoder(tokenizer.json, "tokie").json, "tokie").proved
    assert proved is not None
    assert encode_chunk(tokenizer, LONG).to_pylist() == [WORDS.encode(text, special=False) for text in LONG.to_pylist()]
    assert len(proved.engine.calls) == 2


def test_an_engine_that_cannot_be_built_is_not_used():
    def build(json):
        raise ValueError("no such model\nat line 5")

    assert prove(EngineKind("tokie", build), WORDS.json) == "the engine cannot load this tokenizer (no such model)"


@pytest.mark.parametrize("unknown", [None, "A"])
def test_an_engine_is_not_used_where_a_byte_is_missing_from_the_vocabulary_unless_it_gives_the_same_ids(unknown):
    data = jsons.loads(BPE.json)
    letter = "Ã"  # of the byte C3, as in é
    data["model"]["merges"] = [merge for merge in data["model"]["merges"] if letter not in "".join(merge)]
    data["model"]["vocab"] = {token: number for token, number in data["model"]["vocab"].items() if letter not in token}
    data["model"]["unk_token"] = unknown
    tokenizer = Tokenizer(jsons.dumps(data), engine="gigatoken")
    texts = pa.array(["café", "plain", *SENTENCES] * 100)
    assert encode_chunk(tokenizer, texts).to_pylist() == [tokenizer.encode(text, special=False) for text in texts.to_pylist()]


def test_an_engine_that_is_not_installed_is_not_used():
    assert prove(EngineKind("not-a-package", GIGATOKEN.build), BPE.json) == 'not installed (pip install "mlxfp[fast]")'


def test_an_engine_is_not_used_for_a_kind_of_tokenizer_that_was_not_fuzzed():
    assert prove(TOKIE, BPE.json) == "fuzzing has not cleared this kind of tokenizer"
    assert choose(trained("unigram").json, "auto").proved is None


def test_an_engine_is_not_used_where_tokens_are_searched_in_normalized_text():
    data = jsons.loads(WORDS.json)
    data["added_tokens"].append({**data["added_tokens"][0], "id": 300, "content": "Cat", "special": False, "normalized": True})
    assert prove(TOKIE, jsons.dumps(data)) == "an added token is searched in normalized text"
    assert prove(TOKIE, jsons.dumps({**data, "normalizer": None})) == "fuzzing has not cleared this kind of tokenizer"


def test_of_a_version_that_was_not_tried_only_ascii_is_used(monkeypatch):
    texts = pa.array(["plain", "naïve"])
    tried = prove(TOKIE, WORDS.json)
    assert tried.gate.closed(texts).tolist() == []
    trial = attrs.evolve(read_trials()["tokie"], versions={"tokie": "0.0.1", "tokenizers": "0.0.1"})
    monkeypatch.setattr(choosing, "trial_of", {"tokie": trial}.__getitem__)
    assert prove(TOKIE, WORDS.json).gate.closed(texts).tolist() == [1]


def test_an_engine_without_a_trial_is_not_used():
    assert prove(attrs.evolve(TOKIE, name="pytest"), WORDS.json) == "fuzzing has not cleared this kind of tokenizer"


def test_auto_takes_the_first_engine_that_is_proved():
    assert choose(BPE.json, "auto").proved.name == f"gigatoken {GIGATOKEN.version}"
    assert choose(WORDS.json, "auto").proved.name == f"tokie {TOKIE.version}"
    assert choose(WORDS.json, "gigatoken").proved is None
    assert str(choose(BPE.json, "tokenizers")) == "encoded by tokenizers"


def test_explain_says_which_engine_encodes_and_why_not_another():
    rows = fp.from_examples([{"text": "a"}])
    said = fp.explain(fp.pipe(rows, fp.tokenize(WORDS)))
    spoken = f"encoded by tokie {TOKIE.version}, and by tokenizers where the ids could differ"
    assert spoken in said
    assert describe_engine(WORDS).startswith(f"{spoken}; gigatoken is not used: fuzzing")
    assert describe_engine(attrs.evolve(WORDS, engine="tokenizers")) == "encoded by tokenizers"
    assert "because faster engines give no offsets" in fp.explain(fp.pipe(rows, fp.tokenize(WORDS, offsets=True)))
    assert "encoded by tokie" in fp.explain(fp.pipe(rows, fp.tokenize(WORDS, max_length=9, stride=2)))
    assert str(Choice(None, ("a", "b"))) == "encoded by tokenizers; a; b"


def test_the_engine_of_a_tokenizer_is_no_part_of_its_value():
    other = attrs.evolve(BPE, engine="tokenizers")
    assert (other, hash(other), fp.inspect.fingerprint(other)) == (BPE, hash(BPE), fp.inspect.fingerprint(BPE))
    assert attrs.evolve(other, pad_token="a").engine == "tokenizers"


def test_only_known_engines_are_taken(tmp_path):
    BPE.save(tmp_path)
    for name in ENGINE_NAMES:
        assert fp.load_tokenizer(tmp_path, engine=name).engine == name
    with pytest.raises(UnknownNameError, match="engine"):
        fp.load_tokenizer(tmp_path, engine="fastest")
    with pytest.raises(UnknownNameError, match="engine"):
        Tokenizer(BPE.json, engine="fastest")


def test_options_that_do_not_show_in_ids_make_no_other_kind():
    data = jsons.loads(BPE.json)
    kind = kind_of(read_configuration(BPE.json))
    data["model"] |= {"continuing_subword_prefix": "", "unk_token": None}
    data["pre_tokenizer"]["trim_offsets"] = not data["pre_tokenizer"]["trim_offsets"]
    assert kind_of(read_configuration(jsons.dumps(data))) == kind
    data["pre_tokenizer"]["add_prefix_space"] = True
    assert kind_of(read_configuration(jsons.dumps(data))) != kind


def test_every_trial_is_of_an_engine_and_has_visible_ascii():
    assert {kind.name for kind in ENGINES} == set(read_trials())
    for trial in read_trials().values():
        for ranges in trial.kinds.values():
            assert ranges.startswith(("0-7e", "0-ff", "0-"))


@pytest.mark.parametrize(("tokenizer", "kind"), [(BPE, GIGATOKEN), (WORDS, TOKIE)])
def test_a_probe_has_every_piece_of_the_vocabulary_that_passes_the_gate(tokenizer, kind):
    own, gate = engine(tokenizer.json), prove(kind, tokenizer.json).gate
    texts = probe_texts(own, gate)
    kept = [text for place, text in enumerate(texts) if place not in gate.closed(pa.array(texts))]
    pieces = spelled_pieces(own)
    closed = gate.closed(pa.array(pieces)).tolist()
    passed = [piece for place, piece in enumerate(pieces) if place not in closed]
    assert len(passed) > 140
    assert [piece for piece in passed if not any(piece in text for text in kept)] == []


def test_pieces_are_spelled_as_texts_have_them():
    bytewise = hf.Tokenizer(hf.models.BPE({"Ġthe": 0, "Ã©": 1, "Ã": 2, "Ċ": 3}, []))
    bytewise.pre_tokenizer = hf.pre_tokenizers.ByteLevel()
    assert spelled_pieces(bytewise) == [" the", "é", "", "\n"]
    words = hf.Tokenizer(hf.models.WordPiece({"é": 0, "##ing": 1, "\u2581a": 2}))
    assert spelled_pieces(words) == ["é", "ing", " a"]


def test_a_probe_compares_only_what_passes_the_gate():
    proved = prove(TOKIE, WORDS.json)
    wrong = Shifted(proved.engine, "é")
    assert find_difference(wrong, engine(WORDS.json), proved.gate, ["plain", "café"]) is not None
    narrow = attrs.evolve(proved.gate, refused=("é",), begins=())
    assert find_difference(wrong, engine(WORDS.json), narrow, ["plain", "café"]) is None
    assert find_difference(wrong, engine(WORDS.json), narrow, ["café"]) is None


def test_a_vocabulary_with_a_token_beyond_the_tested_length_is_not_given_to_an_engine():
    """A token of 50,000 letters overflows the stack of tokie, which ends the process."""
    data = jsons.loads(WORDS.json)
    data["model"]["vocab"]["a" * 50_000] = len(data["model"]["vocab"])
    assert prove(TOKIE, jsons.dumps(data)) == "engines are tested with at most 1,048,576 tokens of at most 512 bytes"
