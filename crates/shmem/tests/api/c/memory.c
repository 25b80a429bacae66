/* The symmetric heap: alignment, zeros, sizes that change, many blocks in random order, and the limit that a user may set. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/mman.h>
#include <sys/wait.h>
#include "test.h"

static int is_zero(const unsigned char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (at[i]) return 0;
    return 1;
}

static int is_aligned(const void *at, size_t to) { return (uintptr_t)at % to == 0; }

/* Everybody writes to the first and the last byte of the next PE's block. */
static void is_symmetric(unsigned char *block, size_t bytes) {
    int next = (me + 1) % npes, before = (me + npes - 1) % npes;
    CHECK(block, "%zu bytes", bytes);
    CHECK(shmem_addr_accessible(block, next) == 1 && shmem_addr_accessible(block + bytes - 1, next) == 1, "%zu bytes", bytes);
    unsigned char first = me + 1, last = me + 101;
    /* Whoever looks at what is in his block has done so. */
    shmem_barrier_all();
    shmem_uchar_p(block, first, next);
    if (bytes > 1) shmem_uchar_p(block + bytes - 1, last, next);
    shmem_barrier_all();
    CHECK(block[0] == before + 1 && (bytes == 1 || block[bytes - 1] == before + 101), "%zu bytes at %p", bytes, (void *)block);
    shmem_barrier_all();
}

static void kinds(void) {
    CHECK(!shmem_malloc(0) && !shmem_malloc_with_hints(0, 0) && !shmem_calloc(0, 8) && !shmem_calloc(8, 0) && !shmem_align(64, 0), "nothing");
    CHECK(!shmem_calloc(SIZE_MAX / 2, 3) && !shmem_malloc(SIZE_MAX) && !shmem_malloc((size_t)1 << 60), "more than there can be");
    CHECK(!shmem_align(4096, SIZE_MAX - 100) && !shmem_malloc(PTRDIFF_MAX), "more than there can be");
    shmem_free(NULL);
    size_t sizes[] = {1, 2, 7, 8, 63, 64, 1000, 4095, 4097, 1 << 20};
    for (int i = 0; i < 10; i++) {
        void *plain = shmem_malloc(sizes[i]), *hinted = shmem_malloc_with_hints(sizes[i], SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE);
        CHECK(is_aligned(plain, _Alignof(max_align_t)) && is_aligned(hinted, _Alignof(max_align_t)), "%zu bytes", sizes[i]);
        is_symmetric((unsigned char *)plain, sizes[i]);
        is_symmetric((unsigned char *)hinted, sizes[i]);
        /* What others leave behind is not zero. */
        memset(plain, GUARD, sizes[i]);
        memset(hinted, GUARD, sizes[i]);
        shmem_free(hinted);
        shmem_free(plain);
        unsigned char *zeros = (unsigned char *)shmem_calloc(sizes[i], 3);
        CHECK(is_zero(zeros, 3 * sizes[i]) && is_aligned(zeros, _Alignof(max_align_t)), "%zu bytes", sizes[i]);
        is_symmetric(zeros, 3 * sizes[i]);
        shmem_free(zeros);
        for (size_t alignment = sizeof(void *); alignment <= 1 << 20; alignment *= 4) {
            void *aligned = shmem_align(alignment, sizes[i]);
            CHECK(is_aligned(aligned, alignment), "%zu bytes aligned to %zu", sizes[i], alignment);
            is_symmetric((unsigned char *)aligned, sizes[i]);
            shmem_free(aligned);
        }
    }
}

static void resized(void) {
    CHECK(!shmem_realloc(NULL, 0), "nothing");
    size_t sizes[] = {10, 100, 5000, 4000, 3, 70000, 70001, 70016, 1000, 1}, old = 0;
    unsigned char *block = NULL;
    for (int i = 0; i < 10; i++) {
        /* What others put, without waiting, is among what is kept. */
        int next = (me + 1) % npes, before = (me + npes - 1) % npes;
        if (old) shmem_uchar_p(block + old / 2, (unsigned char)(me + i), next);
        unsigned char *was = block;
        block = (unsigned char *)shmem_realloc(block, sizes[i]);
        /* Blocks begin and end at multiples of 128 bytes: one that has the room stays where it is. */
        CHECK(!old || (block == was) == (sizes[i] <= (old + 127) / 128 * 128), "%zu bytes, after %zu", sizes[i], old);
        CHECK(block && is_aligned(block, _Alignof(max_align_t)), "%zu bytes", sizes[i]);
        size_t kept = old < sizes[i] ? old : sizes[i];
        if (old / 2 < kept) CHECK(block[old / 2] == (unsigned char)(before + i), "put before growing to %zu", sizes[i]);
        for (size_t k = 0; k < kept; k++) CHECK(k == old / 2 || block[k] == (unsigned char)(me * 7 + k), "byte %zu of %zu, was %zu", k, sizes[i], old);
        is_symmetric(block, sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++) block[k] = (unsigned char)(me * 7 + k);
        old = sizes[i];
        shmem_barrier_all();
    }
    CHECK(!shmem_realloc(block, SIZE_MAX / 2) && block[0] == (unsigned char)(me * 7), "what cannot grow stays");
    CHECK(!shmem_realloc(block, 0), "freed");
}

