//! The file of records, for those who make and read it: launchers and agents.

use super::Kind;
use super::events::Events;
use super::layout::{
    CALLS, COUNTERS, CallRecord, Cell, Geometry, KINDS, NAME_BYTES, ObjectRecord, PartHeader,
};
use super::objects::ObjectKind;
use super::part::Part;
use crate::base::error::{Error, Result};
use crate::base::memory::{Mapping, create_memfd};
use crate::base::settings::ENV_RECORD_FD;
use crate::base::shm;
use crate::base::shows;
use crate::endpoint::recorder::objects::Stats;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{SeekFrom, seek};
use std::mem::offset_of;
use std::ops::Range;

/// A file of records. Processes that inherit its descriptor, and the variable that names it,
/// record.
pub struct RecordFile {
    fd: OwnedFd,
    geometry: Geometry,
}

shows!([] RecordFile as "RecordFile", |it| geometry = it.geometry);

/// What a PE has counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// The calls, by name, in the order of their first calls.
    pub calls: Vec<CallCount>,
    /// The operations, by target and kind; those that were never made are not here.
    pub operations: Vec<OperationCount>,
    /// The shared objects and channels, in the order in which they were made.
    pub objects: Vec<ObjectCount>,
}

/// What a PE has spent in the calls of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallCount {
    /// The name.
    pub name: String,
    /// Calls that have returned.
    pub calls: u64,
    /// Nanoseconds in them.
    pub nanos: u64,
    /// Waits in them that did not end at their first looks.
    pub waits: u64,
    /// Nanoseconds in these.
    pub wait_nanos: u64,
}

/// The operations of one kind on one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationCount {
    /// The target.
    pub target: usize,
    /// The kind.
    pub kind: Kind,
    /// How many.
    pub operations: u64,
    /// Bytes that they have moved.
    pub bytes: u64,
}

/// What a PE has done with a shared object, or with its end of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectCount {
    /// What it is.
    pub kind: ObjectKind,
    /// The fields of [`Stats`](crate::dsm::Stats).
    pub stats: Stats,
}

impl RecordFile {
    /// Makes a file with parts for `parts` PEs, from `first` on, of a job of `npes`; each has room
    /// for `events` bytes.
    ///
    /// # Errors
    /// [`Error::System`]; [`Error::Misuse`] where there cannot be so many PEs or bytes.
    pub fn create(npes: usize, first: usize, parts: usize, events: u64) -> Result<RecordFile> {
        let geometry = Geometry::new(npes, first, parts, events).ok_or(TOO_MANY)?;
        let fd = create_memfd("memonet-record", geometry.file_bytes())?;
        let page = Mapping::part(&fd, 0, Geometry::HEADER_BYTES)?;
        let header = geometry.header();
        // SAFETY: the page is mapped, and a header fits.
        unsafe { shm::copy(page.at(0), (&raw const header).cast(), size_of_val(&header)) };
        Ok(RecordFile { fd, geometry })
    }

    /// Where everything is in it.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The variable by which PEs find it, and its value.
    pub fn environment(&self) -> (&'static str, String) {
        (ENV_RECORD_FD, self.fd.as_raw_fd().to_string())
    }

    /// The part of PE `me` of a job whose PEs are threads of this process.
    pub(crate) fn part(&self, me: usize) -> Result<Part> {
        let part = Part::attach(&self.fd, me, self.geometry.npes);
        part.map_err(|problem| {
            let problem = std::io::Error::other(format!("it {problem}"));
            Error::system("mapping a part of the file of records", problem, "")
        })
    }

