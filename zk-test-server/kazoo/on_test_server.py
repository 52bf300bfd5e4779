"""A plugin of pytest that runs kazoo's tests on zk-test-server: an ensemble of three in one process."""

import json
import os
import socket
import subprocess
import threading

import kazoo.testing.harness

# The super user's password is "test", as in kazoo's own configuration.
SUPER = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="


class Member:
    """What kazoo's harness calls a ManagedZooKeeper."""

    def __init__(self, cluster, index):
        self.cluster, self.index, self.running = cluster, index, False

    @property
    def address(self):
        return self.cluster.addresses[self.index]

    @property
    def client_port(self):
        return int(self.address.rsplit(":", 1)[1])

    # There is no TLS.
    secure_address, secure_client_port = address, client_port

    def _set(self, running):
        self.running = running
        self.cluster.update()

    def run(self):
        self._set(True)

    def stop(self):
        self._set(False)

    destroy = reset = stop


class Cluster:
    """What kazoo's harness calls a ZookeeperCluster."""

    def __init__(self, size=3, jaas_config=None, **_options):
        if jaas_config is not None:
            # The tests would wait for ever, and the later ones find what these have set.
            os.environ.pop("ZOOKEEPER_JAAS_AUTH", None)
            raise RuntimeError("zk-test-server has no SASL")
        self.size, self.process = size, None
        # Some tests stop members in threads at once.
        self.asks = threading.Lock()
        self._launch()
        self.members = [Member(self, index) for index in range(size)]

    def _launch(self):
        program = os.environ.get("ZK_TEST_SERVER", "zk-test-server")
        options = ["--cluster", str(self.size), "--admin", "0", "--super-digest", SUPER, "--exit-with-stdin"]
        self.process = subprocess.Popen(
            [program, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        ready = json.loads(self.process.stdout.readline())
        self.addresses = ready["connect"].split(",")
        host, port = ready["admin"].rsplit(":", 1)
        self.admin = socket.create_connection((host, int(port))).makefile("rw")

    def do(self, verb, **fields):
        with self.asks:
            print(json.dumps({"do": verb, **fields}), file=self.admin, flush=True)
            reply = json.loads(self.admin.readline())
        assert reply["ok"], reply

    def update(self):
        """Without a majority, those that run are read-only."""
        majority = 2 * sum(member.running for member in self.members) > self.size
        running = "current" if majority else "read_only"
        for member in self.members if self.process else []:
            self.do("set_member", index=member.index, member=running if member.running else "down")

    def __iter__(self):
        return iter(self.members)

    def __getitem__(self, index):
        return self.members[index]

    def start(self):
        if self.process is None:
            self._launch()
        for member in self.members:
            member.run()

    def stop(self):
        for member in self.members:
            member.stop()

    reset = stop

    def terminate(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        for member in self.members:
            member.running = False

    def get_logs(self):
        return []

    def get_ssl_client_configuration(self):
        raise RuntimeError("zk-test-server has no TLS")


kazoo.testing.harness.ZookeeperCluster = Cluster
