"""What every client of ours tells Kafka about itself: addresses and credentials, from the settings."""

import ssl
from pathlib import Path
from typing import Any

from aiokafka.abc import AbstractTokenProvider

from assay.schemas.errors import SettingError
from assay.streams.settings import Settings


def client_options(settings: Settings) -> dict[str, Any]:
    """Keyword arguments for aiokafka's producer, consumer and admin client. Raises SettingError."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "security_protocol": settings.security_protocol,
    }
    if settings.security_protocol.endswith("SSL"):
        options["ssl_context"] = ssl_context(settings)
    if settings.security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = settings.sasl_mechanism
        if settings.sasl_mechanism == "OAUTHBEARER":
            options["sasl_oauth_token_provider"] = TokenFile(settings)
        else:
            options |= {
                "sasl_plain_username": settings.sasl_username,
                "sasl_plain_password": settings.sasl_password.get_secret_value() if settings.sasl_password else None,
            }
    return options


def ssl_context(settings: Settings) -> ssl.SSLContext:
    """For brokers' certificates the given authorities, else the system's; and our own certificate, if there is one.

    Raises SettingError, which names the file.
    """
    file, name = settings.ssl_ca_file, "ASSAY_SSL_CA_FILE"
    try:
        context = ssl.create_default_context(cafile=str(file) if file else None)
        if settings.ssl_certificate_file is not None:
            file, name = settings.ssl_certificate_file, "ASSAY_SSL_CERTIFICATE_FILE"
            password = settings.ssl_key_password
            # Without a password OpenSSL would ask on the terminal for that of an encrypted key, and wait.
            context.load_cert_chain(file, settings.ssl_key_file, password.get_secret_value() if password else "")
    except (OSError, ValueError) as error:
        raise SettingError(
            f"{name}: {file} can't be used",
            expected="PEM: of authorities, or of a certificate with its key (ASSAY_SSL_KEY_FILE, ASSAY_SSL_KEY_PASSWORD)",
            got=str(error),
            mend="see that the files are there, readable, and belong together",
        ) from error
    return context


class TokenError(SettingError, OSError):
    """There is no bearer token now. An OSError too: aiokafka takes it for a broker that can't be reached, and tries again."""


class TokenFile(AbstractTokenProvider):
    """A bearer token from a file that somebody else keeps fresh, as Kubernetes does with projected tokens."""

    def __init__(self, settings: Settings) -> None:
        self._file = settings.sasl_token_file or Path()

    async def token(self) -> str:
        """Raises TokenError where there is none."""
        try:
            token = self._file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TokenError(f"ASSAY_SASL_TOKEN_FILE: {self._file} can't be read", got=str(error)) from error
        if not token:
            raise TokenError(f"ASSAY_SASL_TOKEN_FILE: {self._file} is empty", expected="a bearer token")
        return token
