"""A token is shown in a header, or refused by a message that does not show it."""

import pytest

from slots import bearer
from slots.bearer import TokenError


def test_a_token_is_shown_and_an_empty_one_is_not() -> None:
    assert bearer.header("the~secret!") == {"Authorization": "Bearer the~secret!"}
    assert bearer.header("") == {}


@pytest.mark.parametrize("token", ["secret\n", "secret\r", "a secret", "secr\u00e9t", "secret\x7f", "secret\0"])
def test_a_token_that_no_header_can_have_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(TokenError) as refused:
        bearer.header(token)
    assert "secr" not in str(refused.value)
