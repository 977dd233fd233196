"""Identifiers as keyed digests: who reads what is stored can't find addresses by trying all, nor make two ids collide."""

from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address

from assay.schemas.limits import MAX_CACHED_DIGESTS


class Digests:
    """Digests under one key, made once from it and passed down. Only equality is ever asked of them.

    key: of any length; that of a deployment where anything is stored. The caches are bounded.

    >>> Digests(b"one").of64("u-1") == Digests(b"another").of64("u-1")
    False
    """

    def __init__(self, key: bytes) -> None:
        if len(key) > blake2b.MAX_KEY_SIZE:
            key = blake2b(key).digest()
        # Copies of a hash that has its key cost less than making one, even one without a key.
        self._begun64, self._begun128 = (blake2b(digest_size=size, key=key) for size in (8, 16))
        self.fingerprint = blake2b(digest_size=8, key=key, person=b"fingerprint").hexdigest()
        """Tells this key from others, and nothing else: 16 characters."""
        self.of64 = lru_cache(MAX_CACHED_DIGESTS)(self._of64)
        self.of_address = lru_cache(MAX_CACHED_DIGESTS)(self._of_address)

    def of128(self, text: str) -> bytes:
        """16 bytes, for what must not be taken for another even among very many."""
        begun = self._begun128.copy()
        begun.update(text.encode())
        return begun.digest()

    def _of64(self, text: str) -> int:
        """64 bits; 0 is kept for "absent"."""
        begun = self._begun64.copy()
        begun.update(text.encode())
        return int.from_bytes(begun.digest(), "little") or 1

    def _of_address(self, ip: str) -> int:
        """Of an IPv6 address its first 64 bits, since one subscriber has all that follow."""
        address = ip_address(ip)
        if isinstance(address, IPv6Address):
            address = address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64)
        return self._of64(str(address))


OFFLINE = Digests(b"")
"""Without a key: for what only asks for equality within one run and stores nothing, as training and offline scores do."""