    /// What PE `pe` has counted so far; `None` where it has no part, or no process has recorded
    /// into it.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn counts(&self, pe: usize) -> Result<Option<Counts>> {
        let Some(part) = self.geometry.part_of(pe) else { return Ok(None) };
        let read = |range: Range<u64>| self.read(part + range.start..part + range.end);
        let header = read(0..size_of::<PartHeader>() as u64)?;
        if word(&header, offset_of!(PartHeader, is_used)) == 0 {
            return Ok(None);
        }
        let [calls, objects] = [Geometry::call_at(0), Geometry::object_at(0)];
        let cells = Geometry::cell_at(0, 0);
        let calls = parse_calls(&read(calls..objects)?);
        let objects = parse_objects(&read(objects..cells)?);
        let end = Geometry::cell_at(self.geometry.npes, 0);
        let mut operations = Vec::new();
        for written in self.written(part + cells..part + end)? {
            // Whole rows, as pages end anywhere.
            let row = |at: u64| (at - part - cells) / ROW_BYTES;
            let rows = row(written.start)..row(written.end - 1) + 1;
            let bytes = read(cells + rows.start * ROW_BYTES..cells + rows.end * ROW_BYTES)?;
            let first = rows.start as usize;
            // A row that lies in two pages is read with the first.
            let after = operations.last().map_or(0, |last: &OperationCount| last.target + 1);
            operations.extend(parse_cells(&bytes, first).filter(|found| found.target >= after));
        }
        Ok(Some(Counts { calls, operations, objects }))
    }

    /// The events of PE `pe`; `None` where it has no part, or the file has no room for events.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn events(&self, pe: usize) -> Result<Option<Events<'_>>> {
        let Some(part) = self.geometry.part_of(pe) else { return Ok(None) };
        let Geometry { npes, events, .. } = self.geometry;
        Events::of(self.fd.as_fd(), part + self.geometry.events_at(), events, npes)
    }

    /// Makes a file for what another host sends of its own one, of the same geometry, in `file`,
    /// which is empty. Nobody records into it.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn received(
        file: OwnedFd,
        (npes, first, parts): (usize, usize, usize),
        events: u64,
    ) -> Result<RecordFile> {
        let geometry = Geometry::new(npes, first, parts, events).ok_or(TOO_MANY)?;
        rustix::fs::ftruncate(&file, geometry.file_bytes())
            .map_err(|error| Error::system("making a file of records", error, ""))?;
        Ok(RecordFile { fd: file, geometry })
    }

    /// What is used of PE `pe`'s events, in pieces of at most `most` bytes, each with its place
    /// among them.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn pieces(
        &self,
        pe: usize,
        most: u64,
    ) -> Result<impl Iterator<Item = Result<(u64, Vec<u8>)>> + '_> {
        let used = self.events(pe)?.map(|events| events.used()).into_iter().flatten();
        let at = self.geometry.part_of(pe).unwrap_or(0) + self.geometry.events_at();
        let pieces = move |range: Range<u64>| {
            let starts = range.clone().step_by(most as usize);
            starts.map(move |start| start..range.end.min(start + most))
        };
        Ok(used
            .flat_map(pieces)
            .map(move |piece| Ok((piece.start, self.read(at + piece.start..at + piece.end)?))))
    }

    /// Takes such a piece. It may be anything.
    ///
    /// # Errors
    /// [`Error::System`]; [`Error::Misuse`] where it has no place.
    pub fn receive(&self, pe: usize, at: u64, bytes: &[u8]) -> Result<()> {
        let fits =
            at.checked_add(bytes.len() as u64).is_some_and(|end| end <= self.geometry.events);
        let part = self.geometry.part_of(pe).filter(|_| fits);
        let part = part.ok_or(Error::misuse("events that have no place in a file of records"))?;
        let (mut done, at) = (0, part + self.geometry.events_at() + at);
        while done < bytes.len() {
            match rustix::io::pwrite(&self.fd, &bytes[done..], at + done as u64) {
                Ok(written) => done += written,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::system("writing a file of records", error, "")),
            }
        }
        Ok(())
    }

    /// The bytes of a range of the file.
    fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pread(&self.fd, &mut bytes[done..], range.start + done as u64) {
                // The file is sealed, so this is its end: the rest is zeros.
                Ok(0) => break,
                Ok(read) => done += read,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::system("reading the file of records", error, "")),
            }
        }
        Ok(bytes)
    }

    /// The parts of a range that have pages: all else is zeros.
    fn written(&self, range: Range<u64>) -> Result<Vec<Range<u64>>> {
        let failed = |error| Error::system("reading the file of records", error, "");
        let (mut found, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let start = match seek(&self.fd, SeekFrom::Data(at)) {
                Ok(start) if start < range.end => start,
                Ok(_) | Err(rustix::io::Errno::NXIO) => break,
                Err(error) => return Err(failed(error)),
            };
            at = seek(&self.fd, SeekFrom::Hole(start)).map_err(failed)?.min(range.end);
            found.push(start..at);
        }
        Ok(found)
    }
}

