import pytest

from slots.environment import misspelt

NAMES = ("listen", "password", "redis_password", "topom", "token")


def found(environment: dict[str, str], prefix: str = "SLOTFERRY_PROXY_") -> list[str]:
    return misspelt(prefix, NAMES, environment)


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("SLOTFERRY_PROXY_PASWORD", "did you mean SLOTFERRY_PROXY_PASSWORD?"),
        ("slotferry_proxy_pasword", "did you mean SLOTFERRY_PROXY_PASSWORD?"),
        ("SLOTFERRY_PROXI_PASSWORD", "did you mean SLOTFERRY_PROXY_PASSWORD?"),
        ("SLOTFERRY_PASSWORD", "did you mean SLOTFERRY_PROXY_PASSWORD?"),
        ("SLOTFERRY_PROXY_PASSWORD__0", "did you mean SLOTFERRY_PROXY_PASSWORD?"),
    ],
)
def test_a_variable_that_was_meant_as_a_setting_is_named_with_the_nearest(variable: str, hint: str) -> None:
    (sentence,) = found({variable: "secret"})
    assert sentence.startswith(f"The environment variable {variable} names no setting")
    assert hint in sentence
    assert "secret" not in sentence


def test_one_that_is_like_none_is_told_all() -> None:
    (sentence,) = found({"SLOTFERRY_PROXY_XQZ": ""})
    assert sentence.endswith(f"The settings are: {', '.join(NAMES)}. Correct it, or unset it.")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SLOTFERRY_PROXY_PASSWORD", "right"),
        ("slotferry_proxy_password", "right"),
        ("SLOTFERRY_TOPOM", "the command line's"),
        ("SLOTFERRY_TOKEN", "the command line's"),
        ("SLOTFERRY_CONTEXT", "the command line's"),
        ("SLOTFERRY_REDIS_SERVER", "/usr/bin/redis-server"),
        ("SLOTFERRY_TOPOM_PASSWORD", "another process's"),
        ("SLOTFERRY_HOME", "like none of ours"),
        ("PASSWORD", "not ours"),
        ("SLOTFERRY_PROXY_SERVICE_HOST", "10.0.0.1"),
        ("SLOTFERRY_PROXY_SERVICE_PORT_METRICS", "6381"),
        ("SLOTFERRY_PROXY_PORT", "tcp://10.0.0.1:6380"),
        ("SLOTFERRY_PROXY_PORT_6380_TCP", "tcp://10.0.0.1:6380"),
        ("SLOTFERRY_PROXY_PORT_6380_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_others_are_passed_over(variable: str, value: str) -> None:
    assert found({variable: value}) == []
