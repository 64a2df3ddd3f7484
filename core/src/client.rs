//! The client half: small reads and writes in a known configuration, or in a finalized one and its
//! pending successor while a domain moves, with the calls, requests, bytes and results of
//! ares/registers/operations.py and ares/engine/session.py.
//! An unusual operation goes to the Python session in its last usual state ([`FastOperation`]):
//! after news of another configuration, a refusal, differing tags or a missing element, at a resend
//! or deadline. Calls, tags and readiness are the session's. The state is locked for moments only,
//! and never while Python may run: `done` begins new operations.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySet, PyString, PyTuple};

use crate::DOOR;
use crate::coding::{self, Headers};
use crate::constants::*;
use crate::wire::{self, Cursor, Element, Tag};

type Any<'py> = Bound<'py, PyAny>;
type Held = Py<PyAny>;

/// Room kept in a server's slot after the messages were sent.
const CHUNK_KEPT_BYTES: usize = 64 * 1024;
/// Lengths of values whose fragments' headers are kept.
const LENGTHS_KNOWN_MAX: usize = 256;
/// Pending successors whose bytes in replies are known.
const SUCCESSORS_KNOWN_MAX: usize = 64;
/// Room for the answers of most operations.
const ANSWERS_BYTES: usize = 256;
const ANSWERS: usize = 8;
/// Text that no domain's name has: separates domain and object in the name of a queue of writes.
const BETWEEN: &str = RESERVED;
const NEVER_WRITTEN: Tag = Tag { number: 0, writer: 0 };

// -- replies --------------------------------------------------------------------------------------

#[derive(Clone, Copy)]
enum Reply<'a> {
    Tag(Tag),
    Data(Data<'a>),
    Ack,
    /// Any other reply, and a reply with times.
    Other,
}

#[derive(Clone, Copy)]
struct Data<'a> {
    newest: Option<Tag>,
    length: i64,
    trimmed: Tag,
    element: Option<Element<'a>>,
    preceding: bool,
}

/// A reply. `successor`: the bytes of its successor, unchecked; none: empty.
#[derive(Clone, Copy)]
struct Message<'a> {
    call: u64,
    reply: Reply<'a>,
    successor: &'a [u8],
    bytes: &'a [u8],
}

/// The messages of a batch's first frame, or None: the Python twin checks any unknown form.
fn messages(frame: &[u8]) -> Option<Vec<Message<'_>>> {
    let mut cursor = Cursor::new(frame, 1);
    let count = if *frame.first()? == WIRE_VERSION { cursor.array()? } else { return None };
    if count > BATCH_MESSAGES_MAX || frame.len() > HEADER_BYTES_MAX {
        return None;
    }
    let mut found = Vec::with_capacity(count);
    for _ in 0..count {
        found.push(message(&mut cursor)?);
    }
    if cursor.at == frame.len() { Some(found) } else { None }
}

fn message<'a>(cursor: &mut Cursor<'a>) -> Option<Message<'a>> {
    let start = cursor.at;
    let (call, reply, successor) = match reply(cursor) {
        Some(found) => found,
        None => {
            cursor.at = start;
            cursor.array()?;
            cursor.unsigned()?;
            let call = cursor.unsigned()?;
            cursor.at = start;
            cursor.skip()?;
            (call, Reply::Other, &[][..])
        }
    };
    Some(Message { call, reply, successor, bytes: &cursor.data[start..cursor.at] })
}

fn reply<'a>(cursor: &mut Cursor<'a>) -> Option<(u64, Reply<'a>, &'a [u8])> {
    let count = cursor.array()?;
    let (kind, call) = (cursor.unsigned()?, cursor.unsigned()?);
    let mut reply = match (kind, count) {
        (TAG_REPLY, 5) => Reply::Tag(cursor.tag()?),
        (DATA_REPLY, 9) => Reply::Data(data(cursor)?),
        (ACK, 4) => Reply::Ack,
        _ => return None,
    };
    let start = cursor.at;
    let successor = if cursor.is_nil()? {
        &[][..]
    } else {
        cursor.skip()?;
        &cursor.data[start..cursor.at]
    };
    if let Reply::Data(data) = &mut reply {
        data.preceding = cursor.boolean()?;
    }
    cursor.nil()?; // not traced
    Some((call, reply, successor))
}

fn data<'a>(cursor: &mut Cursor<'a>) -> Option<Data<'a>> {
    let (count, mut newest) = (cursor.array()?, None);
    if count > DELTA_MAX + 1 {
        return None;
    }
    for _ in 0..count {
        let tag = cursor.tag()?;
        newest = newest.or(Some(tag));
    }
    let (length, trimmed) = (cursor.value_length()?, cursor.tag()?);
    let element = if cursor.is_nil()? { None } else { Some(cursor.element()?) };
    Some(Data { newest, length, trimmed, element, preceding: false })
}

// -- operations under way -------------------------------------------------------------------------

/// The order of servers in a turn (ares/engine/readiness.py). `wanted`: bits of element senders.
struct Order {
    python: Held,
    first: Vec<usize>,
    spared: Vec<usize>,
    wanted: u64,
}

/// The orders of a turn: for large values, and for others.
type Orders = [Option<(u64, Arc<Order>)>; 2];

/// A known configuration. `servers`: indexes among the client's servers. `pending`: its successor,
/// if known, as replies tell it.
struct Place {
    configuration: Held,
    id: Vec<u8>,
    id_given: Held,
    servers: Vec<usize>,
    quorum: usize,
    k: usize,
    dap: Held,
    coding: Option<Coding>,
    preferred: usize,
    pending: Option<Pending>,
    orders: Mutex<Orders>,
}

struct Pending {
    python: Held,
    bytes: Vec<u8>,
}

/// The configurations asked by an operation: the last finalized, and its pending successor, if any.
type Places = Arc<[Arc<Place>]>;

/// Erasure coding. `own`: small elements are coded here; headers depend on the value's length only.
struct Coding {
    python: Held,
    more_bytes: usize,
    own: bool,
    headers: Mutex<HashMap<usize, Arc<Headers>>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Waiting,
    GetData,
    GetTag,
    PutData,
}

/// The fields of a write. `highest`: the number found by the get-tag, once complete.
struct Write {
    queue: String,
    value: Py<PyBytes>,
    taken: Option<Held>,
    before: u64,
    highest: Option<u64>,
    tag: Tag,
}

/// An operation with its rounds, begun together: one in each configuration, with calls in order.
struct Operation {
    objects: Py<SmallObjects>,
    _counted: Arc<()>,
    object: Py<PyString>,
    done: Held,
    timeout_s: f64,
    deadline: f64,
    write: Option<Write>,
    phase: Phase,
    rounds: Vec<Round>,
    started: f64,
    resend_at: f64,
}

