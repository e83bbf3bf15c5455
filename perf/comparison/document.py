"""JSON files that these tools are given."""
from __future__ import annotations

import json
import pathlib
from typing import Any

from .scenarios import UsageError


def read(path: pathlib.Path) -> dict[str, Any]:
    """Any JSON object."""
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path} is no JSON object")
    return document
