"""What is read of the instructions that callgrind has counted."""

from benchmarks.instructions import by_module

WRITTEN = """\
ob=(1) /x/proxy/engine/backend.cpython-311-x86_64-linux-gnu.so
fn=(1) take_replies
0 100
+3 20
cob=(2) /x/slots/requests/parsing.cpython-311-x86_64-linux-gnu.so
cfn=(2) parse_request
calls=7 0
* 500
* 3

ob=(2)
fn=(2)
0 470
cob=(3) /lib/libc.so.6
cfn=(3) memcpy
calls=1 0
* 30

ob=(3)
fn=(3)
0 30
"""


def test_each_instruction_counts_once_where_it_stands() -> None:
    assert by_module(WRITTEN.splitlines()) == {"backend": 123, "parsing": 470, "libc": 30}