const TOO_MANY: Error = Error::misuse("so many PEs or events are more than a file of records has");

/// Bytes of the cells of one target.
const ROW_BYTES: u64 = (KINDS * size_of::<Cell>()) as u64;

/// A word of a part; 0 beyond its end.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The records of calls. They may hold anything.
fn parse_calls(bytes: &[u8]) -> Vec<CallCount> {
    let record = |record: &[u8]| {
        let at = |field| word(record, field);
        let len = at(offset_of!(CallRecord, len)).min(NAME_BYTES as u64) as usize;
        let name = record.get(offset_of!(CallRecord, name)..)?.get(..len)?;
        // Names go to terminals.
        let name = String::from_utf8_lossy(name).replace(char::is_control, "?");
        (len > 0).then(|| CallCount {
            name,
            calls: at(offset_of!(CallRecord, calls)),
            nanos: at(offset_of!(CallRecord, nanos)),
            waits: at(offset_of!(CallRecord, waits)),
            wait_nanos: at(offset_of!(CallRecord, wait_nanos)),
        })
    };
    let records = bytes.chunks(size_of::<CallRecord>()).take(CALLS).map_while(record);
    records.filter(|call| (call.calls, call.waits) != (0, 0)).collect()
}

/// The records of objects. They may hold anything.
fn parse_objects(bytes: &[u8]) -> Vec<ObjectCount> {
    let record = |record: &[u8]| {
        let kind = word(record, offset_of!(ObjectRecord, kind)).checked_sub(1)?;
        let kind = *ObjectKind::ALL.get(usize::try_from(kind).ok()?)?;
        let first = offset_of!(ObjectRecord, counters);
        let counters: [u64; COUNTERS] = std::array::from_fn(|at| word(record, first + 8 * at));
        Some(ObjectCount { kind, stats: Stats::of(counters) })
    };
    bytes.chunks(size_of::<ObjectRecord>()).map_while(record).collect()
}

/// The cells of rows of targets, from `first` on.
fn parse_cells(bytes: &[u8], first: usize) -> impl Iterator<Item = OperationCount> {
    bytes.chunks(size_of::<Cell>()).enumerate().filter_map(move |(index, cell)| {
        let count = OperationCount {
            target: first + index / KINDS,
            kind: Kind::ALL[index % KINDS],
            operations: word(cell, offset_of!(Cell, operations)),
            bytes: word(cell, offset_of!(Cell, bytes)),
        };
        ((count.operations, count.bytes) != (0, 0)).then_some(count)
    })
}

