"""Loads every model of a folder with `transformers`, and compares its logits with those of the checkpoint that it was read from.

    python3 load_families.py FOLDER FIXTURES       77: no library
"""

import json
import pathlib
import sys

try:
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError:
    sys.exit(77)

saved, fixtures = map(pathlib.Path, sys.argv[1:])
for folder in sorted(saved.iterdir()):
    expected = load_file(fixtures / folder.name / "expected.safetensors")
    config = json.loads((folder / "config.json").read_text())
    model, info = getattr(transformers, config["architectures"][0]).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"], f"{folder.name} lacks {info['missing_keys']}"
    assert not info["unexpected_keys"], f"{folder.name} has {info['unexpected_keys']}, which nobody reads"
    tokens = expected["tokens"].long()
    mask = (tokens != config["pad_token_id"]).long() if config["pad_token_id"] is not None else torch.ones_like(tokens)
    with torch.no_grad():
        logits = model.eval()(tokens, attention_mask=mask).logits
    error = (logits - expected["logits"]).abs().max() / expected["logits"].abs().max()
    assert error < 1e-5, f"{folder.name}: logits differ by {error}"