impl Operation {
    fn begin(&mut self, phase: Phase, now: f64, resend_after_s: f64) {
        self.phase = phase;
        self.started = now;
        self.resend_at = now + resend_after_s;
    }

    /// The call of the first round, which names the operation.
    fn call(&self) -> u64 {
        self.rounds.first().map_or(0, |round| round.call)
    }

    fn position(&self, call: u64) -> Option<usize> {
        self.rounds.iter().position(|round| round.call == call)
    }
}

struct Round {
    place: Arc<Place>,
    call: u64,
    order: Arc<Order>,
    unasked: bool,
    /// The replies that count, joined, and the positions of their servers.
    answers: Vec<u8>,
    answered: Vec<u8>,
    /// The result, once a quorum has answered.
    found: Option<Answer>,
}

impl Round {
    fn new(place: Arc<Place>, call: u64, order: Arc<Order>) -> Self {
        Round {
            place,
            call,
            unasked: !order.spared.is_empty(),
            order,
            answers: Vec::with_capacity(ANSWERS_BYTES),
            answered: Vec::with_capacity(ANSWERS),
            found: None,
        }
    }

    fn keep(&mut self, position: u8, bytes: &[u8]) {
        self.answers.extend_from_slice(bytes);
        self.answered.push(position);
    }

    fn replies(&self) -> impl Iterator<Item = Message<'_>> {
        let mut cursor = Cursor::new(&self.answers, 0);
        self.answered.iter().map_while(move |_| message(&mut cursor))
    }
}

/// The result of a round (ares/dap/primitives.py): `TagResult.tag.number`, or of `DataResult`.
enum Answer {
    Highest(u64),
    Version { tag: Tag, length: i64, value: Held, told: bool, lasting: bool },
}

/// A server, and the messages to be sent to the server.
struct Slot {
    name: Py<PyString>,
    chunk: Vec<u8>,
    count: usize,
    last: u64,
}

impl Slot {
    /// Take the messages to be sent, as the first frame of a batch.
    fn take<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut frame = Vec::with_capacity(self.chunk.len() + 6);
        frame.push(WIRE_VERSION);
        wire::put_array(&mut frame, self.count);
        frame.extend_from_slice(&self.chunk);
        self.chunk.clear();
        self.chunk.shrink_to(CHUNK_KEPT_BYTES);
        self.count = 0;
        PyBytes::new(py, &frame)
    }
}

#[derive(Default)]
struct State {
    closed: bool,
    turn: u64,
    slots: Vec<Slot>,
    by_name: HashMap<String, usize>,
    /// By the call of their first round.
    operations: BTreeMap<u64, Box<Operation>>,
    /// For each object under a write, the writes that follow.
    queues: HashMap<String, VecDeque<Box<Operation>>>,
    scratch: Vec<u8>,
    /// Bytes of pending successors, as replies tell them, the newest last.
    successors: VecDeque<Vec<u8>>,
}

impl State {
    /// The name of the operation with a round of this call, and the position of the round.
    fn find(&self, call: u64) -> Option<(u64, usize)> {
        let (name, operation) = self.operations.range(..=call).next_back()?;
        Some((*name, operation.position(call)?))
    }

    /// Append a message for servers; put the servers without earlier messages into `fresh`.
    fn post(
        &mut self,
        place: &Place,
        positions: impl Iterator<Item = usize>,
        message: &[u8],
        call: u64,
        fresh: &mut Vec<usize>,
    ) {
        for position in positions {
            let slot = &mut self.slots[place.servers[position]];
            if slot.count == 0 {
                fresh.push(place.servers[position]);
            }
            slot.chunk.extend_from_slice(message);
            slot.count += 1;
            slot.last = call;
        }
    }

    /// Send the query of a round to `positions`; put the servers without earlier messages into
    /// `fresh`.
    fn post_query(
        &mut self,
        phase: Phase,
        round: &Round,
        object: &str,
        positions: &[usize],
        fresh: &mut Vec<usize>,
    ) {
        let (place, call, order) = (&round.place, round.call, &round.order);
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        if phase == Phase::GetTag {
            head(&mut message, 5, GET_TAG, call, &place.id, object);
            wire::put_nil(&mut message);
            self.post(place, positions.iter().copied(), &message, call, fresh);
        } else {
            head(&mut message, 9, GET_DATA, call, &place.id, object);
            let flag = message.len();
            for _ in 0..5 {
                wire::put_nil(&mut message);
            }
            for &position in positions {
                message[flag] = wire::boolean(order.wanted >> position & 1 == 1);
                self.post(place, std::iter::once(position), &message, call, fresh);
            }
        }
        self.scratch = message;
    }
}

fn head(
    message: &mut Vec<u8>,
    count: usize,
    kind: u64,
    call: u64,
    configuration: &[u8],
    object: &str,
) {
    wire::put_array(message, count);
    wire::put_unsigned(message, kind);
    wire::put_unsigned(message, call);
    wire::put_binary(message, configuration);
    wire::put_text(message, object);
}

// -- Python's view --------------------------------------------------------------------------------

/// An operation for the Python session (ares/engine/takeover.py); without rounds, one that waits.
#[pyclass(frozen, get_all, module = "ares._core")]
pub struct FastOperation {
    make: Held,
    settle: Option<Held>,
    domain: Held,
    object: Py<PyString>,
    value: Option<Py<PyBytes>>,
    done: Held,
    timeout_s: f64,
    deadline: f64,
    rounds: Vec<Py<FastRound>>,
    started: f64,
    taken: Option<Held>,
    before: u64,
    highest: Option<u64>,
}

/// A round of an operation for the Python session.
#[pyclass(frozen, get_all, module = "ares._core")]
pub struct FastRound {
    configuration: Held,
    call: u64,
    order: Held,
    unasked: bool,
    answers: Py<PyDict>,
    ended: bool,
}

/// The small operations of a session, and their messages.
#[pyclass(frozen, module = "ares._core")]
pub struct ClientCore {
    state: Mutex<State>,
    /// A counter: each operation has a copy, also an operation that waits for its turn.
    counted: Arc<()>,
    decode_replies: Held,
    decode_own: Held,
    encode: Held,
    tag: Held,
    found: Held,
    tombstone: Held,
}

/// The objects of a domain: the entry of small reads and writes.
#[pyclass(frozen, module = "ares._core")]
pub struct SmallObjects {
    client: Py<ClientCore>,
    session: Held,
    view: Held,
    make: Held,
    shell: Option<Shell>,
    settle: Option<Held>,
    domain: Held,
    domain_text: String,
    writer: u64,
    sequence: Held,
    tags: Held,
    readiness: Held,
    queues: Py<PyDict>,
    jobs: Py<PyDict>,
    met: Py<PySet>,
    known: Mutex<Option<Places>>,
}

