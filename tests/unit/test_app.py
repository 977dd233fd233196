"""The Faust app as we set it up: what upstream's defaults would cost."""

from pathlib import Path

from assay.schemas.limits import RECOVERY_FETCHES, STANDBY_FETCHES
from assay.streams.app import build_app, partitioned_table
from assay.streams.settings import Settings
from assay.tables.profile_table import ProfileTable


def test_recovery_holds_a_few_fetches_not_a_thousand(tmp_path: Path):
    app = build_app(Settings.load(data_dir=tmp_path), ProfileTable)
    table = partitioned_table(app, "profiles", 4)
    assert (table.recovery_buffer_size, table.standby_buffer_size) == (RECOVERY_FETCHES, STANDBY_FETCHES)
    assert (RECOVERY_FETCHES, STANDBY_FETCHES) == (6, 1)


def test_tables_are_not_served_to_anyone_who_asks(tmp_path: Path):
    app = build_app(Settings.load(data_dir=tmp_path), ProfileTable)
    assert not app.conf.web_enabled
