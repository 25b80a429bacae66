"""Actors and a learner: memonet run -n 4 python examples/actor_learner.py [ROUNDS]

PE 0 learns which of ten slot machines pays most. It publishes what it knows on a multicast channel.
Each other PE is an actor: it plays by what it receives, and puts its wins into the learner's
memory, with a signal. The learner waits for the signals of all actors, learns, and publishes again.
When it leaves the channel, the actors' loops end.
"""

import sys
from typing import Any

import memonet
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ARMS = 10
PLAYS = 20  # of each actor in a round
LEARNER = 0


def learn(job: memonet.Job, channel: memonet.Multicast, wins: memonet.Window,
          came: memonet.Window, rounds: int) -> Array:
    """How often each arm has paid, after so many rounds."""
    actors = [pe for pe in range(job.npes) if pe != LEARNER]
    paid, played = np.ones(ARMS), np.full(ARMS, 2.0)  # before the first play, all are alike
    for step in range(1, rounds + 1):
        channel.publish(np.stack([paid / played, 1 / np.sqrt(played)]))
        came.wait_until_all(actors, ">=", step)
        paid += wins.local[:, 0].sum(axis=0)
        played += wins.local[:, 1].sum(axis=0)
    found: Array = paid / played
    return found


def act(job: memonet.Job, channel: memonet.Multicast, wins: memonet.Window,
        came: memonet.Window, chances: Array) -> None:
    """Plays one round for each estimate that comes."""
    random = np.random.default_rng([3, job.pe])
    for step, known in enumerate(channel, start=1):
        mean, doubt = known.reshape(2, ARMS)
        paid, played = np.zeros(ARMS), np.zeros(ARMS)
        for _ in range(PLAYS):
            arm = np.argmax(mean + doubt * random.normal(size=ARMS))  # Thompson sampling
            paid[arm] += random.random() < chances[arm]
            played[arm] += 1
        # The learner has read this PE's last wins: it has published since.
        wins.put_signal(LEARNER, (job.pe, 0, 0), np.stack([paid, played]), came, job.pe, step)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    job = memonet.init()
    if job.npes < 2:
        sys.exit("a learner needs an actor: memonet run -n 2 python examples/actor_learner.py")
    chances = np.random.default_rng(5).permutation(np.linspace(0.1, 0.8, ARMS))
    wins = job.window((job.npes, 2, ARMS))  # each actor's, at the learner
    came = job.window(job.npes, "uint64")  # the last round that each actor has played
    with memonet.Multicast(job, writer=LEARNER, dtype="float64") as channel:
        if job.pe == LEARNER:
            found = learn(job, channel, wins, came, rounds)
        else:
            act(job, channel, wins, came, chances)
    job.barrier()
    if job.pe == LEARNER:
        best = int(np.argmax(found))
        assert best == np.argmax(chances), f"arm {best} does not pay most"
        assert came.local[1:].tolist() == [rounds] * (job.npes - 1), "an actor has missed a round"
        print(f"arm {best} pays {chances[best]:.2f}; {job.npes - 1} actors found {found[best]:.2f}")


if __name__ == "__main__":
    main()