/// The session's surroundings on an event loop: makes futures, and posts messages.
#[derive(FromPyObject)]
struct Shell {
    create_future: Held,
    schedule: Held,
}

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SmallObjects {
    /// The active configurations, if the core runs operations in them: the only one, or the last
    /// finalized and its successor, pending at a quorum (rule R3).
    fn places(&self, py: Python<'_>) -> PyResult<Option<Places>> {
        let sequence = self.sequence.bind(py);
        let last = sequence.getattr(intern!(py, "last_known"))?;
        let finalized = sequence.getattr(intern!(py, "last_finalized"))?;
        if let Some(places) = locked(&self.known).as_ref().filter(|places| {
            places[0].configuration.is(&finalized)
                && places[places.len() - 1].configuration.is(&last)
        }) {
            return Ok(Some(places.clone()));
        }
        let mut found = Vec::new();
        if !finalized.is(&last) {
            let pending = sequence.getattr(intern!(py, "pending"))?;
            if pending.is_none() {
                return Ok(None);
            }
            let bytes = self.client.get().know(&pending)?;
            found.push(self.place(&finalized, Some(Pending { bytes, python: pending.unbind() }))?);
        }
        found.push(self.place(&last, None)?);
        let Some(places) = found.into_iter().collect::<Option<Places>>() else { return Ok(None) };
        let before = locked(&self.known).replace(places.clone());
        drop(before);
        Ok(Some(places))
    }

    /// The place of a configuration, if the servers of the session were told of it.
    fn place(&self, given: &Any<'_>, pending: Option<Pending>) -> PyResult<Option<Arc<Place>>> {
        let py = given.py();
        let id = given.getattr(intern!(py, "id"))?;
        let names: Vec<Bound<PyString>> = given.getattr(intern!(py, "server_ids"))?.extract()?;
        if !self.met.bind(py).contains(&id)? || names.len() > SERVERS_MAX {
            return Ok(None);
        }
        let dap = self.view.bind(py).call_method1(intern!(py, "dap"), (given,))?;
        let coded = given.getattr(intern!(py, "dap"))?.eq("ec")?;
        Ok(Some(Arc::new(Place {
            id: id.extract()?,
            servers: self.client.get().slots(names)?,
            quorum: given.getattr(intern!(py, "quorum_size"))?.extract()?,
            k: given.getattr(intern!(py, "k"))?.extract()?,
            coding: if coded {
                Some(Coding::of(given, dap.getattr(intern!(py, "coding"))?)?)
            } else {
                None
            },
            preferred: dap.getattr(intern!(py, "holding_value"))?.extract()?,
            configuration: given.clone().unbind(),
            id_given: id.unbind(),
            dap: dap.unbind(),
            pending,
            orders: Mutex::default(),
        })))
    }

    fn order(&self, py: Python<'_>, place: &Place, reads: bool) -> PyResult<Arc<Order>> {
        let large = reads
            && place.preferred > 0
            && place.dap.bind(py).getattr(intern!(py, "large"))?.is_truthy()?;
        let turn = locked(&self.client.get().state).turn;
        if let Some((_, order)) =
            locked(&place.orders)[usize::from(large)].as_ref().filter(|(as_of, _)| *as_of == turn)
        {
            return Ok(order.clone());
        }
        let preferred = if large { place.preferred } else { 0 };
        let python = self
            .readiness
            .bind(py)
            .call_method1(intern!(py, "order"), (&place.configuration, preferred))?;
        let positions: Vec<usize> = python.getattr(intern!(py, "positions"))?.extract()?;
        let spared = python.getattr(intern!(py, "spared"))?.len()?;
        let order = Arc::new(Order {
            first: python.getattr(intern!(py, "first"))?.extract()?,
            spared: positions.iter().copied().skip(place.quorum).take(spared).collect(),
            wanted: positions.iter().take(place.k).fold(0, |bits, position| bits | 1 << position),
            python: python.unbind(),
        });
        let before = locked(&place.orders)[usize::from(large)].replace((turn, order.clone()));
        drop(before);
        Ok(order)
    }

    fn begin(
        slf: &Bound<'_, Self>,
        key: &Any<'_>,
        value: Option<Py<PyBytes>>,
        done: Option<Held>,
        now: f64,
        timeout_s: f64,
    ) -> PyResult<Option<Held>> {
        let (py, objects) = (slf.py(), slf.get());
        let Ok(object) = key.cast_exact::<PyString>() else { return Ok(None) };
        let Ok(name) = object.to_str() else { return Ok(None) };
        if name.is_empty() || name.len() > KEY_BYTES_MAX || name.starts_with(RESERVED) {
            return Ok(None);
        }
        let Some(places) =
            objects.places(py)?.filter(|_| !locked(&objects.client.get().state).closed)
        else {
            return Ok(None);
        };
        let client = objects.client.get();
        if objects.jobs.bind(py).len() + Arc::strong_count(&client.counted) > OPERATIONS_MAX {
            return Ok(None);
        }
        let mut write = None;
        if let Some(value) = value {
            let queues = objects.queues.bind(py);
            if value.as_bytes(py).len() >= DETACHED_BYTES_MIN
                || (!queues.is_empty() && queues.contains((&objects.domain, object))?)
            {
                return Ok(None);
            }
            let queue = [&objects.domain_text, name].join(BETWEEN);
            write = Some(Write {
                queue,
                value,
                taken: None,
                before: 0,
                highest: None,
                tag: NEVER_WRITTEN,
            });
        }
        let future =
            || objects.shell.as_ref().map(|shell| shell.create_future.call0(py)).transpose();
        let Some(done) = done.map_or_else(future, |done| Ok(Some(done)))? else { return Ok(None) };
        let handle = done.clone_ref(py);
        let operation = Box::new(Operation {
            objects: slf.clone().unbind(),
            _counted: client.counted.clone(),
            object: object.clone().unbind(),
            done,
            timeout_s,
            deadline: now + timeout_s,
            write,
            phase: Phase::Waiting,
            rounds: Vec::with_capacity(places.len()),
            started: now,
            resend_at: now,
        });
        if let Some(write) = &operation.write {
            let mut state = locked(&client.state);
            if let Some(queue) = state.queues.get_mut(&write.queue) {
                queue.push_back(operation);
                return Ok(Some(handle));
            }
            state.queues.insert(write.queue.clone(), VecDeque::new());
        }
        let more = client.query(py, operation, &places, now)?;
        if let (true, Some(shell)) = (more, &objects.shell) {
            shell.schedule.call0(py)?;
        }
        Ok(Some(handle))
    }
}

#[pymethods]
impl SmallObjects {
    /// Begin a read for `done`, or for a new future, and return it; None: the core does no such
    /// read.
    fn read(
        slf: &Bound<'_, Self>,
        key: &Any<'_>,
        done: Option<Held>,
        now: f64,
        timeout_s: f64,
    ) -> PyResult<Option<Held>> {
        Self::begin(slf, key, None, done, now, timeout_s)
    }

