import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import ranks  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes; CI leaves it to make test-torch")


def pytest_sessionfinish():
    ranks.close_shared()
