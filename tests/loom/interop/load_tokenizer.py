"""Loads a folder's tokenizer with Hugging Face's library, and compares its tokens with those of expected.json. 77: no library."""

import json
import pathlib
import sys

try:
    from tokenizers import Tokenizer, models, pre_tokenizers
except ImportError:
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
parts = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
parts.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
parts.add_special_tokens(["<|endoftext|>"])
plain = json.loads((folder / "tokenizer.json").read_text())["normalizer"] is None
for text, tokens in json.loads((folder / "expected.json").read_text()):
    assert whole.encode(text, add_special_tokens=False).ids == tokens, text
    assert not plain or parts.encode(text).ids == tokens, text