    /// Begin a write, as `read` begins a read.
    fn write(
        slf: &Bound<'_, Self>,
        key: &Any<'_>,
        value: &Any<'_>,
        done: Option<Held>,
        now: f64,
        timeout_s: f64,
    ) -> PyResult<Option<Held>> {
        let Ok(value) = value.cast_exact::<PyBytes>() else { return Ok(None) };
        Self::begin(slf, key, Some(value.clone().unbind()), done, now, timeout_s)
    }

    /// For the garbage collector: the shell around the session holds this object.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for held in
            [&self.session, &self.view, &self.make, &self.sequence, &self.tags, &self.readiness]
        {
            visit.call(held)?;
        }
        visit.call(&self.queues)?;
        visit.call(&self.jobs)?;
        visit.call(&self.met)?;
        self.shell
            .iter()
            .flat_map(|shell| [&shell.create_future, &shell.schedule])
            .try_for_each(|held| visit.call(held))
    }
}

impl ClientCore {
    fn slots(&self, names: Vec<Bound<'_, PyString>>) -> PyResult<Vec<usize>> {
        let mut found = Vec::with_capacity(names.len());
        let mut state = locked(&self.state);
        for name in names {
            let text = name.to_str()?;
            let next = state.slots.len();
            let slot = *state.by_name.entry(text.to_owned()).or_insert(next);
            if slot == next {
                state.slots.push(Slot {
                    name: name.clone().unbind(),
                    chunk: Vec::new(),
                    count: 0,
                    last: 0,
                });
            }
            found.push(slot);
        }
        Ok(found)
    }

    /// Return the bytes of a pending successor, and take them in replies for checked.
    fn know(&self, pending: &Any<'_>) -> PyResult<Vec<u8>> {
        let bytes: Vec<u8> = self.encode.bind(pending.py()).call1((pending,))?.extract()?;
        let successors = &mut locked(&self.state).successors;
        if !successors.contains(&bytes) {
            if successors.len() >= SUCCESSORS_KNOWN_MAX {
                successors.pop_front();
            }
            successors.push_back(bytes.clone());
        }
        Ok(bytes)
    }

    /// Enter these servers into the session's outbox, in this order.
    fn enter(&self, session: &Any<'_>, fresh: &[usize]) -> PyResult<()> {
        for slot in fresh {
            let name = locked(&self.state).slots[*slot].name.clone_ref(session.py());
            session.getattr(intern!(session.py(), "outbox"))?.get_item(name)?;
        }
        Ok(())
    }

    /// Begin an operation's first rounds; return whether a server had no earlier message.
    fn query(
        &self,
        py: Python<'_>,
        mut operation: Box<Operation>,
        places: &Places,
        now: f64,
    ) -> PyResult<bool> {
        let objects_kept = operation.objects.clone_ref(py);
        let objects = objects_kept.get();
        let session = objects.session.bind(py);
        let reads = operation.write.is_none();
        let begun = places.iter().map(|place| objects.order(py, place, reads)).collect();
        let begun: PyResult<Vec<Arc<Order>>> = begun;
        let begun = begun.and_then(|orders| {
            if let Some(write) = &mut operation.write {
                let tags = objects.tags.bind(py);
                let taken = tags.call_method1(intern!(py, "begin"), (&operation.object,))?;
                write.taken = Some(taken.unbind());
            }
            for (place, order) in places.iter().zip(orders) {
                operation.rounds.push(Round::new(place.clone(), next_call(session)?, order));
            }
            Ok(())
        });
        if begun.is_err() {
            operation.rounds.clear();
            return self.give(session, operation).map(|()| true);
        }
        let phase = if reads { Phase::GetData } else { Phase::GetTag };
        operation.begin(phase, now, ROUND_RESEND_S);
        let object_kept = operation.object.clone_ref(py);
        let (object, mut fresh) = (object_kept.to_str(py)?, Vec::new());
        {
            let mut state = locked(&self.state);
            for round in &operation.rounds {
                state.post_query(phase, round, object, &round.order.first, &mut fresh);
            }
            state.operations.insert(operation.call(), operation);
        }
        self.enter(session, &fresh)?;
        Ok(!fresh.is_empty())
    }

    /// Count a reply. `Quorum`: a round is complete; `Unusual`: the session must handle it.
    fn count(&self, server: usize, message: &Message<'_>) -> Counted {
        let mut state = locked(&self.state);
        let Some((name, index)) = state.find(message.call) else { return Counted::NotHere };
        let Some(operation) = state.operations.get_mut(&name) else { return Counted::NotHere };
        let (phase, round) = (operation.phase, &mut operation.rounds[index]);
        if round.found.is_some() {
            return Counted::Taken;
        }
        match (message.reply, phase) {
            (Reply::Other, _) => return Counted::Unusual,
            (Reply::Tag(_), Phase::GetTag)
            | (Reply::Data(_), Phase::GetData)
            | (Reply::Ack, Phase::PutData) => {}
            _ => return Counted::Taken,
        }
        let known = round.place.pending.as_ref().map_or(&[][..], |pending| &pending.bytes);
        if !message.successor.is_empty() && message.successor != known {
            return Counted::Unusual;
        }
        let Some(position) = round.place.servers.iter().position(|slot| *slot == server) else {
            return Counted::Taken;
        };
        let position = position as u8;
        if round.answered.contains(&position) {
            return Counted::Taken;
        }
        if round.answered.len() + 1 < round.place.quorum {
            round.keep(position, message.bytes);
            return Counted::Taken;
        }
        let operation = state.operations.remove(&name);
        operation.map_or(Counted::NotHere, |operation| Counted::Quorum(operation, index, position))
    }

