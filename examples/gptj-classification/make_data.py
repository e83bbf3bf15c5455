#!/usr/bin/env python3
"""Makes sentences of two kinds, praise and complaint, from a grammar with negations: which words occur does not decide alone.

    python3 make_data.py FILE

FILE has lines of label, tab, sentence; the same on every machine.
"""
import argparse
import pathlib
import random

THINGS = ["the loom", "this weave", "the cloth", "the pattern", "the shuttle", "the thread", "my new scarf", "the third machine"]
GOOD = ["quick", "quiet", "reliable", "soft", "well made", "worth its price", "a pleasure to use"]
BAD = ["slow", "loud", "unreliable", "scratchy", "badly made", "far too dear", "a pain to use"]
TAILS = ["", " so far", " after a year", ", and we use it every day", ", whatever others say"]


def sentence():
    praise = random.random() < 0.5
    negated = random.random() < 0.5
    words = GOOD if praise != negated else BAD
    verb = random.choice(["is not", "is never", "was not at all"] if negated else ["is", "is always", "was really"])
    text = f"{random.choice(THINGS)} {verb} {random.choice(words)}{random.choice(TAILS)}"
    return ("praise" if praise else "complaint"), text[0].upper() + text[1:] + random.choice([".", "!"])


def main(path):
    random.seed(1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("{}\t{}\n".format(*sentence()) for _ in range(2000)))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("file", type=pathlib.Path)
main(parser.parse_args().file)
