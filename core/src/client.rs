//! The client half: small reads and writes in a known configuration, with the calls, requests,
//! bytes and results of ares/registers/operations.py and ares/engine/session.py.
//! An unusual operation goes to the Python session in its last usual state ([`FastOperation`]): after a
//! successor, refusal, differing tags or missing element, at a resend or deadline. Calls, tags and
//! readiness are the session's. The state is locked for moments only, and never while Python may
//! run: `done` begins new operations.

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
    /// Any other reply, and a reply with a successor or with times.
    Other,
}

#[derive(Clone, Copy)]
struct Data<'a> {
    newest: Option<Tag>,
    length: i64,
    trimmed: Tag,
    element: Option<Element<'a>>,
}

struct Message<'a> {
    call: u64,
    reply: Reply<'a>,
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
    let (call, reply) = match reply(cursor) {
        Some(found) => found,
        None => {
            cursor.at = start;
            cursor.array()?;
            cursor.unsigned()?;
            let call = cursor.unsigned()?;
            cursor.at = start;
            cursor.skip()?;
            (call, Reply::Other)
        }
    };
    Some(Message { call, reply, bytes: &cursor.data[start..cursor.at] })
}

fn reply<'a>(cursor: &mut Cursor<'a>) -> Option<(u64, Reply<'a>)> {
    let count = cursor.array()?;
    let (kind, call) = (cursor.unsigned()?, cursor.unsigned()?);
    let reply = match (kind, count) {
        (TAG_REPLY, 5) => Reply::Tag(cursor.tag()?),
        (DATA_REPLY, 9) => Reply::Data(data(cursor)?),
        (ACK, 4) => Reply::Ack,
        _ => return None,
    };
    cursor.nil()?; // no successor
    if let Reply::Data(_) = reply {
        cursor.boolean()?;
    }
    cursor.nil()?; // not traced
    Some((call, reply))
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
    Some(Data { newest, length, trimmed, element })
}

// -- operations under way -------------------------------------------------------------------------

/// The order of servers in a turn (ares/engine/readiness.py). `wanted`: bits of element senders.
struct Order {
    python: Held,
    first: Vec<usize>,
    spared: Vec<usize>,
    wanted: u64,
}

/// A known configuration. `servers`: indexes among the client's servers.
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
}

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

struct Operation {
    objects: Py<SmallObjects>,
    _counted: Arc<()>,
    place: Arc<Place>,
    object: Py<PyString>,
    done: Held,
    timeout_s: f64,
    deadline: f64,
    write: Option<Write>,
    phase: Phase,
    call: u64,
    order: Option<Arc<Order>>,
    unasked: bool,
    started: f64,
    resend_at: f64,
    /// The replies that count, joined, and the positions of their servers.
    answers: Vec<u8>,
    answered: Vec<u8>,
}

impl Operation {
    fn fresh_round(&mut self, phase: Phase, call: u64, now: f64, resend_after_s: f64) {
        self.phase = phase;
        self.call = call;
        self.started = now;
        self.resend_at = now + resend_after_s;
        self.answers.clear();
        self.answered.clear();
    }

    fn replies(&self) -> impl Iterator<Item = Reply<'_>> {
        let mut cursor = Cursor::new(&self.answers, 0);
        self.answered.iter().map_while(move |_| reply(&mut cursor).map(|(_, reply)| reply))
    }
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
    operations: BTreeMap<u64, Box<Operation>>,
    /// For each object under a write, the writes that follow.
    queues: HashMap<String, VecDeque<Box<Operation>>>,
    scratch: Vec<u8>,
}

impl State {
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

