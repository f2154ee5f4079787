"""The forms in which a command prints what it found: a table for a person, JSON or YAML for a program."""

import json
from enum import StrEnum
from typing import Any


class Form(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def written(value: Any, form: Form, many: bool = False) -> str:
    """A value that JSON can hold, as one line of JSON or as YAML, without a line's end behind it.

    Args:
        many: others follow, so where one ends has to be seen.
    """
    if form is Form.JSON:
        return json.dumps(value)
    # Imported here: few commands need it.
    import yaml

    said = {"sort_keys": False, "allow_unicode": True, "width": 120, "explicit_start": many}
    try:
        text = yaml.dump(value, Dumper=yaml.CSafeDumper, **said)
    except (AttributeError, UnicodeEncodeError):
        # The compiled one may not be there, and it takes no bytes that are not text.
        text = yaml.safe_dump(value, **said)
    return str(text).removesuffix("...\n").rstrip("\n")
