//! Mistakes: a job ends within seconds, with a status other than 0, and says which call of which
//! PE, which argument, and what to do.

use crate::program::{Job, c};

/// The PE that makes a mistake, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// Any PE, before the library is initialised or after it is finalised.
    Outside,
    /// All PEs, in a collective call.
    Together,
    /// The last PE alone.
    Alone,
}

const PES: usize = 3;
const NOT_SYMMETRIC: &[&str] = &["not symmetric", "use memory of shmem_malloc"];

/// Runs a mistake. One line of the job's standard error must name the call and contain all `words`.
#[track_caller]
fn told(who: Who, checks: bool, mistake: &str, call: &str, words: &[&str]) {
    for far in [false, true] {
        let who_says = format!("{who:?}").to_lowercase();
        let mut job = Job::new(c("misuse.c"), PES).arg(mistake).arg(&who_says).timeout_s(15);
        if checks {
            job = job.env("MEMONET_CHECK", "1");
        }
        if far {
            job = job.far(1);
        }
        let ended = job.run();
        let says = |words: &[&str]| {
            let all = |line: &str| words.iter().all(|word| line.contains(word));
            ended.stderr.lines().any(all)
        };
        let fail = |why: String| {
            panic!("{mistake:?}, far {far}: {why}; status {}, {}", ended.status, ended.stderr)
        };
        if ended.status == 0 || ended.status == 124 {
            fail("it does not end".into());
        }
        if ended.stderr.contains("nothing has happened") || ended.stderr.contains("signal 11") {
            fail("it goes on, or dies without a word".into());
        }
        let pe = match who {
            Who::Alone => format!("PE {}: ", PES - 1),
            Who::Together => "PE ".into(),
            Who::Outside => String::new(),
        };
        let head = format!("memonet: {pe}");
        let mut line = vec![head.as_str(), call];
        line.extend(words);
        if !says(&line) {
            fail(format!("no line says {line:?}"));
        }
    }
}

#[test]
fn outside_of_the_library() {
    let not_initialised = &["the library is not initialised", "call shmem_init before"][..];
    for (mistake, call) in [
        ("my_pe before init", "shmem_my_pe"),
        ("put before init", "shmem_long_p"),
        ("barrier before init", "shmem_barrier_all"),
        ("malloc before init", "shmem_malloc"),
        ("finalize before init", "shmem_finalize"),
        ("after: my_pe", "shmem_my_pe"),
        ("after: malloc", "shmem_malloc"),
        ("after: put", "shmem_long_p"),
        ("after: barrier", "shmem_barrier_all"),
        ("after: finalize", "shmem_finalize"),
        ("after: global_exit", "shmem_global_exit"),
        ("after: team", "shmem_team_my_pe"),
    ] {
        told(Who::Outside, false, mistake, call, not_initialised);
    }
    told(Who::Outside, false, "thread level", "shmem_init_thread", &["requested: 17"]);
}

#[test]
fn addresses() {
    for (mistake, call, argument) in [
        ("p to stack", "shmem_long_p", "dest"),
        ("put to malloc", "shmem_long_put", "dest"),
        ("put_nbi to stack", "shmem_long_put_nbi", "dest"),
        ("get from stack", "shmem_long_get", "source"),
        ("g from malloc", "shmem_long_g", "source"),
        ("iput to stack", "shmem_long_iput", "dest"),
        ("ibget from malloc", "shmem_long_ibget", "source"),
        ("atomic on stack", "shmem_long_atomic_fetch_inc", "dest"),
        ("atomic set on malloc", "shmem_long_atomic_set", "dest"),
        ("signal on stack", "shmem_signal_add", "sig_addr"),
        ("put_signal, data on stack", "shmem_long_put_signal", "dest"),
        ("put_signal, signal on stack", "shmem_long_put_signal", "sig_addr"),
        ("lock on stack", "shmem_set_lock", "lock"),
        ("NULL", "shmem_long_p", "dest"),
        ("code", "shmem_long_p", "dest"),
        ("ctx put to stack", "shmem_ctx_long_put", "dest"),
        ("count too large", "shmem_putmem", "dest"),
        ("past the statics", "shmem_putmem", "dest"),
    ] {
        told(Who::Alone, false, mistake, call, &[&[argument][..], NOT_SYMMETRIC].concat());
    }
    let words = ["source: ", "not symmetric: constants are never symmetric", "without const"];
    told(Who::Alone, false, "get from constants", "shmem_long_get", &words);
    for (mistake, call, argument) in [
        ("reduce on stack", "shmem_long_sum_reduce", "dest"),
        ("reduce from malloc", "shmem_long_sum_reduce", "source"),
        ("collect on stack", "shmem_long_collect", "dest"),
        ("fcollect on stack", "shmem_long_fcollect", "dest"),
    ] {
        told(Who::Together, false, mistake, call, &[&[argument][..], NOT_SYMMETRIC].concat());
    }
}

