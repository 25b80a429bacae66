//! Against servers that behave as Hydra's and Slurm's do, and against garbage.

use super::*;
use proptest::prelude::*;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, send, socketpair};
use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{scope, spawn};

const QUICK: Limits = Limits { answer: Duration::from_secs(20), init: Duration::from_millis(100) };
/// Not a limit that a test waits for.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(100);

fn pair() -> (OwnedFd, OwnedFd) {
    let stream = SocketType::STREAM;
    socketpair(AddressFamily::UNIX, stream, SocketFlags::CLOEXEC, None).unwrap()
}

/// The store of a job, as both servers have it: a value is seen after a fence.
struct Store {
    fence: Barrier,
    /// Whether `init` is answered once only, as by Slurm.
    once: bool,
    kept: Mutex<HashMap<String, String>>,
    put: Mutex<HashMap<String, String>>,
}

impl Store {
    fn new(size: usize, once: bool) -> Arc<Self> {
        let fence = Barrier::new(size);
        Arc::new(Store { fence, once, kept: Mutex::default(), put: Mutex::default() })
    }

    /// Serves one process until that closes the connection.
    fn serve(self: Arc<Self>, fd: OwnedFd) {
        let mut inits = 0;
        let mut bytes = [0; LONGEST_LINE];
        loop {
            let (length, _) = recv(&fd, &mut bytes, RecvFlags::empty()).unwrap_or((0, 0));
            if length == 0 {
                return;
            }
            let line = std::str::from_utf8(&bytes[..length]).unwrap();
            let line = line.strip_suffix('\n').expect("a request is one line, in one read");
            assert!(!line.contains('\n'), "requests wait for answers: {line}");
            let request = Answer::parse(line.as_bytes()).unwrap();
            inits += usize::from(request.command() == "init");
            let answer = match request.command() {
                "init" if inits > 1 && self.once => continue,
                "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n".into(),
                _ => self.answer(&request),
            };
            send(&fd, answer.as_bytes(), SendFlags::NOSIGNAL).unwrap();
        }
    }

    fn answer(&self, request: &Answer<'_>) -> String {
        let field = |name| request.field(name).unwrap().unwrap().to_owned();
        match request.command() {
            "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n".into(),
            "get_my_kvsname" => "cmd=my_kvsname rc=0 kvsname=7.0\n".into(),
            "barrier_in" => {
                self.fence.wait();
                self.kept.lock().unwrap().extend(self.put.lock().unwrap().clone());
                self.fence.wait();
                "cmd=barrier_out rc=0\n".into()
            }
            "finalize" => "cmd=finalize_ack rc=0\n".into(),
            "put" => {
                let (key, value) = (field("key"), field("value"));
                assert!(key.len() < 64 && value.len() < 1024);
                self.put.lock().unwrap().insert(key, value);
                "cmd=put_result rc=0\n".into()
            }
            "get" => match self.kept.lock().unwrap().get(&field("key")) {
                Some(value) => format!("cmd=get_result rc=0 value={value}\n"),
                None => "cmd=get_result rc=1 msg=key not found\n".into(),
            },
            other => panic!("{other} is not for this connection"),
        }
    }
}

/// Runs `f` as each of `size` processes.
fn job(size: u32, once: bool, f: impl Fn(u32, OwnedFd) + Sync) {
    let store = Store::new(size as usize, once);
    scope(|scope| {
        for rank in 0..size {
            let (near, far) = pair();
            let store = store.clone();
            scope.spawn(move || store.serve(far));
            let f = &f;
            scope.spawn(move || f(rank, near));
        }
    });
}

fn value(rank: u32, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u32 * 7 + rank) as u8).collect()
}

#[test]
fn each_gets_what_the_others_have_put() {
    job(4, false, |rank, fd| {
        let mut pmi = Pmi::init(fd, rank, 4, QUICK).unwrap();
        assert_eq!((pmi.rank(), pmi.size(), pmi.answers_init_once()), (rank, 4, false));
        for (key, length) in [("none", 0), ("short", 10), ("long", 5000)] {
            pmi.put(key, &value(rank, length)).unwrap();
        }
        assert!(matches!(pmi.get(rank, "short"), Err(Error::Nothing { .. })));
        pmi.fence("test", LONG).unwrap();
        for peer in 0..4 {
            for (key, length) in [("none", 0), ("short", 10), ("long", 5000)] {
                assert_eq!(pmi.get(peer, key).unwrap(), value(peer, length), "{key} of {peer}");
            }
        }
        assert!(matches!(pmi.get(3, "other"), Err(Error::Nothing { rank: 3, .. })));
        pmi.fence("end", LONG).unwrap();
        pmi.end().unwrap();
    });
}

