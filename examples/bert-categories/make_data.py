#!/usr/bin/env python3
"""Makes short texts with categories of what Debian's package lists say: the first line of each description, and its section.

    python3 make_data.py FOLDER

FOLDER/texts.tsv has lines of section, tab, description; FOLDER/vocab.txt is a WordPiece vocabulary of them: special tokens, every
character, alone and inside a word, and the most frequent words. Needs apt-cache and lists that `apt-get update` fetched.
"""
import argparse
import collections
import pathlib
import random
import re
import subprocess
import sys

SECTIONS = ["fonts", "games", "python", "science", "sound", "net", "perl", "java"]
TEXTS = 400  # of a section
WORDS = 2500


def packages():
    listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    for paragraph in listed.split("\n\n"):
        fields = dict(re.findall(r"^(Section|Description(?:-en)?): (.*)$", paragraph, re.MULTILINE))
        section = fields.get("Section", "").split("/")[-1]
        text = fields.get("Description") or fields.get("Description-en")
        if section in SECTIONS and text:
            yield section, text.replace("\t", " ")


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    random.seed(1)
    by_section = collections.defaultdict(set)
    for section, text in packages():
        by_section[section].add(text)
    few = [section for section in SECTIONS if len(by_section[section]) < 50]
    if few:
        sys.exit(f"apt-cache knows fewer than 50 packages of {', '.join(few)}; apt-get update fetches the lists")
    lines = []
    for section in SECTIONS:
        texts = sorted(by_section[section])
        lines += [(section, text) for text in random.sample(texts, min(TEXTS, len(texts)))]
    random.shuffle(lines)
    (folder / "texts.tsv").write_text("".join(f"{section}\t{text}\n" for section, text in lines))

    words = collections.Counter(word for _, text in lines for word in re.findall(r"\w+", text.lower()))
    characters = sorted({character for _, text in lines for character in text.lower() if not character.isspace()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + characters + ["##" + c for c in characters]
    vocabulary += [word for word, _ in words.most_common(WORDS) if len(word) > 1]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(vocabulary)) + "\n")
    print(f"{len(lines)} texts of {len(SECTIONS)} sections, {len(vocabulary)} tokens")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", type=pathlib.Path)
main(parser.parse_args().folder)
