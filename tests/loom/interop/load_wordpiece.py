"""Loads a folder's WordPiece with Hugging Face's libraries, from its tokenizer.json, from its vocab.txt and as a model's tokenizer,
and compares tokens with those of expected.json. 77: no library."""

import json
import pathlib
import sys

try:
    from tokenizers import BertWordPieceTokenizer, Tokenizer
    from transformers import AutoTokenizer
except ImportError:
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
settings = json.loads((folder / "tokenizer_config.json").read_text())
whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
parts = BertWordPieceTokenizer(
    str(folder / "vocab.txt"),
    lowercase=settings["do_lower_case"],
    strip_accents=settings["strip_accents"],
    handle_chinese_chars=settings["tokenize_chinese_chars"],
)
of_model = AutoTokenizer.from_pretrained(folder)
for text, tokens, around in json.loads((folder / "expected.json").read_text()):
    assert whole.encode(text, add_special_tokens=False).ids == tokens, text
    assert parts.encode(text, add_special_tokens=False).ids == tokens, text
    assert of_model.encode(text, add_special_tokens=False) == tokens, text
    for tokenizer in (whole, parts):
        assert tokenizer.encode(text).ids == around, text
    assert of_model.encode(text) == around, text