    /// Continue after a quorum, complete with `last`. Return an operation left to the session.
    fn conclude(
        &self,
        session: &Any<'_>,
        mut operation: Box<Operation>,
        (index, position, last): (usize, u8, &Message<'_>),
        now: f64,
    ) -> PyResult<Option<Box<Operation>>> {
        if operation.phase == Phase::PutData {
            return self.conclude_write(session, operation, now);
        }
        let Some(found) = self.found(session.py(), &operation, index, last)? else {
            return Ok(Some(operation));
        };
        operation.rounds[index].found = Some(found);
        if operation.rounds.iter().any(|round| round.found.is_none()) {
            learn_usual(session, now - operation.started)?;
            operation.rounds[index].keep(position, last.bytes);
            locked(&self.state).operations.insert(operation.call(), operation);
            return Ok(None);
        }
        let mut left = if operation.phase == Phase::GetData {
            self.conclude_read(session, operation, now)?
        } else {
            self.conclude_query(session, operation, now)?
        };
        if let Some(operation) = &mut left {
            operation.rounds[index].found = None;
        }
        Ok(left)
    }

    /// The result of a round, complete with `last`; None: the Python twin finds more.
    fn found(
        &self,
        py: Python<'_>,
        operation: &Operation,
        index: usize,
        last: &Message<'_>,
    ) -> PyResult<Option<Answer>> {
        let round = &operation.rounds[index];
        let place = &round.place;
        let replies: Vec<Message<'_>> = round.replies().chain(std::iter::once(*last)).collect();
        if operation.phase == Phase::GetTag {
            let tags = replies
                .iter()
                .map(|message| if let Reply::Tag(tag) = message.reply { tag.number } else { 0 });
            return Ok(Some(Answer::Highest(tags.max().unwrap_or(0))));
        }
        let datas: Vec<Data<'_>> = replies
            .iter()
            .filter_map(
                |message| if let Reply::Data(data) = message.reply { Some(data) } else { None },
            )
            .collect();
        let (tag, length, value) = match settled(place, &datas, operation.object.to_str(py)?) {
            None => return Ok(None),
            Some((tag, DELETED_LENGTH, _)) => (tag, DELETED_LENGTH, self.tombstone.clone_ref(py)),
            Some((tag, length, elements)) => match decoded(py, place, length, elements)? {
                None => return Ok(None),
                Some(value) => (tag, length, value),
            },
        };
        if place.preferred > 0 {
            place.dap.bind(py).setattr(intern!(py, "large"), false)?;
        }
        let told = replies.iter().any(|message| !message.successor.is_empty());
        let lasting = tag == NEVER_WRITTEN
            || replies
                .iter()
                .zip(&datas)
                .all(|(message, data)| data.preceding || message.successor.is_empty());
        Ok(Some(Answer::Version { tag, length, value, told, lasting }))
    }

    /// Give the newest version (`newest`), at a quorum to stay (`at_quorum`).
    fn conclude_read(
        &self,
        session: &Any<'_>,
        mut operation: Box<Operation>,
        now: f64,
    ) -> PyResult<Option<Box<Operation>>> {
        let py = session.py();
        let versions = operation.rounds.iter().enumerate().filter_map(|(index, round)| {
            if let Some(Answer::Version { tag, lasting, .. }) = round.found {
                Some((tag, index, lasting))
            } else {
                None
            }
        });
        let versions: Vec<_> = versions.collect();
        let newest = versions.iter().map(|(tag, index, _)| (*tag, *index)).max();
        let Some((tag, index)) = newest.filter(|(newest, _)| {
            versions.iter().any(|(tag, _, lasting)| *lasting && tag == newest)
        }) else {
            return Ok(Some(operation));
        };
        let place = operation.rounds[index].place.clone();
        let Some(Answer::Version { length, value, told, lasting, .. }) =
            operation.rounds[index].found.take()
        else {
            return Ok(Some(operation));
        };
        learn_usual(session, now - operation.started)?;
        let result = if operation.objects.get().shell.is_some() {
            value.into_bound(py)
        } else {
            let tag = self.tag.bind(py).call1((tag.number, tag.writer))?;
            let successor = place.pending.as_ref().filter(|_| told);
            self.found.bind(py).call1((
                &tag,
                value,
                length,
                &tag,
                true,
                successor.map(|pending| &pending.python),
                &place.id_given,
                lasting,
            ))?
        };
        finish(&operation, result)?;
        Ok(None)
    }

    fn conclude_query(
        &self,
        session: &Any<'_>,
        mut operation: Box<Operation>,
        now: f64,
    ) -> PyResult<Option<Box<Operation>>> {
        let py = session.py();
        let highest = |round: &Round| {
            if let Some(Answer::Highest(number)) = round.found { Some(number) } else { None }
        };
        let highest = operation.rounds.iter().filter_map(highest).max().unwrap_or(0);
        let Some((place, order)) =
            operation.rounds.last().map(|round| (round.place.clone(), round.order.clone()))
        else {
            return Ok(Some(operation));
        };
        let objects_kept = operation.objects.clone_ref(py);
        let objects = objects_kept.get();
        let Some(Write { value, taken: Some(taken), .. }) = &operation.write else {
            return Ok(Some(operation));
        };
        let taken = taken.clone_ref(py).into_bound(py);
        let before: u64 = taken.getattr(intern!(py, "number"))?.extract()?;
        if highest.max(before) == NUMBER_LAST {
            return Ok(Some(operation));
        }
        let value = value.clone_ref(py);
        let value = value.as_bytes(py);
        let object_kept = operation.object.clone_ref(py);
        let object = object_kept.to_str(py)?;
        let tag = Tag { number: highest.max(before) + 1, writer: objects.writer };
        let fragments = match &place.coding {
            None => None,
            Some(coding) => match coding.encoded(py, place.k, value) {
                Ok(fragments) => Some(fragments),
                Err(_) => return Ok(Some(operation)), // the Python twin gives the error
            },
        };
        let Some(elements) = elements(&place, object, tag, value, fragments.as_deref()) else {
            return Ok(Some(operation));
        };
        learn_usual(session, now - operation.started)?;
        taken.setattr(intern!(py, "number"), tag.number)?;
        let call = next_call(session)?;
        let size = elements[0].bytes().len() * place.servers.len();
        let resend_after_s = ROUND_RESEND_S + size as f64 / SEND_BYTES_PER_S_EXPECTED;
        operation.begin(Phase::PutData, now, resend_after_s);
        operation.rounds.clear();
        operation.rounds.push(Round { unasked: false, ..Round::new(place.clone(), call, order) });
        if let Some(write) = &mut operation.write {
            (write.before, write.highest, write.tag) = (before, Some(highest), tag);
        }
        let (mut fresh, mut message) = (Vec::new(), Vec::new());
        {
            let mut state = locked(&self.state);
            for (index, element) in elements.iter().enumerate() {
                message.clear();
                head(&mut message, 7, PUT_DATA, call, &place.id, object);
                wire::put_tag(&mut message, tag);
                wire::put_element(&mut message, element);
                wire::put_nil(&mut message);
                let positions =
                    if elements.len() == 1 { 0..place.servers.len() } else { index..index + 1 };
                state.post(&place, positions, &message, call, &mut fresh);
            }
            state.operations.insert(call, operation);
        }
        self.enter(session, &fresh)?;
        Ok(None)
    }

    fn conclude_write(
        &self,
        session: &Any<'_>,
        mut operation: Box<Operation>,
        now: f64,
    ) -> PyResult<Option<Box<Operation>>> {
        let py = session.py();
        let Some(Write { queue, taken: Some(taken), tag, .. }) = &operation.write else {
            return Ok(Some(operation));
        };
        let taken = taken.bind(py);
        if tag.number > taken.getattr(intern!(py, "completed"))?.extract()? {
            taken.setattr(intern!(py, "completed"), tag.number)?;
        }
        let result = self.tag.bind(py).call1((tag.number, tag.writer))?;
        operation
            .objects
            .get()
            .tags
            .bind(py)
            .call_method1(intern!(py, "end"), (&operation.object, taken))?;
        let queue = queue.clone();
        operation.write = None;
        let left = self.leave(session, &queue, now);
        finish(&operation, result)?;
        left.map(|()| None)
    }

    /// Begin the next write of an object after the end of a write.
    fn leave(&self, session: &Any<'_>, queue: &str, now: f64) -> PyResult<()> {
        let py = session.py();
        let Some(next) = locked(&self.state).queues.get_mut(queue).and_then(VecDeque::pop_front)
        else {
            locked(&self.state).queues.remove(queue);
            return Ok(());
        };
        let Some(places) = next.objects.get().places(py)? else { return self.give(session, next) };
        self.query(py, next, &places, now).map(|_| ())
    }

    /// Give a removed operation to the Python session, and with a write all following writes.
    fn give(&self, session: &Any<'_>, operation: Box<Operation>) -> PyResult<()> {
        let py = session.py();
        let waiting = operation
            .write
            .as_ref()
            .and_then(|write| locked(&self.state).queues.remove(&write.queue));
        for operation in std::iter::once(operation).chain(waiting.into_iter().flatten()) {
            let begun = self.begun(py, *operation)?;
            session.call_method1(intern!(py, "take_over"), (begun,))?;
        }
        Ok(())
    }

    fn round(&self, py: Python<'_>, round: &Round) -> PyResult<Py<FastRound>> {
        let answers = PyDict::new(py);
        if !round.answered.is_empty() {
            let mut frame = vec![WIRE_VERSION];
            wire::put_array(&mut frame, round.answered.len());
            frame.extend_from_slice(&round.answers);
            let replies = self.decode_replies.bind(py).call1(((PyBytes::new(py, &frame),),))?;
            for (index, position) in round.answered.iter().enumerate() {
                let slot = round.place.servers[usize::from(*position)];
                let name = locked(&self.state).slots[slot].name.clone_ref(py);
                answers.set_item(name, replies.get_item(index)?)?;
            }
        }
        let round = FastRound {
            configuration: round.place.configuration.clone_ref(py),
            call: round.call,
            order: round.order.python.clone_ref(py),
            unasked: round.unasked,
            answers: answers.unbind(),
            ended: round.found.is_some(),
        };
        Py::new(py, round)
    }

    fn begun(&self, py: Python<'_>, operation: Operation) -> PyResult<FastOperation> {
        let rounds = operation.rounds.iter().map(|round| self.round(py, round));
        let rounds = rounds.collect::<PyResult<Vec<_>>>()?;
        let objects = operation.objects.get();
        let (value, taken, before, highest) = match operation.write {
            Some(write) => (Some(write.value), write.taken, write.before, write.highest),
            None => (None, None, 0, None),
        };
        Ok(FastOperation {
            make: objects.make.clone_ref(py),
            settle: objects.settle.as_ref().map(|settle| settle.clone_ref(py)),
            domain: objects.domain.clone_ref(py),
            object: operation.object,
            value,
            done: operation.done,
            timeout_s: operation.timeout_s,
            deadline: operation.deadline,
            rounds,
            started: operation.started,
            taken,
            before,
            highest,
        })
    }
}

enum Counted {
    NotHere,
    Unusual,
    Taken,
    /// The operation, and the positions of the round and of the last server.
    Quorum(Box<Operation>, usize, u8),
}

#[pymethods]
impl ClientCore {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let door = py.import(DOOR)?;
        Ok(ClientCore {
            state: Mutex::default(),
            counted: Arc::default(),
            decode_replies: door.getattr("decode_replies")?.unbind(),
            decode_own: door.getattr("decode_own")?.unbind(),
            encode: door.getattr("encode")?.unbind(),
            tag: door.getattr("Tag")?.unbind(),
            found: door.getattr("DataResult")?.unbind(),
            tombstone: door.getattr("TOMBSTONE")?.unbind(),
        })
    }