#[test]
fn numbers_of_pes() {
    let of_job = "in a job of 3";
    for (mistake, call, words) in [
        ("pe -1", "shmem_long_p", ["pe: there is no PE -1", of_job]),
        ("pe n", "shmem_long_put", ["pe: there is no PE 3", of_job]),
        ("get pe", "shmem_long_get", ["pe: there is no PE 1048576", of_job]),
        ("atomic pe", "shmem_long_atomic_fetch", ["pe: there is no PE 4", of_job]),
        ("iget pe", "shmem_long_iget", ["pe: there is no PE -5", of_job]),
        ("signal pe", "shmem_signal_set", ["pe: there is no PE 3", of_job]),
        ("put_signal pe", "shmem_long_put_signal", ["pe: there is no PE -1", of_job]),
        ("ptr pe", "shmem_ptr", ["pe: there is no PE 3", of_job]),
        ("pe_quiet pe", "shmem_pe_quiet", ["target_pes: there is no PE 3", of_job]),
        ("ctx pe", "shmem_ctx_long_p", ["pe: there is no PE 3", ""]),
        ("team_ptr pe", "shmem_team_ptr", ["pe: there is no PE 3", ""]),
        ("pe_quiet in ctx pe", "shmem_ctx_pe_quiet", ["target_pes: there is no PE -3", ""]),
    ] {
        told(Who::Alone, false, mistake, call, &words);
    }
    told(Who::Together, false, "root", "shmem_broadcastmem", &["PE_root: there is no PE 3"]);
    told(Who::Together, false, "root of set", "shmem_broadcast64", &["PE_root: there is no PE -1"]);
    told(Who::Together, false, "active set", "shmem_barrier", &["active set of 4 PEs", "job of 3"]);
    told(Who::Together, false, "active set stride", "shmem_barrier", &["active set", "2^-1"]);
    told(
        Who::Together,
        false,
        "active set of garbage",
        "shmem_barrier",
        &["active set of 2147483647 PEs from PE 0 on", "in a job of 3"],
    );
    told(Who::Together, false, "active set of none", "shmem_sync", &["active set of 0 PEs"]);
    told(Who::Together, true, "active set of others", "shmem_barrier", &["not in the active set"]);
}

#[test]
fn counts_and_strides() {
    let too_much = "more than memory can hold";
    for (mistake, call, words) in [
        ("count overflows", "shmem_long_put", ["elements of 8 bytes", too_much]),
        ("get count overflows", "shmem_longdouble_get", ["elements of 16 bytes", too_much]),
        ("strided count overflows", "shmem_long_iput", ["stride", too_much]),
        ("iput stride 0", "shmem_long_iput", ["dst: ", "0"]),
        ("iput source stride 0", "shmem_long_iput", ["sst: ", "0"]),
        ("iget stride -1", "shmem_long_iget", ["dst: ", "-1"]),
        ("ibput stride too small", "shmem_long_ibput", ["dst: ", "2"]),
        ("ibget stride too small", "shmem_ibget64", ["sst: ", "2"]),
    ] {
        told(Who::Alone, false, mistake, call, &words);
    }
    told(Who::Together, false, "alltoalls stride", "shmem_long_alltoalls", &["dst: ", "0"]);
    told(Who::Together, false, "alltoalls count", "shmem_long_alltoall", &[too_much]);
    told(Who::Together, false, "to_all count", "shmem_int_sum_to_all", &["nreduce: -1"]);
}

