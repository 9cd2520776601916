"""The ids of sessions: free text, within bounds."""

from __future__ import annotations

import unicodedata

from lifecycle.errors import SessionError
from lifecycle.vocabulary.messages import new_id

_LONGEST_ID = 200


def check_id(id: str) -> str:
    """`id`, if it can name a session: 1 to 200 characters, any but control characters and line ends.

    Raises:
        SessionError: if it cannot.
    """
    if not id or len(id) > _LONGEST_ID:
        raise SessionError(f"a session id has 1 to {_LONGEST_ID} characters, not {len(id)}: {id[:40]!r}")
    if not id.isprintable() and any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in id):
        raise SessionError(f"a session id holds no control characters, line ends or lone surrogates: {id!r}")
    return id


def fresh_id(id: str | None) -> str:
    """`id`, or one that nobody has used. Raises as `check_id`."""
    return new_id() if id is None else check_id(id)
