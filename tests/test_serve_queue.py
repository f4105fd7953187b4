"""One engine and many clients: turns, limits, and stopping one answer without touching another."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("uvicorn")

from localspec.engine.settings import GenerationRequest
from localspec.serve.queue import FairQueue, Job
from tests.serve_tools import WAIT, Live, Reply, ScriptedEngine, serving, until


def job(client: str) -> Job:
    return Job(GenerationRequest(prompt=client), client, asyncio.new_event_loop())


def test_clients_take_turns_and_keep_their_own_order() -> None:
    queue = FairQueue()
    jobs = {name: job(name[0]) for name in ("a1", "a2", "a3", "b1", "b2", "c1")}
    for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.add(jobs[name])
    order = []
    while (taken := queue.next()) is not None:
        order.append(next(name for name, one in jobs.items() if one is taken))
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert len(queue) == 0


def test_a_job_can_leave_the_line_once() -> None:
    queue = FairQueue()
    first, second = job("a"), job("a")
    queue.add(first)
    queue.add(second)
    assert queue.remove(first) and not queue.remove(first)
    assert queue.next() is second and queue.next() is None


def in_thread(live: Live, content: str, **body: object) -> tuple[threading.Thread, list[Reply]]:
    replies: list[Reply] = []
    thread = threading.Thread(target=lambda: replies.append(live.chat(content, **body)))
    thread.start()
    return thread, replies


def test_over_the_limit_is_429_with_retry_after_and_the_others_are_served() -> None:
    engine = ScriptedEngine()
    engine.gate.clear()
    with serving(engine, queue=2) as live:
        threads = [in_thread(live, "running", max_tokens=2)]
        until(lambda: live.host.desk.running == 1)
        threads += [in_thread(live, f"waiting{i}", max_tokens=2) for i in range(2)]
        until(lambda: live.host.desk.waiting == 2)
        refused = live.chat("too many")
        assert refused.status == 429 and refused.json["error"]["code"] == "queue_full"
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json["error"]["type"] == "rate_limit_error"
        assert live.get("/health").status == 200, "it does not wait for the engine, which waits for the gate"
        engine.gate.set()
        for thread, replies in threads:
            thread.join(WAIT)
            assert replies[0].status == 200
        assert len(engine.requests) == 3


def test_a_queue_of_none_still_serves_one() -> None:
    with serving(ScriptedEngine(), queue=0) as live:
        assert live.chat(max_tokens=1).status == 200


def test_users_take_turns() -> None:
    engine = ScriptedEngine()
    engine.gate.clear()
    with serving(engine) as live:
        threads = [in_thread(live, "first", max_tokens=1)]
        until(lambda: live.host.desk.running == 1)
        for count, (user, content) in enumerate((("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1")), 1):
            threads.append(in_thread(live, content, user=user, max_tokens=1))
            until(lambda count=count: live.host.desk.waiting == count)
        engine.gate.set()
        for thread, _ in threads:
            thread.join(WAIT)
        assert [request.messages[0].content for request in engine.requests] == [
            "first",
            "a1",
            "b1",
            "a2",
            "a3",
        ]


def test_a_client_that_leaves_stops_its_answer_within_a_round() -> None:
    engine = ScriptedEngine(pace=0.002)
    with serving(engine) as live:
        connection, response = live.start_stream(max_tokens=1000)
        for _ in range(10):
            response.readline()
        response.close()
        connection.close()
        until(lambda: live.host.desk.running == 0)
        assert engine.rounds < 250, "of 500"
        assert live.chat("next", max_tokens=3).json["choices"][0]["message"]["content"] == "next 1 2 "


def test_a_client_that_leaves_without_a_stream_stops_its_answer_too() -> None:
    engine = ScriptedEngine(pace=0.002)
    with serving(engine) as live:
        connection = live.connect()
        connection.request("POST", "/v1/completions", b'{"prompt": "x"}', {"Content-Type": "application/json"})
        until(lambda: engine.rounds > 3)
        connection.close()
        until(lambda: live.host.desk.running == 0)
        assert engine.rounds < 400, "of 500"


def test_leaving_the_line_touches_nobody() -> None:
    engine = ScriptedEngine()
    engine.gate.clear()
    with serving(engine) as live:
        thread, replies = in_thread(live, "stays", max_tokens=6)
        until(lambda: live.host.desk.running == 1)
        leaving = live.connect()
        leaving.request("POST", "/v1/completions", b'{"prompt": "leaves"}', {"Content-Type": "application/json"})
        until(lambda: live.host.desk.waiting == 1)
        leaving.close()
        until(lambda: live.host.desk.waiting == 0)
        engine.gate.set()
        thread.join(WAIT)
        assert replies[0].json["choices"][0]["message"]["content"] == "stays 1 2 3 4 5 "
        assert len(engine.requests) == 1


def test_many_clients_at_once_get_their_own_words_and_some_leave() -> None:
    """No mixed text, no lost answer, while every third client hangs up in the middle."""
    engine = ScriptedEngine(pace=0.0005)
    with serving(engine, queue=1000) as live:

        def ask(number: int) -> bool:
            words = f"w{number}a w{number}b w{number}c"
            if number % 3 == 0:
                connection, response = live.start_stream(words, max_tokens=400)
                response.readline()
                response.close()
                connection.close()
                return True
            stream = number % 2 == 0
            reply = live.chat(words, max_tokens=20, stream=stream)
            text = reply.streamed if stream else reply.json["choices"][0]["message"]["content"]
            return text == " ".join([words, *map(str, range(3, 20))]) + " "

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(ask, range(120)))
        until(lambda: live.host.desk.running == 0 and live.host.desk.waiting == 0)


def test_fifty_departures_leave_nothing_behind() -> None:
    engine = ScriptedEngine(pace=0.001)
    with serving(engine) as live:
        threads = threading.active_count()
        for _ in range(50):
            connection, response = live.start_stream(max_tokens=1000)
            response.readline()
            response.close()
            connection.close()
        until(lambda: live.host.desk.running == 0 and live.host.desk.waiting == 0)
        assert threading.active_count() <= threads
        assert not live.host.statistics._first_token


def test_a_stalled_client_does_not_hold_the_engine() -> None:
    engine = ScriptedEngine()
    with serving(engine) as live:
        connection, _ = live.start_stream("x" * 50, max_tokens=1000)  # never read
        until(lambda: live.host.desk.running == 0)
        assert live.chat("other", max_tokens=2).status == 200
        connection.close()
