//! `memonet doctor --hosts a,b`: what each host has, and what lies between them.

use std::ffi::OsString;
use std::io::{BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::process::{Child, ChildStdin, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use memonet_core::unstable::settings::{self, ENV_PORTS};
use memonet_fabrics::between::Between;
use memonet_tcp::agent::NodeInfo;

use super::Verdict;
use super::report::Report;
use super::talk::{About, FromHost, Stream, ToHost, hear, say};
use crate::run::{self, Chosen};

/// How long a host may take to answer a call, and a question.
const CALL: Duration = Duration::from_secs(15);
const ANSWER: Duration = Duration::from_secs(30);
/// Questions for the time.
const CLOCKS: usize = 5;
/// Clocks that differ by more make times of files and logs hard to read.
const APART_NS: i64 = 1_000_000_000;
/// A call that takes longer delays each start.
const SLOW_CALL: Duration = Duration::from_secs(2);

/// A host that was called.
struct Host {
    name: String,
    child: Child,
    /// Dropped at the end: that ends the other end.
    to: Option<ChildStdin>,
    /// What it has said, and when.
    from: Receiver<(Instant, Result<Option<FromHost>>)>,
    errors: Option<JoinHandle<String>>,
    called: Instant,
    answered: Duration,
    about: Option<About>,
    /// Its number among those that were asked to meet.
    node: Option<u32>,
    clock: Option<Clock>,
    streams: Vec<Stream>,
    joined: Option<Result<(), String>>,
    heard: Vec<u32>,
    /// Why nothing more is asked of it, and what helps.
    lost: Option<(String, String)>,
}

/// A host's clock, compared with the doctor's, in ns.
#[derive(Clone, Copy)]
struct Clock {
    ahead: i64,
    within: i64,
}

/// `memonet doctor --hosts`.
pub fn run(chosen: &Chosen, names: &[String], json: bool) -> Result<ExitCode> {
    // A host that is gone must not end the doctor.
    on_broken_pipe(libc::SIG_IGN);
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    bar.set_message(format!("calling {}", names.join(", ")));
    let mut hosts =
        names.iter().map(|name| Host::call(chosen, name, 0)).collect::<Result<Vec<_>>>()?;
    begin(chosen, &mut hosts)?;
    bar.set_message("comparing clocks");
    hosts.iter_mut().for_each(Host::compare_clocks);
    bar.set_message("making streams between all pairs");
    meet(&mut hosts)?;
    bar.set_message("sending multicast datagrams");
    cast(&mut hosts)?;
    bar.finish_and_clear();
    on_broken_pipe(libc::SIG_DFL);
    let mut report = Report::new(json);
    report.text(&format!("memonet {}, {} hosts\n", run::version(), hosts.len()));
    hosts.iter().for_each(|host| report_host(&mut report, host));
    report_differences(&mut report, &hosts);
    report_streams(&mut report, &hosts);
    report_multicast(&mut report, &hosts);
    let is_good = report.is_good();
    let summary = summary(is_good, &hosts);
    report.end(&super::system(), &summary)?;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What becomes of this process when it writes to nobody.
fn on_broken_pipe(action: libc::sighandler_t) {
    // SAFETY: the action is the default one or to ignore the signal: no code is called.
    unsafe { libc::signal(libc::SIGPIPE, action) };
}

impl Host {
    fn call(chosen: &Chosen, name: &str, attempt: usize) -> Result<Host> {
        let memonet = match attempt {
            0 => run::this_program()?.into_os_string(),
            _ => "memonet".into(),
        };
        let mut command =
            chosen.command(name, &[memonet, "doctor".into(), OsString::from("--as-host")])?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let called = Instant::now();
        let mut child =
            command.spawn().with_context(|| format!("cannot start the call of {name}"))?;
        let output = child.stdout.take().context("no pipe from a call")?;
        let mut errors = child.stderr.take().context("no pipe from a call")?;
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let heard = hear(&mut output);
                let goes_on = matches!(heard, Ok(Some(_)));
                // The doctor may be satisfied before.
                if sender.send((Instant::now(), heard)).is_err() || !goes_on {
                    return;
                }
            }
        });
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            // What came before an error is all there is.
            let _ = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).trim().to_owned()
        });
        Ok(Host {
            name: name.into(),
            to: child.stdin.take(),
            child,
            from,
            errors: Some(errors),
            called,
            answered: Duration::ZERO,
            about: None,
            node: None,
            clock: None,
            streams: Vec::new(),
            joined: None,
            heard: Vec::new(),
            lost: None,
        })
    }

    fn ask(&mut self, message: &ToHost) {
        if let Some(to) = &mut self.to {
            // A host that is gone answers nothing, which is told then.
            let _ = say(to, message);
        }
    }

    /// The answer, or `None` where the host is lost.
    fn answer(&mut self, limit: Duration) -> Option<FromHost> {
        self.answer_at(limit).map(|(_, answer)| answer)
    }

    /// The answer, and when it came.
    fn answer_at(&mut self, limit: Duration) -> Option<(Instant, FromHost)> {
        if self.lost.is_some() {
            return None;
        }
        let why = match self.from.recv_timeout(limit) {
            Ok((_, Ok(Some(FromHost::Failed(why))))) => {
                (why, "see the message; `memonet doctor` on that host may say more".to_owned())
            }
            Ok((at, Ok(Some(message)))) => return Some((at, message)),
            Err(RecvTimeoutError::Timeout) => {
                let fix = format!("see whether `{}` returns at once", self.example());
                (format!("no answer within {limit:?}"), fix)
            }
            Ok((_, Err(error))) => {
                (format!("{error:#}"), "install one version on all hosts".into())
            }
            Ok((_, Ok(None))) | Err(RecvTimeoutError::Disconnected) => self.why_ended(),
        };
        self.lose(why);
        None
    }

    /// Whether the call was answered.
    fn greets(&mut self) -> bool {
        let answer = self.answer_at(CALL);
        // Others may have been heard before, for long.
        self.answered = answer.as_ref().map_or(self.called.elapsed(), |(at, _)| *at - self.called);
        answer.is_some()
    }

    fn lose(&mut self, why: (String, String)) {
        self.lost = Some(why);
        self.to = None;
        // It may have ended.
        let _ = self.child.kill();
    }

    /// The command that a user would type.
    fn example(&self) -> String {
        format!("ssh -o BatchMode=yes {} true", self.name)
    }

    /// The call has ended.
    fn why_ended(&mut self) -> (String, String) {
        let status = self.child.wait().map_or(String::new(), |status| status.to_string());
        let said = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        let said = said.lines().last().map_or(String::new(), |line| format!(": {line}"));
        let fix = if self.is_missing() {
            "install memonet there at this program's path or on PATH, or share it with that host"
                .into()
        } else if said.contains("--as-host") {
            "install one version of memonet on all hosts".into()
        } else {
            format!(
                "`{}` must work without a password (or --launch-agent's command)",
                self.example()
            )
        };
        (format!("the call has ended with {status}{said}"), fix)
    }

    /// Whether a shell found no memonet there.
    fn is_missing(&mut self) -> bool {
        let status = self.child.try_wait().ok().flatten();
        matches!(status.and_then(|status| status.code()), Some(126 | 127))
    }

    fn compare_clocks(&mut self) {
        let now =
            || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as i64);
        for _ in 0..CLOCKS {
            let before = now();
            self.ask(&ToHost::Clock);
            let Some(FromHost::Clock(theirs)) = self.answer(ANSWER) else { return };
            let within = (now() - before) / 2;
            let found = Clock { ahead: theirs as i64 - before - within, within };
            if self.clock.is_none_or(|clock| found.within < clock.within) {
                self.clock = Some(found);
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.to = None;
        // It ends at the end of its input; one that hangs is ended.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks what each host has. One without memonet at this program's path is called again.
fn begin(chosen: &Chosen, hosts: &mut [Host]) -> Result<()> {
    let ports = settings::value(ENV_PORTS).map(|ports| ports.to_string_lossy().into_owned());
    let begin = || ToHost::Begin { interface: chosen.interface.clone(), ports: ports.clone() };
    // The first answer says how long a call takes.
    hosts.iter_mut().for_each(|host| host.ask(&ToHost::Clock));
    for host in hosts.iter_mut() {
        if !host.greets() && host.is_missing() {
            *host = Host::call(chosen, &host.name, 1)?;
            host.ask(&ToHost::Clock);
            host.greets();
        }
        host.ask(&begin());
    }
    for host in hosts {
        match host.answer(ANSWER) {
            Some(FromHost::About(about)) if about.version != run::version() => {
                let found = format!("memonet {} at {}", about.version, about.path);
                host.lose((found, format!("install memonet {} on all hosts", run::version())));
            }
            Some(FromHost::About(about)) => host.about = Some(*about),
            Some(_) => host.lose(("an answer to nothing".into(), "install one version".into())),
            None => {}
        }
    }
    Ok(())
}

/// The hosts that answer, with what they have said.
fn reached(hosts: &mut [Host]) -> Vec<&mut Host> {
    hosts.iter_mut().filter(|host| host.lost.is_none() && host.about.is_some()).collect()
}

/// Has all hosts that were reached make streams to each other. Nodes are numbered among these.
fn meet(hosts: &mut [Host]) -> Result<()> {
    let mut all = reached(hosts);
    let node = |host: &&mut Host| {
        let about = host.about.as_ref()?;
        let (name, addresses) = (host.name.clone(), about.listening.clone());
        Some(NodeInfo { name, addresses, cpus: about.cpus, pes: 1 })
    };
    let nodes: Vec<NodeInfo> = all.iter().filter_map(node).collect();
    if nodes.is_empty() {
        return Ok(());
    }
    for (node, (host, (job, _))) in (0..).zip(all.iter_mut().zip(run::describe(nodes, None)?)) {
        host.node = Some(node);
        host.ask(&ToHost::Meet { job });
    }
    for host in all {
        if let Some(FromHost::Met(streams)) = host.answer(ANSWER) {
            host.streams = streams;
        }
    }
    Ok(())
}

/// Has them send datagrams to a group, once all have joined it.
fn cast(hosts: &mut [Host]) -> Result<()> {
    let mut all = reached(hosts);
    let random: [u8; 16] = memonet_tcp::agent::random()?;
    let group = SocketAddrV4::new(Ipv4Addr::new(239, 77, random[0], random[1]), 7901);
    let token = u64::from_le_bytes(random[8..].try_into()?);
    all.iter_mut().for_each(|host| host.ask(&ToHost::Join { group }));
    for host in &mut all {
        if let Some(FromHost::Joined(joined)) = host.answer(ANSWER) {
            host.joined = Some(joined);
        }
    }
    let casts = |host: &Host| host.lost.is_none() && matches!(host.joined, Some(Ok(())));
    for host in all.iter_mut().filter(|host| casts(host)) {
        if let Some(node) = host.node {
            host.ask(&ToHost::Cast { token, node });
        }
    }
    for host in all.into_iter().filter(|host| casts(host)) {
        if let Some(FromHost::Heard(nodes)) = host.answer(ANSWER) {
            host.heard = nodes;
        }
    }
    Ok(())
}

fn report_host(report: &mut Report, host: &Host) {
    report.about(&host.name);
    let call = format!("answers after {:.1?}", host.answered);
    match (&host.about, &host.lost) {
        (None, lost) => {
            let (why, fix) = lost.clone().unwrap_or_default();
            report.bad("reach", &why, &fix);
        }
        (Some(_), _) if host.answered > SLOW_CALL => {
            let fix = "each start of a job waits for it: look at the host's load, its name service and its login files";
            report.note("reach", &call, fix);
        }
        (Some(_), _) => report.good("reach", &call),
    }
    if let Some(about) = &host.about {
        report_about(report, host, about);
        if let Some((why, fix)) = &host.lost {
            report.bad("then", why, fix);
        }
    }
    report.text("");
}

fn report_about(report: &mut Report, host: &Host, about: &About) {
    report.good("memonet", &format!("{} at {}", about.version, about.path));
    for check in &about.checks {
        let verdict = match (check.bad, check.fix.clone()) {
            (true, fix) => Verdict::Bad { fix: fix.unwrap_or_default() },
            (false, Some(fix)) => Verdict::Poor { fix },
            (false, None) => Verdict::Good,
        };
        report.line(verdict, &check.what, &check.found);
    }
    if let Some(Clock { ahead, within }) = host.clock {
        let found = format!(
            "{:+.3} ms from this one, to within {:.3} ms",
            ahead as f64 / 1e6,
            within as f64 / 1e6
        );
        match ahead.abs() - within > APART_NS {
            true => report.note(
                "time",
                &found,
                "set both by NTP or chrony, so that logs can be compared",
            ),
            false => report.good("time", &found),
        }
    }
    for one in &about.addresses {
        let place = about.listening.iter().position(|at| at.ip() == one.address);
        let mtu = one.mtu.map_or("unknown MTU".into(), |mtu| format!("MTU {mtu}"));
        let what = format!("{}/{}, {mtu}", one.address, one.prefix);
        let used = match place {
            Some(0) => "an agent listens here, and others try it first",
            Some(_) => "an agent listens here",
            None => "not used: loopback, of the link alone, or not of --interface",
        };
        report.good(&one.interface, &format!("{what}: {used}"));
    }
    match &about.libfabric {
        Ok(provider) => report.good("libfabric", &format!("hardware by the provider {provider}")),
        Err(why) => report.good("libfabric", &format!("no hardware ({why})")),
    }
}

/// What differs between hosts.
fn report_differences(report: &mut Report, hosts: &[Host]) {
    let about: Vec<(&str, &About)> =
        hosts.iter().filter_map(|host| Some((&*host.name, host.about.as_ref()?))).collect();
    let Some(((first, one), rest)) = about.split_first() else { return };
    for (name, other) in rest {
        let traits = |about: &About| format!("{} with pages of {}", about.architecture, about.page);
        if traits(one) != traits(other) {
            let found = format!("{first} is {}, {name} is {}", traits(one), traits(other));
            report.bad("hosts differ", &found, "leave some out: a job needs one kind of host");
        }
        let mtus = |about: &About| used_mtus(about);
        if mtus(one) != mtus(other) {
            let found = format!("MTU {:?} on {first}, {:?} on {name}", mtus(one), mtus(other));
            report.note(
                "MTU",
                &found,
                "large messages stall where packets are lost: set one MTU in a network",
            );
        }
    }
}

fn used_mtus(about: &About) -> Vec<u32> {
    let is_used = |ip| about.listening.iter().any(|at| at.ip() == ip);
    let used = about.addresses.iter().filter(|one| is_used(one.address));
    let mut mtus: Vec<u32> = used.filter_map(|one| one.mtu).collect();
    mtus.sort_unstable();
    mtus.dedup();
    mtus
}

/// The hosts that were nodes, with their numbers. Some may have been lost since.
fn nodes(hosts: &[Host]) -> Vec<(u32, &Host)> {
    hosts.iter().filter_map(|host| Some((host.node?, host))).collect()
}

fn report_streams(report: &mut Report, hosts: &[Host]) {
    report.about("between hosts");
    let nodes = nodes(hosts);
    for (own, host) in &nodes {
        for (number, other) in nodes.iter().filter(|(number, _)| number != own) {
            let what = format!("{} to {}", host.name, other.name);
            let stream = host.streams.iter().find(|stream| stream.node == *number);
            match stream.map(|stream| &stream.way) {
                Some(Ok((own, theirs))) => report.good(&what, &way(host, own, theirs)),
                Some(Err(why)) => report.bad(&what, why, TCP_FIX),
                None => report.bad(&what, "no answer about a stream", TCP_FIX),
            }
        }
    }
}

const TCP_FIX: &str = "let TCP pass at one port a host: MEMONET_PORTS=40000-40100 names the ports for a firewall, --interface NAME|CIDR another network";

/// How a stream goes, and why.
fn way(host: &Host, own: &SocketAddr, theirs: &SocketAddr) -> String {
    let interfaces = host.about.iter().flat_map(|about| &about.addresses);
    let from = interfaces.clone().find(|one| one.address == own.ip());
    let name = from.map_or("?", |one| &one.interface);
    let common = from.is_some_and(|one| is_common(one.address, theirs.ip(), one.prefix));
    let why = match common {
        true => "both are of its network",
        false => "the way of the routing table",
    };
    format!("TCP and handshake, {theirs} through {name} ({}): {why}", own.ip())
}

fn is_common(one: std::net::IpAddr, other: std::net::IpAddr, prefix: u8) -> bool {
    let network = |ip: std::net::IpAddr| match ip {
        std::net::IpAddr::V4(ip) => (32, u128::from(ip.to_bits())),
        std::net::IpAddr::V6(ip) => (128, ip.to_bits()),
    };
    let ((bits, one), (other_bits, other)) = (network(one), network(other));
    let shift = bits - u32::from(prefix);
    bits == other_bits && (one ^ other).checked_shr(shift).unwrap_or(0) == 0
}

fn report_multicast(report: &mut Report, hosts: &[Host]) {
    let nodes = nodes(hosts);
    let mut silent = Vec::new();
    for (own, host) in &nodes {
        if let Some(Err(why)) = &host.joined {
            silent.push(format!("{}: {why}", host.name));
        }
        for (_, other) in nodes.iter().filter(|(number, _)| number != own) {
            if !other.heard.contains(own) {
                silent.push(format!("{} to {}", host.name, other.name));
            }
        }
    }
    if nodes.len() < 2 {
        return;
    }
    match silent.is_empty() {
        true => report.good("multicast", "UDP multicast passes between all hosts"),
        false => report.note(
            "multicast",
            &format!("UDP multicast does not pass: {}", silent.join(", ")),
            "jobs run without it, and multicast channels go by a tree; for UDP multicast, let switches and firewalls pass 239.0.0.0/8 (IGMP snooping needs a querier)",
        ),
    }
}

/// What will be used, and why.
fn summary(is_good: bool, hosts: &[Host]) -> String {
    if !is_good {
        return "Jobs cannot run on all of these hosts until everything marked BAD is fixed."
            .into();
    }
    let found = hosts.iter().filter_map(|host| {
        let libfabric = &host.about.as_ref()?.libfabric;
        Some((&*host.name, libfabric.as_deref().ok()))
    });
    let decision = Between::Best.decide(&found.collect::<Vec<_>>());
    let (Ok(way) | Err(way)) = decision.map(|decision| decision.to_string());
    format!(
        "Jobs can run on these {} hosts.\n\
         PEs of one host use shared memory, those of different hosts the addresses above, by\n\
         {way}.\n\
         `memonet bench --hosts` measures them.",
        hosts.len()
    )
}
