"""A Kafka with a listener for each way to log in, and an authorizer that allows only what it was told to."""

import base64
import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.admin import CreateAclsRequest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from assay.deploy import kafka_local
from assay.deploy.acls import Acl
from assay.deploy.ports import free_port

START_TIMEOUT_S = 90.0
# Kafka's numbers (org.apache.kafka.common.resource.ResourceType and PatternType, common.acl.AclOperation, AclPermissionType)
RESOURCES = {"topic": 2, "group": 3, "transactional-id": 5}
OPERATIONS = {"Read": 3, "Write": 4, "Create": 5, "Describe": 8, "DescribeConfigs": 10}
LITERAL, PREFIXED, ALLOW = 3, 4, 3
PASSWORD = "correct-horse"  # of every user of these tests
LISTENERS = {"ADMIN": "SSL", "MTLS": "SSL", "TLS": "SSL", "SCRAM": "SASL_SSL", "OAUTH": "SASL_SSL", "CLEAR": "SASL_PLAINTEXT"}
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_AUTHORIZER = '<Logger name="kafka.authorizer.logger" level="debug"/>'  # what is allowed, too
_SECURED = """
listeners={listeners},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners={listeners}
listener.security.protocol.map={protocols},CONTROLLER:SSL
inter.broker.listener.name=ADMIN
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
ssl.principal.mapping.rules=RULE:^.*CN=([^,]+).*$/$1/,DEFAULT
listener.name.admin.ssl.client.auth=required
listener.name.controller.ssl.client.auth=required
listener.name.mtls.ssl.client.auth=required
listener.name.scram.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.scram.scram-sha-512.sasl.jaas.config={scram}
listener.name.clear.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.clear.scram-sha-512.sasl.jaas.config={scram}
listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.oauth.oauthbearer.sasl.jaas.config={oauth}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";
listener.name.oauth.oauthbearer.sasl.server.callback.handler.class={oauth}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:broker;User:admin
"""


@dataclass(frozen=True, slots=True)
class Denial:
    """What the authorizer refused, as its log tells it."""

    principal: str
    operation: str
    resource: str


