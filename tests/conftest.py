"""Settings of the whole suite: speed of the machine and start of the suite must not decide."""

import signal

from hypothesis import HealthCheck, settings

from . import ports

# Time is no property, and examples are the same every time, as in the simulated runs of CI.
# `--hypothesis-profile=hunt` looks for new examples.
settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("hunt", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

ports.stay_in_lane()


def pytest_configure() -> None:
    """Restore SIGINT, which tests send.

    A shell script that starts the suite in the background makes the suite ignore SIGINT, and all
    its children as well.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
