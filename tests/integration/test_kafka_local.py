"""A Kafka of our own is made ready whatever its random cluster id is."""

from pathlib import Path

from assay.deploy import kafka_local
from assay.deploy.ports import free_port


def test_a_cluster_id_that_begins_with_a_hyphen_is_no_option(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(kafka_local, "cluster_id", lambda: "-xtHgQ0mT5K1kKJ0Y3kTkA")
    kafka_local.prepare(tmp_path, kafka_local.find_java(), kafka_local.fetch_jars(), free_port(), free_port())
    [properties] = tmp_path.rglob("meta.properties")
    assert "cluster.id=-xtHgQ0mT5K1kKJ0Y3kTkA" in properties.read_text()