#[test]
fn constants_and_alignment() {
    for (mistake, call, words) in [
        ("cmp", "shmem_long_wait_until", ["cmp: 77", "use SHMEM_CMP_EQ"]),
        ("cmp of test", "shmem_long_test", ["cmp: -1", "use SHMEM_CMP_EQ"]),
        ("cmp of any", "shmem_long_wait_until_any", ["cmp: 6", "use SHMEM_CMP_EQ"]),
        ("cmp of signal", "shmem_signal_wait_until", ["cmp: 100", "use SHMEM_CMP_EQ"]),
        ("sig_op", "shmem_long_put_signal", ["sig_op: 5", "SHMEM_SIGNAL_SET"]),
        ("sig_op nbi", "shmem_putmem_signal_nbi", ["sig_op: -1", "SHMEM_SIGNAL_SET"]),
        ("misaligned atomic", "shmem_long_atomic_inc", ["dest: ", "not aligned"]),
        ("misaligned fetch", "shmem_int_atomic_fetch", ["source: ", "not aligned"]),
        ("misaligned compare_swap", "shmem_long_atomic_compare_swap", ["dest: ", "not aligned"]),
        ("misaligned signal", "shmem_signal_add", ["sig_addr: ", "not aligned"]),
        ("misaligned put_signal", "shmem_putmem_signal", ["sig_addr: ", "not aligned"]),
        ("misaligned lock", "shmem_set_lock", ["lock: ", "not aligned"]),
        ("clear a free lock", "shmem_clear_lock", ["lock", ""]),
    ] {
        told(Who::Alone, false, mistake, call, &words);
    }
}

#[test]
fn the_heap() {
    for (mistake, call, words) in [
        ("sizes differ", "malloc", &["allocation of 200 bytes", "allocation of 100 bytes"][..]),
        ("alignments differ", "shmem_align", &["aligned to 64", "aligned to 128"]),
        ("malloc and calloc", "alloc", &["allocation"]),
        ("malloc and free", "shmem_", &["allocation"]),
        ("frees differ", "shmem_free", &[]),
        (
            "free and barrier",
            "shmem_free",
            &[
                "PE 0 called it with nothing: it is in another collective call",
                "this PE with a free of the block at",
            ],
        ),
        (
            "the same malloc and barrier",
            "shmem_malloc",
            &[
                "PE 0 called it with nothing: it is in another collective call",
                "this PE with an allocation of 80 bytes",
            ],
        ),
        ("free twice", "shmem_free", &["ptr: no allocated block begins at", "freed before"]),
        ("free within", "shmem_free", &["ptr: no allocated block begins at", "freed before"]),
        (
            "free of stack",
            "shmem_free",
            &["ptr: no allocated block begins at", "not of shmem_malloc"],
        ),
        (
            "free of static",
            "shmem_free",
            &["ptr: no allocated block begins at", "not of shmem_malloc"],
        ),
        (
            "realloc of freed",
            "shmem_realloc",
            &["ptr: no allocated block begins at", "freed before"],
        ),
        ("realloc within", "shmem_realloc", &["ptr: no allocated block begins at", "freed before"]),
    ] {
        told(Who::Together, false, mistake, call, words);
    }
}

