//! The hosts of a job, and the PEs that each gets.
//!
//! Lists are memonet's own, or written for Open MPI or MPICH: `a:4,b:4`, or in a file `a`, `a:4` or
//! `a slots=4`, a host a line.
//!
//! PEs are numbered host by host, in the order of the list. A host that stands there twice, as in
//! lists that schedulers write, has the sum of the slots, at its first place.

use std::path::Path;

use anyhow::{Context, Result, bail};
use memonet_core::unstable::layout::MAX_PES;

/// A host of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name, as the user has written it.
    pub name: String,
    /// PEs that it may have, if the list says so.
    pub slots: Option<usize>,
}

/// PEs of one host, which follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allotment {
    pub host: String,
    pub first: usize,
    pub count: usize,
}

/// Reads `a:4,b:4`.
pub fn parse(list: &str) -> Result<Vec<Host>> {
    let hosts = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    let hosts = hosts.map(host).collect::<Result<Vec<_>>>()?;
    merge(hosts)
}

/// The list as [`parse`] reads it.
pub fn text(hosts: &[Host]) -> String {
    let host = |Host { name, slots }: &Host| {
        let name = if name.contains(':') { format!("[{name}]") } else { name.clone() };
        slots.map_or_else(|| name.clone(), |slots| format!("{name}:{slots}"))
    };
    hosts.iter().map(host).collect::<Vec<_>>().join(",")
}

/// Reads a file with a host in each line. What follows `#` is a comment.
pub fn read(file: &Path) -> Result<Vec<Host>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the list of hosts in {}", file.display()))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let hosts = lines.filter(|line| !line.is_empty()).map(line).collect::<Result<Vec<_>>>();
    merge(hosts.with_context(|| format!("in {}", file.display()))?)
}

fn line(text: &str) -> Result<Host> {
    // Open MPI takes blanks around `=`.
    let text = text.split('=').map(str::trim).collect::<Vec<_>>().join("=");
    let mut words = text.split_whitespace();
    let mut host = host(words.next().unwrap_or_default())?;
    for word in words {
        match word.split_once('=') {
            Some(("slots" | "count" | "cpu" | "cpus", number)) => host.slots = Some(slots(number)?),
            // The most that Open MPI would start there, and what MPICH would bind it to.
            Some(("max_slots" | "max-slots" | "slots_max" | "slots-max" | "binding", _)) => {}
            Some(("user" | "username" | "user_name" | "user-name", user)) => {
                host.name = checked(&format!("{user}@{}", host.name))?.into();
            }
            Some(("port", _)) => bail!(
                "{word:?}, after the host {}: name the port in the configuration of ssh (~/.ssh/config)",
                host.name
            ),
            Some(("ifname", name)) => bail!(
                "{word:?}, after the host {}: name the network for all hosts, by --interface {name}",
                host.name
            ),
            _ => bail!(
                "{word:?}, after the host {}, is no word of a list of hosts. Write `host`, `host:4` or `host slots=4`",
                host.name
            ),
        }
    }
    Ok(host)
}

