"""Which settings fit each other. Raises ValueError, for the model of the settings to tell."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.streams.settings import Settings


def check_together(settings: "Settings") -> None:
    """All that one setting alone can't be checked for."""
    check_credentials(settings)
    if (settings.signatures == "off") != (settings.signature_keys_file is None):
        raise ValueError("signature_keys_file is needed to verify signatures, and for nothing else: set both, or neither")
    if settings.drain_timeout_s >= settings.session_timeout_s:
        raise ValueError("drain_timeout_s must be below session_timeout_s, else the group gives the worker up meanwhile")
    if settings.batch_gather_ms > settings.batch_age_ms:
        raise ValueError("batch_gather_ms must not be above batch_age_ms")


def check_credentials(settings: "Settings") -> None:
    """What the protocol needs is there, and nothing that it would not use: a secret that is given is meant to be used.

    Raises ValueError.
    """
    protocol, bearer = settings.security_protocol, settings.sasl_mechanism == "OAUTHBEARER"
    sasl, tls = protocol.startswith("SASL"), protocol.endswith("SSL")
    password = settings.sasl_username is not None and settings.sasl_password is not None
    if sasl and bearer and settings.sasl_token_file is None:
        raise ValueError("sasl_token_file is needed with OAUTHBEARER")
    if sasl and not bearer and not password:
        raise ValueError("sasl_username and sasl_password are needed with a SASL protocol")
    if not sasl and (settings.sasl_password is not None or settings.sasl_token_file is not None):
        raise ValueError(f"SASL credentials are given, and security_protocol {protocol} does not use them")
    if not tls and settings.ssl_certificate_file is not None:
        raise ValueError(f"a certificate is given, and security_protocol {protocol} does not use it")
    if settings.ssl_certificate_file is None and settings.ssl_key_file is not None:
        raise ValueError("ssl_certificate_file is needed with ssl_key_file")
