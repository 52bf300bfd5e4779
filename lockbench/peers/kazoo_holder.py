"""kazoo as a holder of the matrix: reads JSON objects on stdin, each a step of a lock, and answers on stdout.

src/step.rs says which steps there are.
"""

import json
import logging
import sys
import threading
import time

from kazoo.client import KazooClient, KazooState

# How often a holder asks its lock whether it is held; for how long a caller asks again whose call has failed,
# and how soon, in seconds.
EVERY = 0.005
PATIENCE = 30.0
AGAIN = 0.05


class Holder:
    """A session and a lock."""

    def __init__(self, servers, path, millis, careful, journal):
        self.client = KazooClient(hosts=servers, timeout=millis / 1000)
        self.careful = careful
        # The connection as its listener knows it, and whether the session has ended since the grant.
        self.connected, self.lost = True, False
        self.granted = False
        self.client.add_listener(self.listen)
        self.client.start(timeout=30)
        self.lock = self.client.Lock(path)
        self.ended = False
        self.journal = open(journal, "wb", buffering=0)
        threading.Thread(target=self.ask_always, daemon=True).start()

    def listen(self, state):
        self.connected = state == KazooState.CONNECTED
        self.lost = self.lost or state == KazooState.LOST

    def is_held(self):
        """What the lock answers; None if it was not granted, or is given back."""
        if not self.granted:
            return None
        return self.lock.is_acquired and (not self.careful or (self.connected and not self.lost))

    def ask_always(self):
        while not self.ended:
            asked = time.monotonic_ns()
            held = self.is_held()
            if held is not None:
                self.journal.write(b"%d %d %d\n" % (asked, time.monotonic_ns(), held))
            time.sleep(EVERY)

    def acquire(self):
        asked = time.monotonic()
        while True:
            self.lost = False
            try:
                if self.lock.acquire():
                    break
            except Exception:
                if time.monotonic() - asked > PATIENCE:
                    raise
            time.sleep(AGAIN)
        granted = time.monotonic_ns()
        self.granted = True
        return {"granted": granted}

    def release(self):
        self.granted = False
        self.lock.release()
        return {}

    def read(self, node):
        value, stat = self.client.get(node)
        return {"value": value.decode(), "version": stat.version}

    def write(self, node, value, version):
        self.client.set(node, value.encode(), version=version)
        return {}

    def close(self):
        self.ended = True
        self.client.stop()
        self.client.close()


def main():
    logging.disable(logging.CRITICAL)
    holder = None
    for line in sys.stdin:
        ((verb, what),) = json.loads(line).items()
        if verb == "quit":
            break
        try:
            if verb == "open":
                if holder:
                    holder.close()
                holder = Holder(**what)
                told = {}
            elif verb == "ask":
                told = {"held": bool(holder.is_held())}
            else:
                told = getattr(holder, verb)(**what) if isinstance(what, dict) else getattr(holder, verb)()
        except Exception as e:  # The matrix is told, and decides.
            told = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(told), flush=True)
    if holder:
        holder.close()


if __name__ == "__main__":
    main()