    /// The objects of `view`. `make(name, value)` makes the Python operation; without a value, a
    /// read. `settle` settles a future of `shell`.
    fn objects(
        slf: Py<Self>,
        session: Any<'_>,
        view: Any<'_>,
        make: Held,
        shell: Option<Shell>,
        settle: Option<Held>,
    ) -> PyResult<SmallObjects> {
        let domain = view.getattr("domain")?;
        Ok(SmallObjects {
            client: slf,
            make,
            shell,
            settle,
            domain_text: domain.extract()?,
            domain: domain.unbind(),
            writer: view.getattr("client")?.extract()?,
            sequence: view.getattr("sequence")?.unbind(),
            tags: view.getattr("tags")?.unbind(),
            readiness: session.getattr("readiness")?.unbind(),
            queues: session.getattr("queues")?.cast_into::<PyDict>()?.unbind(),
            jobs: session.getattr("jobs")?.cast_into::<PyDict>()?.unbind(),
            met: session.getattr("met")?.cast_into::<PySet>()?.unbind(),
            session: session.unbind(),
            view: view.unbind(),
            known: Mutex::default(),
        })
    }

    #[getter]
    fn under_way(&self) -> usize {
        Arc::strong_count(&self.counted) - 1
    }

    /// Take a batch of replies; the session's `take` gets its own. Decoding errors come first.
    fn feed(
        &self,
        session: &Any<'_>,
        server: &Bound<'_, PyString>,
        frames: &Any<'_>,
        now: f64,
    ) -> PyResult<()> {
        let py = session.py();
        let header = frames.get_item(0)?.cast_into::<PyBytes>()?;
        let found = messages(header.as_bytes());
        let whole = frames.len()? == 1 && found.as_ref().is_some_and(|found| self.all_usual(found));
        let mut decoded =
            if whole { None } else { Some(self.decode_replies.bind(py).call1((frames,))?) };
        let found = match (found, &decoded) {
            (Some(found), _) => found,
            (None, None) => return Ok(()),
            (None, Some(decoded)) => {
                let call = |message: PyResult<Any<'_>>| {
                    Ok(message?.getattr(intern!(py, "call"))?.extract().unwrap_or(0))
                }; // no operation has a negative call
                let calls = decoded.try_iter()?.map(call).collect::<PyResult<Vec<u64>>>()?;
                calls
                    .into_iter()
                    .map(|call| Message { call, reply: Reply::Other, successor: &[], bytes: &[] })
                    .collect()
            }
        };
        session.setattr(intern!(py, "now"), now)?;
        let Some(last) = found.last() else { return Ok(()) };
        session
            .getattr(intern!(py, "readiness"))?
            .call_method1(intern!(py, "heard"), (server, last.call))?;
        let slot = locked(&self.state).by_name.get(server.to_str()?).copied().unwrap_or(usize::MAX);
        let rounds = session.getattr(intern!(py, "rounds"))?.cast_into::<PyDict>()?;
        for (index, message) in found.iter().enumerate() {
            match self.count(slot, message) {
                Counted::Taken => continue,
                Counted::Quorum(operation, round, position) => {
                    match self.conclude(session, operation, (round, position, message), now)? {
                        None => continue,
                        Some(operation) => self.give(session, operation)?,
                    }
                }
                Counted::Unusual => self.hand_over(session, message.call)?,
                Counted::NotHere => {
                    if decoded.is_none() && (rounds.is_empty() || !rounds.contains(message.call)?) {
                        continue;
                    }
                }
            }
            let all = match &decoded {
                Some(all) => all,
                None => decoded.insert(self.decode_replies.bind(py).call1((frames,))?),
            };
            session.call_method1(intern!(py, "take"), (server, (all.get_item(index)?,)))?;
        }
        Ok(())
    }

    /// Move the messages into `outbox`: as a batch's frame, or as messages after the session's.
    fn take(&self, outbox: &Bound<'_, PyDict>, sent: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = outbox.py();
        let full = {
            let mut state = locked(&self.state);
            state.turn += 1;
            state
                .slots
                .iter()
                .enumerate()
                .filter(|(_, slot)| slot.count > 0)
                .map(|(index, _)| index)
                .collect::<Vec<_>>()
        };
        for index in full {
            let (name, last, large, frame) = {
                let mut state = locked(&self.state);
                let slot = &mut state.slots[index];
                let large = slot.count > BATCH_MESSAGES_MAX || slot.chunk.len() > BATCH_BYTES_MAX;
                (slot.name.clone_ref(py), slot.last, large, slot.take(py))
            };
            let messages = outbox
                .get_item(&name)?
                .map(|messages| messages.cast_into::<PyList>())
                .transpose()?;
            match messages {
                Some(messages) if large || !messages.is_empty() => self.add(&messages, frame)?,
                _ => outbox.set_item(&name, frame)?,
            }
            sent.set_item(name, last)?;
        }
        Ok(())
    }

    /// The list of messages for `server` in `outbox`, with the messages from here, for additions.
    fn letter<'py>(&self, outbox: &Any<'py>, server: &Bound<'py, PyString>) -> PyResult<Any<'py>> {
        let letter = outbox.get_item(server)?;
        let text = server.to_str()?;
        let frame = {
            let mut state = locked(&self.state);
            let index =
                state.by_name.get(text).copied().filter(|index| state.slots[*index].count > 0);
            let Some(index) = index else { return Ok(letter) };
            state.slots[index].take(server.py())
        };
        self.add(letter.cast()?, frame)?;
        Ok(letter)
    }

    /// The calls of the rounds under way, in order.
    fn calls(&self) -> Vec<u64> {
        let state = locked(&self.state);
        let rounds = state.operations.values().flat_map(|operation| &operation.rounds);
        rounds.filter(|round| round.found.is_none()).map(|round| round.call).collect()
    }

    /// Let time pass for a round of this core; give it to the session to ask again or to end.
    fn age(&self, session: &Any<'_>, call: u64, now: f64, hedge_after_s: f64) -> PyResult<()> {
        let mut state = locked(&self.state);
        let Some((name, index)) = state.find(call) else { return Ok(()) };
        let Some(operation) = state.operations.get(&name) else { return Ok(()) };
        if now >= operation.deadline || now >= operation.resend_at {
            drop(state);
            return self.hand_over(session, call);
        }
        if !operation.rounds[index].unasked || now < operation.started + hedge_after_s {
            return Ok(());
        }
        let (py, mut fresh) = (session.py(), Vec::new());
        let object = operation.object.clone_ref(py);
        let Some(mut operation) = state.operations.remove(&name) else { return Ok(()) };
        let (phase, round) = (operation.phase, &mut operation.rounds[index]);
        round.unasked = false;
        state.post_query(phase, round, object.to_str(py)?, &round.order.spared, &mut fresh);
        state.operations.insert(name, operation);
        drop(state);
        self.enter(session, &fresh)
    }

    /// Give the operation of this call to the session, if the core has it.
    fn hand_over(&self, session: &Any<'_>, call: u64) -> PyResult<()> {
        let operation = {
            let mut state = locked(&self.state);
            state.find(call).and_then(|(name, _)| state.operations.remove(&name))
        };
        operation.map_or(Ok(()), |operation| self.give(session, operation))
    }

    /// As `hand_over`, for the writes of this object.
    fn hand_over_writes(&self, session: &Any<'_>, domain: &str, object: &str) -> PyResult<()> {
        let queue = [domain, object].join(BETWEEN);
        if !locked(&self.state).queues.contains_key(&queue) {
            return Ok(());
        }
        self.hand_over_those(session, |operation| {
            operation.write.as_ref().is_some_and(|write| write.queue == queue)
        })
    }

    /// As `hand_over`, for writes whose deadline passed while they waited.
    fn hand_over_overdue(&self, session: &Any<'_>, now: f64) -> PyResult<()> {
        self.hand_over_those(session, |operation| {
            operation.phase == Phase::Waiting && operation.deadline <= now
        })
    }

    /// As `hand_over`, for the operation of `done`.
    fn hand_over_for(&self, session: &Any<'_>, done: &Any<'_>) -> PyResult<()> {
        let wanted = |operation: &Operation| operation.done.is(done);
        let call = locked(&self.state)
            .operations
            .values()
            .find(|operation| wanted(operation))
            .map(|operation| operation.call());
        call.map_or_else(
            || self.hand_over_those(session, wanted),
            |call| self.hand_over(session, call),
        )
    }

    fn close(&self) {
        locked(&self.state).closed = true;
    }
}

