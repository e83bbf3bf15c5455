"""Loads a folder's model and tokenizer with transformers, and saves both in another folder. 77: no library."""

import sys

try:
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError:
    sys.exit(77)

_, source, target = sys.argv
for kind in (AutoModelForCausalLM, AutoTokenizer):
    kind.from_pretrained(source).save_pretrained(target)
