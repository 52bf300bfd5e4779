"""kazoo's locks, moved by the lines of stdin: `<thread> <verb> [<kind> <path> [<id>]]`; scripted_peer.rs has the other end."""

import logging
import os
import queue
import sys
import threading

from kazoo.client import KazooClient

logging.disable(logging.CRITICAL)
client = KazooClient(sys.argv[1], timeout=30)
client.start(timeout=30)
kinds = {"lock": client.Lock, "read": client.ReadLock, "write": client.WriteLock}


elections = {}
ends = threading.Event()


def elect(thread, verb, path, id):
    """A participant of an election, who leads until another thread ends that."""
    election = elections.setdefault(id, client.Election(path, id))
    if verb == "contenders":
        return " ".join(election.contenders())
    if verb == "end":
        ends.set()
        return "ends"

    def lead():
        print(thread, "leads", flush=True)
        ends.wait()

    election.run(lead)
    return "led"


def run(thread, orders):
    locks = {}
    while True:
        verb, *what = orders.get()
        if verb == "session":
            print(thread, hex(client.client_id[0]), flush=True)
            continue
        kind, path, *id = what
        try:
            if kind == "election":
                print(thread, elect(thread, verb, path, *id), flush=True)
                continue
            lock = locks.setdefault((kind, path), kinds[kind](path))
            if verb == "acquire":
                answer = "holds" if lock.acquire() else "may not"
            elif verb == "try":
                answer = "holds" if lock.acquire(blocking=False) else "may not"
            elif verb == "contenders":
                answer = ", ".join(lock.contenders())
            else:
                answer = "released" if lock.release() else "held nothing"
        except Exception as failure:
            answer = f"failed: {failure!r}"
        print(thread, answer, flush=True)


threads = {}
for line in sys.stdin:
    thread, *order = line.split()
    if thread not in threads:
        threads[thread] = queue.Queue()
        threading.Thread(target=run, args=(thread, threads[thread]), daemon=True).start()
    threads[thread].put(order)
# The end of stdin is the end of the test.
os._exit(0)
