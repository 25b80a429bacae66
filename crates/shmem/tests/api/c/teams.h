/* Teams of all kinds, and who is in them: reckoned here, not asked for. */
#ifndef TEAMS_H
#define TEAMS_H

#include "test.h"

#define MAX_PES 20
struct team {
    const char *name;
    /* Invalid where this PE is no member. */
    shmem_team_t handle;
    int size, rank, members[MAX_PES];
};
static struct team teams[16];
static int nteams;

static struct team *add_team(const char *name, shmem_team_t handle, const int *members, int size) {
    struct team *team = &teams[nteams++];
    team->name = name, team->handle = handle, team->size = size, team->rank = -1;
    for (int i = 0; i < size; i++) {
        team->members[i] = members[i];
        if (members[i] == me) team->rank = i;
    }
    CHECK((handle == SHMEM_TEAM_INVALID) == (team->rank < 0), "%s", name);
    return team;
}

/* Every `stride`th PE of a team. Who is not in that has nothing to do but to know of it. */
static struct team *split(const char *name, const struct team *parent, int start, int stride, int size) {
    shmem_team_t handle = SHMEM_TEAM_WORLD;
    int members[MAX_PES];
    for (int i = 0; i < size; i++) members[i] = parent->members[start + i * stride];
    if (parent->rank < 0) handle = SHMEM_TEAM_INVALID;
    else CHECK(shmem_team_split_strided(parent->handle, start, stride, size, NULL, 0, &handle) == 0, "%s", name);
    return add_team(name, handle, members, size);
}

/* Rows and columns. */
static void split_2d(const struct team *parent, int columns) {
    shmem_team_t row = SHMEM_TEAM_WORLD, column = SHMEM_TEAM_WORLD;
    CHECK(shmem_team_split_2d(parent->handle, columns, NULL, 0, &row, NULL, 0, &column) == 0, "%d columns", columns);
    int members[MAX_PES], size = 0;
    if (columns > parent->size) columns = parent->size;
    for (int i = 0; i < parent->size; i++)
        if (i / columns == parent->rank / columns) members[size++] = parent->members[i];
    add_team("a row", row, members, size);
    size = 0;
    for (int i = 0; i < parent->size; i++)
        if (i % columns == parent->rank % columns) members[size++] = parent->members[i];
    add_team("a column", column, members, size);
}

static void make_teams(void) {
    int everybody[MAX_PES];
    CHECK(npes <= MAX_PES, "too many PEs for this program");
    for (int pe = 0; pe < npes; pe++) everybody[pe] = pe;
    struct team *world = add_team("the world", SHMEM_TEAM_WORLD, everybody, npes);
    static int variable;
    int near[MAX_PES], nodes = 0;
    for (int pe = 0; pe < npes; pe++)
        if (shmem_ptr(&variable, pe)) near[nodes++] = pe;
    add_team("those that share memory", SHMEM_TEAM_SHARED, near, nodes);
    split("the last PE alone", world, npes - 1, 1, 1);
    struct team *even = split("even PEs", world, 0, 2, (npes + 1) / 2);
    if (npes > 1) split("odd PEs", world, 1, 2, npes / 2);
    struct team *back = split("backwards", world, npes - 1, -1, npes);
    split("all but the first, backwards twice", back, npes - 1 - (npes > 1), -1, npes - (npes > 1));
    struct team *within = split("every second even PE, backwards", even, (even->size - 1) / 2 * 2, -2, (even->size + 1) / 2);
    split("the first half of those", within, 0, 1, (within->size + 1) / 2);
    split_2d(world, 3);
    split_2d(back, 2);
}

#endif
