"""Step 1 asks who sent a transaction, where the settings want it signed."""

from collections.abc import Mapping
from typing import Protocol

from assay.agents.said import SaidBefore
from assay.schemas.refused import RefusalCode, Refused
from assay.schemas.signature import SIGNATURE_HEADER, BadSignature, VerifyingKey, token_of, verify
from assay.schemas.source import Source, SourceRecord


class Keys(Protocol):
    """`streams.key_files.KeyFile`"""

    @property
    def keys(self) -> Mapping[str, VerifyingKey]: ...


class Signed:
    """Why a record is refused for its signature, or for having none; as `schemas.decode` asks.

    What a former owner decided on is not asked again: a key that has been taken away since must not turn a published decision
    into something else (invariants I1 and I2). What it refused stays refused (`SaidBefore.without_refused`).

    Args:
        topic: what transactions are signed for.
        required: refuse those without a signature.
    """

    def __init__(self, keys: Keys, topic: str, *, required: bool, said: SaidBefore) -> None:
        self._keys, self._topic, self._required, self._said = keys, topic, required, said

    def __call__(self, record: SourceRecord) -> Refused | None:
        token = token_of(record.headers)
        if token is None and not self._required:
            return None
        if self._said and self._said.has_decided(Source(record.topic, record.partition, record.offset)):
            return None
        if token is None:
            return Refused(RefusalCode.UNSIGNED, SIGNATURE_HEADER, "a detached JWS over the value, by a key that we know")
        try:
            verify(token, record.value or b"", self._keys.keys, topic=self._topic)
        except BadSignature as bad:
            return Refused(RefusalCode.SIGNATURE, SIGNATURE_HEADER, str(bad))
        return None
