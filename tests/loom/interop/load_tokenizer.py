"""Loads a folder's tokenizer with Hugging Face's libraries, from its tokenizer.json, from vocab.json and merges.txt where they are,
and as a model's tokenizer, and compares tokens with those of expected.json, as they are and with what a classifier's texts have around
them; where there is an expected_ids.json, what the model's
config and what generates with it take for the ends of a text, too. 77: no library."""

import json
import pathlib
import sys

try:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig
except ImportError:
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
parts = None
pipeline = json.loads((folder / "tokenizer.json").read_text())
gpt2 = pipeline["normalizer"] is None and pipeline["pre_tokenizer"]["type"] == "ByteLevel"
if gpt2 and (folder / "vocab.json").exists() and len(pipeline["added_tokens"]) == 1:
    parts = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    parts.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    parts.add_special_tokens(["<|endoftext|>"])
of_model = AutoTokenizer.from_pretrained(folder)
assert sorted(of_model("text")) == ["attention_mask", "input_ids"]  # GPT-2 would add the embedding of token 0 for types
for text, tokens, around in json.loads((folder / "expected.json").read_text()):
    assert whole.encode(text, add_special_tokens=False).ids == tokens, text
    assert parts is None or parts.encode(text).ids == tokens, text
    assert of_model.encode(text, add_special_tokens=False) == tokens, text
    assert whole.encode(text).ids == around, text
    assert of_model.encode(text) == around, text
if (folder / "expected_ids.json").exists():
    ids = json.loads((folder / "expected_ids.json").read_text())
    config = AutoConfig.from_pretrained(folder)
    for source in (of_model, config, GenerationConfig.from_model_config(config)):
        assert source.eos_token_id == ids["eos"], (type(source), source.eos_token_id)
        assert source.bos_token_id == ids["bos"], (type(source), source.bos_token_id)
