"""As much of S3's protocol as reading needs: a list of objects, their heads, and ranges of their bytes."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class ObjectStore:
    """Serves ``objects``, by ``bucket/name``, on a free port of the loopback address."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *arguments: object) -> None:
                pass

            def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                name = unquote(url.path).strip("/")
                if "/" not in name and "list-type" in url.query:
                    self.reply(200, listed(objects, name, parse_qs(url.query)), {"Content-Type": "application/xml"})
                elif name in objects:
                    data = objects[name]
                    modified = {"Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT", "ETag": '"1"'}
                    part = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                    if part is None:
                        self.reply(200, data, modified)
                    else:
                        last = min(int(part[2] or len(data)), len(data) - 1)
                        span = {"Content-Range": f"bytes {part[1]}-{last}/{len(data)}"}
                        self.reply(206, data[int(part[1]) : last + 1], modified | span)
                else:
                    self.reply(404, b"", {})

            do_HEAD = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> ObjectStore:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def listed(objects: dict[str, bytes], bucket: str, query: dict[str, list[str]]) -> bytes:
    """The answer to ListObjectsV2: objects with a prefix, and what more there is below a delimiter."""
    prefix = query.get("prefix", [""])[0]
    delimiter = query.get("delimiter", [""])[0]
    names = [name.partition("/")[2] for name in objects if name.startswith(f"{bucket}/")]
    below, contents = set(), ""
    for name in sorted(name for name in names if name.startswith(prefix)):
        rest = name[len(prefix) :]
        if delimiter and delimiter in rest:
            below.add(prefix + rest.partition(delimiter)[0] + delimiter)
            continue
        contents += (
            f"<Contents><Key>{escape(name)}</Key><LastModified>2025-01-01T00:00:00.000Z</LastModified>"
            f"<Size>{len(objects[f'{bucket}/{name}'])}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
    prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(below))
    return (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><IsTruncated>false</IsTruncated>"
        f"{contents}{prefixes}</ListBucketResult>"
    ).encode()
