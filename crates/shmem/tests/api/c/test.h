/* What the programs share: checks, values that nobody has by chance, and the start and the end of a PE. */
#ifndef TEST_H
#define TEST_H

#include <complex.h>
#include <sched.h>
#include <shmem.h>
#include <shmemx.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "types.h"

static int me, npes;

/* Ends the job with a message unless the condition holds. The message says for which case. */
#define CHECK(condition, ...) ((condition) ? (void)0 : failed(__LINE__, #condition, __VA_ARGS__))
#define failed(line, text, ...) \
    (fprintf(stderr, "PE %d of %d, line %d: not %s; ", me, npes, line, text), fprintf(stderr, __VA_ARGS__), \
        fprintf(stderr, "\n"), fflush(stderr), _exit(70))

/* A number that looks random, and differs for different arguments. */
static uint64_t noise(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t x = (a * 1000003 + b) * 1000003 + c + 0x9e3779b97f4a7c15ULL;
    for (int i = 0; i < 2; i++) {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
        x ^= x >> 31;
    }
    return x;
}

/* Fills memory with such numbers. Two blocks of the same salt begin alike. */
static void fill(void *at, size_t bytes, uint64_t salt) {
    unsigned char *to = (unsigned char *)at;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = noise(salt, i, 1);
        memcpy(to + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

static int is_filled(const void *at, size_t bytes, uint64_t salt) {
    const unsigned char *from = (const unsigned char *)at;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = noise(salt, i, 1);
        if (memcmp(from + i, &word, bytes - i < 8 ? bytes - i : 8) != 0) return 0;
    }
    return 1;
}

/* What nothing may have written. */
#define GUARD 0xA5
static int is_guard(const void *at, size_t bytes) {
    const unsigned char *from = (const unsigned char *)at;
    for (size_t i = 0; i < bytes; i++)
        if (from[i] != GUARD) return 0;
    return 1;
}

/* value_TYPE(x): a value made of noise. Sums of 32 reals are exact, in their own type only. */
#define INTEGER_VALUE(N, T) static T value_##N(uint64_t x) { return (T)x; }
#define REAL_VALUE(N, T) \
    static T value_##N(uint64_t x) { \
        int bits = sizeof(T) == 4 ? 24 : sizeof(T) == 8 ? 53 : 64; \
        return (T)((int64_t)x >> (64 - bits + 6)); \
    }
#define COMPLEX_VALUE(N, T) \
    static T value_##N(uint64_t x) { \
        int bits = sizeof(T) == 8 ? 24 : 53; \
        T value; \
        memset(&value, 0, sizeof value); \
        __real__ value = (int64_t)x >> (64 - bits + 6); \
        __imag__ value = (int64_t)(x * 0x94d049bb133111ebULL) >> (64 - bits + 6); \
        return value; \
    }
EACH_TYPE(INTEGER_VALUE, REAL_VALUE, COMPLEX_VALUE)

/* The functions for a type, by their own names or, in another build, by the name for all types. */
#ifdef GENERIC
#define FN(N, OPERATION) shmem_##OPERATION
#define FN_CTX(N, OPERATION) shmem_##OPERATION
#else
#define FN(N, OPERATION) shmem_##N##_##OPERATION
#define FN_CTX(N, OPERATION) shmem_ctx_##N##_##OPERATION
#endif

/* What stands for a context where a function without one is to be called. */
#define NO_CTX SHMEM_CTX_INVALID

/* How operations can be issued: on a context, and with which PE numbers. */
struct way {
    const char *name;
    shmem_ctx_t ctx;
    int reversed;
};
static struct way ways[6];
static int nways;
static shmem_team_t backwards = SHMEM_TEAM_INVALID;

/* The number that a way has for a PE. */
static int number(const struct way *way, int pe) { return way->reversed ? npes - 1 - pe : pe; }

static void quiet(const struct way *way) {
    if (way->ctx == NO_CTX) shmem_quiet();
    else shmem_ctx_quiet(way->ctx);
}

static void add_way(const char *name, shmem_ctx_t ctx, int reversed) {
    struct way way = {name, ctx, reversed};
    ways[nways++] = way;
}

static void make_ways(void) {
    shmem_ctx_t ctx;
    add_way("no context", NO_CTX, 0);
    add_way("SHMEM_CTX_DEFAULT", SHMEM_CTX_DEFAULT, 0);
    CHECK(shmem_ctx_create(0, &ctx) == 0, "a context");
    add_way("a context", ctx, 0);
    CHECK(shmem_ctx_create(SHMEM_CTX_PRIVATE | SHMEM_CTX_NOSTORE, &ctx) == 0, "a private context");
    add_way("a private context", ctx, 0);
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, npes - 1, -1, npes, NULL, 0, &backwards) == 0, "everybody, backwards");
    CHECK(shmem_team_create_ctx(backwards, SHMEM_CTX_SERIALIZED, &ctx) == 0, "its context");
    add_way("a context of a team backwards", ctx, 1);
}

/* Where a whole run would take long, a part of the cases, chosen by chance; EVERY=1 in the environment, and unset: all. */
static uint64_t every = 1, seed;
static int chosen(uint64_t number) { return noise(number, seed, 3) % every == 0; }

static void begin(void) {
    const char *text = getenv("EVERY");
    if (text) every = strtoul(text, NULL, 10);
    if ((text = getenv("SEED"))) seed = strtoul(text, NULL, 10);
    shmem_init();
    me = shmem_my_pe();
    npes = shmem_n_pes();
}

static int finish(void) {
    for (int i = 0; i < nways; i++)
        if (ways[i].ctx != NO_CTX && ways[i].ctx != SHMEM_CTX_DEFAULT) shmem_ctx_destroy(ways[i].ctx);
    shmem_finalize();
    puts("done");
    return 0;
}

#endif