impl ClientCore {
    /// As `hand_over`, for wanted operations, and for operations before a wanted write.
    fn hand_over_those(
        &self,
        session: &Any<'_>,
        wanted: impl Fn(&Operation) -> bool,
    ) -> PyResult<()> {
        let calls: Vec<u64> = {
            let state = locked(&self.state);
            let waiting = |operation: &Operation| {
                operation.write.as_ref().and_then(|write| state.queues.get(&write.queue))
            };
            let found = |operation: &Operation| {
                wanted(operation)
                    || waiting(operation).is_some_and(|queue| queue.iter().any(|next| wanted(next)))
            };
            state
                .operations
                .values()
                .filter(|operation| found(operation))
                .map(|operation| operation.call())
                .collect()
        };
        calls.into_iter().try_for_each(|call| self.hand_over(session, call))
    }

    /// Whether the Python twin would find each of these replies valid, successors included.
    fn all_usual(&self, found: &[Message<'_>]) -> bool {
        let state = locked(&self.state);
        let known =
            |told: &[u8]| told.is_empty() || state.successors.iter().rev().any(|each| each == told);
        found
            .iter()
            .all(|message| !matches!(message.reply, Reply::Other) && known(message.successor))
    }

    fn add(&self, messages: &Bound<'_, PyList>, frame: Bound<'_, PyBytes>) -> PyResult<()> {
        let py = messages.py();
        let more = self.decode_own.bind(py).call1((frame,))?;
        messages.call_method1(intern!(py, "extend"), (more,))?;
        Ok(())
    }
}

// -- steps ----------------------------------------------------------------------------------------

fn next_call(session: &Any<'_>) -> PyResult<u64> {
    let name = intern!(session.py(), "last_call");
    let call = session.getattr(name)?.extract::<u64>()? + 1;
    session.setattr(name, call)?;
    Ok(call)
}

fn learn_usual(session: &Any<'_>, took_s: f64) -> PyResult<()> {
    let name = intern!(session.py(), "usual_round_s");
    let usual_s: f64 = session.getattr(name)?.extract()?;
    session.setattr(name, usual_s + (took_s - usual_s) / USUAL_ROUNDS)
}

/// Call `done`, or settle the future `done`.
fn finish(operation: &Operation, result: Any<'_>) -> PyResult<()> {
    let py = result.py();
    let done = operation.done.bind(py);
    if operation.objects.get().shell.is_none() {
        done.call1((result, py.None()))?;
    } else if !done.call_method0(intern!(py, "done"))?.is_truthy()? {
        done.call_method1(intern!(py, "set_result"), (result,))?;
    }
    Ok(())
}

type Settled<'a> = (Tag, i64, Vec<Element<'a>>);