class SecuredKafka:
    """The node, its ports by listener, and who may log in. `folder` has ca.pem, NAME.pem (certificate, key), NAME.token."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self._names = folder, names
        self.ports = {listener: free_port() for listener in LISTENERS}
        self._controller_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def environment(self, listener: str, name: str) -> dict[str, str]:
        """Settings of who logs in as `name` by that listener."""
        protocol = LISTENERS[listener]
        settings = {
            "ASSAY_BOOTSTRAP_SERVERS": f"127.0.0.1:{self.ports[listener]}",
            "ASSAY_SECURITY_PROTOCOL": protocol,
        }
        if protocol.endswith("SSL"):
            settings["ASSAY_SSL_CA_FILE"] = str(self.folder / "ca.pem")
        if listener in ("ADMIN", "MTLS"):
            settings["ASSAY_SSL_CERTIFICATE_FILE"] = str(self.folder / f"{name}.pem")
        elif listener == "OAUTH":
            settings |= {
                "ASSAY_SASL_MECHANISM": "OAUTHBEARER",
                "ASSAY_SASL_TOKEN_FILE": str(self.folder / f"{name}.token"),
            }
        elif protocol.startswith("SASL"):
            settings |= {"ASSAY_SASL_USERNAME": name, "ASSAY_SASL_PASSWORD": PASSWORD}
        return settings

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.folder / "ca.pem"))
        for name in ("broker", "admin", *self._names):
            certificate = authority.issue_cert("127.0.0.1", "localhost", common_name=name)
            (self.folder / f"{name}.pem").write_bytes(pem(certificate))
            (self.folder / f"{name}.token").write_text(token(name))
        (self.folder / "expired.token").write_text(token("checkout", expires_s=-1_000))
        stranger = trustme.CA()
        stranger.cert_pem.write_to_path(str(self.folder / "other-ca.pem"))
        (self.folder / "foreign.pem").write_bytes(pem(stranger.issue_cert("localhost", common_name="checkout")))
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        more = _SECURED.format(
            listeners=listeners, controller_port=self._controller_port, folder=self.folder.resolve(),
            protocols=",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()), scram=_SCRAM, oauth=_OAUTH,
        )  # fmt: skip
        users = dict.fromkeys(self._names, PASSWORD)
        java, jars = kafka_local.find_java(), kafka_local.fetch_jars()
        command = kafka_local.prepare(self.folder, java, jars, self.ports["ADMIN"], self._controller_port, more, users)
        telling = self.folder / "log4j2.xml"
        telling.write_text(
            kafka_local.LOG4J.read_text().replace("<Loggers>", f"<Loggers>{_AUTHORIZER}").replace("10MB", "500MB")
        )
        command = [word.replace(str(kafka_local.LOG4J), str(telling)) for word in command]
        with (self.folder / "broker.out").open("wb") as out:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    async def admin(self) -> AIOKafkaAdminClient:
        """A started client of somebody who may do all; its caller closes it."""
        from assay.streams.kafka import client_options
        from assay.streams.settings import Settings

        client_settings = {
            name.removeprefix("ASSAY_").lower(): value for name, value in self.environment("ADMIN", "admin").items()
        }
        options = client_options(Settings(**client_settings))  # type: ignore[arg-type]
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            admin = AIOKafkaAdminClient(**options)
            try:
                await admin.start()
            except Exception as error:
                await admin.close()
                if time.monotonic() > deadline or self._process is None or self._process.poll() is not None:
                    raise AssertionError(f"the broker does not answer: see {self.folder}") from error
            else:
                return admin

    def denials(self) -> set[Denial]:
        """All that was refused so far."""
        found = set()
        for line in (self.folder / "kafka.log").read_text().splitlines():
            if " is Denied operation = " in line:
                principal, rest = line.split("Principal = User:", 1)[1].split(" is Denied operation = ", 1)
                operation, rest = rest.split(" from host", 1)
                found.add(Denial(principal, operation, rest.split("on resource = ", 1)[1].split(" for request", 1)[0]))
        return found

    def used(self, principal: str) -> set[tuple[str, str, str]]:
        """(resource, name in the list, operation) of every right that somebody has used so far."""
        rule = re.compile(
            rf"= User:{principal} is Allowed .*resourceType=(\w+), resourceName=([^,]+), .*operation=(\w+), permission"
        )
        found = {match.groups() for match in rule.finditer((self.folder / "kafka.log").read_text())}
        return {(_kebab(resource), name, _camel(operation)) for resource, name, operation in found}

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _kebab(name: str) -> str:
    return name.lower().replace("_", "-")


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


async def allow(admin: AIOKafkaAdminClient, name: str, acls: Sequence[Acl]) -> None:
    """Have the authorizer allow it."""
    for acl in acls:
        for operation in acl.operations:
            wanted = (RESOURCES[acl.resource], acl.name, PREFIXED if acl.prefixed else LITERAL)
            request = CreateAclsRequest(*wanted, f"User:{name}", "*", OPERATIONS[operation], ALLOW)
            answer = await admin._send_to_controller(request)
            [(code, message)] = answer.creation_responses
            assert code == 0, f"{for_code(code)}: {message}"


def pem(certificate: trustme.LeafCert) -> bytes:
    """Key and certificates; the key in the one form that Java reads."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return b"".join([written, *(each.bytes() for each in certificate.cert_chain_pems)])


def token(name: str, expires_s: int = 3_600) -> str:
    """A bearer token without a signature, as a broker for development takes it (RFC 7515, appendix A.5)."""

    def part(document: Mapping[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': name, 'iat': now - 3_600, 'exp': now + expires_s})}."


@contextmanager
def secured_kafka(folder: Path, names: Sequence[str]) -> Iterator[SecuredKafka]:
    """Started; ended afterwards."""
    broker = SecuredKafka(folder, names)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
