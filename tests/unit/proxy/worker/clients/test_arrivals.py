"""The numbers of sessions."""

from itertools import islice

from proxy.worker.clients.arrivals import numbers

JAVASCRIPT_WHOLE = 2**53


def test_a_number_says_the_worker_and_means_no_other_session_anywhere() -> None:
    found: set[int] = set()
    for workers in (1, 3, 64):
        for worker in range(workers):
            some = list(islice(numbers(worker, workers), 1000))
            assert some == sorted(some)
            assert {number % workers for number in some} == {worker}
            assert some[0] > 0
            assert some[-1] < JAVASCRIPT_WHOLE - 2**40
            assert found.isdisjoint(some)
            found.update(some)
