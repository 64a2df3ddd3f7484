//! The server half of small reads and writes: `get_tag`, `get_data` and `put` of
//! ares/replica/configuration_state.py for all requests of a read. Core and Python share one table,
//! `PythonObjectTable`, `VersionList`, `Tag` and `Element`: either path continues after the other.
//! First all requests are parsed and checked, with no change that Python can see; an unusual
//! request ends this with None, and the Python path serves all. Then all are applied and answered,
//! in order, without refusals.

use crate::DOOR;
use crate::client::locked;
use crate::constants::*;
use crate::requests::{Asked, Request, divided, parse_batch};
use crate::table::{
    Commit, Entry, Found, Home, Kept, Known, List, Looked, Unusual, python_tag, record_trimmed,
    usual,
};
use crate::wire::{
    Element, Tag, put_array, put_binary, put_boolean, put_nil, put_signed, put_tag, put_text,
    put_unsigned,
};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySet, PyString};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Larger reads mostly begin large values, and are not copied to be looked at.
const COPIED_READ_BYTES_MAX: usize = 64 * 1024;

/// The result of a network read. `reply`: the batch due at once.
#[pyclass(frozen, get_all, module = "ares._core")]
pub struct ServedTurn {
    reply: Option<Py<PyBytes>>,
    tags: usize,
    datas: usize,
    puts: usize,
    received_bytes: usize,
    reads: usize,
    writes: usize,
    facts: Option<(usize, Py<PyBytes>)>,
    fact_bytes: usize,
    waiting: Vec<Kept>,
    asked: Vec<(Py<PyBytes>, usize)>,
}

/// Answers for `hosted`. `at_hand`: gives the place with room for facts; None without a journal.
#[pyclass(frozen, module = "ares._core")]
pub struct ServerCore {
    hosted: Py<PyDict>,
    known: Mutex<HashMap<Vec<u8>, Arc<Known>>>,
    at_hand: Option<Py<PyAny>>,
    versions: Py<PyAny>,
}

#[pymethods]
impl ServerCore {
    #[new]
    #[pyo3(signature = (hosted, at_hand = None))]
    fn new(py: Python, hosted: Py<PyDict>, at_hand: Option<Py<PyAny>>) -> PyResult<Self> {
        let versions = py.import(DOOR)?.getattr("VersionList")?.unbind();
        Ok(ServerCore { hosted, known: Mutex::default(), at_hand, versions })
    }

    /// Serve a read: the bytes of a connection without keys (a buffer), or batches as lists of
    /// frames. `writes`: the client may write. `gathering`, `syncing`: commits on which replies may
    /// wait, in at most `rows_max` rows. None: no request was served.
    #[pyo3(signature = (came, writes, gathering = None, syncing = None, rows_max = 0))]
    fn serve<'py>(
        &self,
        came: &Bound<'py, PyAny>,
        writes: bool,
        gathering: Option<Bound<'py, PyAny>>,
        syncing: Option<Bound<'py, PyAny>>,
        rows_max: usize,
    ) -> PyResult<Option<ServedTurn>> {
        match self.serve_came(came, writes, [gathering, syncing], rows_max) {
            Ok(served) => Ok(Some(served)),
            Err(Unusual::Left) => Ok(None),
            Err(Unusual::Raised(error)) => Err(error),
        }
    }
}

impl ServerCore {
    /// The known configuration: a hosted configuration stays.
    fn known(&self, py: Python, id: &[u8]) -> Looked<Arc<Known>> {
        let seen = locked(&self.known).get(id).cloned();
        if let Some(known) = seen {
            return Ok(known);
        }
        let known = Arc::new(Known::of(self.hosted.bind(py), id)?);
        locked(&self.known).insert(id.to_vec(), known.clone());
        Ok(known)
    }

    fn serve_came<'py>(
        &self,
        came: &Bound<'py, PyAny>,
        writes: bool,
        commits: [Option<Bound<'py, PyAny>>; 2],
        rows_max: usize,
    ) -> Looked<ServedTurn> {
        let py = came.py();
        let read;
        let mut held = Vec::new();
        let frames = if let Ok(batches) = came.cast::<PyList>() {
            for batch in batches.iter() {
                usual(batch.len()? == 1)?;
                held.push(batch.get_item(0)?.cast_into::<PyBytes>().map_err(|_| Unusual::Left)?);
            }
            held.iter().map(|frame| frame.as_bytes()).collect()
        } else {
            let buffer = PyBuffer::<u8>::get(came)?;
            usual(buffer.item_count() <= COPIED_READ_BYTES_MAX)?;
            read = buffer.to_vec(py)?;
            divided(&read).ok_or(Unusual::Left)?
        };
        let mut requests = Vec::new();
        for frame in &frames {
            parse_batch(frame, &mut requests).ok_or(Unusual::Left)?;
        }
        usual(!requests.is_empty())?;
        let [gathering, syncing] = commits;
        let commits =
            [gathering.map(Commit::of).transpose()?, syncing.map(Commit::of).transpose()?];
        let journaled = self.at_hand.is_some();
        usual(journaled == commits[0].is_some())?;
        let (homes, out, facts) = (Vec::new(), Vec::new(), Vec::new());
        let mut turn = Turn {
            server: self,
            py,
            journaled,
            homes,
            commits,
            place: 0,
            out,
            replies: 0,
            facts,
            fact_count: 0,
            fact_bytes: 0,
        };
        let found = turn.look(&requests, writes, rows_max)?;
        turn.apply(&requests, found, &frames)
    }
}

