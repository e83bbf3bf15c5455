"""Loads a folder's model with `transformers` and compares its logits with expected.json. 77: no library."""

import json
import pathlib
import sys

try:
    import torch
    from transformers import GPT2LMHeadModel
except ImportError:
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
expected = json.loads((folder / "expected.json").read_text())
model = GPT2LMHeadModel.from_pretrained(folder / "model").eval()
with torch.no_grad():
    logits = model(torch.tensor([expected["tokens"]])).logits[0, -1]
wanted = torch.tensor(expected["logits"])
error = (logits - wanted).abs().max() / wanted.abs().max()
assert error < 1e-5, f"logits differ by {error}"
