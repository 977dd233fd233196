"""`assay acls`: what each role may do at the brokers, and at Redis."""

from typing import Annotated

import typer


def acls(
    role: Annotated[str | None, typer.Option(help="Only this one: worker, checkout, analyst or operator.")] = None,
    principal: Annotated[str | None, typer.Option(help="Who logs in as that role; the role's own name when absent.")] = None,
    reply_topic: Annotated[list[str] | None, typer.Option(help="A topic that replies go to; may be given again.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object for each right.")] = False,
) -> None:
    """Print what each role needs at the brokers and at Redis and no more, as commands for their own tools. Changes nothing.

    For the topics, group and prefix of the settings. A checkout sends transactions and reads its replies; an analyst sends
    outcomes and reads decisions; an operator makes topics and rebuilds. Nobody but a worker writes decisions, and no worker
    writes transactions. A user of Redis gets the password $REDIS_PASSWORD.

    \b
    Examples:
      assay acls --role worker --principal scorer --reply-topic checkout.reply
      assay acls --role checkout --reply-topic checkout.reply | sed 's/^kafka-acls.sh/& --bootstrap-server kafka:9093/' | sh
      assay acls --json | jq -r .resource
    """
    import json
    import sys
    from dataclasses import asdict

    from assay.deploy.acls import Role
    from assay.deploy.acls import acls as of_role
    from assay.deploy.redis_acl import redis_command, redis_rules
    from assay.schemas.errors import SettingError
    from assay.streams.settings import Settings

    if role is not None and role not in list(Role):
        raise SettingError("no such role", expected=", ".join(Role), got=role)
    if principal is not None and role is None:
        raise SettingError("--principal is of one role", expected="--role", mend="name the role")
    settings, replies = Settings.load(), reply_topic or []
    wanted = [Role(role)] if role else list(Role)
    if not replies and {Role.WORKER, Role.CHECKOUT} & set(wanted):
        print("no --reply-topic was given: nobody gets a reply but from the decisions topic", file=sys.stderr)
    for each in wanted:
        name = principal or each.value
        if not json_:
            print(f"# {each.value}: User:{name}")
        for acl in of_role(settings, each, replies):
            print(json.dumps({"role": each.value, "principal": f"User:{name}"} | asdict(acl)) if json_ else acl.command(name))
        if rules := redis_rules(settings, each):
            of_redis = {"role": each.value, "principal": name, "resource": "redis", "rules": rules}
            print(json.dumps(of_redis) if json_ else redis_command(name, rules))