fn host(word: &str) -> Result<Host> {
    // The colons of a bare IPv6 address do not stand before slots.
    let is_bare = |name: &str| name.contains(':') && !name.ends_with(']');
    let (name, number) = match word.rsplit_once(':') {
        Some((name, number)) if !is_bare(name) && !word.ends_with(']') => (name, Some(number)),
        _ => (word, None),
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let name = checked(address.unwrap_or(name))?;
    Ok(Host { name: name.into(), slots: number.map(slots).transpose()? })
}

fn checked(name: &str) -> Result<&str> {
    // The program that starts agents must not take a host for an option. The others mean sets of
    // hosts to other launchers.
    let is_strange = |c: char| c.is_whitespace() || c.is_control() || "[]{},=^*".contains(c);
    if name.is_empty() || name.starts_with(['-', '+']) || name.contains(is_strange) {
        bail!("{name:?} names no host. Name each by itself: --hosts a:4,b:4");
    }
    Ok(name)
}

fn slots(number: &str) -> Result<usize> {
    match number.parse() {
        Ok(slots) if (1..=MAX_PES).contains(&slots) => Ok(slots),
        _ => bail!("{number:?} is no number of PEs of a host: there can be 1 to {MAX_PES}"),
    }
}

fn merge(hosts: Vec<Host>) -> Result<Vec<Host>> {
    let mut merged: Vec<Host> = Vec::new();
    for host in hosts {
        match merged.iter_mut().find(|other| other.name == host.name) {
            Some(other) => {
                other.slots = Some(other.slots.unwrap_or(1) + host.slots.unwrap_or(1));
            }
            None => merged.push(host),
        }
    }
    if merged.is_empty() {
        bail!("the list of hosts is empty. Write e.g. --hosts a:4,b:4");
    }
    Ok(merged)
}

/// Gives `npes` PEs to the hosts, or as many as there are slots: to each in order as many as it has
/// slots. Where no host has a number of slots, each gets an equal share.
pub fn allot(hosts: &[Host], npes: Option<usize>) -> Result<Vec<Allotment>> {
    let open = hosts.iter().all(|host| host.slots.is_none());
    let capacity: usize = hosts.iter().map(|host| host.slots.unwrap_or(1)).sum();
    let npes = npes.unwrap_or(capacity);
    if npes > MAX_PES {
        bail!("{npes} PEs: a job has at most {MAX_PES}");
    }
    if npes > capacity && !open {
        bail!(
            "{npes} PEs on hosts with {capacity} slots. Give the hosts more (--hosts a:4,b:4), or start fewer PEs"
        );
    }
    let (mut first, mut all) = (0, Vec::new());
    for (number, host) in hosts.iter().enumerate() {
        let left = npes - first;
        let count = match open {
            true => left.div_ceil(hosts.len() - number),
            false => left.min(host.slots.unwrap_or(1)),
        };
        if count > 0 {
            all.push(Allotment { host: host.name.clone(), first, count });
        }
        first += count;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(list: &str, npes: Option<usize>) -> Vec<(String, usize, usize)> {
        let all = allot(&parse(list).unwrap(), npes).unwrap();
        all.into_iter().map(|a| (a.host, a.first, a.count)).collect()
    }

    fn of(list: &[(&str, usize, usize)]) -> Vec<(String, usize, usize)> {
        list.iter().map(|&(host, first, count)| (host.into(), first, count)).collect()
    }

    #[test]
    fn pes_fill_hosts_in_order() {
        assert_eq!(counts("a:4,b:4", None), of(&[("a", 0, 4), ("b", 4, 4)]));
        assert_eq!(counts("a:4,b:4", Some(5)), of(&[("a", 0, 4), ("b", 4, 1)]));
        assert_eq!(counts("a:4,b:4", Some(4)), of(&[("a", 0, 4)]));
        assert_eq!(counts("a:2,b:2,a:2", None), of(&[("a", 0, 4), ("b", 4, 2)]));
        assert_eq!(counts("a,a,b", None), of(&[("a", 0, 2), ("b", 2, 1)]));
        assert_eq!(counts("a,b", None), of(&[("a", 0, 1), ("b", 1, 1)]));
        assert_eq!(counts("a,b,c", Some(7)), of(&[("a", 0, 3), ("b", 3, 2), ("c", 5, 2)]));
        assert_eq!(
            counts("me@a:1, [fe80::1]:2,::1", None)[1..],
            of(&[("fe80::1", 1, 2), ("::1", 3, 1)])
        );
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let strange = ["^a", "+n0", "a[1-3]", "a:*", "a=b", "[a", "a\0"];
        let others = ["", ",", "a:0", "a:x", "a:-1", ":4", "-oProxyCommand=x", "a b:4", "a:99999"];
        for bad in strange.iter().chain(&others) {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(allot(&parse("a:2,b").unwrap(), Some(4)).is_err());
    }

    #[test]
    fn files_have_comments_and_slots() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts");
        std::fs::write(&file, "# mine\na slots=2\n\nb:3 # fast\nc\na slots=1 max_slots=8\n")
            .unwrap();
        let read = read(&file).unwrap();
        let read: Vec<_> = read.iter().map(|host| (host.name.as_str(), host.slots)).collect();
        assert_eq!(read, [("a", Some(3)), ("b", Some(3)), ("c", None)]);
        std::fs::write(&file, "a 4\n").unwrap();
        assert!(super::read(&file).is_err() && super::read(&folder.path().join("none")).is_err());
    }

    #[test]
    fn lines_of_other_launchers() {
        let table = [
            ("a slots = 4 max-slots=8", "a:4"),
            ("a cpu=2", "a:2"),
            ("a:3 binding=user:0,1", "a:3"),
            ("a username=me count=2", "me@a:2"),
            ("[::1]:2", "[::1]:2"),
        ];
        for (written, means) in table {
            assert_eq!(text(&[line(written).unwrap()]), means, "{written}");
        }
        for (written, fix) in [("a port=2222", "ssh"), ("a ifname=ib0", "--interface ib0")] {
            assert!(line(written).unwrap_err().to_string().contains(fix), "{written}");
        }
    }

    proptest! {
        /// Whatever is taken for a list is one: written out, it is read again.
        #[test]
        fn garbage_is_an_error_or_a_list(
            any in ".{0,60}",
            alike in r"([ab1:@=,.\[\] ]|slots|user|-){0,20}",
        ) {
            for words in [any, alike] {
                if let Ok(hosts) = parse(&words) {
                    prop_assert_eq!(parse(&text(&hosts)).unwrap(), hosts);
                }
                if let Ok(host) = line(words.trim()) {
                    prop_assert_eq!(parse(&text(std::slice::from_ref(&host))).unwrap(), [host]);
                }
            }
        }
    }
}