/// Two users of one connection, as memonet and MPI are, and a server that answers `init` once.
#[test]
fn an_init_that_was_sent_before_does_no_harm() {
    for once in [false, true] {
        job(2, once, |rank, fd| {
            let other = fd.try_clone().unwrap();
            let mut first = Pmi::init(fd, rank, 2, QUICK).unwrap();
            first.put("a", b"1").unwrap();
            first.fence("first", LONG).unwrap();
            let mut second = Pmi::init(other, rank, 2, QUICK).unwrap();
            assert_eq!(second.answers_init_once(), once);
            second.put("a", b"2").unwrap();
            second.fence("second", LONG).unwrap();
            assert_eq!(second.get(1 - rank, "a").unwrap(), b"2");
            assert_eq!(first.get(1 - rank, "a").unwrap(), b"1");
        });
    }
}

/// An MPI that waits for the answer to its `init` gets it, and all else that it asks for.
#[test]
fn a_relay_answers_what_the_server_does_not() {
    job(3, true, |rank, fd| {
        let mut first = Pmi::init(fd.try_clone().unwrap(), rank, 3, QUICK).unwrap();
        first.put("a", b"1").unwrap();
        first.fence("first", LONG).unwrap();
        let (near, later) = Relay::connection().unwrap();
        let relay = Relay::new(fd, near);
        let relay = spawn(move || relay.run());
        for _ in 0..2 {
            let later = later.try_clone().unwrap();
            let mut mpi = Pmi::init(later, rank, 3, QUICK).unwrap();
            assert!(!mpi.answers_init_once());
            mpi.put("a", &value(rank, 3000)).unwrap();
            mpi.fence("mpi", LONG).unwrap();
            assert_eq!(mpi.get(2 - rank, "a").unwrap(), value(2 - rank, 3000));
            mpi.fence("mpi's end", LONG).unwrap();
        }
        drop(later);
        relay.join().unwrap().unwrap();
        assert_eq!(first.get(2 - rank, "a").unwrap(), b"1");
    });
}

/// A server that is slow to answer `init` reads the next request with it, or after it.
#[test]
fn a_slow_server_is_not_taken_for_one_that_is_in_use() {
    for swallows in [false, true] {
        let (near, far) = pair();
        let server = spawn(move || {
            let mut bytes = [0; 256];
            // `init` and `get_maxes` have come before it looks.
            let seen = loop {
                match rustix::io::ioctl_fionread(&far).unwrap() as usize {
                    seen if seen == INIT.len() + GET_MAXES.len() => break seen,
                    _ => std::thread::yield_now(),
                }
            };
            recv(&far, &mut bytes[..seen], RecvFlags::empty()).unwrap();
            let store = Store::new(1, false);
            let mut answer =
                "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n".to_owned();
            send(&far, answer.as_bytes(), SendFlags::NOSIGNAL).unwrap();
            if !swallows {
                // Alone, as an answer to a request that came later.
                recv(&far, &mut bytes[..1], RecvFlags::PEEK).unwrap();
                answer = store.answer(&Answer::parse(b"cmd=get_maxes").unwrap());
                send(&far, answer.as_bytes(), SendFlags::NOSIGNAL).unwrap();
            }
            store.serve(far);
        });
        let mut pmi = Pmi::init(near, 0, 1, QUICK).unwrap();
        assert!(!pmi.answers_init_once());
        pmi.fence("one", LONG).unwrap();
        drop(pmi);
        server.join().unwrap();
    }
}

/// A connection whose server gives these answers, one to each request.
fn scripted(answers: &[&str]) -> OwnedFd {
    let (near, far) = pair();
    let answers: Vec<String> = answers.iter().map(|&answer| answer.into()).collect();
    spawn(move || {
        for answer in answers {
            let mut bytes = [0; LONGEST_LINE];
            if recv(&far, &mut bytes, RecvFlags::empty()).map_or(0, |(length, _)| length) == 0
                || send(&far, answer.as_bytes(), SendFlags::NOSIGNAL).is_err()
            {
                return;
            }
        }
        // Silent, but there, until the process has gone.
        while recv(&far, &mut [0; 64], RecvFlags::empty()).is_ok_and(|(length, _)| length > 0) {}
    });
    near
}

const RIGHT: [&str; 6] = [
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
    "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
    "cmd=my_kvsname kvsname=kvs_1_0\n",
    "cmd=get_result rc=-1 msg=no\n",
    "cmd=put_result rc=0 msg=success\n",
    "cmd=barrier_out\n",
];