/// A call: all requests of a client that came at a time.
struct Turn<'a, 'py> {
    server: &'a ServerCore,
    py: Python<'py>,
    journaled: bool,
    homes: Vec<Home<'py>>,
    commits: [Option<Commit<'py>>; 2],
    place: i64,
    out: Vec<u8>,
    replies: usize,
    facts: Vec<u8>,
    fact_count: usize,
    fact_bytes: usize,
}

impl<'py> Turn<'_, 'py> {
    // -- checks, without a change -----------------------------------------------------------------

    fn look(
        &mut self,
        requests: &[Request],
        writes: bool,
        rows_max: usize,
    ) -> Looked<Vec<Found<'py>>> {
        let mut all = Vec::with_capacity(requests.len());
        let (mut room, mut rows) = (0, requests.len());
        for request in requests {
            let found = self.find(request)?;
            match &request.asked {
                Asked::Tag => (),
                Asked::Data { carried, .. } => {
                    let home = &mut self.homes[found.home];
                    if let Some(carried) = carried {
                        usual(
                            home.successor
                                .as_ref()
                                .is_some_and(|(bytes, _)| bytes.as_slice() == *carried),
                        )?; // the server knows the successor
                        home.carried += 1;
                        home.asked -= 1;
                    }
                    rows += self.homes[found.home].known.capacity;
                    usual(found.list.as_ref().is_none_or(|list| !list.entries.is_empty()))?;
                }
                Asked::Put { tag, element } => {
                    usual(writes)?;
                    room += fact_bytes_max(found.characters, element);
                    self.look_at_put(request, &found, *tag, element)?;
                }
            }
            all.push(found);
        }
        if let Some(at_hand) = &self.server.at_hand {
            usual(rows <= rows_max)?;
            if room > 0 {
                self.place = at_hand
                    .bind(self.py)
                    .call1((room,))?
                    .extract::<Option<i64>>()?
                    .ok_or(Unusual::Left)?;
            }
        }
        Ok(all)
    }

    fn find(&mut self, request: &Request) -> Looked<Found<'py>> {
        usual(!request.object.is_empty() && request.object.len() <= KEY_BYTES_MAX)?;
        let home =
            match self.homes.iter().position(|home| home.id.as_bytes() == request.configuration) {
                Some(home) => home,
                None => {
                    let known = self.server.known(self.py, request.configuration)?;
                    self.homes.push(Home::of(self.py, known, &self.commits)?);
                    self.homes.len() - 1
                }
            };
        self.homes[home].asked += 1;
        let object = PyString::new(self.py, request.object);
        let list = self.list(home, &object)?;
        let characters = if request.object.is_ascii() {
            request.object.len()
        } else {
            request.object.chars().count()
        };
        Ok(Found { home, object, characters, list })
    }

    fn list(&self, home: usize, object: &Bound<'py, PyString>) -> Looked<Option<List<'py>>> {
        self.homes[home].lists.get_item(object)?.map(List::of).transpose()
    }

    fn look_at_put(
        &self,
        request: &Request,
        found: &Found<'py>,
        tag: Tag,
        element: &Element,
    ) -> Looked<()> {
        let home = &self.homes[found.home];
        let size = element.bytes().len() as i64;
        usual(
            !request.object.starts_with(RESERVED)
                || OF_WRITERS.iter().any(|prefix| request.object.starts_with(prefix)),
        )?;
        usual(
            element.index == home.known.index
                && DELETED_LENGTH <= element.length
                && size.checked_mul(home.known.k).is_some_and(|most| element.length <= most),
        )?;
        usual(tag.number <= NUMBER_FLOOR && tag != Tag::default())?;
        let sealed = element.seal(request.configuration, request.object, tag);
        usual(sealed == Some(element.checksum))
    }

    // -- application ------------------------------------------------------------------------------

    fn apply(
        mut self,
        requests: &[Request],
        found: Vec<Found<'py>>,
        frames: &[&[u8]],
    ) -> Looked<ServedTurn> {
        let (mut tags, mut datas, mut puts, mut reads, mut writes) = (0, 0, 0, 0, 0);
        for (request, mut found) in requests.iter().zip(found) {
            let (start, rows) = (self.out.len(), self.perform(request, &mut found)?);
            let is_write = matches!(request.asked, Asked::Put { .. });
            match request.asked {
                Asked::Tag => tags += 1,
                Asked::Data { .. } => datas += 1,
                Asked::Put { .. } => puts += 1,
            }
            if self.journaled && self.keep(&found, start, rows, is_write)? {
                continue;
            }
            self.replies += 1;
            reads += usize::from(!is_write);
            writes += usize::from(is_write);
        }
        for home in &self.homes {
            home.settle(self.py)?;
        }
        Ok(ServedTurn {
            reply: self.reply()?,
            tags,
            datas,
            puts,
            received_bytes: frames.iter().map(|frame| frame.len()).sum(),
            reads,
            writes,
            facts: (self.fact_count > 0)
                .then(|| (self.fact_count, PyBytes::new(self.py, &self.facts).unbind())),
            fact_bytes: self.fact_bytes,
            waiting: self
                .commits
                .iter()
                .flatten()
                .filter(|commit| commit.rows > 0)
                .map(Commit::kept)
                .collect(),
            asked: self.homes.iter().map(|home| (home.id.clone().unbind(), home.asked)).collect(),
        })
    }

    fn reply(&self) -> PyResult<Option<Py<PyBytes>>> {
        if self.replies == 0 {
            return Ok(None);
        }
        let mut batch = vec![WIRE_VERSION];
        put_array(&mut batch, self.replies);
        batch.extend_from_slice(&self.out);
        Ok(Some(PyBytes::new(self.py, &batch).unbind()))
    }

    /// Apply a request, and append the reply to `out`; return the reply's rows.
    fn perform(&mut self, request: &Request, found: &mut Found<'py>) -> Looked<usize> {
        if found.list.is_none() {
            found.list = self.list(found.home, &found.object)?;
        }
        match &request.asked {
            Asked::Tag => {
                begin_reply(&mut self.out, 5, TAG_REPLY, request.call);
                put_tag(&mut self.out, found.newest()?);
                self.homes[found.home].put_successor(&mut self.out);
                put_nil(&mut self.out);
                Ok(1)
            }
            Asked::Data { wanted, held, .. } => {
                self.answer_data(request.call, found, *wanted, *held)
            }
            Asked::Put { tag, element } => {
                self.put(request, found, *tag, element)?;
                begin_reply(&mut self.out, 4, ACK, request.call);
                self.homes[found.home].put_successor(&mut self.out);
                put_nil(&mut self.out);
                Ok(1)
            }
        }
    }

    /// `ConfigurationState.get_data`
    fn answer_data(
        &mut self,
        call: u64,
        found: &Found<'py>,
        wanted: Option<Tag>,
        held: Option<Tag>,
    ) -> Looked<usize> {
        let (out, home) = (&mut self.out, &self.homes[found.home]);
        begin_reply(out, 9, DATA_REPLY, call);
        let Some(list) = &found.list else {
            put_array(out, 0);
            put_signed(out, -1);
            put_tag(out, Tag::default());
            put_nil(out);
            home.put_successor(out);
            put_boolean(out, false);
            put_nil(out);
            return Ok(1);
        };
        let (newest, count) = (found.newest()?, list.entries.len());
        put_array(out, count);
        put_tag(out, newest);
        for entry in list.entries.iter().skip(1) {
            put_tag(out, entry.cast::<Entry>()?.get().tag);
        }
        put_signed(out, list.entry(0)?.get().length);
        put_tag(out, list.trimmed()?);
        let shown = wanted.unwrap_or(newest);
        match list.position(shown)? {
            Ok(position) if held.is_none_or(|held| shown > held) => {
                list.entry(position)?.get().write(self.py, out)
            }
            _ => put_nil(out),
        }
        home.put_successor(out);
        let follows = home
            .successor
            .as_ref()
            .map_or(Ok(false), |(_, following)| following.contains(&found.object))?;
        put_boolean(out, home.order_known && !follows);
        put_nil(out);
        Ok(1 + count)
    }

    /// `ConfigurationState.put` of a checked version.
    fn put(
        &mut self,
        request: &Request,
        found: &mut Found<'py>,
        tag: Tag,
        element: &Element,
    ) -> Looked<()> {
        let (py, capacity) = (self.py, self.homes[found.home].known.capacity);
        let mut position = 0;
        if let Some((_, following)) = &self.homes[found.home].successor {
            following.add(&found.object)?;
        }
        match &found.list {
            Some(list) => match list.position(tag)? {
                Ok(_) => return Ok(()),
                Err(place) => position = place,
            },
            None => {
                let versions = self.server.versions.bind(py).call0()?;
                self.homes[found.home].lists.as_any().set_item(&found.object, &versions)?;
                found.list = Some(List::of(versions)?);
            }
        }
        let Some(list) = &found.list else { return Ok(()) };
        if position == capacity {
            return self.trim(request, found, list, tag, element);
        }
        let (index, length, checksum) = (element.index, element.length, element.checksum);
        let data = element.data.map(|data| PyBytes::new(py, data).unbind());
        list.entries.insert(
            position,
            Bound::new(py, Entry { tag, index, length, checksum, data, place: self.place })?,
        )?;
        self.count_put(found, list, element.bytes().len() as i64)?;
        if self.journaled {
            self.facts.extend_from_slice(request.bytes);
            self.note(found, element)?;
        }
        Ok(())
    }

    /// Count a put, and drop the version beyond the List's capacity.
    fn count_put(&mut self, found: &Found<'py>, list: &List<'py>, size: i64) -> Looked<()> {
        let (place, characters) = (self.place, found.characters as i64);
        let home = &mut self.homes[found.home];
        home.bytes += size;
        if self.journaled {
            home.account(place, PUT_BYTES + characters + size);
        }
        let last = list.entries.len() - 1;
        if last < home.known.capacity {
            home.elements += 1;
            return Ok(());
        }
        let lost_entry = list.entry(last)?;
        list.entries.del_item(last)?;
        let lost = lost_entry.get();
        let lost_size = lost.size(self.py) as i64;
        home.bytes -= lost_size;
        let before = list.trimmed()?;
        let is_trimmed = lost.tag > before;
        if is_trimmed {
            list.trim(&python_tag(self.py, lost.tag)?)?;
        }
        if self.journaled {
            home.account(lost.place, -(PUT_BYTES + characters + lost_size));
            if is_trimmed {
                record_trimmed(home, &list.versions, characters, lost.place, before)?;
            }
        }
        Ok(())
    }

    /// Trim a put that is older than all versions of a full List.
    fn trim(
        &mut self,
        request: &Request,
        found: &Found<'py>,
        list: &List<'py>,
        tag: Tag,
        element: &Element,
    ) -> Looked<()> {
        let before = list.trimmed()?;
        if tag <= before {
            return Ok(());
        }
        list.trim(&python_tag(self.py, tag)?)?;
        if self.journaled {
            let (home, place) = (&mut self.homes[found.home], self.place);
            record_trimmed(home, &list.versions, found.characters as i64, place, before)?;
            put_array(&mut self.facts, 4);
            put_unsigned(&mut self.facts, TAGS_TRIMMED);
            put_binary(&mut self.facts, request.configuration);
            put_text(&mut self.facts, request.object);
            put_tag(&mut self.facts, tag);
            self.note(found, element)?;
        }
        Ok(())
    }

    // -- replies that wait for a commit -----------------------------------------------------------

    /// `GroupCommit.note` of the fact written last.
    fn note(&mut self, found: &Found<'py>, element: &Element) -> Looked<()> {
        self.fact_count += 1;
        self.fact_bytes += fact_bytes_max(found.characters, element);
        let home = &mut self.homes[found.home];
        if let Some(commit) = &self.commits[0] {
            match &home.noted[0] {
                Some(objects) => objects.add(&found.object)?,
                None => commit.objects.set_item(
                    &home.id,
                    &*home.noted[0].insert(PySet::new(self.py, [&found.object])?),
                )?,
            }
        }
        Ok(())
    }

    /// `StorageServer._waits`: keep the reply from `start` on and return true if it has to wait.
    fn keep(
        &mut self,
        found: &Found<'py>,
        start: usize,
        rows: usize,
        is_write: bool,
    ) -> Looked<bool> {
        let home = &self.homes[found.home];
        for (place, commit) in self.commits.iter_mut().enumerate() {
            let Some(commit) = commit else { continue };
            let noted = home.noted[place]
                .as_ref()
                .map_or(Ok(false), |objects| objects.contains(&found.object))?;
            if noted || home.pointed[place] {
                commit.replies.extend_from_slice(&self.out[start..]);
                commit.rows += rows;
                commit.reads += usize::from(!is_write);
                commit.writes += usize::from(is_write);
                self.out.truncate(start);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn begin_reply(out: &mut Vec<u8>, fields: usize, kind: u64, call: u64) {
    put_array(out, fields);
    put_unsigned(out, kind);
    put_unsigned(out, call);
}

fn fact_bytes_max(characters: usize, element: &Element) -> usize {
    let parts = usize::from(element.data.is_some());
    PUT_BYTES_MAX
        + CHARACTER_BYTES_MAX * characters
        + PART_BYTES_MAX * parts
        + element.bytes().len()
}
