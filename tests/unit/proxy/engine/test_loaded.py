"""What the engine knows of code at the servers: all that was noted and may not have been lost since."""

from proxy.engine.loaded import MOST_SCRIPTS, LoadedCode, knows

A, B = b"a" * 40, b"b" * 40


def test_a_servers_scripts_are_known_in_any_case_of_letters() -> None:
    loaded = LoadedCode()
    loaded.note_script(3, A)
    assert knows(loaded, 3, A)
    assert knows(loaded, 3, A.upper())
    assert not knows(loaded, 3, B)
    assert not knows(loaded, 2, A)
    assert not knows(loaded, 4, A)
    assert not knows(loaded, 3, A[:-1])


def test_what_may_be_lost_is_forgotten() -> None:
    loaded = LoadedCode()
    for server in (0, 1):
        loaded.note_script(server, A)
        loaded.note_libraries(server)
    loaded.forget_scripts(0)
    assert (knows(loaded, 0, A), knows(loaded, 1, A)) == (False, True)
    assert (knows(loaded, 0), knows(loaded, 1)) == (True, True)
    loaded.note_script(0, A)
    assert knows(loaded, 0, A)
    loaded.forget_server(0)
    assert (knows(loaded, 0, A), knows(loaded, 0), knows(loaded, 1)) == (False, False, True)
    loaded.forget_libraries()
    assert not knows(loaded, 1)
    loaded.note_text(b"return 1")
    assert knows(loaded, -1, b"return 1")
    assert not knows(loaded, 1, b"return 1")
    loaded.forget_all_scripts()
    assert not knows(loaded, -1, b"return 1")
    assert not knows(loaded, 1, A)
    loaded.forget_server(99)


def test_bounded_it_forgets_rather_than_grows() -> None:
    loaded = LoadedCode()
    names = [b"%040d" % number for number in range(10 * MOST_SCRIPTS)]
    for name in names:
        loaded.note_script(0, name)
    # Its room is rounded up to a power of two.
    assert MOST_SCRIPTS <= sum(knows(loaded, 0, name) for name in names) < 2 * MOST_SCRIPTS