    /// Send a query to `positions`, and count the operation as under way; return fresh servers.
    fn post_query(
        &mut self,
        operation: Box<Operation>,
        object: &str,
        order: &Order,
        positions: &[usize],
    ) -> Vec<usize> {
        let (place, call, mut fresh) = (operation.place.clone(), operation.call, Vec::new());
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        if operation.phase == Phase::GetTag {
            head(&mut message, 5, GET_TAG, call, &place.id, object);
            wire::put_nil(&mut message);
            self.post(&place, positions.iter().copied(), &message, call, &mut fresh);
        } else {
            head(&mut message, 9, GET_DATA, call, &place.id, object);
            let flag = message.len();
            for _ in 0..5 {
                wire::put_nil(&mut message);
            }
            for &position in positions {
                message[flag] = wire::boolean(order.wanted >> position & 1 == 1);
                self.post(&place, std::iter::once(position), &message, call, &mut fresh);
            }
        }
        self.scratch = message;
        self.operations.insert(call, operation);
        fresh
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

/// An operation for the Python session (ares/engine/takeover.py). `call` 0: waits for its turn.
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
    call: u64,
    configuration: Held,
    order: Option<Held>,
    unasked: bool,
    started: f64,
    answers: Py<PyDict>,
    taken: Option<Held>,
    before: u64,
    highest: Option<u64>,
}

/// The small operations of a session, and their messages.
#[pyclass(frozen, module = "ares._core")]
pub struct ClientCore {
    state: Mutex<State>,
    /// A counter: each operation has a copy, also an operation that waits for its turn.
    counted: Arc<()>,
    decode_replies: Held,
    decode_own: Held,
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
    known: Mutex<Known>,
}

/// The session's surroundings on an event loop: makes futures, and posts messages.
#[derive(FromPyObject)]
struct Shell {
    create_future: Held,
    schedule: Held,
}

/// The last configuration, and the orders of a turn: for large values, and for others.
#[derive(Default)]
struct Known {
    place: Option<Arc<Place>>,
    orders: [Option<(u64, Arc<Order>)>; 2],
}

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SmallObjects {
    /// The only active configuration, if the servers of the session were told of it.
    fn place(&self, py: Python<'_>) -> PyResult<Option<Arc<Place>>> {
        let sequence = self.sequence.bind(py);
        let last = sequence.getattr(intern!(py, "last_known"))?;
        if !sequence.getattr(intern!(py, "last_finalized"))?.is(&last) {
            return Ok(None);
        }
        if let Some(place) =
            locked(&self.known).place.as_ref().filter(|place| place.configuration.is(&last))
        {
            return Ok(Some(place.clone()));
        }
        let id = last.getattr(intern!(py, "id"))?;
        let names: Vec<Bound<PyString>> = last.getattr(intern!(py, "server_ids"))?.extract()?;
        if !self.met.bind(py).contains(&id)? || names.len() > SERVERS_MAX {
            return Ok(None);
        }
        let dap = self.view.bind(py).call_method1(intern!(py, "dap"), (&last,))?;
        let coded = last.getattr(intern!(py, "dap"))?.eq("ec")?;
        let place = Arc::new(Place {
            id: id.extract()?,
            servers: self.client.get().slots(names)?,
            quorum: last.getattr(intern!(py, "quorum_size"))?.extract()?,
            k: last.getattr(intern!(py, "k"))?.extract()?,
            coding: if coded {
                Some(Coding::of(&last, dap.getattr(intern!(py, "coding"))?)?)
            } else {
                None
            },
            preferred: dap.getattr(intern!(py, "holding_value"))?.extract()?,
            configuration: last.unbind(),
            id_given: id.unbind(),
            dap: dap.unbind(),
        });
        let before = std::mem::take(&mut *locked(&self.known));
        locked(&self.known).place = Some(place.clone());
        drop(before);
        Ok(Some(place))
    }

    fn order(&self, py: Python<'_>, place: &Place, reads: bool) -> PyResult<Arc<Order>> {
        let large = reads
            && place.preferred > 0
            && place.dap.bind(py).getattr(intern!(py, "large"))?.is_truthy()?;
        let turn = locked(&self.client.get().state).turn;
        if let Some((_, order)) = locked(&self.known).orders[usize::from(large)]
            .as_ref()
            .filter(|(as_of, _)| *as_of == turn)
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
        let before = locked(&self.known).orders[usize::from(large)].replace((turn, order.clone()));
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
        let Some(place) =
            objects.place(py)?.filter(|_| !locked(&objects.client.get().state).closed)
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
            place,
            object: object.clone().unbind(),
            done,
            timeout_s,
            deadline: now + timeout_s,
            write,
            phase: Phase::Waiting,
            call: 0,
            order: None,
            unasked: false,
            started: now,
            resend_at: now,
            answers: Vec::with_capacity(ANSWERS_BYTES),
            answered: Vec::with_capacity(ANSWERS),
        });
        if let Some(write) = &operation.write {
            let mut state = locked(&client.state);
            if let Some(queue) = state.queues.get_mut(&write.queue) {
                queue.push_back(operation);
                return Ok(Some(handle));
            }
            state.queues.insert(write.queue.clone(), VecDeque::new());
        }
        let more = client.query(py, operation, now)?;
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

