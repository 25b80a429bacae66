//! Lines of output that come in pieces: they stay whole, and nothing is lost.

mod common;

use common::{broken, run};

/// Longer than the silence after which a prompt is shown.
const PAUSE: &str = "sleep 0.3";

#[test]
fn lines_that_come_in_pieces_stay_whole() {
    for label in [&["--label"][..], &[]] {
        let script = format!(
            "for i in 1 2 3; do printf \"$MEMONET_PE a\"; {PAUSE}; printf b; {PAUSE}; echo c; done"
        );
        let ended = run(&[&["-n", "3"], label, &["sh", "-c", &script]].concat());
        let line = |pe: i32| {
            if label.is_empty() { format!("{pe} abc") } else { format!("[{pe}] {pe} abc") }
        };
        let all: Vec<String> = (0..9).map(|i| line(i / 3)).collect();
        assert_eq!(ended.lines(), all, "{ended:?}");
    }
}

#[test]
fn a_line_in_pieces_stays_whole_while_others_write() {
    let script = "if [ $MEMONET_PE = 0 ]; then printf begin; until [ -e enough ]; do sleep 0.02; done; rm enough; echo -end
                  else i=0; while [ $i -lt 15 ]; do echo $i; sleep 0.1; i=$((i+1)); done; touch enough; fi";
    let ended = run(&["-n", "2", "--label", "sh", "-c", script]);
    assert!(ended.stdout.lines().any(|line| line == "[0] begin-end"), "{ended:?}");
    assert_eq!(ended.stdout.lines().count(), 16, "{ended:?}");
}

#[test]
fn a_labelled_line_that_was_shown_and_broken_is_repeated_whole() {
    let script = "if [ $MEMONET_PE = 0 ]; then printf half; while [ ! -e go ]; do sleep 0.02; done; rm go; echo -half
                  else while [ ! -e said ]; do sleep 0.02; done; rm said; echo other; touch go; fi";
    let args = ["-n", "2", "--label", "sh", "-c", script];
    broken(&args, "[0] half", "\n[1] other\n[0] half-half\n");
}

#[test]
fn no_output_is_lost_that_a_dead_pe_had_not_finished() {
    let ended = run(&[
        "-n",
        "3",
        "--label",
        "sh",
        "-c",
        "printf $MEMONET_PE; [ $MEMONET_PE = 1 ] || sleep 1000; kill -KILL $$",
    ]);
    assert_eq!(ended.lines(), ["[0] 0", "[1] 1", "[2] 2"], "{ended:?}");
}

#[test]
fn a_line_longer_than_is_kept_is_complete() {
    let bytes = 20_000_000;
    let script = format!("head -c {bytes} /dev/zero | tr '\\0' x; echo");
    let ended = run(&["-n", "1", "--label", "sh", "-c", &script]);
    assert_eq!(ended.stdout.len(), "[0] \n".len() + bytes);
}