#[test]
fn handles() {
    let destroyed = "destroyed before";
    for (mistake, call, words) in [
        ("sync of destroyed team", "shmem_team_sync", &["team: ", destroyed][..]),
        ("ask a destroyed team", "shmem_team_my_pe", &["team: ", destroyed]),
        ("destroy a team twice", "shmem_team_destroy", &["team: ", destroyed]),
        ("context of a destroyed team", "shmem_ctx_long_p", &["ctx: ", destroyed]),
        ("destroy the world", "shmem_team_destroy", &["team: ", "predefined"]),
        ("no team at all", "shmem_team_n_pes", &["team: this is no team"]),
        ("barrier destroyed", "shmemx_barrier_wait", &["barrier: ", destroyed]),
        ("supersteps destroyed", "shmemx_supersteps_step", &["steps: ", destroyed]),
        ("superstep_put past the end", "shmemx_supersteps_put", &["96..96+8", "100"]),
        ("superstep_put to nobody", "shmemx_supersteps_put", &["pe: there is no PE"]),
        ("supersteps differ", "shmemx_supersteps_create", &["PE "]),
    ] {
        told(Who::Together, false, mistake, call, words);
    }
    for (mistake, call, words) in [
        ("destroyed ctx", "shmem_ctx_long_p", ["ctx: ", destroyed]),
        ("quiet on destroyed ctx", "shmem_ctx_quiet", ["ctx: ", destroyed]),
        ("fence on destroyed ctx", "shmem_ctx_fence", ["ctx: ", destroyed]),
        ("get_team of destroyed ctx", "shmem_ctx_get_team", ["ctx: ", destroyed]),
        ("session on destroyed ctx", "shmem_ctx_session_stop", ["ctx: ", destroyed]),
        ("destroyed twice", "shmem_ctx_destroy", ["ctx: ", destroyed]),
        ("another in its place", "shmem_ctx_long_p", ["ctx: ", destroyed]),
        (
            "destroy the default ctx",
            "shmem_ctx_destroy",
            ["ctx: ", "SHMEM_CTX_DEFAULT cannot be destroyed"],
        ),
        ("put on no ctx", "shmem_ctx_long_p", ["ctx: ", "SHMEM_CTX_INVALID"]),
        ("session without config", "shmem_ctx_session_start", ["config: NULL", "config_mask"]),
        ("split without config", "shmem_team_split_strided", ["config: NULL", "config_mask"]),
        ("transfer freed", "shmemx_transfer_start", ["transfer: ", "freed before"]),
    ] {
        told(Who::Alone, false, mistake, call, &words);
    }
}

/// A result other than 0 is easily overlooked.
#[test]
fn what_a_team_refuses_is_told_once() {
    for (mistake, call) in
        [("sync of no team", "shmem_team_sync"), ("collective of no team", "shmem_int_sum_reduce")]
    {
        told(Who::Together, true, mistake, call, &["team: SHMEM_TEAM_INVALID is no team"]);
    }
    for far in [false, true] {
        let job = Job::new(c("team.c"), 3);
        let ended = if far { job.far(1) } else { job }.run();
        let told = |words: &[&str]| {
            let all = |line: &&str| words.iter().all(|word| line.contains(word));
            ended.stderr.lines().filter(all).count()
        };
        assert_eq!(ended.status, 0, "{ended:?}");
        assert_eq!(told(&["shmem_team_split_strided makes no team: "]), 1, "{ended:?}");
        let nothing = ["SHMEM_TEAM_INVALID is no team", "MEMONET_CHECK=1 makes them an error"];
        assert_eq!(told(&nothing), 3, "{ended:?}");
    }
}

