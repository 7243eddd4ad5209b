"""Writes a JSON value as YAML for people who review it. Texts are quoted as in JSON."""

import json
from typing import Any

__all__ = ["yaml_text"]


def yaml_text(value: Any) -> str:
    """Return the YAML document; its texts, numbers and words are those of JSON."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        found: list[str] = []
        for key, item in value.items():
            name = key if key.replace("-", "").replace("_", "").isalnum() else json.dumps(key)
            if isinstance(item, dict | list) and item:
                indent = "  " if isinstance(item, dict) else ""
                found.append(f"{name}:")
                found.extend(indent + line for line in _lines(item))
            else:
                found.append(f"{name}: {_scalar(item)}")
        return found
    if isinstance(value, list) and value:
        found = []
        for item in value:
            first, *rest = _lines(item)
            found.append(f"- {first}")
            found.extend(f"  {line}" for line in rest)
        return found
    return [_scalar(value)]


def _scalar(value: Any) -> str:
    is_plain = isinstance(value, str) and value.isalpha() and value.lower() not in _WORDS
    return value if is_plain else json.dumps(value, ensure_ascii=False)


_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"}
"""The words that YAML 1.1 or 1.2 may read as something other than a text."""
