"""Asking whether Kafka is there: what else may listen on its port must neither be taken for it nor hold us up."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from assay.deploy.ports import free_port, is_free
from assay.deploy.probes import KafkaFacts, ask_kafka, kafka_answers, split_address, without_password

Serve = Callable[[Callable[[socket.socket], None]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that treats its one connection as told, and gives its address."""
    servers = []

    def start(treat: Callable[[socket.socket], None]) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def accept() -> None:
            connection, _ = server.accept()
            with connection:
                treat(connection)

        threading.Thread(target=accept, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    for server in servers:
        server.close()


def answer(body: bytes) -> bytes:
    """A response with correlation id 1."""
    return struct.pack(">ii", len(body) + 4, 1) + body


def read_request(connection: socket.socket) -> tuple[int, int]:
    """API key and version of one request."""
    (size,) = struct.unpack(">i", connection.recv(4))
    return struct.unpack(">hh", connection.recv(size)[:4])  # type: ignore[return-value]


def test_what_is_not_kafka_is_not_taken_for_it(serve: Serve) -> None:
    address = serve(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(ValueError, match="does not speak Kafka's protocol"):
        ask_kafka(address, timeout_s=2)


def test_an_answer_that_is_cut_short_is_not_taken_for_one(serve: Serve) -> None:
    address = serve(lambda connection: connection.sendall(answer(b"\0\0\x7f\x00\x12\0\0")))
    with pytest.raises(ValueError, match="cut short"):
        ask_kafka(address, timeout_s=2)


def test_a_connection_that_is_closed_is_no_answer(serve: Serve) -> None:
    assert not kafka_answers(serve(lambda connection: None))


def test_a_server_that_says_nothing_is_given_up_in_time(serve: Serve) -> None:
    enough = threading.Event()
    with pytest.raises(TimeoutError):
        ask_kafka(serve(lambda connection: enough.wait(10) and None), timeout_s=0.1)
    enough.set()


def test_a_broker_of_before_features_is_asked_again_in_its_own_version(serve: Serve) -> None:
    asked = []

    def old_broker(connection: socket.socket) -> None:
        asked.append(read_request(connection))
        connection.sendall(answer(struct.pack(">hi", 35, 0)))
        asked.append(read_request(connection))
        connection.sendall(answer(struct.pack(">hi", 0, 1) + struct.pack(">hhh", 22, 0, 1)))

    assert ask_kafka(serve(old_broker), timeout_s=2) == KafkaFacts(apis={22: 1})
    assert asked == [(18, 3), (18, 0)]


def test_the_second_address_is_asked_when_the_first_does_not_answer(serve: Serve) -> None:
    address = serve(lambda connection: connection.sendall(answer(b"\0\0\x01\0\0\0\0\0")))
    assert ask_kafka(f"127.0.0.1:1,{address}", timeout_s=2) == KafkaFacts(apis={})


@pytest.mark.parametrize("address", ["", "kafka", "kafka:", ":9092", "kafka:port"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        ask_kafka(address)


def test_a_numeric_address_of_version_6_is_understood() -> None:
    assert split_address("[::1]:9092") == ("::1", 9092)


def test_a_url_is_shown_without_user_and_password() -> None:
    assert without_password("redis://me:secret@host:6379/0") == "redis://host:6379/0"
    assert without_password("redis://host:6379/0") == "redis://host:6379/0"


def test_a_port_that_is_listened_on_is_not_free_and_another_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        found = free_port(prefer=port)
    assert found != port
    assert is_free(found)
    assert free_port(prefer=found) == found


def test_a_port_is_given_once_though_its_server_does_not_listen_yet() -> None:
    given = [free_port() for _ in range(1_000)]
    assert len(set(given)) == len(given)
