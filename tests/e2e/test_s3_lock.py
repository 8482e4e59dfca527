"""The lock of an object folder against a real S3: one owner at a time, and a live one."""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from remote_servers import faulty_proxy, make_bucket, s3_client, use_s3

from penstok.errors import LockedError, WriteError
from penstok.storage import RetryPolicy, close_connections
from penstok.storage.s3_folder import S3Folder
from penstok.storage.s3_lock import LOCK_NAME, S3Lock

QUICK = RetryPolicy(max_tries=6, first_delay_seconds=0.01, max_delay_seconds=0.05)
BEAT, STALE = 0.2, 10.0
OWNER = f"pid {os.getpid()} on {socket.gethostname()}"
ELSEWHERE = json.dumps({"owner": "pid 1 on elsewhere", "beat": 7, "pid": 1, "processes": "x"})
# Holds the lock until it reads a line, or exits at once.
PROGRAM = """
import os, sys
from penstok.errors import LockedError
from penstok.storage.s3_folder import S3Folder
from penstok.storage.s3_lock import S3Lock
url, stale, then = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
try:
    times = {"heartbeat_seconds": 0.2, "stale_seconds": float(stale), "poll_seconds": 0.05}
    with S3Lock(S3Folder(url), **times):
        print("won", flush=True)
        if then == "die":
            os._exit(9)
        sys.stdin.readline()
except LockedError as error:
    print(error.what, flush=True)
"""


@pytest.fixture(autouse=True)
def connections() -> Iterator[None]:
    close_connections()
    yield
    close_connections()
    gc.collect()


@pytest.fixture(scope="module")
def port(s3_gateway: int) -> int:
    client = s3_client(s3_gateway)
    make_bucket(client, "locks")
    # The first object of a bucket takes seconds, longer than these locks last.
    client.put_object(Bucket="locks", Key="first", Body=b"x")
    client.close()
    return s3_gateway


@pytest.fixture
def folder(port: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> S3Folder:
    use_s3(monkeypatch, port)
    return S3Folder(f"s3://locks/{request.node.name}", QUICK)


def lock_of(folder: S3Folder, stale_seconds: float = STALE) -> S3Lock:
    return S3Lock(folder, heartbeat_seconds=BEAT, stale_seconds=stale_seconds, poll_seconds=0.05)


def content_of(folder: S3Folder) -> dict[str, Any]:
    data = folder.get(LOCK_NAME)
    assert data is not None
    found: dict[str, Any] = json.loads(data)
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_beats(folder: S3Folder) -> None:
    first = content_of(folder)["beat"]
    wait_for(lambda: content_of(folder)["beat"] > first + 2)


def start(folder: S3Folder, then: str, stale_seconds: float = 60) -> subprocess.Popen[str]:
    """Start a process that takes the lock when a line is sent to it."""
    command = [sys.executable, "-c", PROGRAM, folder.url, str(stale_seconds), then]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=30)


def test_a_lock_is_renewed_and_deleted(folder: S3Folder) -> None:
    for _ in range(2):
        with lock_of(folder) as lock:
            assert content_of(folder)["owner"] == OWNER
            wait_for_beats(folder)
            assert not lock.is_lost
        assert folder.find_info(LOCK_NAME) is None


def test_a_lock_is_deleted_when_the_run_fails(folder: S3Folder) -> None:
    with pytest.raises(KeyError), lock_of(folder):
        raise KeyError
    assert folder.find_info(LOCK_NAME) is None


def test_a_second_run_learns_the_owner(folder: S3Folder) -> None:
    with lock_of(folder) as lock:
        began = time.monotonic()
        with pytest.raises(LockedError, match="another run is writing here") as caught:
            lock_of(folder, stale_seconds=60).__enter__()
        assert time.monotonic() - began < 40
        assert f"({OWNER})" in caught.value.what
        assert caught.value.where == folder.url
        assert not lock.is_lost
    assert folder.find_info(LOCK_NAME) is None


def test_a_lock_released_meanwhile_is_taken(folder: S3Folder) -> None:
    folder.put(LOCK_NAME, ELSEWHERE.encode())
    threading.Timer(0.5, folder.delete, [[LOCK_NAME]]).start()
    with lock_of(folder, stale_seconds=60):
        assert content_of(folder)["owner"] == OWNER


@pytest.mark.parametrize("content", [ELSEWHERE, "", "no json", "[1]", '{"pid": "x"}'])
def test_a_stale_lock_is_taken_over(folder: S3Folder, content: str) -> None:
    folder.put(LOCK_NAME, content.encode())
    began = time.monotonic()
    with lock_of(folder, stale_seconds=0.8):
        assert time.monotonic() - began >= 0.8
        assert content_of(folder)["owner"] == OWNER


