"""What `assay acls` prints."""

import json

import pytest
from typer.testing import CliRunner

from assay.deploy import cli
from assay.deploy.acls import Acl, Role, acls
from assay.streams.settings import Settings


def printed(*arguments: str) -> list[str]:
    done = CliRunner().invoke(cli.app, ["acls", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_a_right_is_a_command_for_kafkas_own_tool() -> None:
    assert Acl("transactional-id", "eu assay-", ("Write",), prefixed=True).command("scorer") == (
        "kafka-acls.sh --add --allow-principal User:scorer --operation Write "
        "--transactional-id 'eu assay-' --resource-pattern-type prefixed"
    )


def test_names_are_those_of_the_settings() -> None:
    found = acls(Settings.load(topic_prefix="eu-", group="blue"), Role.WORKER, ["a.reply"])
    assert {acl.name for acl in found if acl.resource == "group"} == {"eu-blue"}
    assert {acl.name for acl in found if acl.prefixed} == {"eu-blue-"}
    assert all(acl.name.startswith("eu-") or acl.name == "a.reply" for acl in found)


def test_only_workers_and_operators_write_decisions_and_no_worker_writes_transactions() -> None:
    settings = Settings.load()

    def writers(topic: str) -> set[Role]:
        return {role for role in Role for acl in acls(settings, role) if acl.name == topic and "Write" in acl.operations}

    assert writers(settings.decisions) == {Role.WORKER, Role.OPERATOR}
    assert writers(settings.transactions) == {Role.CHECKOUT, Role.OPERATOR}


def test_every_role_is_printed_under_its_name() -> None:
    assert [line for line in printed() if line.startswith("#")] == [f"# {role.value}: User:{role.value}" for role in Role]


def test_machines_get_one_object_for_each_right() -> None:
    rights = [json.loads(line) for line in printed("--role", "checkout", "--reply-topic", "shop.reply", "--json")]
    assert [(right["name"], right["operations"]) for right in rights] == [("shop.reply", ["Read"]), ("transactions", ["Write"])]


@pytest.mark.parametrize(("arguments", "why"), [(["--role", "king"], "no such role"), (["--principal", "x"], "one role")])
def test_what_is_asked_wrongly_is_an_error(arguments: list[str], why: str) -> None:
    done = CliRunner().invoke(cli.app, ["acls", *arguments])
    assert done.exit_code != 0
    assert why in str(done.exception)
