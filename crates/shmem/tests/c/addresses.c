/* Pointers to symmetric memory that PEs send to each other.
 *
 * With the argument "fork", a child of each PE does what the PE does not; with "exec", the program becomes itself again before.
 * With TAKE defined, the PE of that number has all addresses that a job could choose mapped before any library is loaded.
 */
#define _GNU_SOURCE
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef TAKE
/* Before constructors of any library. */
static void take(int argc, char **argv, char **environment) {
    (void)argc;
    (void)argv;
    const char *me = NULL;
    for (; *environment; environment++)
        if (!strncmp(*environment, "MEMONET_PE=", 11)) me = *environment + 11;
    if (me && *me == '0' + TAKE) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        mmap((void *)((uintptr_t)1 << 36), (size_t)80 << 40, PROT_NONE, flags, -1, 0);
    }
}
__attribute__((section(".preinit_array"), used)) static void (*const before_all)(int, char **, char **) = take;
#endif

struct node {
    long value;
    struct node *next;
    int owner;
};

/* Whether all PEs say the same. */
static int agreed(void *pointer) {
    void **mine = shmem_malloc(sizeof *mine);
    int n = shmem_n_pes(), same = 1;
    *mine = pointer;
    shmem_barrier_all();
    for (int pe = 0; pe < n; pe++) {
        void *theirs;
        shmem_getmem(&theirs, mine, sizeof theirs, pe);
        same = same && theirs == pointer;
    }
    shmem_free(mine);
    return same;
}

/* Blocks of many sizes and alignments, some freed and some resized between others. */
static int same_blocks(void) {
    void *blocks[200] = {0};
    unsigned random = 1;
    int same = 1;
    for (int i = 0; i < 200; i++) {
        random = random * 1103515245 + 12345;
        size_t bytes = 1 + (random >> 8) % (i % 20 ? 5000 : 500000);
        blocks[i] = i % 7 ? shmem_malloc(bytes) : shmem_align((size_t)1 << (i % 21), bytes);
        same = same && blocks[i] && agreed(blocks[i]);
        if (i % 3 == 2) {
            shmem_free(blocks[i / 2]);
            blocks[i / 2] = NULL;
        }
        if (i % 11 == 10) same = same && agreed(blocks[i] = shmem_realloc(blocks[i], 2 * bytes));
    }
    for (int i = 0; i < 200; i++) shmem_free(blocks[i]);
    return same;
}

/* A list of all PEs' nodes, whose pointers say where the next node is in the memory of its owner. */
static int list(void) {
    int me = shmem_my_pe(), n = shmem_n_pes(), each = 10;
    struct node *nodes = shmem_calloc(each, sizeof *nodes);
    struct node **head = shmem_calloc(1, sizeof *head);
    for (int i = 0; i < each; i++) {
        int last = me == n - 1 && i == each - 1;
        /* Backwards within a PE; then on to the next one. */
        struct node *next = last ? NULL : i < each - 1 ? &nodes[each - 2 - i] : &nodes[each - 1];
        nodes[each - 1 - i] = (struct node){me * each + i, next, i < each - 1 ? me : me + 1};
    }
    if (me == 0) {
        struct node *first = &nodes[each - 1];
        for (int pe = 0; pe < n; pe++) shmem_putmem(head, &first, sizeof first, pe);
    }
    shmem_barrier_all();
    long expected = 0;
    int owner = 0, right = 1;
    for (struct node *at = *head; at; expected++) {
        struct node node;
        /* A pointer that came in a message: to memory of this PE, and the name of its counterpart elsewhere. */
        right = right && shmem_addr_accessible(at, owner);
        if (!right) break;
        if (owner == me) node = *at;
        else shmem_getmem(&node, at, sizeof node, owner);
        right = right && node.value == expected;
        at = node.next;
        owner = node.owner;
    }
    shmem_barrier_all();
    shmem_free(head);
    shmem_free(nodes);
    return right && expected == (long)n * each;
}

/* shmem_ptr stays what it is: the symmetric address here, another one for each other PE, good for loads and stores. */
static int pointers(void) {
    int me = shmem_my_pe(), n = shmem_n_pes(), right = 1;
    long *word = shmem_calloc(n, sizeof *word);
    right = right && shmem_ptr(word, me) == word;
    for (int pe = 0; pe < n; pe++) {
        long *there = shmem_ptr(word, pe);
        if (!there) continue;
        right = right && (there == word) == (pe == me);
        there[me] = 100 * pe + me;
    }
    shmem_barrier_all();
    for (int pe = 0; pe < n; pe++) right = right && (!shmem_ptr(word, pe) || word[pe] == 100 * me + pe);
    shmem_barrier_all();
    shmem_free(word);
    return right;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "exec")) {
        argv[1] = "";
        execv(argv[0], argv);
    }
    if (argc > 1 && !strcmp(argv[1], "fork")) {
        int status;
        if (fork() != 0) return wait(&status) < 0 || status != 0;
    }
    shmem_init();
    int blocks = same_blocks(), lists = list(), through = pointers();
    printf("PE %d: blocks %d list %d shmem_ptr %d\n", shmem_my_pe(), blocks, lists, through);
    fflush(stdout);
    shmem_finalize();
    return 0;
}
