"""A page is read to its end when it is short. Words of each folder, outside of tables, headings of tables and code, stay under a limit."""
import unittest

from pages import pages

# The limit of a folder. The second number is what the project aims at; None: no aim.
LIMITS = {
    "docs/tutorial": (1_700, 2_000),
    "docs/how-to": (6_000, 6_000),
    "docs/reference": (7_850, 12_000),
    "docs/explanation": (9_000, 9_000),
    "docs/results": (3_000, 3_000),
}
ALONE = {"README.md": (450, 900), "docs/README.md": (200, None)}
LONGEST_EXPLANATION = 1_750  # words of one page


class Lengths(unittest.TestCase):
    def test_folders_stay_under_their_limits(self):
        words = {folder: 0 for folder in LIMITS}
        for page in pages():
            folder = page.name.rpartition("/")[0]
            if folder in words:
                words[folder] += page.words()
        for folder, (limit, _) in LIMITS.items():
            with self.subTest(folder=folder):
                self.assertGreater(words[folder], 0, "its pages are no longer found")
                self.assertLessEqual(words[folder], limit, "say it shorter, or say it in the header, the design log or results/data")

    def test_pages_stay_under_their_limits(self):
        for page in pages():
            limit = ALONE.get(page.name, (None,))[0] or (LONGEST_EXPLANATION if page.name.startswith("docs/explanation/") else None)
            if limit:
                with self.subTest(page=page.name):
                    self.assertLessEqual(page.words(), limit)


if __name__ == "__main__":
    unittest.main()
