"""A writer of docs/piggyback-counterexample.md from runs of the papers' algorithms.

python -m tests.simulation.counterexample > docs/piggyback-counterexample.md
"""

import sys
from collections.abc import Iterable

from tests.paper.losing_run import losing_run
from tests.paper.read_going_back import ReadGoingBack
from tests.paper.small_scopes import count

TEXT = """# The published piggyback loses a completed write

ARES II (section 5.1) lets a client learn of a new configuration from the replies to get-tag,
get-data and put-data, without a round for this purpose. A server names its successor `nextC` at the
moment when it stores the value. That is too early: a write can complete at a quorum in which no
server names a successor *yet*, while the reconfigurer has finished its search for data without this
write.

## The run

`w` writes, `g` reconfigures from c0 to c1, `r` reads. Both configurations are ABD on s0, s1 and s2.
`t0` is the tag of the initial value v0, `t1` the tag of the write. Ten messages decide:

```mermaid
{losing}
```

The write is stored at s1 and s2; `g` tells s0 and s1 of c1, and asks s0 and s2 for the data. Any
two of these three quorums meet, but s1 stores the write before it hears of c1, and s2 after it was
asked for the data. Hence `g` moves t0. An arrow is a request, with the meaning of its reply. The
picture lacks the messages that decide nothing: the moved data, gc-config, the put-config of `r`,
and the answers of s1 to `r`, which are those of s0. [All messages](#all-messages-of-the-run) are
below. The run has all modifications of ARES II: piggyback, gc-config and batching.

## The step of the proof that fails

Theorem 16 rests on one sentence about Alg. 1: ARES II has "similar behaviour with that of ARES,
even though it unites the read-config operations with the get-tag, get-data and put-data operations
into one communication round". The proof continues: an operation stores its tag "in the last
configuration of its local configuration sequence", and a later operation asks "all the
configurations until the end of that sequence". From Property 1 in each configuration the proof
concludes: the later operation finds the tag.

The conclusion needs more. A later operation that begins after c0 finds the tag only if
update-config (Alg. 5:31) found the tag in c0. In ARES a read-config *follows* the completed
put-data (the struck-out lines 1:21 and 1:44). If this read-config finds no successor at a quorum,
put-config completes after the put-data, and so does the get-data of update-config; by condition C1
of Property 1 update-config finds the tag.

In the united round each server says "no successor" at a moment of its own: s1 before put-config,
and s2 before put-config but *after* the get-data of update-config. Put-data and get-data are
concurrent, and C1 says nothing about concurrent actions. Lemmas 9 to 12 compare the configuration
sequences of successive actions, and do not mention tags.

## Rule R1

Every request that moves data out of a configuration carries the configuration's successor, and a
server installs the successor before its reply. Then each server common to the quorums of put-data
and of get-data either stored the value first, and get-data finds it, or names the successor to the
writer, which goes on to c1. The same schedule with R1:

```mermaid
{mended}
```

s2 names c1 to `w`, and the write completes in c1, in messages that are not in the picture, before
the read begins.

## All schedules

A search over all schedules of a write beside a reconfiguration, and of a read afterwards, on these
three servers (`tests/paper/all_schedules.py`). A schedule is an order in which the servers handle
the requests, together with the replies that arrive in time. In the schedules without gc-config the
reconfiguration ends one round earlier (it lacks Alg. 5:12).

| algorithm | schedules | of them, the write is lost | different states |
|---|---|---|---|
{counts}

## EC-DAP with more than delta writers

Another flaw needs no reconfiguration. A published server forgets the tags dropped from its List
(Alg. 4:20-24). Let n = 4, k = 2 and delta = 1; a quorum is three servers. A write of t2 by `w` is
complete at s0, s1 and s2. Two more writes, by `x` and `y`, reach only s0 and s1, and push t2 out of
their Lists. A read hears s1, s2 and s3, finds t2 in one List and t1 in two Lists, and returns t1:

```mermaid
{going_back}
```

The papers assume at most delta concurrent writes, and a client cannot check the assumption.

Servers of this project report the highest dropped tag, and a read decides only when no dropped tag
can matter (rule R7, `ares/dap/decidable.py`). The same schedule with servers and the reader of this
project, whose request GET-DATA asks for the tags of a List and at most one element:

```mermaid
{settled}
```

s1 may have dropped t2, and s2 has it: these are k servers, hence t2 may be complete, and t1 is no
answer. With the answer of s0 the incomplete t4 is in k Lists, and is above every dropped tag.

## Lines that cannot be taken as printed

The transcription reads these lines otherwise, or adds a case that the paper leaves open:

- Alg. 1:13, 1:37: the maximum has no first value. The transcription begins with t0, and with
  (t0, v0).
- Alg. 2:3: lastC is the last entry of cseq. A client that knows c1 as pending and finds c1 again at
  c0 would make c1 its own successor. lastC is read as the configuration whose servers named nextC.
- Alg. 2:41-42: the message carries `next`, which has no value. `next` is read as cseq[mu], as
  section 5.2 says.
- Alg. 3:15: there is no else. If no tag is in k Lists, get-data fails. More than delta writers
  bring this about, and so do fewer after gc-config: collected servers insert no pairs (Alg. 4:18),
  and their Lists stay as they were.
- Alg. 4:13-14: as printed, a server with a finalized nextC sends List', and then List as well. Line
  14 is read as an else, as section 5.1 says.
- Alg. 4:37: a nextC of bottom has no ID. The ID is read as lower than all others.
- Alg. 5:32: tau has no value. tau is read as t of line 31.
- Alg. 5:34: the maximum does not leave out bottom, and bottom cannot be encoded for put-data. The
  line is read as Alg. 1:37, which leaves bottom out.

The paper prints no ABD-DAP II: "similar modifications are applied to the ABD-DAP". The paper's
primitives and messages name no object; each of the transcription names one.

## Modifications that need the piggyback

Two modifications of ARES II lose completed writes where a client does not piggyback. The simulator
found both, as random runs of the transcription (scenarios `ares-2022` and `ares-2`). In both, a
read without piggyback ends its read-config before c0 has a successor, and asks c0 for its pairs
when c1 is finalized. Such a read does not look at the nextC of its get-data, and does not go on.

- EC-DAP II (Alg. 4:10-12): the servers of c0 withhold their elements once c1 is finalized. The read
  finds no value and returns v0, although c0 has every element. ARES of 2022 has EC-DAP, whose
  servers send them. Hence, without piggyback, a client of the transcription asks for whole Lists.
- Garbage collection (section 5.2): the servers of c0 have no elements after gc-config. No request
  can mend this: gc needs the piggyback at every client. The paper names no such condition.

## Servers of this project beside Algorithm 4

The search over all schedules has servers of Alg. 4 (`ares/testing/published/alg4.py`). The runs,
random schedules and experiments have the servers of this project, which answer the same but
for four points:

- (t0, v0) is in a List without being stored.
- A server refuses a second configuration at an index (rule R2).
- After gc-config a server forgets the tags, where Alg. 4:39-41 keep each with bottom. The List is
  empty, and a get-data of the transcription takes an empty List as bottom.
- A server refuses QUERY-LIST for a List with an element that rotted on its disk.

## All messages of the run

The run is of the algorithms to the letter (`ares/testing/published`), but for the readings above,
on the servers of this project. An arrow is a request or a reply. Requests outside of the picture
arrive after its end, or never.

```mermaid
{losing_whole}
```

With rule R1:

```mermaid
{mended_whole}
```

The page is written by `python -m tests.simulation.counterexample`. Tests:
`tests/paper/test_lost_write.py`, `tests/paper/test_transcription.py`.
"""