    /// Enter these servers into the session's outbox, in this order.
    fn enter(&self, session: &Any<'_>, fresh: &[usize]) -> PyResult<()> {
        for slot in fresh {
            let name = locked(&self.state).slots[*slot].name.clone_ref(session.py());
            session.getattr(intern!(session.py(), "outbox"))?.get_item(name)?;
        }
        Ok(())
    }

    /// Begin an operation's first round; return whether a server had no earlier message.
    fn query(&self, py: Python<'_>, mut operation: Box<Operation>, now: f64) -> PyResult<bool> {
        let objects_kept = operation.objects.clone_ref(py);
        let objects = objects_kept.get();
        let session = objects.session.bind(py);
        let begun =
            objects.order(py, &operation.place, operation.write.is_none()).and_then(|order| {
                let call = next_call(session)?;
                if let Some(write) = &mut operation.write {
                    write.taken = Some(
                        objects
                            .tags
                            .bind(py)
                            .call_method1(intern!(py, "begin"), (&operation.object,))?
                            .unbind(),
                    );
                }
                Ok((order, call))
            });
        let Ok((order, call)) = begun else { return self.give(session, operation).map(|()| true) };
        operation.fresh_round(
            if operation.write.is_none() { Phase::GetData } else { Phase::GetTag },
            call,
            now,
            ROUND_RESEND_S,
        );
        operation.unasked = !order.spared.is_empty();
        operation.order = Some(order.clone());
        let object = operation.object.clone_ref(py);
        let fresh =
            locked(&self.state).post_query(operation, object.to_str(py)?, &order, &order.first);
        self.enter(session, &fresh)?;
        Ok(!fresh.is_empty())
    }

    /// Count a reply. `Quorum`: the operation is complete; `Unusual`: the session must handle it.
    fn count(&self, server: usize, message: &Message<'_>) -> Counted {
        let mut state = locked(&self.state);
        let Some(operation) = state.operations.get_mut(&message.call) else {
            return Counted::NotHere;
        };
        match (message.reply, operation.phase) {
            (Reply::Other, _) => return Counted::Unusual,
            (Reply::Tag(_), Phase::GetTag)
            | (Reply::Data(_), Phase::GetData)
            | (Reply::Ack, Phase::PutData) => {}
            _ => return Counted::Taken,
        }
        let Some(position) = operation.place.servers.iter().position(|slot| *slot == server) else {
            return Counted::Taken;
        };
        let position = position as u8;
        if operation.answered.contains(&position) {
            return Counted::Taken;
        }
        if operation.answered.len() + 1 < operation.place.quorum {
            operation.answers.extend_from_slice(message.bytes);
            operation.answered.push(position);
            return Counted::Taken;
        }
        state.operations.remove(&message.call).map_or(Counted::NotHere, Counted::Quorum)
    }

    /// Continue after a quorum, complete with `last`. Return an operation left to the session.
    fn conclude(
        &self,
        session: &Any<'_>,
        operation: Box<Operation>,
        last: Reply<'_>,
        now: f64,
    ) -> PyResult<Option<Box<Operation>>> {
        match operation.phase {
            Phase::GetData => self.conclude_read(session, operation, last, now),
            Phase::GetTag => self.conclude_query(session, operation, last, now),
            _ => self.conclude_write(session, operation, now),
        }
    }

    fn conclude_read(
        &self,
        session: &Any<'_>,
        operation: Box<Operation>,
        last: Reply<'_>,
        now: f64,
    ) -> PyResult<Option<Box<Operation>>> {
        let py = session.py();
        let (tag, length, value) = {
            let replies = operation
                .replies()
                .chain(std::iter::once(last))
                .filter_map(|reply| if let Reply::Data(data) = reply { Some(data) } else { None });
            let replies: Vec<Data<'_>> = replies.collect();
            match settled(&operation, &replies, operation.object.to_str(py)?) {
                None => return Ok(Some(operation)),
                Some((tag, DELETED_LENGTH, _)) => {
                    (tag, DELETED_LENGTH, self.tombstone.clone_ref(py))
                }
                Some((tag, length, elements)) => {
                    match decoded(py, &operation.place, length, elements)? {
                        None => return Ok(Some(operation)),
                        Some(value) => (tag, length, value),
                    }
                }
            }
        };
        if operation.place.preferred > 0 {
            operation.place.dap.bind(py).setattr(intern!(py, "large"), false)?;
        }
        learn_usual(session, now - operation.started)?;
        let result = if operation.objects.get().shell.is_some() {
            value.into_bound(py)
        } else {
            let tag = self.tag.bind(py).call1((tag.number, tag.writer))?;
            self.found.bind(py).call1((
                &tag,
                value,
                length,
                &tag,
                true,
                py.None(),
                &operation.place.id_given,
                true,
            ))?
        };
        finish(&operation, result)?;
        Ok(None)
    }

