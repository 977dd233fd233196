"""One more than keys and signatures may have (invariant I5)."""

from pathlib import Path

import orjson
import pytest

from assay.schemas import limits
from assay.schemas.errors import InputError
from assay.schemas.signature import BadSignature, SigningKey, read_keys, verify
from assay.streams.key_files import KeyFile


def test_i5_max_signature_bytes_one_more_is_refused() -> None:
    key = SigningKey.make()
    keys, token = read_keys(key.key_set()), key.header(b"x")[1]
    full = token + b"A" * (limits.MAX_SIGNATURE_BYTES - len(token))
    with pytest.raises(BadSignature, match="these very bytes"):  # so it was read to its end
        verify(full, b"x", keys)
    with pytest.raises(BadSignature, match=f"at most {limits.MAX_SIGNATURE_BYTES} bytes"):
        verify(full + b"A", b"x", keys)


def test_i5_max_signature_keys_one_more_is_refused() -> None:
    [key] = orjson.loads(SigningKey.make().key_set())["keys"]
    keys = [key | {"kid": str(number)} for number in range(limits.MAX_SIGNATURE_KEYS + 1)]
    assert len(read_keys(orjson.dumps({"keys": keys[:-1]}))) == limits.MAX_SIGNATURE_KEYS
    with pytest.raises(InputError, match="too many keys"):
        read_keys(orjson.dumps({"keys": keys}))


def test_i5_max_keys_file_bytes_one_more_is_refused(tmp_path: Path) -> None:
    path, document = tmp_path / "keys.json", SigningKey.make().key_set()
    full = document + b" " * (limits.MAX_KEYS_FILE_BYTES - len(document))
    path.write_bytes(full)
    assert len(KeyFile(path).keys) == 1
    path.write_bytes(full + b" ")
    with pytest.raises(InputError, match=r"keys.json is too large"):
        KeyFile(path)
