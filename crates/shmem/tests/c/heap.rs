//! The symmetric heap.

use crate::common::{folder, installed, job, lines, printed};

const TEXT: &str = r#"
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
int main(void) {
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), right = 1;
    for (size_t alignment = 2; alignment <= (size_t)1 << 30; alignment *= 2) {
        int *block = shmem_align(alignment, sizeof *block);
        right = right && block && (uintptr_t)block % alignment == 0;
        shmem_int_p(block, me, (me + 1) % n);
        shmem_barrier_all();
        right = right && *block == (me + n - 1) % n;
        shmem_free(block);
    }
    right = right && !shmem_align((size_t)1 << 31, 4) && !shmem_align(48, 4) && !shmem_align(0, 4) && !shmem_align(64, 0);
    printf("PE %d %s\n", me, right ? "right" : "wrong");
    shmem_finalize();
    return !right;
}
"#;

#[test]
fn addresses_are_aligned_as_asked() {
    let folder = folder();
    let (text, program) = (folder.path().join("align.c"), folder.path().join("align"));
    std::fs::write(&text, TEXT).unwrap();
    printed(installed("oshcc").arg("-o").args([&program, &text]));
    for npes in [1, 3] {
        let expected: Vec<String> = (0..npes).map(|pe| format!("PE {pe} right")).collect();
        assert_eq!(lines(npes, &program), expected);
    }
    // Without a launcher.
    assert_eq!(printed(&mut crate::common::command(&program)), "PE 0 right\n");
}

const ONE_ASKS_WHILE_ONE_ALLOCATES: &str = r#"
#include <shmem.h>
#include <pthread.h>
#include <unistd.h>
static long *flag;
static void *put(void *unused) {
    usleep(200000);
    shmem_long_p(flag, 1, 1);
    shmem_quiet();
    return unused;
}
int main(void) {
    int provided;
    pthread_t thread;
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    flag = shmem_calloc(1, sizeof *flag);
    if (shmem_my_pe() == 0) pthread_create(&thread, NULL, put, NULL);
    else shmem_long_wait_until(flag, SHMEM_CMP_EQ, 1);
    shmem_malloc(100);
    if (shmem_my_pe() == 0) pthread_join(thread, NULL);
    shmem_finalize();
    return 0;
}
"#;

/// The other PE comes to the allocation only after this one's other thread has had its address
/// checked.
#[test]
fn addresses_are_checked_while_another_thread_allocates() {
    let folder = folder();
    let (text, program) = (folder.path().join("check.c"), folder.path().join("check"));
    std::fs::write(&text, ONE_ASKS_WHILE_ONE_ALLOCATES).unwrap();
    printed(installed("oshcc").arg("-o").args([&program, &text]).arg("-lpthread"));
    printed(job(2, &[], &program, &[]).env("MEMONET_CHECK", "1"));
}

const RESIZED: &str = r#"
#include <shmem.h>
int main(void) {
    shmem_init();
    void *block = shmem_malloc(700 << 10);
    block = block ? shmem_realloc(block, 500 << 10) : block;
    block = block ? shmem_realloc(block, 1 << 20) : block;
    int right = block && !shmem_realloc(block, (1 << 20) + 1) && !shmem_malloc(1);
    shmem_finalize();
    return !right;
}
"#;

#[test]
fn a_block_may_change_its_size_up_to_the_limit() {
    let folder = folder();
    let (text, program) = (folder.path().join("resize.c"), folder.path().join("resize"));
    std::fs::write(&text, RESIZED).unwrap();
    printed(installed("oshcc").arg("-o").args([&program, &text]));
    let output =
        job(2, &[], &program, &[]).env("SHMEM_SYMMETRIC_SIZE", "1M").output().expect("memonet run");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert_eq!(told.matches("SHMEM_SYMMETRIC_SIZE=1M").count(), 1, "once: {told}");
}
