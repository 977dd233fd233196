"""The doctor: what it calls well, what it warns of, and that it survives every illness that it reports."""

import json
import re
import socket
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from assay.deploy import cli, local_checks
from assay.deploy.check import State, attempt
from assay.deploy.probes import KafkaFacts
from assay.deploy.service_checks import judge_broker, judge_shards, judge_topics, redis_check
from assay.deploy.signature_check import signatures
from assay.schemas.errors import BundleError
from assay.schemas.signature import SigningKey
from assay.streams.settings import Settings
from assay.streams.topics import topic_specs
from assay.tables.redis_topology import Topology

STAMPED = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete"}


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings but those that a test makes, and no service to be found."""
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv(f"ASSAY_{name.upper()}", raising=False)


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def topics(settings: Settings, **changed: dict[str, Any]) -> Any:
    """What judge_topics takes, all as it should be but for `changed`: topic -> partitions, replicas, leader, configs."""
    described, configs = {}, {}
    for spec in topic_specs(settings):
        change = changed.get(spec.name.replace("-", "_"), {})
        partition = {"replicas": [1] * change.get("replicas", 1), "leader": change.get("leader", 1)}
        described[spec.name] = [partition] * change.get("partitions", spec.partitions)
        configs[spec.name] = STAMPED | dict(spec.configs) | change.get("configs", {})
    return topic_specs(settings), settings, described, configs


def test_without_kafka_and_redis_it_fails_these_lines_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, closed_port: int
) -> None:
    monkeypatch.setenv("ASSAY_BOOTSTRAP_SERVERS", f"127.0.0.1:{closed_port}")
    monkeypatch.setenv("ASSAY_REDIS_URL", f"redis://127.0.0.1:{closed_port}/0")
    answer = CliRunner().invoke(cli.app, ["doctor", "--json"])
    report = json.loads(answer.stdout.splitlines()[-1])
    lines = {check["name"]: check for check in report["checks"]}
    assert answer.exit_code == 1
    assert report["ok"] is False
    for name in ("kafka", "redis"):
        assert lines[name]["state"] == "fail"
        assert "assay services up" in lines[name]["mend"]
    assert lines["topics"]["state"] == "warn"
    assert lines["python"]["state"] == lines["packages"]["state"] == lines["rules"]["state"] == "ok"


def test_settings_that_can_not_be_used_end_the_examination_with_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_PARTITIONS", "none")
    answer = CliRunner().invoke(cli.app, ["doctor"])
    assert answer.exit_code == 1
    assert "ASSAY_PARTITIONS" in answer.output.splitlines()[-1]


def test_a_name_that_is_no_setting_is_reported_with_the_nearest_one() -> None:
    check, settings = local_checks.settings({"ASSAY_REDIS_ULR": "x", "HOME": "/"})
    assert settings is not None
    assert check.state is State.WARN
    assert "ASSAY_REDIS_URL" in check.mend


def test_every_dependency_of_the_project_is_looked_at() -> None:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    wanted = {re.split(r"[^A-Za-z0-9._-]", line)[0] for line in tomllib.loads(pyproject.read_text())["project"]["dependencies"]}
    looked_at = {name for name, _version in local_checks.requirements()}
    assert looked_at | {"xgboost", "xgboost-cpu"} == wanted


def test_an_exactly_pinned_package_of_another_version_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_checks, "requirements", lambda: iter([("aiokafka", "0.0.1")]))
    check = local_checks.packages()
    assert check.state is State.FAIL
    assert "0.0.1" in check.found


def test_a_package_that_can_not_be_imported_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_checks, "requirements", lambda: iter([("no-such-package", "")]))
    assert local_checks.packages().state is State.FAIL


def test_the_development_hash_key_is_a_warning() -> None:
    assert local_checks.hash_key(Settings.load()).state is State.WARN
    assert local_checks.hash_key(Settings.load(hash_key=SecretStr("of my own, and long"))).state is State.OK


def test_a_short_hash_key_is_a_warning() -> None:
    assert "by trying" in local_checks.hash_key(Settings.load(hash_key=SecretStr("short"))).found


def test_a_bundle_that_is_none_fails_with_its_path(tmp_path: Path) -> None:
    check = attempt("bundle", lambda: local_checks.bundle(Settings.load(bundle=tmp_path / "none")))
    assert check.state is State.FAIL
    assert str(tmp_path / "none") in check.found
    assert check.mend


def test_broken_rules_and_rates_fail_with_their_path(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("{[")
    for look in (local_checks.rules, local_checks.rates):
        check = attempt("file", lambda look=look: look(Settings.load(rules=broken, rates=broken)))
        assert check.state is State.FAIL
        assert str(broken) in check.found


def test_shipped_rules_are_well_and_shipped_rates_only_illustrate() -> None:
    assert local_checks.rules(Settings.load()).state is State.OK
    assert local_checks.rates(Settings.load()).state is State.WARN


def test_a_data_directory_below_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check = local_checks.data_directory(Settings.load(data_dir=tmp_path / "file" / "data"))
    assert check.state is State.FAIL
    assert "ASSAY_DATA_DIR" in check.mend


def test_a_data_directory_that_is_not_there_yet_is_judged_by_the_folder_above(tmp_path: Path) -> None:
    check = local_checks.data_directory(Settings.load(data_dir=tmp_path / "a" / "b"))
    assert check.state in (State.OK, State.WARN)
    assert not (tmp_path / "a").exists()


def test_a_taken_http_port_is_a_warning() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check = local_checks.http_port(Settings.load(http_host="127.0.0.1", http_port=server.getsockname()[1]))
    assert check.state is State.WARN
    assert "ASSAY_HTTP_PORT" in check.mend


def test_a_broker_without_producer_ids_fails() -> None:
    check = judge_broker("b:9092", KafkaFacts(apis={0: 1, 1: 1, 2: 1, 11: 1, 32: 1}))
    assert check.state is State.FAIL
    assert "InitProducerId" in check.found


def test_a_broker_without_features_is_a_warning_and_a_current_one_is_well() -> None:
    apis = dict.fromkeys((0, 1, 2, 11, 22, 32), 1)
    assert judge_broker("b:9092", KafkaFacts(apis)).state is State.WARN
    assert judge_broker("b:9092", KafkaFacts(apis, {"metadata.version": 33})).state is State.OK


def test_topics_as_they_should_be_are_well() -> None:
    assert judge_topics(*topics(Settings.load())).state is State.OK


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"decisions": {"partitions": 3}}, "3 partitions"),
        ({"transactions": {"configs": {"message.timestamp.type": "CreateTime"}}}, "CreateTime"),
        ({"control": {"configs": {"cleanup.policy": "delete"}}}, "cleanup.policy"),
        ({"decisions": {"configs": {"cleanup.policy": "compact"}}}, "cleanup.policy"),
        ({"evidence": {"leader": -1}}, "without a leader"),
    ],
)
def test_a_topic_that_contradicts_the_others_fails(changed: dict[str, Any], said: str) -> None:
    check = judge_topics(*topics(Settings.load(), **changed))
    assert check.state is State.FAIL
    assert said in check.found


def test_fewer_replicas_than_set_are_a_warning() -> None:
    assert judge_topics(*topics(Settings.load(replication_factor=3))).state is State.WARN


def test_no_topics_yet_are_a_warning() -> None:
    settings = Settings.load()
    assert judge_topics(topic_specs(settings), settings, {}, {}).state is State.WARN


def test_a_password_in_the_redis_url_is_not_shown(closed_port: int) -> None:
    check = redis_check(Settings.load(redis_url=SecretStr(f"redis://me:hidden@127.0.0.1:{closed_port}/0")))
    assert check.state is State.FAIL
    assert "hidden" not in check.found


def cluster(*masters: str) -> Topology:
    edges = [16_384 * number // len(masters) for number in range(len(masters) + 1)]
    ranges = tuple((edges[i], edges[i + 1] - 1, (master, 6379)) for i, master in enumerate(masters))
    return Topology(ranges, tuple((master, 6379) for master in masters))


def test_shares_of_the_shards_are_counted_for_each_master_of_a_cluster() -> None:
    check = judge_shards(cluster("a", "b"), Settings.load(redis_shards=8), "found")
    assert check.state is State.OK
    assert sum(int(share) for share in re.findall(r"\d+", check.found.partition("have")[2].partition(" of ")[0])) == 8


def test_a_master_of_a_cluster_without_a_shard_is_a_warning() -> None:
    check = judge_shards(cluster("a", "b"), Settings.load(redis_shards=1), "found")
    assert check.state is State.WARN
    assert "ASSAY_REDIS_SHARDS" in check.mend


def test_a_slot_of_ours_that_no_node_of_a_cluster_has_is_a_failure() -> None:
    assert judge_shards(Topology((), ()), Settings.load(), "found").state is State.FAIL


def test_any_error_of_a_check_is_reported_and_not_raised() -> None:
    def own() -> Any:
        raise BundleError("no bundle", expected="one", mend="train it")

    def foreign() -> Any:
        raise RuntimeError("boom")

    assert attempt("x", own).mend == "train it"
    assert "boom" in attempt("x", foreign).found


def test_keys_are_looked_at_and_a_key_that_is_open_to_others_fails(tmp_path: Path) -> None:
    assert signatures(Settings.load()).found == "none asked for, none given"
    path, key = tmp_path / "key.pem", SigningKey.make()
    path.write_bytes(key.pem())
    path.chmod(0o644)
    check = attempt("signatures", lambda: signatures(Settings.load(signing_key_file=path)))
    assert (check.state, "open to others" in check.found) == (State.FAIL, True)
    path.chmod(0o600)
    assert key.kid in signatures(Settings.load(signing_key_file=path)).found
