"""The doctor's look at what is signed and traced: keys that can be read, and what makes spans."""

from assay.deploy.check import Check, ok
from assay.streams.metrics import Metrics
from assay.streams.settings import Settings


def signatures(settings: Settings) -> Check:
    """Raises InputError, for the doctor to tell."""
    from assay.streams.key_files import KeyFile, read_signing_key

    found = []
    if settings.signature_keys_file is not None:
        found.append(f"{settings.signatures}, {len(KeyFile(settings.signature_keys_file).keys)} keys of producers")
    if settings.signing_key_file is not None:
        found.append(f"decisions signed by {read_signing_key(settings.signing_key_file).kid}")
    return ok("signatures", "; ".join(found) or "none asked for, none given")


def tracing(settings: Settings) -> Check:
    """Raises SettingError, for the doctor to tell."""
    from assay.streams.tracing import tracing_of

    made = tracing_of(settings, Metrics())
    if made is not None:
        made.close(0.0)
    return ok("tracing", "off" if settings.tracing_endpoint is None else f"spans go to {settings.tracing_endpoint}")