#[test]
fn nowhere_for_a_result() {
    let told_of = |who, mistake, call, argument: &str| {
        let argument = format!("{argument}: NULL has no room for the result");
        told(who, false, mistake, call, &[&argument, "give the address of a variable"]);
    };
    for (mistake, call, argument) in [
        ("query_initialized to NULL", "shmem_query_initialized", "initialized"),
        ("info_get_version to NULL", "shmem_info_get_version", "major"),
        ("info_get_version, minor to NULL", "shmem_info_get_version", "minor"),
        ("info_get_name to NULL", "shmem_info_get_name", "name"),
    ] {
        told_of(Who::Outside, mistake, call, argument);
    }
    for (mistake, call, argument) in [
        ("split to NULL", "shmem_team_split_strided", "new_team"),
        ("split_2d, x to NULL", "shmem_team_split_2d", "xaxis_team"),
        ("split_2d, y to NULL", "shmem_team_split_2d", "yaxis_team"),
        ("barrier_create to NULL", "shmemx_barrier_create", "barrier"),
        ("supersteps_create to NULL", "shmemx_supersteps_create", "steps"),
        ("window_create to NULL", "shmemx_window_create", "window"),
        ("mutex_create to NULL", "shmemx_mutex_create", "mutex"),
        ("variables: to NULL", "shmemx_mutex_create_variables", "mutex"),
        ("variables: stats to NULL", "shmemx_mutex_stats", "stats"),
        ("rwlock: to NULL", "shmemx_rwlock_create", "rwlock"),
        ("messages: to NULL", "shmemx_messages_create", "messages"),
        ("messages: length to NULL", "shmemx_messages_try_recv", "length"),
        ("region_create to NULL", "shmemx_region_create", "region"),
        ("region_stats to NULL", "shmemx_region_stats", "stats"),
        ("multicast: into nothing", "shmemx_multicast_receive", "bytes"),
        ("multicast_create to NULL", "shmemx_multicast_create", "channel"),
    ] {
        told_of(Who::Together, mistake, call, argument);
    }
    for (mistake, call, argument) in [
        ("ctx_create to NULL", "shmem_ctx_create", "ctx"),
        ("team_create_ctx to NULL", "shmem_team_create_ctx", "ctx"),
        ("ctx_get_team to NULL", "shmem_ctx_get_team", "team"),
        ("query_thread to NULL", "shmem_query_thread", "provided"),
        ("test_some to NULL", "shmem_long_test_some", "indices"),
        ("wait_until_some to NULL", "shmem_long_wait_until_some", "indices"),
        ("test_some_vector to NULL", "shmem_long_test_some_vector", "indices"),
        ("wait_until_some_vector to NULL", "shmem_long_wait_until_some_vector", "indices"),
        ("fetch_nbi to NULL", "shmem_long_atomic_fetch_nbi", "fetch"),
        ("swap_nbi to NULL", "shmem_long_atomic_swap_nbi", "fetch"),
        ("compare_swap_nbi to NULL", "shmem_long_atomic_compare_swap_nbi", "fetch"),
        ("fetch_inc_nbi to NULL", "shmem_long_atomic_fetch_inc_nbi", "fetch"),
        ("fetch_add_nbi to NULL", "shmem_long_atomic_fetch_add_nbi", "fetch"),
    ] {
        told_of(Who::Alone, mistake, call, argument);
    }
}

#[test]
fn shared_data() {
    for (mistake, call, words) in [
        ("mutexes differ", "shmemx_mutex_create", ["a mutex of 112 bytes", "a mutex of 208 bytes"]),
        ("mutex too large", "shmemx_mutex_create", ["bytes: ", "no memory for"]),
        ("mutex without", "shmemx_mutex_release", ["has not acquired it", "shmemx_mutex_acquire"]),
        ("mutex destroyed", "shmemx_mutex_acquire", ["mutex: ", "destroyed before"]),
        ("variables: none", "shmemx_mutex_create_variables", ["at least one variable", "size"]),
        ("variables: sizes differ", "shmemx_mutex_create_variables", ["bytes: ", "same sizes"]),
        ("variables: a third", "shmemx_mutex_variable", ["no variable 2", "mutex of 2"]),
        ("variables: before the first", "shmemx_mutex_variable", ["no variable -1", "mutex of 2"]),
        (
            "variables: less than no time",
            "shmemx_mutex_timed_acquire",
            ["seconds: -0.5", "number from 0"],
        ),
        ("variables: destroyed", "shmemx_mutex_variable", ["mutex: ", "destroyed before"]),
        ("rwlock: too large", "shmemx_rwlock_create", ["bytes: ", "no memory for"]),
        ("rwlock: without", "shmemx_rwlock_release", ["has not acquired it", "_acquire_read"]),
        ("rwlock: of a mutex", "shmemx_rwlock_acquire_read", ["no reader-writer lock", ""]),
        ("rwlock: no time", "shmemx_rwlock_timed_acquire_read", ["seconds: NaN", "from 0 on"]),
        ("rwlock: destroyed", "shmemx_rwlock_acquire_write", ["rwlock: ", "destroyed before"]),
        (
            "placements differ",
            "shmemx_region_create",
            ["a region of 100 elements", "other options"],
        ),
        ("region's options", "shmemx_region_create", ["options: ", "SHMEMX_REGION_"]),
        ("region's page", "shmemx_region_create", ["page is a multiple of 64", ""]),
        ("region_read past the end", "shmemx_region_read", ["96..96+8", "100"]),
        ("region_write from -1", "shmemx_region_write", ["offset: 8 bytes from", ""]),
        ("region_read to NULL", "shmemx_region_read", ["dest: NULL has no 8 bytes", ""]),
        ("region_write from NULL", "shmemx_region_write", ["source: NULL has no 8 bytes", ""]),
        ("region_start past the end", "shmemx_region_start_read", ["96..96+8", "100"]),
        ("region_end of another", "shmemx_region_end", ["no pointer into the region", "once"]),
        ("region_end twice", "shmemx_region_end", ["no pointer into the region", "once"]),
        ("region_release of destroyed", "shmemx_region_release", ["region: ", "destroyed before"]),
    ] {
        told(Who::Together, false, mistake, call, &words);
    }
    for (mistake, call, words) in [
        ("mutex twice", "shmemx_mutex_acquire", ["has it already", "shmemx_mutex_release"]),
        (
            "rwlock: write after read",
            "shmemx_rwlock_acquire_write",
            ["has it already", "shmemx_rwlock_release"],
        ),
        (
            "region_write from nowhere",
            "shmemx_region_write",
            ["source: there are no 8 bytes", "at 0x8"],
        ),
    ] {
        told(Who::Together, true, mistake, call, &words);
    }
}

