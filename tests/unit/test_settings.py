"""Settings: every one documented, wrong ones refused with the name and the mend, and the page that is made of them."""

import os
import socket
from pathlib import Path

import pytest

from assay.deploy.settings_page import settings_page
from assay.schemas.errors import SettingError
from assay.streams.kafka import client_options, ssl_context
from assay.streams.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_of_settings_is_up_to_date():
    assert PAGE.read_text() == settings_page(), "run `make docs`"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_documented(name):
    assert (Settings.model_fields[name].description or "").endswith(".")


def test_topics_bear_the_prefix(monkeypatch):
    monkeypatch.setenv("ASSAY_TOPIC_PREFIX", "shop-")
    settings = Settings.load()
    assert (settings.transactions, settings.group_id) == ("shop-transactions", "shop-assay")


def test_a_list_is_read_from_commas(monkeypatch):
    monkeypatch.setenv("ASSAY_REPLY_TOPICS", "a.reply, b-*")
    assert Settings.load().reply_topics == ("a.reply", "b-*")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("ASSAY_PARTITIONS", "0"),
        ("ASSAY_HTTP_PORT", "70000"),
        ("ASSAY_LOG_LEVEL", "loud"),
        ("ASSAY_TOPIC_PREFIX", "a b"),
        ("ASSAY_SECURITY_PROTOCOL", "TLS"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_setting(monkeypatch, setting, value):
    monkeypatch.setenv(setting, value)
    with pytest.raises(SettingError, match=setting) as caught:
        Settings.load()
    assert caught.value.mend


def test_sasl_without_a_password_is_refused(monkeypatch):
    monkeypatch.setenv("ASSAY_SECURITY_PROTOCOL", "SASL_SSL")
    with pytest.raises(SettingError, match="sasl_password"):
        Settings.load()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "sasl_token_file"),
        ({"sasl_username": "me", "sasl_password": "secret"}, "PLAINTEXT does not use them"),
        ({"security_protocol": "SSL", "sasl_token_file": "token"}, "SSL does not use them"),
        ({"ssl_certificate_file": "me.pem"}, "PLAINTEXT does not use it"),
        ({"security_protocol": "SSL", "ssl_key_file": "key.pem"}, "ssl_certificate_file"),
    ],
)
def test_credentials_that_are_missing_or_would_not_be_used_are_refused(given, why):
    with pytest.raises(SettingError, match=why) as caught:
        Settings.load(**given)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["ssl_ca_file", "ssl_certificate_file"])
def test_a_file_that_is_no_certificate_is_an_error_that_names_its_setting(tmp_path, name):
    (tmp_path / "wrong.pem").write_text("no certificate")
    settings = Settings.load(security_protocol="SSL", **{name: tmp_path / "wrong.pem"})
    with pytest.raises(SettingError, match=f"ASSAY_{name.upper()}"):
        ssl_context(settings)


async def test_a_bearer_token_is_read_anew_each_time_and_a_missing_one_is_an_error(tmp_path):
    file = tmp_path / "token"
    settings = Settings.load(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_token_file=file)
    provider = client_options(settings)["sasl_oauth_token_provider"]
    for token in ("one", "two\n"):
        file.write_text(token)
        assert await provider.token() == token.strip()
    for spoil in (lambda: file.write_text(" "), file.unlink):
        spoil()
        with pytest.raises(SettingError, match="ASSAY_SASL_TOKEN_FILE") as caught:
            await provider.token()
        assert isinstance(caught.value, OSError)  # which a client that connects again takes for a broker to be tried later


def test_a_drain_longer_than_the_session_is_refused(monkeypatch):
    monkeypatch.setenv("ASSAY_DRAIN_TIMEOUT_S", "10")
    with pytest.raises(SettingError, match="drain_timeout_s"):
        Settings.load()


def test_a_worker_without_a_name_is_told_apart_by_host_and_process() -> None:
    assert Settings.load(worker_name="blue").decided_by == "blue"
    assert Settings.load().decided_by == f"{socket.gethostname()}-{os.getpid()}"


def test_signatures_and_their_keys_go_together(tmp_path):
    with pytest.raises(SettingError, match="signature_keys_file"):
        Settings.load(signatures="required")
    with pytest.raises(SettingError, match="signature_keys_file"):
        Settings.load(signature_keys_file=tmp_path / "keys.json")
    assert Settings.load(signatures="present", signature_keys_file=tmp_path / "keys.json").signatures == "present"
