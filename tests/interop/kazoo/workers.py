"""The workers of kazoo's side; worker.rs says what they are told and do."""

import logging
import os
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError, KazooException, LockTimeout, NoNodeError

IMPATIENCE, IMPATIENT = 0.004, 9
# Until 2.9 a reader of kazoo waits for the writers behind it too, which wait for it: only its timeout ends that
# (python-zk/kazoo#649), and it comes in only while there is no writer. So writers rest. The timeout begins again with
# each writer that leaves, so on a busy machine a reader waits without an end: its call is cancelled.
PATIENCE, LIMIT, REST = {"x": 10, "r": 0.05}, {"x": 60, "r": 1}, 0.1

logging.disable(logging.CRITICAL)
servers, session, path, directory, name, recipe, crew = sys.argv[1:]
client = KazooClient(servers, timeout=int(session) / 1000)
journal = os.open(os.path.join(directory, "journal"), os.O_WRONLY | os.O_APPEND)
counter = os.open(os.path.join(directory, "counter"), os.O_RDWR)
enough = threading.Event()
orders, stay = threading.Lock(), []


def note(what, worker, *more):
    record = " ".join([what, worker, *map(str, more)])
    os.write(journal, f"\n{record} .".encode())


def read_counter():
    return int(os.pread(counter, 20, 0))


def may_stay(worker, point):
    with orders:
        stays = point in stay
        if stays:
            stay.remove(point)
    if stays:
        note("stays", worker, point)
        enough.wait()
        # The parent that would kill us is gone.
        os._exit(2)


def increment(worker):
    value = read_counter()
    note("read", worker, value)
    may_stay(worker, "entered")
    value += 1
    note("intent", worker, value)
    may_stay(worker, "intended")
    time.sleep(0.001)
    os.pwrite(counter, b"%020d" % value, 0)
    may_stay(worker, "written")
    note("commit", worker, value)
    may_stay(worker, "committed")


def look(worker):
    note("read", worker, read_counter())
    may_stay(worker, "reading")
    time.sleep(0.001)
    note("read", worker, read_counter())


def hold(worker, role, lock):
    node = f"{path}/{lock.node}"
    stat = client.exists(node)
    assert stat, "the lock node is gone at once"
    note("enter", worker, role, stat.creation_transaction_id, hex(stat.owner_session_id))
    kept = False
    try:
        (increment if role == "x" else look)(worker)
        # kazoo tells a holder nothing. Node names are unique, so while it is there the lock was held until now.
        kept = client.exists(node) is not None
    finally:
        note("leave" if kept else "lost", worker)


def clean_up(lock):
    """Deletes the node of a call that has failed: kazoo's own clean-up ignores an error of the connection, and the node
    would then be in the way of all others until the session ends."""
    while True:
        try:
            for node in client.get_children(path):
                if node.startswith(lock.prefix):
                    client.delete(f"{path}/{node}")
            return
        except NoNodeError:
            return
        except KazooException:
            time.sleep(REST)


def work(worker, role):
    kind = {"lock": client.Lock, "read-write": {"x": client.WriteLock, "r": client.ReadLock}.get(role)}[recipe]
    turn = 0
    while not enough.is_set():
        turn += 1
        lock = kind(path)
        limit = threading.Timer(LIMIT[role], lock.cancel)
        limit.start()
        try:
            if lock.acquire(timeout=IMPATIENCE if turn % IMPATIENT == 0 else PATIENCE[role]):
                limit.cancel()
                try:
                    hold(worker, role, lock)
                finally:
                    lock.release()
            if recipe == "read-write" and role == "x":
                time.sleep(REST)
        except (LockTimeout, CancelledError):
            clean_up(lock)
        except Exception as trouble:
            # A session that has ended, for example: kazoo begins another.
            note("trouble", worker, type(trouble).__name__, str(trouble).replace("\n", " "))
            clean_up(lock)
        finally:
            limit.cancel()


def main():
    client.start(timeout=30)
    threads = [
        threading.Thread(target=work, args=(f"{name}.{index}", role)) for index, role in enumerate(crew)
    ]
    for thread in threads:
        thread.start()
    for line in sys.stdin:
        with orders:
            stay.append(line.split()[1])
    enough.set()
    for thread in threads:
        thread.join()
    client.stop()


main()
