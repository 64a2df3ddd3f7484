"""For the whole suite: what a busy machine, or how the suite was started, must not decide."""

import signal

from hypothesis import HealthCheck, settings

from . import ports

# Time is no property, and examples are the same every time, as in the simulated runs of CI. `--hypothesis-profile=hunt` looks for new ones.
settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("hunt", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

ports.stay_in_lane()


def pytest_configure() -> None:
    """A shell script that starts the suite in the background makes it ignore SIGINT, and with it everything that it starts; tests send that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