#[test]
fn multicast_channels() {
    for (mistake, call, words) in [
        ("multicast: from nobody", "shmemx_multicast_create", ["writer: there is no PE -1", ""]),
        ("multicast: to nobody", "shmemx_multicast_create", ["readers: there is no PE -7", ""]),
        ("multicast: too many", "shmemx_multicast_create", ["nreaders", "job of 3"]),
        ("multicast: too long", "shmemx_multicast_publish", ["more than memory can hold", ""]),
        ("multicast: destroyed", "shmemx_multicast_publish", ["channel: ", "destroyed before"]),
    ] {
        told(Who::Together, false, mistake, call, &words);
    }
    let words = ["dest: there are no 8 bytes", "at 0x8"];
    told(Who::Together, true, "multicast: into nowhere", "shmemx_multicast_receive", &words);
}

#[test]
fn messages() {
    for (mistake, call, words) in [
        ("messages: no depth", "shmemx_messages_create", ["depth", "1 or more"]),
        ("messages: too long", "shmemx_messages_send", ["message of 9 bytes", "given 8"]),
        ("messages: to nobody", "shmemx_messages_send", ["pe: there is no PE 3", ""]),
        ("messages: from nobody", "shmemx_messages_recv_from", ["pe: there is no PE -1", ""]),
        ("messages: from NULL", "shmemx_messages_try_send", ["source: NULL has no 8 bytes", ""]),
        ("messages: into NULL", "shmemx_messages_recv", ["dest: NULL has no room", ""]),
        ("messages: no room", "shmemx_messages_recv", ["message of 8 bytes", "room for 7"]),
        ("messages: less than no time", "shmemx_messages_timed_recv", ["seconds: -1", "from 0"]),
        ("messages: destroyed", "shmemx_messages_send", ["messages: ", "destroyed before"]),
    ] {
        told(Who::Together, false, mistake, call, &words);
    }
}

