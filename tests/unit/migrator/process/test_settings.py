"""The settings of a migrator: what cannot be used is refused with a sentence."""

import pytest

from migrator.process.settings import MigratorSettings
from slots.settings import SettingsError


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"topom": "ftp://a"}, "is not a URL"),
        ({"topom": []}, "topom"),
        ({"redis_user": "u"}, "redis_user: needs redis_password"),
        ({"redis_tls_key": "k"}, "redis_tls_certificate: needs redis_tls_key"),
        ({"log_level": "loud"}, "log_level"),
        ({"node": "a\nb"}, "cannot be shown"),
        ({"speed": 3}, "There is no setting speed"),
    ],
)
def test_what_cannot_be_used_is_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        MigratorSettings.checked(settings)


def test_urls_may_be_a_list_or_one_text() -> None:
    expected = ["http://a:1", "https://b"]
    for given in (["http://a:1/", "https://b"], "http://a:1, https://b/"):
        assert MigratorSettings.checked({"topom": given}).topom == expected


def test_how_it_logs_in() -> None:
    settings = MigratorSettings.checked({"redis_user": "u", "redis_password": "p"})
    assert settings.redis_access().login == ("AUTH", "u", "p")
    assert settings.redis_access().tls is None
    assert MigratorSettings.checked({"redis_tls": True}).redis_access().tls is not None
