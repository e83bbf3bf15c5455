"""Classifies texts with a folder's model by a pipeline of `transformers`, and compares the names and probabilities of all classes with
those of expected.json. 77: no library."""

import json
import pathlib
import sys

try:
    import torch  # noqa: F401
    from transformers import pipeline
except ImportError:
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
context = json.loads((folder / "context.json").read_text())
classify = pipeline("text-classification", model=str(folder), device="cpu", top_k=None)
for text, classes in json.loads((folder / "expected.json").read_text()):
    found = {entry["label"]: entry["score"] for entry in classify([text], truncation=True, max_length=context)[0]}
    assert found.keys() == classes.keys(), (found, classes)
    for label, probability in classes.items():
        assert abs(found[label] - probability) < 1e-5, (text, found, classes)