    fn conclude_query(
        &self,
        session: &Any<'_>,
        mut operation: Box<Operation>,
        last: Reply<'_>,
        now: f64,
    ) -> PyResult<Option<Box<Operation>>> {
        let py = session.py();
        let tags = operation
            .replies()
            .chain(std::iter::once(last))
            .map(|reply| if let Reply::Tag(tag) = reply { tag.number } else { 0 });
        let highest = tags.max().unwrap_or(0);
        let place = operation.place.clone();
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
        operation.fresh_round(
            Phase::PutData,
            call,
            now,
            ROUND_RESEND_S + size as f64 / SEND_BYTES_PER_S_EXPECTED,
        );
        operation.unasked = false;
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
        let Some(mut next) =
            locked(&self.state).queues.get_mut(queue).and_then(VecDeque::pop_front)
        else {
            locked(&self.state).queues.remove(queue);
            return Ok(());
        };
        let Some(place) = next.objects.get().place(py)? else { return self.give(session, next) };
        next.place = place;
        self.query(py, next, now).map(|_| ())
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

    fn begun(&self, py: Python<'_>, operation: Operation) -> PyResult<FastOperation> {
        let answers = PyDict::new(py);
        if !operation.answered.is_empty() {
            let mut frame = vec![WIRE_VERSION];
            wire::put_array(&mut frame, operation.answered.len());
            frame.extend_from_slice(&operation.answers);
            let replies = self.decode_replies.bind(py).call1(((PyBytes::new(py, &frame),),))?;
            for (index, position) in operation.answered.iter().enumerate() {
                let name = locked(&self.state).slots
                    [operation.place.servers[usize::from(*position)]]
                .name
                .clone_ref(py);
                answers.set_item(name, replies.get_item(index)?)?;
            }
        }
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
            call: operation.call,
            configuration: operation.place.configuration.clone_ref(py),
            order: operation.order.as_ref().map(|order| order.python.clone_ref(py)),
            unasked: operation.unasked,
            started: operation.started,
            answers: answers.unbind(),
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
    Quorum(Box<Operation>),
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
        let whole = frames.len()? == 1
            && found.as_ref().is_some_and(|found| {
                found.iter().all(|message| !matches!(message.reply, Reply::Other))
            });
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
                    .map(|call| Message { call, reply: Reply::Other, bytes: &[] })
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
                Counted::Quorum(operation) => {
                    match self.conclude(session, operation, message.reply, now)? {
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
        locked(&self.state).operations.keys().copied().collect()
    }

    /// Let time pass for a round of this core; give it to the session to ask again or to end.
    fn age(&self, session: &Any<'_>, call: u64, now: f64, hedge_after_s: f64) -> PyResult<()> {
        let mut state = locked(&self.state);
        let Some(operation) = state.operations.get_mut(&call) else { return Ok(()) };
        if now >= operation.deadline || now >= operation.resend_at {
            drop(state);
            return self.hand_over(session, call);
        }
        let (order, object) = (operation.order.clone(), operation.object.clone_ref(session.py()));
        if !operation.unasked || now < operation.started + hedge_after_s {
            return Ok(());
        }
        operation.unasked = false;
        let (Some(order), Some(operation)) = (order, state.operations.remove(&call)) else {
            return Ok(());
        };
        let fresh =
            state.post_query(operation, object.to_str(session.py())?, &order, &order.spared);
        drop(state);
        self.enter(session, &fresh)
    }

    /// Give the operation of this call to the session, if the core has it.
    fn hand_over(&self, session: &Any<'_>, call: u64) -> PyResult<()> {
        let operation = locked(&self.state).operations.remove(&call);
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
            .map(|operation| operation.call);
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
                .map(|operation| operation.call)
                .collect()
        };
        calls.into_iter().try_for_each(|call| self.hand_over(session, call))
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
fn settled<'a>(operation: &Operation, replies: &[Data<'a>], object: &str) -> Option<Settled<'a>> {
    let place = &operation.place;
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