#[test]
fn every_answer_is_checked() {
    let wrong: [&[&str]; 5] = [
        &[
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n",
            "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n",
            "cmd=maxes\n",
            "rc=0\n",
        ],
        &[
            "cmd=maxes\n",
            "cmd=maxes kvsname_max=9 keylen_max=32 vallen_max=1024\n",
            "cmd=maxes rc=1 kvsname_max=256 keylen_max=64 vallen_max=1024\n",
            "cmd=maxes kvsname_max=256 keylen_max=x vallen_max=1024\n",
        ],
        &[
            "cmd=my_kvsname\n",
            "cmd=my_kvsname kvsname=\n",
            "cmd=my_kvsname rc=1 kvsname=a\n",
            "cmd=maxes\n",
        ],
        &[
            "cmd=get_result\n",
            "cmd=get_result rc=0\n",
            "cmd=put_result rc=0\n",
            "cmd=get_result rc=0 value=1 value=2\n",
        ],
        &[
            "cmd=put_result\n",
            "cmd=put_result rc=1 msg=full\n",
            "cmd=put_result rc=0\ncmd=x\n",
            "\n",
        ],
    ];
    for (at, answers) in wrong.iter().enumerate() {
        for answer in *answers {
            let mut script = RIGHT.to_vec();
            script[at] = answer;
            let failed = Pmi::init(scripted(&script), 0, 2, QUICK).err().expect(answer);
            let shown = failed.to_string();
            assert!(matches!(failed, Error::Answer { .. }), "{answer:?}: {shown}");
        }
    }
    let pmi = Pmi::init(scripted(&RIGHT), 0, 2, QUICK);
    pmi.unwrap().fence("right", LONG).unwrap();
}

#[test]
fn a_cut_line_a_closed_connection_and_silence_are_told_apart() {
    let limits = Limits { answer: SHORT, init: SHORT };
    let begin = |answers: &[&str]| Pmi::init(scripted(answers), 0, 2, limits).err().unwrap();
    assert!(matches!(begin(&RIGHT[..1]), Error::Silent { .. }));
    assert!(matches!(begin(&[]), Error::Silent { .. }));
    let cut = begin(&[RIGHT[0], "cmd=maxes kvsname_max=256"]);
    assert!(cut.to_string().contains("is cut off"), "{cut}");
    let long = "x".repeat(20_000);
    assert!(begin(&[&long]).to_string().contains("is no line"));
    let (near, far) = pair();
    drop(far);
    let closed = Pmi::init(near, 0, 2, limits).err().unwrap();
    assert!(matches!(closed, Error::System { .. }), "{closed}");
}

#[test]
fn a_fence_that_somebody_misses_ends_and_nothing_is_asked_after_it() {
    let mut pmi = Pmi::init(scripted(&RIGHT[..5]), 0, 2, QUICK).unwrap();
    let missed = pmi.fence("meeting", SHORT).unwrap_err().to_string();
    assert!(missed.contains("\"meeting\"") && missed.contains("some"), "{missed}");
    assert!(matches!(pmi.put("x", b""), Err(Error::Broken { .. })));
    assert!(matches!(pmi.get(0, "x"), Err(Error::Broken { .. })));
    assert!(matches!(pmi.fence("x", SHORT), Err(Error::Broken { .. })));
}

#[test]
fn a_value_is_not_mixed_of_two() {
    let part = |text: &str| format!("cmd=get_result rc=0 value={text}\n");
    let get = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| part(text)).collect();
        let mut script = RIGHT[..5].to_vec();
        script.extend(texts.iter().map(String::as_str));
        script.push(RIGHT[3]);
        Pmi::init(scripted(&script), 0, 2, QUICK).unwrap().get(1, "k")
    };
    assert_eq!(get(&["1-01", "0-ff"]).unwrap(), [1, 255]);
    for wrong in [&["1-01"][..], &["2-01", "0-ff"], &["1-01", "1-ff"], &["0-f"], &["x"]] {
        assert!(matches!(get(wrong), Err(Error::Value { rank: 1, .. })), "{wrong:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes instead of one of the answers, there is an error or an answer, and no hang.
    #[test]
    fn garbage_ends_in_an_error(
        at in 0usize..6,
        line in "(cmd=(response_to_init|maxes|get_result|put_result)?[ -~]{0,40}|[ -~]{0,60})",
        ends in any::<bool>(),
    ) {
        let limits = Limits { answer: Duration::from_millis(20), init: Duration::from_millis(10) };
        let line = if ends { line + "\n" } else { line };
        let mut script = RIGHT.to_vec();
        script[at] = &line;
        if let Ok(mut pmi) = Pmi::init(scripted(&script), 0, 2, limits) {
            let _ = pmi.fence("garbage", Duration::from_millis(20));
        }
    }
}
