"""Kubernetes as far as Spark's driver sees it: an API server on loopback that keeps pods and other
objects in memory, and in place of kubelets starts each pod's container as a process.

It does not schedule, pull images, mount volumes or check rights; addresses of pods are loopback.
"""

from __future__ import annotations

import json
import subprocess
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Document = dict[str, Any]
ENDED_S = 60.0
KINDS = {
    "pods": "Pod",
    "configmaps": "ConfigMap",
    "persistentvolumeclaims": "PersistentVolumeClaim",
}


class Kubernetes:
    """One API server. `start` makes the process of a pod from the variables of its container."""

    def __init__(
        self, start: Callable[[Document, dict[str, str]], subprocess.Popen[bytes]]
    ) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], Document] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.created: list[Document] = []
        """Pods as the driver has asked for them."""
        self.requests: list[str] = []
        handler = type("Handler", (_Handler,), {"cluster": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def master(self) -> str:
        """The address as --master takes it."""
        return f"k8s://http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        """End the server, and what is left of its pods."""
        self._server.shutdown()
        self._server.server_close()
        for process in self._processes.values():
            process.kill()
            process.wait(ENDED_S)

    def ended(self) -> dict[str, int]:
        """The exit codes of the containers, by their pods, which have been removed."""
        return {name: process.wait(ENDED_S) for name, process in self._processes.items()}

    def add(self, kind: str, document: Document) -> Document:
        """Create an object; a pod runs at once."""
        made: Document = json.loads(json.dumps(document))
        name = made["metadata"]["name"]
        made |= {"kind": KINDS[kind], "apiVersion": "v1"}
        made["metadata"] |= {"uid": str(uuid.uuid4()), "resourceVersion": "1"}
        if kind == "pods":
            self.created.append(document)
            made["status"] = {
                "phase": "Running",
                "podIP": "127.0.0.1",
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            if document["spec"].get("containers"):
                self._processes[name] = self._start(made, _variables(made))
        with self._lock:
            self._objects[kind, name] = made
        return made

    def found(self, kind: str, labels: str) -> list[Document]:
        """Objects of a kind that have the labels `a=b,c=d`; those of pods as their processes are."""
        wanted = [each for each in labels.split(",") if "=" in each and "!" not in each]
        with self._lock:
            every = [one for (of, _), one in self._objects.items() if of == kind]
        for one in every:
            process = self._processes.get(one["metadata"]["name"])
            if process is not None and process.poll() is not None:
                one["status"]["phase"] = "Failed" if process.returncode else "Succeeded"
        return [
            one
            for one in every
            if set(wanted)
            <= {f"{key}={value}" for key, value in one["metadata"].get("labels", {}).items()}
        ]

    def one(self, kind: str, name: str) -> Document | None:
        """An object by its name."""
        return self._objects.get((kind, name))

    def remove(self, kind: str, name: str) -> None:
        """Remove an object; the process of a pod gets SIGTERM."""
        with self._lock:
            self._objects.pop((kind, name), None)
        if kind == "pods" and name in self._processes:
            self._processes[name].terminate()


def _variables(pod: Document) -> dict[str, str]:
    (container,) = pod["spec"]["containers"]
    fields = {"status.podIP": "127.0.0.1", "metadata.name": pod["metadata"]["name"]}
    return {
        each["name"]: each["value"]
        if "value" in each
        else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container.get("env", ())
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: Kubernetes

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def _asked(self) -> tuple[str, str, dict[str, str]]:
        parts = urlsplit(self.path)
        # /api/v1/namespaces/NAMESPACE/KIND[/NAME]
        words = [*parts.path.strip("/").split("/"), "", "", "", ""]
        query = {key: value[0] for key, value in parse_qs(parts.query).items()}
        self.cluster.requests.append(f"{self.command} {self.path}")
        return words[4], words[5], query

    def _answer(self, document: Document, code: int = 200) -> None:
        data = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _missing(self) -> None:
        self._answer({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}, 404)

    def _body(self) -> Document:
        document: Document = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)))
        return document

    def do_GET(self) -> None:
        kind, name, query = self._asked()
        if name:
            one = self.cluster.one(kind, name)
            return self._answer(one) if one else self._missing()
        if kind not in KINDS or query.get("watch") == "true":
            return self._missing()
        self._answer(
            {
                "kind": f"{KINDS[kind]}List",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": "1"},
                "items": self.cluster.found(kind, query.get("labelSelector", "")),
            }
        )

    def do_POST(self) -> None:
        kind, _, _ = self._asked()
        self._answer(self.cluster.add(kind, self._body()), 201)

    def do_PATCH(self) -> None:
        kind, name, _ = self._asked()
        self._body_is_read()
        one = self.cluster.one(kind, name)
        return self._answer(one) if one else self._missing()

    do_PUT = do_PATCH

    def _body_is_read(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))

    def do_DELETE(self) -> None:
        kind, name, query = self._asked()
        self._body_is_read()
        names = (
            [name]
            if name
            else [
                one["metadata"]["name"]
                for one in self.cluster.found(kind, query.get("labelSelector", ""))
            ]
        )
        for each in names:
            self.cluster.remove(kind, each)
        self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})
