//! The usual batches of a server's journal at a start: `Replica.restore` of their facts, without
//! Python objects. A batch with any unusual fact has no effect here: Python takes it.

use crate::constants::{LEFT_LENGTH, PUT_DATA, TAGS_TRIMMED};
use crate::home::{Looked, Unusual, usual};
use crate::rows::{Account, Content, Version};
use crate::table::ObjectTable;
use crate::wire::{Cursor, Element, Tag};
use pyo3::buffer::PyBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::HashMap;

/// A fact has the configuration's id, a name and a tag at least.
const FACT_BYTES_MIN: usize = 32;
/// Most configurations that a batch waits for.
const UNKNOWN_MAX: usize = 8;

struct Fact<'a> {
    configuration: &'a [u8],
    object: &'a [u8],
    tag: Tag,
    /// None: the tag was dropped.
    element: Option<Element<'a>>,
}

/// The facts of a batch, if all are small puts with their data, or dropped tags.
fn usual_facts(body: &[u8]) -> Option<Vec<Fact<'_>>> {
    let mut cursor = Cursor::new(body, 0);
    cursor.array_of(2)?;
    let count = cursor.array()?;
    let mut facts = Vec::with_capacity(count.min(body.len() / FACT_BYTES_MIN));
    for _ in 0..count {
        facts.push(usual_fact(&mut cursor)?);
    }
    for _ in 0..cursor.array()? {
        cursor.unsigned()?; // a place that the batch discards
    }
    if cursor.at == body.len() { Some(facts) } else { None }
}

fn usual_fact<'a>(cursor: &mut Cursor<'a>) -> Option<Fact<'a>> {
    let fields = cursor.array()?;
    let kind = cursor.unsigned()?;
    match (kind, fields) {
        (PUT_DATA, 7) => {
            cursor.unsigned()?;
            let (configuration, object) = (cursor.binary()?, cursor.text()?.as_bytes());
            let (tag, element) = (cursor.tag()?, cursor.element()?);
            cursor.nil()?;
            let is_whole = element.length <= 0 || !element.bytes().is_empty();
            let is_usual = is_whole && element.length > LEFT_LENGTH && tag != Tag::default();
            is_usual.then_some(Fact { configuration, object, tag, element: Some(element) })
        }
        (TAGS_TRIMMED, 4) => {
            let (configuration, object) = (cursor.binary()?, cursor.text()?.as_bytes());
            Some(Fact { configuration, object, tag: cursor.tag()?, element: None })
        }
        _ => None,
    }
}

/// A configuration that is hosted, and its table; None if the table was collected.
struct Home<'py> {
    table: Option<PyRefMut<'py, ObjectTable>>,
    follows: bool,
    account: Option<Account>,
}

impl<'py> Home<'py> {
    fn of(hosted: &Bound<'py, PyDict>, id: &[u8]) -> Looked<Option<Self>> {
        let py = hosted.py();
        let Some(hosting) = hosted.get_item(PyBytes::new(py, id))? else { return Ok(None) };
        let table = hosting.getattr(intern!(py, "objects"))?.cast_into::<ObjectTable>()?;
        let table = table.try_borrow_mut().map_err(|_| Unusual::Left)?;
        let follows = !hosting.getattr(intern!(py, "successor"))?.is_none();
        let account = table.account();
        let is_collected = hosting.getattr(intern!(py, "collected"))?.is_truthy()?;
        let table = Some(table).filter(|_| !is_collected);
        Ok(Some(Home { table, follows, account }))
    }

    /// `ConfigurationState.restore`
    fn restore(&mut self, fact: &Fact, place: u32) {
        let Some(table) = &mut self.table else { return };
        let (rows, account) = (&mut table.rows, self.account.as_mut());
        let Some(element) = &fact.element else {
            return rows.trim(fact.object, fact.tag, place, account);
        };
        let (version, content) =
            (Version::of(fact.tag, element, place), Content::Small(element.bytes()));
        let number = rows.find_or_add(fact.object);
        if rows.row(number).position(fact.tag).is_ok() {
            return rows.replace(number, version, content, Some(place), account);
        }
        if self.follows {
            rows.follow(number);
        }
        rows.put(number, version, content, account);
    }
}

/// Join the facts of a batch at `place`; with `only`, the facts of this configuration. Return the
/// configurations that are not hosted, whose facts are passed over. None: no fact was joined.
#[pyfunction]
#[pyo3(signature = (hosted, body, place, only = None))]
pub fn replay(
    hosted: &Bound<PyDict>,
    body: PyBuffer<u8>,
    place: u32,
    only: Option<&[u8]>,
) -> PyResult<Option<Vec<Py<PyBytes>>>> {
    match joined(hosted, &body.to_vec(hosted.py())?, place, only) {
        Ok(unknown) => Ok(Some(unknown)),
        Err(Unusual::Left) => Ok(None),
        Err(Unusual::Raised(error)) => Err(error),
    }
}

fn joined(
    hosted: &Bound<PyDict>,
    body: &[u8],
    place: u32,
    only: Option<&[u8]>,
) -> Looked<Vec<Py<PyBytes>>> {
    let py = hosted.py();
    let mut facts = usual_facts(body).ok_or(Unusual::Left)?;
    facts.retain(|fact| only.is_none_or(|only| only == fact.configuration));
    let mut homes: HashMap<&[u8], Option<Home>> = HashMap::new();
    for fact in &facts {
        if !homes.contains_key(fact.configuration) {
            homes.insert(fact.configuration, Home::of(hosted, fact.configuration)?);
        }
    }
    let unknown: Vec<&[u8]> =
        homes.iter().filter(|(_, home)| home.is_none()).map(|(id, _)| *id).collect();
    // each unknown configuration reads the batch again
    usual(unknown.len() <= if only.is_some() { 0 } else { UNKNOWN_MAX })?;
    for fact in &facts {
        if let Some(Some(home)) = homes.get_mut(fact.configuration) {
            home.restore(fact, place);
        }
    }
    for home in homes.values_mut().flatten() {
        if let Some(table) = &home.table {
            table.settle(py, home.account.take())?;
        }
    }
    Ok(unknown.into_iter().map(|id| PyBytes::new(py, id).unbind()).collect())
}
