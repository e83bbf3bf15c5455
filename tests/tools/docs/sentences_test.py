"""Sentences have at most 30 words, but for those that long_sentences.txt lists: a line has the page, a tab, and how it begins.
`*` stands for all sentences of a page. sentences_test.py --write makes the list anew; it should only become shorter."""
import pathlib
import re
import sys
import unittest

from pages import WORD, pages, plain

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
                if len(WORD.findall(sentence)) > MOST:
                    yield f"{page.name}\t{sentence[:BEGIN].rstrip()}", line


def listed():
    return set(LIST.read_text().splitlines())


def whole_pages():
    return {each.partition("\t")[0] for each in listed() if each.endswith("\t*")}


class Sentences(unittest.TestCase):
    def test_no_sentence_is_too_long(self):
        for each, line in long_ones():
            if each.partition("\t")[0] not in whole_pages():
                with self.subTest(sentence=each):
                    self.assertIn(each, listed(), f"line {line}: more than {MOST} words")

    def test_the_list_has_no_other_sentences(self):
        found = dict(long_ones())
        for each in sorted(listed()):
            with self.subTest(listed=each):
                self.assertTrue(each.endswith("\t*") or each in found, f"{LIST.name} lists a sentence that is short now, or gone")


if __name__ == "__main__":
    if "--write" in sys.argv:
        pages_left_out = whole_pages()
        keep = {f"{page}\t*" for page in pages_left_out} | {each for each, _ in long_ones() if each.partition("\t")[0] not in pages_left_out}
        LIST.write_text("".join(f"{each}\n" for each in sorted(keep)))
    else:
        unittest.main()
