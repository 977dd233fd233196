"""What every client of ours tells Kafka about itself: addresses and credentials, from the settings."""

import ssl
from typing import Any

from assay.streams.settings import Settings


def client_options(settings: Settings) -> dict[str, Any]:
    """Keyword arguments for aiokafka's producer, consumer and admin client."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "security_protocol": settings.security_protocol,
    }
    if settings.security_protocol.endswith("SSL"):
        options["ssl_context"] = ssl_context(settings)
    if settings.security_protocol.startswith("SASL"):
        options |= {
            "sasl_mechanism": settings.sasl_mechanism,
            "sasl_plain_username": settings.sasl_username,
            "sasl_plain_password": settings.sasl_password.get_secret_value() if settings.sasl_password else None,
        }
    return options


def ssl_context(settings: Settings) -> ssl.SSLContext:
    """The context for brokers' certificates: the given authorities, else the system's."""
    return ssl.create_default_context(cafile=str(settings.ssl_ca_file) if settings.ssl_ca_file else None)
