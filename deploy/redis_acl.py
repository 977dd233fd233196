"""What each part of a deployment may do at Redis, and no more: keys of the settings' prefix, and the commands that are used."""

from collections.abc import Sequence
from shlex import quote

from redis.asyncio.connection import parse_url

from assay.deploy.acls import Role
from assay.streams.settings import Settings
from assay.tables.redis_link import urls_of

# Those of connections and look-ups, and what functions call, which the user's rights hold for as well. `asking` is of clusters.
_WORKER = (
    "asking", "client|setinfo", "cluster|slots", "expire", "fcall", "function|list", "function|load", "get", "hmget", "hset",
    "mget", "set",
)  # fmt: skip
_OPERATOR = (*_WORKER, "function|stats", "info", "scan", "unlink")  # `assay doctor`, `assay rebuild entities`
_COMMANDS = {Role.WORKER: _WORKER, Role.OPERATOR: _OPERATOR}


def redis_commands(settings: Settings, role: Role) -> list[str]:
    """The commands that a role uses, in Redis's words; none where it has nothing to do there."""
    commands = _COMMANDS.get(role, ())
    chooses = commands and any(parse_url(url).get("db") for url in urls_of(settings.redis_url.get_secret_value()))
    return sorted([*commands, "select"] if chooses else commands)


def redis_rules(settings: Settings, role: Role) -> list[str]:
    """The rules of its user, for `ACL SETUSER` (https://valkey.io/topics/acl/); empty where it needs none."""
    commands = redis_commands(settings, role)
    if not commands:
        return []
    keys = f"~{{{settings.entity_prefix}:*"
    return ["resetkeys", keys, "resetchannels", "-@all", *(f"+{command}" for command in commands)]


def redis_command(user: str, rules: Sequence[str]) -> str:
    """For Redis's own tool; where it connects to is left to the operator."""
    return f'redis-cli ACL SETUSER {quote(user)} on ">$REDIS_PASSWORD" {" ".join(map(quote, rules))}'
