"""Sentences have at most 30 words, but for those that long_sentences.txt lists: a line has the page, a tab, and how it begins."""
import pathlib
import re
import unittest

from pages import pages, plain

MOST = 30
LIST = pathlib.Path(__file__).with_name("long_sentences.txt")
BEGIN = 50  # characters by which a sentence is known


def sentences(text):
    text = re.sub(r"`[^`]*`", "CODE", plain(text))
    return [each.strip() for each in re.split(r"(?<=[.!?:;])\s+(?=[A-Z(\"*])", text) if each.strip()]


def long_ones():
    for page in pages():
        for line, text in page.paragraphs:
            for sentence in sentences(text):
                if len(re.findall(r"[A-Za-z0-9][\w'’.%/-]*", sentence)) > MOST:
                    yield f"{page.name}\t{sentence[:BEGIN].rstrip()}", line


class Sentences(unittest.TestCase):
    def test_no_sentence_is_too_long(self):
        allowed = set(LIST.read_text().splitlines())
        found = dict(long_ones())
        for each, line in found.items():
            with self.subTest(sentence=each):
                self.assertIn(each, allowed, f"line {line}: more than {MOST} words")
        for each in sorted(allowed - found.keys()):
            with self.subTest(listed=each):
                self.fail(f"{LIST.name} lists a sentence that is no longer long, or gone: {each}")


if __name__ == "__main__":
    unittest.main()
