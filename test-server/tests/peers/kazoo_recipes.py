"""kazoo's recipes on the server whose address is the argument. Exits with 0 when all is well."""

import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError, RolledBackError
from kazoo.security import CREATOR_ALL_ACL, make_digest_acl

CLIENTS, ROUNDS = 4, 25


def main(address):
    clients = [KazooClient(address) for _ in range(CLIENTS)]
    for client in clients:
        client.start(timeout=30)
    first, second = clients[:2]

    inside, total, failures = [], [], []

    def contend(client):
        try:
            lock = client.Lock("/kazoo/lock")
            for _ in range(ROUNDS):
                assert lock.acquire(timeout=30)
                inside.append(client)
                assert len(inside) == 1, "one holder"
                total.append(inside.pop())
                lock.release()
        except BaseException as failure:
            failures.append(failure)
            raise

    threads = [threading.Thread(target=contend, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(total) == CLIENTS * ROUNDS

    lock, other = first.Lock("/kazoo/lock", "first"), second.Lock("/kazoo/lock", "second")
    assert lock.acquire(timeout=30) and not other.acquire(blocking=False)
    assert other.contenders() == ["first"]
    lock.release()

    with first.Semaphore("/kazoo/semaphore", max_leases=2), second.Semaphore("/kazoo/semaphore", max_leases=2):
        assert not clients[2].Semaphore("/kazoo/semaphore", max_leases=2).acquire(blocking=False)

    seen = threading.Event()
    first.ensure_path("/kazoo/watched")

    @first.ChildrenWatch("/kazoo/watched")
    def watch(names):
        if names == ["child"]:
            seen.set()

    second.create("/kazoo/watched/child")
    assert seen.wait(30), "the watch fires"

    transaction = first.transaction()
    transaction.create("/kazoo/tx", b"one")
    transaction.set_data("/kazoo/tx", b"two")
    transaction.check("/kazoo/tx", 1)
    path, stat, checked = transaction.commit()
    assert (path, stat.version, checked) == ("/kazoo/tx", 1, True)
    transaction = first.transaction()
    transaction.delete("/kazoo/tx")
    transaction.delete("/kazoo/none")
    assert [type(result) for result in transaction.commit()] == [RolledBackError, NoNodeError]
    assert first.get("/kazoo/tx")[0] == b"two"

    first.add_auth("digest", "user:password")
    first.create("/kazoo/mine", acl=[make_digest_acl("user", "password", all=True)])
    assert first.get("/kazoo/mine")
    try:
        second.get("/kazoo/mine")
        raise AssertionError("everybody may read what is mine")
    except NoAuthError:
        pass
    # Its list has an id that is null on the wire.
    first.create("/kazoo/creators", acl=CREATOR_ALL_ACL)
    acl, _stat = first.get_acls("/kazoo/creators")
    assert [entry.id.scheme for entry in acl] == ["digest"]

    for client in clients:
        client.stop()


main(sys.argv[1])
