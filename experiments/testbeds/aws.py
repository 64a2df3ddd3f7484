"""Machines at Amazon: output of `aws ec2 describe-instances`, or lines ADDRESS [NAME [SITE]]."""

import re

import msgspec
from msgspec import Struct

from ares.model.errors import BadInput
from ares.tracing.tree import printable
from experiments.testbeds.reserved import ReservedMachine
from experiments.testbeds.testbed_plan import check_address

AWS_USER = "admin"
"""User of Debian's images; Amazon's own have ``ec2-user``, Ubuntu's have ``ubuntu``."""

_RUNNING = "running"
_SHOWN = 3


class _Tag(Struct, rename="pascal"):
    key: str
    value: str


class _State(Struct, frozen=True, rename="pascal"):
    name: str


class _Placement(Struct, frozen=True, rename="pascal"):
    availability_zone: str = ""


class _Instance(Struct, rename="pascal"):
    instance_id: str
    state: _State
    placement: _Placement = _Placement()
    private_ip_address: str | None = None
    public_ip_address: str | None = None
    public_dns_name: str | None = None
    vpc_id: str | None = None
    tags: list[_Tag] = []


class _Reservation(Struct, rename="pascal"):
    instances: list[_Instance]


class _Description(Struct, rename="pascal"):
    reservations: list[_Reservation]


def machines(content: bytes) -> list[ReservedMachine]:
    """Return the running machines. Raises BadInput for an empty list or another format.

    The machines have inner addresses if all are in the same private network.
    """
    found = _described(content) if content.lstrip()[:1] in (b"{", b"[") else _listed(content)
    if not found:
        raise BadInput("this list has no machine; nothing was written")
    return found


def _described(content: bytes) -> list[ReservedMachine]:
    try:
        reservations = msgspec.json.decode(content, type=_Description).reservations
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadInput(
            f"this is not what `aws ec2 describe-instances --output json` prints: {error}; "
            "nothing was written"
        ) from None
    instances = [instance for reservation in reservations for instance in reservation.instances]
    running = [instance for instance in instances if instance.state.name == _RUNNING]
    if not running and instances:
        states = ", ".join(
            f"{printable(other.instance_id)} is {printable(other.state.name)}"
            for other in instances[:_SHOWN]
        )
        raise BadInput(
            f"none of {len(instances)} instances is running: {states}. Nothing was written"
        )
    together = len({instance.vpc_id for instance in running}) == 1
    return [_machine(instance, together) for instance in running]


def _machine(instance: _Instance, together: bool) -> ReservedMachine:
    names = [tag.value for tag in instance.tags if tag.key == "Name" and tag.value]
    inner, id = instance.private_ip_address, instance.instance_id
    outer = instance.public_ip_address or instance.public_dns_name or inner
    if not outer:
        what = f"instance {printable(id)} runs and has no address"
        raise BadInput(f"{what}; nothing was written")
    site = re.sub(r"(?<=\d)[a-z]$", "", instance.placement.availability_zone) or "aws"
    name, inner = names[0] if names else id, inner if together else None
    return ReservedMachine(name, site, outer, 22, AWS_USER, inner, outer)


def _listed(content: bytes) -> list[ReservedMachine]:
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise BadInput(f"this is no list of machines: {error}; nothing was written") from None
    found: list[ReservedMachine] = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if len(words) > 3:
            what = f"line {number} is {printable(line)!r}, not ADDRESS [NAME [SITE]]"
            raise BadInput(f"{what}; nothing was written")
        if words:
            address, name, site = *words, *("", f"host{len(found)}", "aws")[len(words) :]
            try:
                login = check_address(address)
            except BadInput as error:
                raise BadInput(f"line {number}: {error}; nothing was written") from None
            found.append(ReservedMachine(name, site, login, 22, AWS_USER, None, address))
    return found