SEARCHES = {
    "ARES II as printed": (False, True),
    "ARES II with rule R1": (True, True),
    "ARES II without gc-config": (False, False),
    "ARES II without gc-config, with rule R1": (True, False),
}
"""Whether each search has rule R1, and whether it has gc-config."""


def row(name: str) -> str:
    """Return the row of a search. Those with gc-config take a processor for half a minute."""
    found, states = count(*SEARCHES[name])
    return f"| {name} | {found.schedules:,} | {found.broken:,} | {states:,} |"


def page(rows: Iterable[str]) -> str:
    """Return the document with these rows of searches."""
    losing, mended = losing_run(r1=False), losing_run(r1=True)
    return TEXT.format(
        losing=_drawn("w g s0 s1 s2 r", losing.decisive),
        mended=_drawn("w g s0 s1 s2 r", mended.decisive),
        losing_whole=_drawn("w g s0 s1 s2 r", losing.lines),
        mended_whole=_drawn("w g s0 s1 s2 r", mended.lines),
        going_back=_drawn("w x y s0 s1 s2 s3 r", ReadGoingBack().as_published().diagram),
        settled=_drawn("w x y s0 s1 s2 s3 r", ReadGoingBack().with_r7().diagram),
        counts="\n".join(rows),
    )


def _drawn(participants: str, lines: list[str]) -> str:
    named = [f"participant {name}" for name in participants.split()]
    return "\n".join(["sequenceDiagram", *(f"    {line}" for line in (*named, *lines))])


if __name__ == "__main__":
    sys.stdout.write(page(map(row, SEARCHES)))
