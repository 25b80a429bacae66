/* Messages: from all to all, of any length, in order of each sender; tries, time limits, and threads that send and detect. */
#include <pthread.h>
#include "test.h"

enum { MOST = 600, ROUNDS = 24, DEPTH = 3 };
static shmemx_messages_t messages;

static size_t length_of(int sender, int number) { return (size_t)(sender * 37 + number * 101) % (MOST + 1); }

/* A message that both sides know. */
static size_t compose(unsigned char *bytes, int sender, int number) {
    fill(bytes, length_of(sender, number), sender * 1000 + number);
    return length_of(sender, number);
}

static void is_right(const unsigned char *bytes, size_t length, int sender, int number) {
    unsigned char expected[MOST];
    CHECK(length == compose(expected, sender, number) && memcmp(bytes, expected, length) == 0, "message %d of %d", number, sender);
}

/* Everybody sends to all, and takes in between what has come. */
static void all_to_all(void) {
    unsigned char bytes[MOST];
    int numbers[64] = { 0 }, got = 0, sender = -1;
    size_t length;
    for (int number = 0; number < ROUNDS; number++)
        for (int i = 0; i < npes; i++) {
            int to = (me + i) % npes;
            length = compose(bytes, me, number);
            while (shmemx_messages_try_send(messages, bytes, length, to)) {
                unsigned char other[MOST];
                if (shmemx_messages_try_recv(messages, other, MOST, &length, &sender)) continue;
                is_right(other, length, sender, numbers[sender]++);
                got++;
                length = compose(bytes, me, number);
            }
        }
    while (got++ < ROUNDS * npes) {
        length = shmemx_messages_recv(messages, bytes, MOST, &sender);
        is_right(bytes, length, sender, numbers[sender]++);
    }
    CHECK(shmemx_messages_try_recv(messages, bytes, MOST, &length, NULL) == 1, "one too many");
    shmem_barrier_all();
}

/* Nothing comes within a time; a ring is full; then all goes on. */
static void limits(void) {
    unsigned char bytes[MOST];
    size_t length = 77;
    int to = (me + 1) % npes, from = (me + npes - 1) % npes, sender = -1;
    CHECK(shmemx_messages_timed_recv(messages, bytes, MOST, &length, &sender, 0.002) == 1 && length == 77 && sender == -1, "nothing came");
    shmem_barrier_all();
    for (int number = 0; number < DEPTH; number++)
        CHECK(shmemx_messages_try_send(messages, bytes, compose(bytes, me, number), to) == 0, "there is room");
    CHECK(shmemx_messages_try_send(messages, bytes, 1, to) == 1, "no more room");
    shmem_barrier_all();
    for (int number = 0; number < DEPTH; number++) {
        CHECK(shmemx_messages_timed_recv(messages, bytes, MOST, &length, &sender, 60) == 0 && sender == from, "it comes");
        is_right(bytes, length, sender, number);
    }
    shmemx_messages_send(messages, NULL, 0, to);
    CHECK(shmemx_messages_recv_from(messages, bytes, MOST, from) == 0, "nothing in it");
    shmem_barrier_all();
}

static pthread_mutex_t handed_over = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_come = PTHREAD_COND_INITIALIZER;
static int come;

/* The detection thread: it looks for messages, and wakes the one that waits for them. */
static void *detect(void *unused) {
    unsigned char bytes[MOST];
    for (int number = 0; number < ROUNDS; number++) {
        int sender;
        size_t length = shmemx_messages_recv(messages, bytes, MOST, &sender);
        is_right(bytes, length, sender, number);
        pthread_mutex_lock(&handed_over);
        come++;
        pthread_cond_signal(&has_come);
        pthread_mutex_unlock(&handed_over);
    }
    return unused;
}

static void detection(void) {
    unsigned char bytes[MOST];
    pthread_t thread;
    pthread_create(&thread, NULL, detect, NULL);
    for (int number = 0; number < ROUNDS; number++) {
        shmemx_messages_send(messages, bytes, compose(bytes, me, number), (me + 1) % npes);
        pthread_mutex_lock(&handed_over);
        while (come <= number) pthread_cond_wait(&has_come, &handed_over);
        pthread_mutex_unlock(&handed_over);
    }
    pthread_join(thread, NULL);
    shmem_barrier_all();
}

int main(void) {
    begin();
    CHECK(shmemx_messages_create(MOST, DEPTH, &messages) == 0, "messages");
    all_to_all();
    limits();
    detection();
    shmemx_messages_destroy(messages);
    return finish();
}
