//! Timelines, as viewers read them.

#![allow(dead_code, reason = "no test looks at everything")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

/// A slice of a track.
#[derive(Debug, Clone)]
pub struct Slice {
    pub start: u64,
    pub end: u64,
    pub name: String,
    pub arguments: Value,
}

/// A timeline that viewers show whole.
#[derive(Debug)]
pub struct Timeline {
    /// By group and track.
    pub tracks: BTreeMap<(String, String), Vec<Slice>>,
    /// The marks of each track.
    pub marks: BTreeMap<(String, String), Vec<String>>,
    /// Arrows, each from a slice to a slice: the name of the track, and that of the slice.
    pub arrows: Vec<[(String, String); 2]>,
    /// How many of them lead back in time, or end in the moment in which they begin and have their
    /// end first in the file: viewers do not show these.
    pub leading_back: usize,
    pub about: Value,
}

/// A number of microseconds in nanoseconds, as viewers read it.
fn nanos(micros: &Value) -> u64 {
    (micros.as_f64().unwrap() * 1000.0).round() as u64
}

impl Timeline {
    /// Reads a timeline, and checks that viewers show all of it: slices of a track lie apart or
    /// inside each other, tracks have names of their own, and arrows have both ends, each at a
    /// slice that is there at its moment. Perfetto, which reads events in the order of their times,
    /// finds arrows at the same slices.
    #[track_caller]
    pub fn read(path: &Path) -> Timeline {
        let text = std::fs::read(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let file: Value = serde_json::from_slice(&text).expect("valid JSON");
        let events = file["traceEvents"].as_array().unwrap();
        let named = |event: &&Value, what: &str| event["ph"] == "M" && event["name"] == what;
        let name = |event: &Value| event["args"]["name"].as_str().unwrap().to_owned();
        let groups: BTreeMap<u64, String> = events
            .iter()
            .filter(|event| named(event, "process_name"))
            .map(|event| (event["pid"].as_u64().unwrap(), name(event)))
            .collect();
        let tracks: BTreeMap<u64, (String, String)> = events
            .iter()
            .filter(|event| named(event, "thread_name"))
            .map(|event| {
                let group = groups[&event["pid"].as_u64().unwrap()].clone();
                (event["tid"].as_u64().unwrap(), (group, name(event)))
            })
            .collect();
        assert_eq!(tracks.values().collect::<BTreeSet<_>>().len(), tracks.len(), "two of one name");
        let mut timeline = Timeline {
            tracks: tracks.values().map(|track| (track.clone(), Vec::new())).collect(),
            marks: BTreeMap::new(),
            arrows: Vec::new(),
            leading_back: 0,
            about: file["otherData"].clone(),
        };
        events.iter().for_each(has_what_the_format_demands);
        let mut ends: [BTreeMap<u64, (String, String)>; 2] = Default::default();
        let mut times: [BTreeMap<u64, (u64, usize)>; 2] = Default::default();
        for (place, event) in events.iter().enumerate() {
            let Some(track) = event["tid"].as_u64().map(|track| tracks[&track].clone()) else {
                continue;
            };
            let start = nanos_or_0(&event["ts"]);
            match event["ph"].as_str().unwrap() {
                "M" | "b" | "e" => {}
                "i" => {
                    let name = event["name"].as_str().unwrap().to_owned();
                    timeline.marks.entry(track).or_default().push(name);
                }
                "X" => timeline.tracks.get_mut(&track).unwrap().push(Slice {
                    start,
                    end: start + nanos(&event["dur"]),
                    name: event["name"].as_str().unwrap().to_owned(),
                    arguments: event["args"].clone(),
                }),
                end @ ("s" | "f") => {
                    // A viewer fastens it to the slice that was written last.
                    let slice = timeline.tracks[&track].last().expect("a slice before an arrow");
                    assert!((slice.start..=slice.end).contains(&start), "{event} at {slice:?}");
                    let (end, id) = (usize::from(end == "f"), event["id"].as_u64().unwrap());
                    let at = (track.1, slice.name.clone());
                    assert!(ends[end].insert(id, at).is_none(), "{event}");
                    times[end].insert(id, (start, place));
                }
                other => panic!("what is {other}? {event}"),
            }
        }
        let [from, to] = ends;
        assert!(from.keys().eq(to.keys()), "arrows with one end: {from:?} {to:?}");
        let leads_back = |(id, begins): &(&u64, &(u64, usize))| **begins > times[1][*id];
        timeline.leading_back = times[0].iter().filter(leads_back).count();
        assert_eq!(fastened_by_time(events, &tracks), [&from, &to].map(Clone::clone));
        timeline.arrows = from.into_values().zip(to.into_values()).map(<[_; 2]>::from).collect();
        timeline.tracks.iter().for_each(|(track, slices)| nested(track, slices));
        timeline
    }

    /// The slices of a program's track. On a simulated machine, another one of that name has what
    /// the library takes there.
    #[track_caller]
    pub fn track(&self, name: &str) -> &[Slice] {
        let found = self.tracks.iter().filter(|((_, track), _)| track == name);
        let found = found.max_by_key(|((group, _), _)| group == "programs");
        found.unwrap_or_else(|| panic!("no track {name}: {:?}", self.tracks.keys())).1
    }

    /// How many slices of a track have a name.
    #[track_caller]
    pub fn count(&self, track: &str, name: &str) -> usize {
        self.track(track).iter().filter(|slice| slice.name == name).count()
    }
}

/// Each event has the fields that the Trace Event Format demands of its phase, of the right types.
#[track_caller]
fn has_what_the_format_demands(event: &Value) {
    let demand = |field: &str, is: fn(&Value) -> bool| {
        assert!(is(&event[field]), "{field} of {event}");
    };
    demand("ph", Value::is_string);
    demand("pid", Value::is_u64);
    let phase = event["ph"].as_str().unwrap();
    if phase != "M" {
        demand("tid", Value::is_u64);
        demand("ts", |time| time.as_f64().is_some_and(|time| time >= 0.0));
    }
    demand("name", Value::is_string);
    match phase {
        "X" => demand("dur", |time| time.as_f64().is_some_and(|time| time >= 0.0)),
        "s" | "f" | "b" | "e" => {
            demand("id", Value::is_u64);
            demand("cat", Value::is_string);
        }
        "i" => demand("s", |scope| scope == "t"),
        "M" => {
            let what = event["name"].as_str().unwrap();
            let arguments = &event["args"];
            let right = match what {
                "process_name" | "thread_name" => arguments["name"].is_string(),
                "process_sort_index" | "thread_sort_index" => arguments["sort_index"].is_i64(),
                other => panic!("what is {other}? {event}"),
            };
            assert!(right, "{event}");
        }
        other => panic!("what is {other}? {event}"),
    }
}

/// The slices at which arrows begin and end, for a viewer that reads events in the order of their
/// times: an arrow is at the slice of its track that has begun last, of those that had not ended
/// when another one began.
fn fastened_by_time(
    events: &[Value],
    tracks: &BTreeMap<u64, (String, String)>,
) -> [BTreeMap<u64, (String, String)>; 2] {
    let drawn = |event: &&Value| matches!(event["ph"].as_str(), Some("X" | "s" | "f"));
    let mut sorted: Vec<&Value> = events.iter().filter(drawn).collect();
    sorted.sort_by_key(|event| nanos(&event["ts"]));
    let mut open: BTreeMap<u64, Vec<(u64, &str)>> = BTreeMap::new();
    let mut ends: [BTreeMap<u64, (String, String)>; 2] = Default::default();
    for event in sorted {
        let (track, start) = (event["tid"].as_u64().unwrap(), nanos(&event["ts"]));
        let stack = open.entry(track).or_default();
        if event["ph"] == "X" {
            while stack.last().is_some_and(|&(end, _)| end <= start) {
                stack.pop();
            }
            stack.push((start + nanos(&event["dur"]), event["name"].as_str().unwrap()));
            continue;
        }
        let (_, name) = stack.last().unwrap_or_else(|| panic!("{event} is at no slice"));
        let at = (tracks[&track].1.clone(), (*name).to_owned());
        ends[usize::from(event["ph"] == "f")].insert(event["id"].as_u64().unwrap(), at);
    }
    ends
}

fn nanos_or_0(micros: &Value) -> u64 {
    if micros.is_null() { 0 } else { nanos(micros) }
}

/// Slices are written in the order in which they begin, and lie apart or inside each other.
#[track_caller]
fn nested(track: &(String, String), slices: &[Slice]) {
    assert!(slices.is_sorted_by_key(|slice| slice.start), "{track:?} is in no order");
    let mut sorted: Vec<&Slice> = slices.iter().collect();
    sorted.sort_by_key(|slice| (slice.start, Reverse(slice.end)));
    let mut around: Vec<&Slice> = Vec::new();
    for slice in sorted {
        while around.last().is_some_and(|outer| outer.end <= slice.start) {
            around.pop();
        }
        if let Some(outer) = around.last() {
            assert!(slice.end <= outer.end, "{track:?}: {outer:?} and {slice:?} overlap");
        }
        around.push(slice);
    }
}
