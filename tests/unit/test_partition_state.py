"""What the rows of a partition were built from."""

from pathlib import Path

import pytest

from assay.schemas.errors import ChangelogError
from assay.tables.partition_state import STATE_KEY, PartitionState
from assay.tables.store import RowStore

STATE = PartitionState("id", 3, 7, 9, fingerprint="of a key")


def test_it_is_kept_beside_the_rows(tmp_path: Path) -> None:
    store = RowStore(tmp_path, row_bytes=4)
    assert store.state(0) is None
    store.apply(0, [(b"user", b"rows"), (STATE_KEY, STATE.encode())], 1)
    assert store.state(0) == STATE
    store.close()
    assert RowStore(tmp_path, row_bytes=4).state(0) == STATE


def test_a_later_version_may_add_fields() -> None:
    assert PartitionState.decode(STATE.encode()[:-1] + b',"more":1}') == STATE


def test_one_from_before_digests_had_a_key_can_be_read() -> None:
    before = STATE.encode().replace(b',"fingerprint":"of a key"', b"")
    assert PartitionState.decode(before).fingerprint == ""


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"topic_id":"id","partitions":"many"}'])
def test_what_cannot_be_read_is_refused_with_the_way_out(value: bytes) -> None:
    with pytest.raises(ChangelogError, match="assay rebuild"):
        PartitionState.decode(value)