/// The version first in each List of a quorum, its length, and k intact elements of the version
/// (ares/dap/reading.py); a tombstone has no elements.
fn settled<'a>(place: &Place, replies: &[Data<'a>], object: &str) -> Option<Settled<'a>> {
    if replies.iter().all(|reply| reply.newest.is_none() && reply.trimmed == NEVER_WRITTEN) {
        return Some((NEVER_WRITTEN, DELETED_LENGTH, Vec::new()));
    }
    let tag = replies.first()?.newest?;
    if replies.iter().any(|reply| reply.newest != Some(tag)) {
        return None;
    }
    let mut length = if tag == NEVER_WRITTEN { Some(DELETED_LENGTH) } else { None };
    let mut elements: Vec<Element<'a>> = Vec::with_capacity(place.k);
    for reply in replies {
        if elements.len() >= place.k {
            break;
        }
        match reply.element {
            None if reply.length < 0 => length = Some(reply.length),
            None => {}
            Some(element) => {
                let fits =
                    usize::try_from(element.index).is_ok_and(|index| index < place.servers.len());
                if fits
                    && elements.iter().all(|other| other.index != element.index)
                    && element.seal(&place.id, object, tag) == Some(element.checksum)
                {
                    elements.push(element);
                    length = Some(element.length);
                }
            }
        }
    }
    match length {
        Some(DELETED_LENGTH) => Some((tag, DELETED_LENGTH, Vec::new())),
        Some(length) if length >= 0 && elements.len() >= place.k => Some((tag, length, elements)),
        _ => None,
    }
}

/// The value of these elements, or None: the Python twin gives the error.
fn decoded(
    py: Python<'_>,
    place: &Place,
    length: i64,
    mut elements: Vec<Element<'_>>,
) -> PyResult<Option<Held>> {
    let Some(coding) = &place.coding else {
        return Ok(elements
            .first()
            .map(|element| PyBytes::new(py, element.bytes()).into_any().unbind()));
    };
    elements.sort_by_key(|element| element.index);
    let fragments: Vec<coding::Fragment<'_>> =
        elements.iter().map(|element| (element.index as usize, element.bytes())).collect();
    if let Some(value) = coding::decoded(&fragments, length as usize, coding.more_bytes, coding.own)
    {
        return Ok(Some(PyBytes::new(py, &value).into_any().unbind()));
    }
    let given = PyDict::new(py);
    for element in &elements {
        let parts = PyTuple::new(py, element.data.iter().map(|data| PyBytes::new(py, data)))?;
        given.set_item(element.index, parts)?;
    }
    Ok(coding
        .python
        .bind(py)
        .call_method1(intern!(py, "decode"), (length, given))
        .ok()
        .map(Bound::unbind))
}

impl Coding {
    fn of(configuration: &Any<'_>, python: Any<'_>) -> PyResult<Self> {
        let py = configuration.py();
        let more_bytes = python.getattr(intern!(py, "more_bytes"))?.extract()?;
        let own = configuration.getattr(intern!(py, "backend"))?.eq(BACKEND_DEFAULT)?
            && more_bytes == FRAGMENT_HEADER_BYTES;
        let mut coding =
            Coding { more_bytes, own, headers: Mutex::default(), python: python.unbind() };
        let probe: [u8; 100] = std::array::from_fn(|index| (37 * index) as u8);
        coding.encoded(py, configuration.getattr(intern!(py, "k"))?.extract()?, &probe)?;
        coding.own = locked(&coding.headers).contains_key(&probe.len()); // as the library here does
        Ok(coding)
    }

    /// The fragments, one for each server; None for a server without bytes.
    fn encoded(&self, py: Python<'_>, k: usize, value: &[u8]) -> PyResult<Vec<Option<Vec<u8>>>> {
        let known = locked(&self.headers).get(&value.len()).cloned();
        if let Some(headers) = known {
            return Ok(headers.fragments(k, value));
        }
        let made =
            self.python.bind(py).call_method1(intern!(py, "encode"), (PyBytes::new(py, value),))?;
        let mut fragments = Vec::new();
        for parts in made.try_iter()? {
            let parts: Vec<Bound<'_, PyBytes>> = parts?.extract()?;
            fragments.push(parts.first().map(|part| part.as_bytes().to_vec()));
        }
        if let (true, Some(headers)) = (self.own, Headers::of(k, value, &fragments)) {
            let mut known = locked(&self.headers);
            if known.len() >= LENGTHS_KNOWN_MAX {
                known.clear();
            }
            known.insert(value.len(), Arc::new(headers));
        }
        Ok(fragments)
    }
}

/// The sealed elements: one for all servers (ABD), or one for each. None if too large for a frame.
fn elements<'a>(
    place: &Place,
    object: &str,
    tag: Tag,
    value: &'a [u8],
    fragments: Option<&'a [Option<Vec<u8>>]>,
) -> Option<Vec<Element<'a>>> {
    let length = value.len() as i64;
    let sealed = |index: usize, data: Option<&'a [u8]>| {
        let mut element = Element { index: index as i64, length, checksum: 0, data };
        element.checksum = element.seal(&place.id, object, tag)?;
        Some(element).filter(|element| element.bytes().len() < DETACHED_BYTES_MIN)
    };
    let Some(fragments) = fragments else { return Some(vec![sealed(0, Some(value))?]) };
    fragments
        .iter()
        .enumerate()
        .map(|(index, fragment)| sealed(index, fragment.as_deref()))
        .collect()
}
