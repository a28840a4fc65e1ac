"""Two machines on one: network namespaces joined by a virtual cable. Their addresses exist nowhere else."""

import os
import shutil
import subprocess
from typing import ClassVar

import pytest


class TwoMachines:
    """`first` and `second`, each with an address; nothing else can be reached from either."""

    ADDRESSES: ClassVar = {"first": "10.231.77.1", "second": "10.231.77.2"}

    def __init__(self) -> None:
        self.addresses = self.ADDRESSES
        if os.geteuid() != 0 or shutil.which("ip") is None:
            pytest.skip("network namespaces need root and iproute2")
        self._names = {name: f"corral-{os.getpid()}-{name}" for name in self.addresses}
        made = subprocess.run(["ip", "netns", "add", self._names["first"]], capture_output=True, text=True)
        if made.returncode != 0:
            pytest.skip(f"network namespaces cannot be made here: {made.stderr.strip()}")
        self._ip("netns", "add", self._names["second"])
        cable = ("veth", "peer", "name", "cable", "netns", self._names["second"])
        self._ip("link", "add", "cable", "netns", self._names["first"], "type", *cable)
        for name, address in self.addresses.items():
            self.run(name, "ip", "address", "add", f"{address}/30", "dev", "cable")
            self.run(name, "ip", "link", "set", "cable", "up")
            self.run(name, "ip", "link", "set", "lo", "up")

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    def inside(self, machine: str) -> list[str]:
        """Words to put before a command so that it runs on that machine."""
        return ["ip", "netns", "exec", self._names[machine]]

    def run(self, machine: str, *command: str) -> str:
        done = subprocess.run([*self.inside(machine), *command], check=True, capture_output=True, text=True)
        return done.stdout

    def cut(self, machine: str, *rule: str) -> None:
        self.run(machine, "iptables", "-A", *rule, "-j", "DROP")

    def mend(self, machine: str, *rule: str) -> None:
        self.run(machine, "iptables", "-D", *rule, "-j", "DROP")

    def remove(self) -> None:
        for name in self._names.values():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