/* Blocks come and go in random order, the same on all PEs; none is over another. */
static void many(void) {
    enum { BLOCKS = 60 };
    struct { unsigned char *at; size_t size; } blocks[BLOCKS] = {{NULL, 0}};
    for (int round = 0; round < 600; round++) {
        uint64_t random = noise(round, 0, 6);
        int i = random % BLOCKS;
        if (blocks[i].at) {
            CHECK(is_filled(blocks[i].at, blocks[i].size, noise(i, me, 0)), "block %d, round %d", i, round);
            if (random >> 20 & 1) {
                shmem_free(blocks[i].at);
                blocks[i].at = NULL;
                continue;
            }
            blocks[i].size = 1 + (random >> 30) % (random >> 21 & 1 ? 100 : 50000);
            blocks[i].at = (unsigned char *)shmem_realloc(blocks[i].at, blocks[i].size);
        } else {
            blocks[i].size = 1 + (random >> 30) % (random >> 21 & 1 ? 100 : 50000);
            blocks[i].at = random >> 22 & 1 ? (unsigned char *)shmem_malloc(blocks[i].size) : (unsigned char *)shmem_align(256, blocks[i].size);
        }
        CHECK(blocks[i].at, "round %d", round);
        fill(blocks[i].at, blocks[i].size, noise(i, me, 0));
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (!blocks[i].at) continue;
        CHECK(is_filled(blocks[i].at, blocks[i].size, noise(i, me, 0)), "block %d at the end", i);
        shmem_free(blocks[i].at);
    }
}

/* More than a GiB, of which little is touched. */
static void huge(void) {
    size_t bytes = ((size_t)5 << 28) + 77;
    unsigned char *block = (unsigned char *)shmem_malloc(bytes);
    CHECK(block, "%zu bytes", bytes);
    is_symmetric(block, bytes);
    uint64_t value = me;
    shmem_putmem(block + bytes - 8, &value, 8, (me + 1) % npes);
    shmem_barrier_all();
    memcpy(&value, block + bytes - 8, 8);
    CHECK(value == (uint64_t)(me + npes - 1) % npes, "the end of %zu bytes", bytes);
    shmem_free(block);
}

/* A limit of so many MiB. */
static void limited(size_t limit) {
    CHECK(!shmem_malloc((limit << 20) + 1) && !shmem_align(4096, (limit + 1) << 20) && !shmem_calloc(limit + 1, 1 << 20), "over the limit");
    void *most = shmem_malloc((limit - 1) << 20);
    CHECK(most && !shmem_malloc(2 << 20) && !shmem_realloc(most, (limit + 1) << 20), "all but one MiB");
    shmem_free(most);
    for (int i = 0; i < 50; i++) {
        void *half = shmem_malloc(limit << 19);
        CHECK(half, "half, again and again");
        shmem_free(half);
    }
}

/* A limit of so many bytes. */
static void limited_to(size_t bytes) {
    void *most = shmem_malloc(bytes);
    CHECK(most && !shmem_malloc(1) && !shmem_realloc(most, bytes + 1), "all of %zu bytes", bytes);
    CHECK(shmem_realloc(most, bytes - 1) == most && shmem_realloc(most, bytes) == most, "all of %zu bytes", bytes);
    shmem_free(most);
    CHECK(!shmem_malloc(bytes + 1), "more than %zu bytes", bytes);
}

static int stack_and_others(void) {
    int on_stack = 0;
    void *private_block = malloc(100);
    static int symmetric;
    for (int pe = 0; pe < npes; pe++) {
        CHECK(shmem_pe_accessible(pe) == 1 && shmem_addr_accessible(&symmetric, pe) == 1, "PE %d", pe);
        CHECK(!shmem_addr_accessible(&on_stack, pe) && !shmem_addr_accessible(private_block, pe) && !shmem_addr_accessible(NULL, pe), "PE %d", pe);
        CHECK(!shmem_addr_accessible((const void *)stack_and_others, pe) && !shmem_addr_accessible(stdout, pe), "PE %d", pe);
        CHECK(!shmem_ptr(&on_stack, pe) && !shmem_ptr(private_block, pe), "PE %d", pe);
    }
    CHECK(shmem_ptr(&symmetric, me) == &symmetric, "one's own variable is where it is");
    int others[] = {-1, npes, npes + 1, 1 << 30, -(1 << 30)};
    for (int i = 0; i < 5; i++) CHECK(!shmem_pe_accessible(others[i]) && !shmem_addr_accessible(&symmetric, others[i]), "PE %d", others[i]);
    free(private_block);
    return symmetric;
}

