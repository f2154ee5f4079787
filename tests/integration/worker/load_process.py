"""``python -m tests.integration.worker.load_process PORT CONNECTIONS DEPTH REQUESTS``: GET and SET on plain sockets."""

import socket
import sys


def main() -> None:
    """Send the requests, in pipelines of DEPTH, and read all replies; exit with an error if one is not right."""
    port, connections, depth, requests = map(int, sys.argv[1:])
    key = b"$12\r\nkey:%08d\r\n"
    value = b"$64\r\n" + b"x" * 64 + b"\r\n"
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    half = max(1, depth // 2)
    sets = b"".join(b"*3\r\n$3\r\nSET\r\n" + key % index + value for index in range(half))
    gets = b"".join(b"*2\r\n$3\r\nGET\r\n" + key % index for index in range(half))
    right = [b"+OK\r\n" * half, value * half]
    done = 0
    while done < requests:
        for payload, reply in zip((sets, gets), right, strict=True):
            for one in sockets:
                one.sendall(payload)
            for one in sockets:
                got = bytearray()
                while len(got) < len(reply):
                    got += one.recv(1 << 20)
                if got != reply:
                    raise SystemExit(f"{bytes(got[:100])!r} instead of {reply[:100]!r}")
            done += half * connections


if __name__ == "__main__":
    main()