def test_the_lock_of_a_dead_process_is_free_at_once(folder: S3Folder) -> None:
    process = start(folder, "die")
    say(process)
    assert hear(process) == "won"
    end(process)
    assert process.returncode == 9
    assert content_of(folder)["owner"] == f"pid {process.pid} on {socket.gethostname()}"
    began = time.monotonic()
    with lock_of(folder, stale_seconds=60):
        assert time.monotonic() - began < 40


def test_an_invisible_process_does_not_count_as_dead(folder: S3Folder) -> None:
    """Containers may share a host name, but not each other's process ids."""
    process = start(folder, "die")
    say(process)
    end(process)
    content = {**content_of(folder), "processes": "another boot, or namespace"}
    folder.put(LOCK_NAME, json.dumps(content).encode())
    began = time.monotonic()
    with lock_of(folder, stale_seconds=0.8):
        assert time.monotonic() - began >= 0.8


@pytest.mark.parametrize("state", ["free", "stale", "dead"])
def test_one_of_many_threads_wins(folder: S3Folder, state: str) -> None:
    if state == "stale":
        folder.put(LOCK_NAME, ELSEWHERE.encode())
    if state == "dead":
        process = start(folder, "die")
        say(process)
        end(process)
    barrier, told = threading.Barrier(6), threading.Event()

    def run(_: int) -> str:
        barrier.wait()
        try:
            with lock_of(folder, stale_seconds=5) as lock:
                told.wait(20)
                return "lost" if lock.is_lost else "won"
        except LockedError as error:
            return error.what

    with ThreadPoolExecutor(6) as pool:
        runs = [pool.submit(run, idx) for idx in range(6)]
        wait_for(lambda: sum(run.done() for run in runs) == 5)
        told.set()
        results = [run.result() for run in runs]
    assert results.count("won") == 1
    assert results.count(f"another run is writing here ({OWNER})") == 5
    assert folder.find_info(LOCK_NAME) is None


def test_one_of_many_processes_wins(folder: S3Folder) -> None:
    processes = [start(folder, "hold") for _ in range(4)]
    for process in processes:
        say(process)
    heard = [hear(process) for process in processes]
    winner = processes[heard.index("won")]
    locked = f"another run is writing here (pid {winner.pid} on {socket.gethostname()})"
    assert sorted(heard) == sorted(["won", *[locked] * 3])
    for process in processes:
        end(process)
    assert folder.find_info(LOCK_NAME) is None


def test_a_lock_that_was_taken_over_is_lost_and_left_alone(folder: S3Folder) -> None:
    with lock_of(folder) as lock:
        folder.put(LOCK_NAME, ELSEWHERE.encode())
        wait_for(lambda: lock.is_lost)
    assert folder.get(LOCK_NAME) == ELSEWHERE.encode()
    folder.delete([LOCK_NAME])
    with lock_of(folder) as lock:
        folder.delete([LOCK_NAME])
        wait_for(lambda: lock.is_lost)


def test_a_lock_that_cannot_be_renewed_may_be_lost(
    folder: S3Folder, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty_proxy(port) as proxy:
        use_s3(monkeypatch, proxy.port)
        with lock_of(folder, stale_seconds=3) as lock:
            proxy.num_busy = 1 << 30
            wait_for(lambda: lock.is_lost)
            proxy.num_busy = 0
            wait_for(lambda: not lock.is_lost)
            wait_for_beats(folder)
        assert folder.find_info(LOCK_NAME) is None


def test_lost_responses_to_renewals_are_harmless(
    folder: S3Folder, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In some tries of a request, or in all of them."""
    with faulty_proxy(port) as proxy:
        use_s3(monkeypatch, proxy.port)
        hasty = S3Folder(folder.url, RetryPolicy(max_tries=1))
        for each in (folder, hasty):
            with lock_of(each, stale_seconds=20) as lock:
                for _ in range(4):
                    proxy.lose_answers = 1
                    wait_for(lambda: proxy.lose_answers == 0)
                wait_for_beats(folder)
                assert not lock.is_lost
            assert folder.find_info(LOCK_NAME) is None


@pytest.mark.parametrize("method", ["put_if_absent", "put_if_match"])
def test_a_service_without_conditions_is_refused(
    folder: S3Folder, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def put(name: str, data: bytes, etag: str = "") -> str | bool:
        written = folder.put(name, data)
        return written if etag else True

    monkeypatch.setattr(folder, method, put)
    with pytest.raises(WriteError, match="does not obey conditional writes"):
        lock_of(folder).__enter__()
    assert folder.find_info(LOCK_NAME) is None
