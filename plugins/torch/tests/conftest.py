import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import ranks  # noqa: E402


def pytest_sessionfinish():
    ranks.close_shared()
