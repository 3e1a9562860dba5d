"""What a user is told who asks for something impossible."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pals.util.errors import InputError


def refused(pattern: str, call: Callable[..., object], *arguments: object, **options: object) -> str:
    """The call ends in an `InputError` whose text, returned, matches the pattern."""
    with pytest.raises(InputError, match=pattern) as caught:
        call(*arguments, **options)
    return str(caught.value)
