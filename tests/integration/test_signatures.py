"""Signatures on a real Kafka: who may have a transaction judged, what proves that a decision is ours, and its type's name."""

import asyncio
import signal
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from assay.schemas.signature import SIGNATURE_HEADER, SigningKey, read_keys, verify
from assay.streams.client import DecisionClient
from assay.streams.key_files import KeyFile, read_signing_key

from .conftest import Run
from .topics import Header, Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]
TYPE_ID = "com.shop.Decision"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the keys."""
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def shop(environment: dict[str, str]) -> SigningKey:
    """A producer's."""
    return SigningKey.make(kid="shop", topic=environment["ASSAY_TOPIC_PREFIX"] + "transactions")


@pytest.fixture(scope="module")
def environment(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """A deployment that wants signatures, and gives them."""
    (folder / "decisions.pem").touch(0o600)
    (folder / "decisions.pem").write_bytes(SigningKey.make().pem())
    (folder / "producers.json").write_bytes(b'{"keys": []}')
    return environment | {
        "ASSAY_SIGNATURES": "required",
        "ASSAY_SIGNATURE_KEYS_FILE": str(folder / "producers.json"),
        "ASSAY_SIGNING_KEY_FILE": str(folder / "decisions.pem"),
        "ASSAY_REPLY_TYPE_ID": TYPE_ID,
        "ASSAY_COMMIT_INTERVAL_S": "3",
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def _known(topics: Topics, folder: Path, shop: SigningKey) -> None:
    """The producer's key comes after the worker has started: its file is read again."""
    (folder / "producers.json").write_bytes(shop.key_set())
    for number in range(100):
        body = orjson.dumps(transaction(f"known-{number}", "user-k"))
        source = await topics.send(body, key=b"user-k", headers=[shop.header(body)])
        await topics.until(lambda at=source: topics.made_from(at, "decisions") + topics.made_from(at, "dead-letters"), "a fate")
        if topics.made_from(source, "decisions"):
            return
    raise AssertionError("the key was not read")


async def code_of(topics: Topics, body: bytes, *headers: Header) -> str:
    """Of the dead letter and of the reply, which say the same."""
    asked = [("reply-to", topics.name("checkout.reply").encode()), ("correlation-id", b"c")]
    source = await topics.send(body, key=b"user-a", headers=[*headers, *asked])
    letter, reply = await topics.first(source, "dead-letters"), await topics.first(source, "checkout.reply")
    assert dict(reply.headers)["assay-error"] == dict(letter.headers)["assay-error"]
    assert topics.made_from(source, "decisions") == []
    return dict(letter.headers)["assay-error"].decode()


async def test_what_its_producer_has_not_signed_is_refused(topics: Topics, shop: SigningKey) -> None:
    body = orjson.dumps(transaction("forged", "user-a"))
    assert await code_of(topics, body) == "unsigned"
    assert await code_of(topics, body, shop.header(body + b" ")) == "signature"
    assert await code_of(topics, body, SigningKey.make(kid="shop", topic="transactions").header(body)) == "signature"
    assert await code_of(topics, body, SigningKey.read(shop.pem(), kid="shop").header(body)) == "signature"  # for no topic


async def test_i2_a_decision_and_its_repeats_have_the_same_signature(
    topics: Topics, shop: SigningKey, folder: Path, environment: dict[str, str]
) -> None:
    body = orjson.dumps(transaction("repeated", "user-b"))
    headers = [shop.header(body), ("reply-to", topics.name("checkout.reply").encode()), ("correlation-id", b"c")]
    sources = [await topics.send(body, key=b"user-b", headers=headers) for _ in range(2)]
    found = [await topics.first(source, name) for source in sources for name in ("decisions", "checkout.reply")]
    [(value, token)] = {(record.value, dict(record.headers)[SIGNATURE_HEADER]) for record in found}
    verify(token, value, read_keys(read_signing_key(folder / "decisions.pem").key_set()))


async def test_decisions_replies_and_errors_name_the_type_that_was_set(topics: Topics, shop: SigningKey) -> None:
    good, bad = (orjson.dumps(transaction("typed", "user-t", **changes)) for changes in ({}, {"amount": []}))
    headers = [("reply-to", topics.name("checkout.reply").encode()), ("__TypeId__", b"evil.Class")]
    sources = [await topics.send(body, key=b"user-t", headers=[*headers, shop.header(body)]) for body in (good, bad)]
    answers = [await topics.first(source, "checkout.reply") for source in sources]
    for record in [*answers, await topics.first(sources[0], "decisions")]:
        assert [value for name, value in record.headers if name == "__TypeId__"] == [TYPE_ID.encode()]


async def test_a_client_signs_and_hears_what_is_signed(
    topics: Topics, shop: SigningKey, folder: Path, environment: dict[str, str]
) -> None:
    (folder / "decisions.json").write_bytes(read_signing_key(folder / "decisions.pem").key_set())
    client = DecisionClient(
        environment["ASSAY_BOOTSTRAP_SERVERS"],
        transactions_topic=topics.name("transactions"),
        reply_topic=topics.name("checkout.reply"),
        signing_key=shop,
        decision_keys=KeyFile(folder / "decisions.json").keys,
    )
    async with client:
        assert (await client.decide(transaction("asked", "user-c"), timeout=30)).transaction_id == "t-asked"


async def test_verify_finds_a_decision_in_the_topic(topics: Topics, shop: SigningKey, assay: Run) -> None:
    body = orjson.dumps(transaction("kept", "user-d"))
    decision = await topics.first(await topics.send(body, key=b"user-d", headers=[shop.header(body)]), "decisions")
    done = await asyncio.to_thread(assay, "verify", "user-d", "t-kept", "--json")
    assert done.returncode == 0, done.stderr
    assert orjson.loads(done.stdout)["decision"] == orjson.loads(decision.value)


async def test_i1_what_was_decided_stands_after_a_kill_though_its_key_has_gone(
    topics: Topics, shop: SigningKey, folder: Path, worker: WorkerProcess
) -> None:
    bodies = [orjson.dumps(transaction(f"late-{n}", "user-l")) for n in range(20)]
    sources = [await topics.send(body, key=b"user-l", headers=[shop.header(body)]) for body in bodies]
    await topics.first(sources[-1], "decisions")
    worker.signal(signal.SIGKILL)  # most of it uncommitted
    (folder / "producers.json").write_bytes(b'{"keys": []}')
    await asyncio.to_thread(worker.restart)
    await topics.settled()
    assert worker.metric("assay_verdicts_read_back_total") > 0
    for source in sources:
        assert (len(topics.made_from(source, "decisions")), topics.made_from(source, "dead-letters")) == (1, [])
    body = orjson.dumps(transaction("after", "user-l"))
    letter = await topics.first(await topics.send(body, key=b"user-l", headers=[shop.header(body)]), "dead-letters")
    assert dict(letter.headers)["assay-error"] == b"signature"