#[test]
fn checked_addresses() {
    for (mistake, call, words) in [
        ("past the block", "shmem_long_put", ["dest: ", "beyond the end"]),
        ("past the block, get", "shmem_getmem", ["source: ", "beyond the end"]),
        ("atomic past the block", "shmem_long_atomic_inc", ["dest: ", "block"]),
        ("iput past the block", "shmem_long_iput", ["dest: ", "beyond the end"]),
        ("between blocks", "shmem_long_p", ["dest: ", "in no allocated block"]),
        ("put from NULL", "shmem_long_put", ["source: there are no 24 bytes", "at 0x0"]),
        ("put of a word from NULL", "shmem_long_put", ["source: there are no 8 bytes", "at 0x0"]),
        ("put_nbi from nowhere", "shmem_long_put_nbi", ["source: there are no 24 bytes", "at 0x8"]),
        (
            "put_signal from NULL",
            "shmem_long_put_signal",
            ["source: there are no 24 bytes", "at 0x0"],
        ),
        ("get to NULL", "shmem_long_get", ["dest: there are no 24 bytes", "at 0x0"]),
        ("get beyond the end of memory", "shmem_getmem", ["dest: there are no 10 bytes", ""]),
        ("iput from NULL", "shmem_long_iput", ["source: there are no 8 bytes", "at 0x0"]),
        ("iget to NULL", "shmem_long_iget", ["dest: there are no 8 bytes", "at 0x0"]),
        ("ctx_create to nowhere", "shmem_ctx_create", ["ctx: there are no 8 bytes", "at 0x8"]),
        (
            "test_some to nowhere",
            "shmem_long_test_some",
            ["indices: there are no 8 bytes", "at 0x8"],
        ),
        ("pe_quiet of NULL", "shmem_pe_quiet", ["target_pes: there are no 8 bytes", "at 0x0"]),
        ("lock twice", "shmem_set_lock", ["has this lock already", "shmem_clear_lock"]),
        ("lock and test, then lock", "shmem_set_lock", ["has this lock already", ""]),
        ("wait on stack", "shmem_long_wait_until", ["ivar: ", "not symmetric"]),
        ("wait past the block", "shmem_long_wait_until_all", ["ivars: ", "beyond the end"]),
        ("signal_wait on malloc", "shmem_signal_wait_until", ["sig_addr: ", "not symmetric"]),
        // Some of the mistakes that are also found without these checks.
        ("p to stack", "shmem_long_p", ["dest: ", "not symmetric"]),
        ("pe n", "shmem_long_put", ["pe: there is no PE 3", ""]),
        ("misaligned atomic", "shmem_long_atomic_inc", ["dest: ", "not aligned"]),
    ] {
        told(Who::Alone, true, mistake, call, &words);
    }
}

#[test]
fn checked_collectives() {
    for (mistake, call) in [
        ("overlap of reduce", "shmem_long_sum_reduce"),
        ("overlap of fcollect", "shmem_long_fcollect"),
        ("overlap of alltoall", "shmem_long_alltoall"),
        ("overlap of alltoalls", "shmem_long_alltoalls"),
        ("overlap of broadcast in a set", "shmem_broadcast64"),
        ("overlap of collect", "shmem_long_collect"),
        ("overlap of collect with what comes last", "shmem_long_collect"),
        ("overlap of collect in a set", "shmem_collect64"),
    ] {
        told(Who::Together, true, mistake, call, &["dest and source overlap"]);
    }
    for (mistake, call, theirs, ours) in [
        ("broadcast, nelems differ", "shmem_long_broadcast", "nelems 3", "nelems 2"),
        ("broadcast, roots differ", "shmem_broadcastmem", "PE_root 1", "PE_root 0"),
        ("broadcast in a set, nelems differ", "shmem_broadcast64", "nelems 3", "nelems 2"),
        ("reduce, nreduce differs", "shmem_long_sum_reduce", "nreduce 20", "nreduce 30"),
        ("to_all, nreduce differs", "shmem_int_max_to_all", "nreduce 5", "nreduce 4"),
        ("scan, nelems differ", "shmem_int_sum_inscan", "nelems 1", "nelems 2"),
        ("fcollect, nelems differ", "shmem_long_fcollect", "nelems 1", "nelems 2"),
        ("alltoall, nelems differ", "shmem_long_alltoall", "nelems 1", "nelems 2"),
        ("alltoalls, dst differs", "shmem_long_alltoalls", "dst 1", "dst 2"),
        // The PE that reports the mistake first ends the job.
        ("different collectives", "shmem_long_", "_reduce", "another collective"),
        ("collect and fcollect", "shmem_long_", "collect: ", "another collective"),
        ("reduce and barrier", "shmem_long_sum_reduce", "PE 2", "another collective"),
    ] {
        told(
            Who::Together,
            true,
            mistake,
            call,
            &["every member must make the same calls", theirs, ours],
        );
    }
    let words = ["bytes of all sources, and the smallest destination"];
    told(Who::Together, true, "collect past the block", "shmem_long_collect", &words);
}
