"""kazoo as a contender: reads one JSON object a line on stdin, answers one a line on stdout.

{"run": JOB} is a round, {"quit": true} the end, and so is the end of stdin. A task is a thread.
"""

import json
import logging
import math
import os
import random
import sys
import threading
import time

import kazoo.version
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

# A thread or a process more than so many and the machine is no longer what is measured.
MOST_TASKS = 1024
# How many seconds longer than the round a task waits for the lock for which it has asked in time: a crowd
# behind one lock object needs minutes to drain, and the rate is known long before. Where the number of cycles
# is given instead, all are waited for.
GRACE = 2.0
PATIENCE = 240.0


class Counters:
    """A counter for each path, whose update is not atomic as a whole: two at once lose one."""

    def __init__(self, job):
        self.own = [0] * job["paths"]
        self.file = job.get("counter_file") and open(job["counter_file"], "r+b", buffering=0)

    def read(self, path):
        if not self.file:
            return self.own[path]
        return int.from_bytes(os.pread(self.file.fileno(), 8, 8 * path), sys.byteorder)

    def write(self, path, read):
        value = self.next(read)
        if not self.file:
            self.own[path] = value
        else:
            os.pwrite(self.file.fileno(), value.to_bytes(8, sys.byteorder), 8 * path)

    def lost(self, updates):
        """How many of so many updates are not there. Of a file only all its processes together know."""
        return 0 if self.file else updates - sum(self.own)

    @staticmethod
    def next(value):
        mixed = value
        for _ in range(4):
            mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        return value + 1 if mixed >= 0 else mixed


class NoLock:
    """Excludes nobody: what shows that lost updates are seen."""

    def acquire(self, timeout):
        return True

    def release(self):
        pass


class Task(threading.Thread):
    """Asks for its lock again and again until the time is up."""

    def __init__(self, job, number, locks, counters, go):
        super().__init__(daemon=True)
        self.job, self.locks, self.counters, self.go = job, locks, counters, go
        self.path = number % job["paths"]
        self.random = random.Random(number)
        self.until = 0.0
        self.latencies = []
        self.exclusive = 0
        # Reads during which a writer counted.
        self.disturbed = 0
        self.end = 0.0
        self.failed = None

    def run(self):
        try:
            self.cycle()
        except Exception as e:  # The round's answer says it.
            self.failed = e

    def cycle(self):
        write, read = self.locks
        percent = self.job.get("read_percent", 0) if self.job["recipe"] == "read_write" else 0
        most = self.job.get("cycles_per_task") or math.inf
        # While it counts, so that a lock that does not exclude is found out.
        hold = self.job.get("hold_micros", 0) / 1e6
        self.go.wait()
        patience = self.until + (GRACE if most == math.inf else PATIENCE)
        asked = time.monotonic()
        while not self.latencies or (asked < self.until and len(self.latencies) < most):
            reads = percent > 0 and self.random.randrange(100) < percent
            lock = read if reads else write
            try:
                if not lock.acquire(timeout=patience - asked):
                    break
            except LockTimeout:
                break
            granted = time.monotonic()
            try:
                value = self.counters.read(self.path)
                if hold:
                    time.sleep(hold)
                if not reads:
                    self.counters.write(self.path, value)
                    self.exclusive += 1
                elif self.counters.read(self.path) != value:
                    self.disturbed += 1
            finally:
                lock.release()
            self.end = time.monotonic()
            self.latencies.append(granted - asked)
            asked = self.end


class Place:
    """The connected clients and the lock objects below one node, which outlast a round."""

    def __init__(self, job):
        self.key = self.key_of(job)
        self.root = job["root"]
        self.clients = [KazooClient(hosts=job["servers"], timeout=30.0) for _ in range(job["sessions"])]
        for client in self.clients:
            client.start(timeout=30)
        self.kept = {}

    @staticmethod
    def key_of(job):
        return job["servers"], job["sessions"], job["root"]

    def locks(self, job, task):
        """A task's write and read lock: its own objects, or those that all tasks of its session share."""
        session, path = task // job["tasks"], task % job["paths"]
        read_write = job["recipe"] == "read_write"
        key = (job["recipe"], session, None if job.get("objects") == "shared" else task, path)
        if key not in self.kept:
            client, name = self.clients[session], f"{self.root}/lock-{path}"
            # kazoo has no other exclusive lock: nothing in it hands over in memory.
            if read_write:
                self.kept[key] = client.WriteLock(name), client.ReadLock(name)
            else:
                lock = NoLock() if job["recipe"] == "none" else client.Lock(name)
                self.kept[key] = lock, lock
        return self.kept[key]

    def close(self):
        for client in self.clients:
            client.stop()
            client.close()


def round_of(job, place):
    counters = Counters(job)
    go = threading.Event()
    numbers = range(job["sessions"] * job["tasks"])
    tasks = [Task(job, number, place.locks(job, number), counters, go) for number in numbers]
    for task in tasks:
        task.start()
    cpu, start = time.process_time(), time.monotonic()
    for task in tasks:
        task.until = start + job["micros"] / 1e6
    go.set()
    for task in tasks:
        task.join()
    cpu = time.process_time() - cpu
    for task in tasks:
        if task.failed:
            raise task.failed
    latencies = sorted(latency for task in tasks for latency in task.latencies)
    exclusive = sum(task.exclusive for task in tasks)

    def at(quantile):
        index = max(math.ceil(quantile * len(latencies)) - 1, 0)
        return round(latencies[index] * 1e6, 3) if latencies else 0

    return {
        "cycles": len(latencies),
        "exclusive_cycles": exclusive,
        "elapsed_micros": round((max(task.end for task in tasks) - start) * 1e6) if latencies else 0,
        "cpu_micros": round(cpu * 1e6),
        "latency_micros": {
            "p50": at(0.5),
            "p90": at(0.9),
            "p99": at(0.99),
            "p999": at(0.999),
            "max": at(1),
        },
        "lost_updates": counters.lost(exclusive) + sum(task.disturbed for task in tasks),
    }


def unsupported(job):
    """Returns why this is no round for kazoo; None if it is one."""
    if job["sessions"] * job["tasks"] > MOST_TASKS:
        return f"{job['sessions'] * job['tasks']} threads, a thread for every task"
    major, minor = kazoo.version.__version__.split(".")[:2]
    if job["recipe"] == "read_write" and (int(major), int(minor)) < (2, 9):
        # https://github.com/python-zk/kazoo/issues/649
        return f"the read-write lock of kazoo {kazoo.version.__version__} deadlocks, mended in 2.9"
    return None


def main():
    logging.disable(logging.CRITICAL)
    # The sessions of the last round, for as long as the next one has the same.
    place = None
    for line in sys.stdin:
        request = json.loads(line)
        if "quit" in request:
            break
        try:
            job = request["run"]
            why = unsupported(job)
            if why:
                said = {"error": f"unsupported: {why}"}
            else:
                if place and place.key != Place.key_of(job):
                    place.close()
                    place = None
                place = place or Place(job)
                said = round_of(job, place)
        except Exception as e:  # The orchestrator is told, and decides.
            said = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(said), flush=True)
    if place:
        place.close()


if __name__ == "__main__":
    main()
