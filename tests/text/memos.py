"""What the tests of words look into."""

from mlxfp.text.encoding.encoding import _encoder
from mlxfp.text.encoding.memo import Memo
from mlxfp.text.tokenizers.tokenizer import Tokenizer


def find_memo(tokenizer: Tokenizer) -> Memo | None:
    """Return the words that a tokenizer met, and how its texts are cut into words; None where nothing is known about that."""
    return _encoder(tokenizer.json, tokenizer.engine).memo