/* What `shmem_ptr` gives is the other's memory; or nothing, where it cannot be reached so. */
static void pointers(void) {
    static long variable;
    long *block = (long *)shmem_malloc(3 * sizeof *block);
    for (int i = 0; i < 3; i++) block[i] = me * 10 + i;
    variable = me + 1000;
    shmem_barrier_all();
    for (int pe = 0; pe < npes; pe++) {
        long *there = (long *)shmem_ptr(&block[1], pe), *again = (long *)shmem_team_ptr(SHMEM_TEAM_WORLD, &block[1], pe);
        long *fixed = (long *)shmem_ptr(&variable, pe);
        CHECK(there == again && !shmem_team_ptr(SHMEM_TEAM_INVALID, block, pe), "PE %d", pe);
        CHECK(!getenv("MEMONET_FABRIC") <= (there != NULL), "PE %d", pe);
        CHECK((shmem_team_translate_pe(SHMEM_TEAM_WORLD, pe, SHMEM_TEAM_SHARED) >= 0) == (there != NULL), "PE %d", pe);
        if (there) CHECK(there[0] == pe * 10 + 1 && there[1] == pe * 10 + 2, "PE %d", pe);
        if (fixed) CHECK(*fixed == pe + 1000, "PE %d", pe);
    }
    shmem_barrier_all();
    long *next = (long *)shmem_ptr(block, (me + 1) % npes);
    if (next) *next = me;
    shmem_barrier_all();
    int last = (me + npes - 1) % npes;
    CHECK(!shmem_ptr(block, last) || block[0] == last, "a store by pointer");
    shmem_free(block);
}

static void old_names(void) {
    unsigned char *block = (unsigned char *)shmalloc(100);
    is_symmetric(block, 100);
    memset(block, 3, 100);
    block = (unsigned char *)shrealloc(block, 1000);
    CHECK(block[0] == 3 && block[99] == 3, "shrealloc");
    shfree(block);
    block = (unsigned char *)shmemalign(8192, 5);
    CHECK(is_aligned(block, 8192), "shmemalign");
    is_symmetric(block, 5);
    shfree(block);
}

/* As careless programs do: all descriptors are closed that this one knows nothing of, and their numbers stand for files of its own. Those
   stay as they are, and so does what is known of the heap and of static data. */
static void descriptors(void) {
    enum { FILES = 8, BYTES = 1 << 20 };
    static long kept;
    int files[FILES];
    unsigned char *block = (unsigned char *)shmem_malloc(BYTES);
    memset(block, GUARD, BYTES);
    for (int fd = 3; fd < 200; fd++) close(fd);
    /* Where the first PE's heap begins in the job's memory, there is something in them, too. */
    size_t size = me == 0 ? 32 << 20 : 1 << 20;
    for (int i = 0; i < FILES; i++) {
        files[i] = memfd_create("mine", 0);
        CHECK(files[i] >= 0 && ftruncate(files[i], size) == 0, "a file");
    }
    unsigned char *first = (unsigned char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, files[0], 0);
    CHECK(first != MAP_FAILED, "a file");
    memset(first, GUARD, size);
    for (int i = 1; i < FILES; i++) CHECK(dup2(files[0], files[i]) == files[i] && lseek(files[0], 100, SEEK_SET) == 100, "a file");
    shmem_free(block);
    block = (unsigned char *)shmem_calloc(BYTES, 1);
    CHECK(is_zero(block, BYTES), "a block that was used before");
    kept = me + 1;
    pid_t child = fork();
    if (child == 0) _exit(kept == me + 1 ? 0 : 1);
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child's variables: %d", status);
    CHECK(lseek(files[0], 0, SEEK_CUR) == 100 && is_guard(first, size), "the program's own file");
    munmap(first, size);
    for (int i = 0; i < FILES; i++) close(files[i]);
    shmem_free(block);
}

int main(int argc, char **argv) {
    begin();
    if (argc > 2) limited_to(strtoul(argv[2], NULL, 10));
    else if (argc > 1) limited(strtoul(argv[1], NULL, 10));
    else {
        kinds();
        resized();
        many();
        huge();
        stack_and_others();
        pointers();
        old_names();
        descriptors();
        /* Again, after all that. */
        many();
    }
    return finish();
}