/// The part of PE `me` in the file that this process has inherited, if it has any.
pub(crate) fn inherited(me: usize, npes: usize) -> Result<Option<Part>> {
    let Some(value) = std::env::var_os(ENV_RECORD_FD) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    let refused = |problem: String| Error::Environment {
        name: ENV_RECORD_FD,
        value: value.clone(),
        problem,
        fix: "Unset it; `memonet run --stats` sets it for what it starts",
    };
    let raw: Option<i32> = value.parse().ok().filter(|&raw| raw > 2);
    let raw = raw.ok_or_else(|| refused("is no descriptor of a launcher".into()))?;
    // SAFETY: the launcher opened it for this, and nothing here closes it, so that a program that
    // this one becomes by exec finds it, too; the kernel refuses a call on a closed descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(raw) };
    let fd =
        fd.try_clone_to_owned().map_err(|error| refused(format!("cannot be used: {error}")))?;
    Part::attach(&fd, me, npes).map(Some).map_err(refused)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(npes: usize, counted: &[(usize, Kind, usize)]) -> (RecordFile, Counts) {
        let file = RecordFile::create(npes, 0, npes, 0).unwrap();
        let part = Part::attach(&file.fd, npes - 1, npes).unwrap();
        counted.iter().for_each(|&(target, kind, bytes)| part.count(kind, target, bytes));
        let counts = file.counts(npes - 1).unwrap().unwrap();
        (file, counts)
    }

    #[test]
    fn a_part_that_nobody_has_used_has_no_counts() {
        let file = RecordFile::create(4, 1, 2, 0).unwrap();
        assert_eq!([0, 1, 2, 3].map(|pe| file.counts(pe).unwrap()), [None, None, None, None]);
        assert!(Part::attach(&file.fd, 0, 4).is_err(), "PE 0 has no part");
        assert!(Part::attach(&file.fd, 1, 5).is_err(), "another job");
        let part = Part::attach(&file.fd, 2, 4).unwrap();
        part.name(0, "call");
        part.called(0, 7);
        part.waited(0, 5);
        let call = CallCount { name: "call".into(), calls: 1, nanos: 7, waits: 1, wait_nanos: 5 };
        assert_eq!(file.counts(2).unwrap().unwrap().calls, [call]);
        assert_eq!(file.counts(1).unwrap(), None);
    }

    #[test]
    fn rows_in_two_pages_count_once() {
        let all: Vec<_> = (0..300).map(|target| (target, Kind::Get, target)).collect();
        let (_, counts) = filled(300, &all);
        let found = |count: &OperationCount| (count.target, count.kind, count.bytes as usize);
        assert_eq!(counts.operations.iter().map(found).collect::<Vec<_>>(), all);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn what_is_counted_is_read(
            npes in 1usize..1500,
            counted in proptest::collection::vec((any::<usize>(), 0..KINDS, 0..1usize << 20), 0..50),
        ) {
            let counted: Vec<_> = counted
                .into_iter()
                .map(|(target, kind, bytes)| (target % npes, Kind::ALL[kind], bytes))
                .collect();
            let (_, counts) = filled(npes, &counted);
            let mut expected = std::collections::BTreeMap::new();
            for (target, kind, bytes) in counted {
                let (operations, all) = expected.entry((target, kind)).or_insert((0, 0));
                (*operations, *all) = (*operations + 1, *all + bytes as u64);
            }
            let found = counts.operations.into_iter();
            let found = found.map(|c| ((c.target, c.kind), (c.operations, c.bytes)));
            prop_assert!(found.eq(expected));
        }

        /// The reader of a part that holds anything.
        #[test]
        fn garbage_is_read_as_something(
            bytes in proptest::collection::vec(any::<u8>(), 0..20_000), npes in 1usize..200,
        ) {
            let calls = parse_calls(&bytes);
            prop_assert!(calls.len() <= CALLS);
            prop_assert!(calls.iter().all(|call| !call.name.chars().any(char::is_control)));
            prop_assert!(parse_objects(&bytes).len() <= bytes.len().div_ceil(48));
            prop_assert!(parse_cells(&bytes, npes).all(|cell| cell.target >= npes));
            let file = RecordFile::create(npes, 0, 1, 0).unwrap();
            let at = file.geometry().part_of(0).unwrap();
            let kept = bytes.len().min(file.geometry().part_bytes() as usize);
            rustix::io::pwrite(&file.fd, &bytes[..kept], at).unwrap();
            let counts = file.counts(0).unwrap().unwrap_or_default();
            prop_assert!(counts.operations.iter().all(|count| count.target < npes));
        }

        #[test]
        fn no_file_is_believed(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            let fd = create_memfd("memonet-record", bytes.len() as u64).unwrap();
            rustix::io::pwrite(&fd, &bytes, 0).unwrap();
            prop_assert!(Part::attach(&fd, 0, 1).is_err());
        }
    }
}
