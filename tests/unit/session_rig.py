"""A session whose clock, network and shell are the test, and operations for the session."""

from ares.engine.effects import Gather, Pause
from ares.engine.session import Session
from ares.model.configuration import Configuration
from ares.model.errors import ConfigurationRefused
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import ReadConfig

C = Configuration.abd(["s0", "s1", "s2"]).at(DEFAULT_DOMAIN, 0)


class Rig:
    """A session whose clock and network are the test."""

    def __init__(self) -> None:
        self.session, self.now, self.ends = Session(), 0.0, []

    def start(self, operation, timeout_s=30.0, label="a job", **more):
        return self.session.start(
            operation,
            label,
            self.now,
            timeout_s,
            lambda value, error: self.ends.append((label, value, error)),
            **more,
        )

    def sent(self):
        return {server: list(messages) for server, messages in self.session.take_outbox().items()}

    def reply(self, server, *messages):
        self.session.receive(server, messages, self.now)

    def tick(self, seconds):
        self.now += seconds
        self.session.tick(self.now)

    @property
    def value(self):
        assert len(self.ends) == 1
        assert self.ends[0][2] is None
        return self.ends[0][1]

    @property
    def error(self):
        assert len(self.ends) == 1
        return self.ends[0][2]


def gather(**more):
    return Gather(C, lambda call: ReadConfig(call, C.id), "get-next-config", **more)


def once(**more):
    answers = yield gather(**more)
    return sorted(answers)


def sleeper(seconds, log, name, fails=False):
    try:
        yield Pause(seconds)
    except GeneratorExit:
        log.append(f"{name} closed")
        raise
    log.append(name)
    if fails:
        raise ConfigurationRefused(name)
