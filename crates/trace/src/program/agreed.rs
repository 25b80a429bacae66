//! Clocks of several hosts that contradict no event.
//!
//! A clock is known to its uncertainty. Within that, clocks may say that a wait has ended before
//! the write that ended it, or before the last PE came. Then the clock of the host that waits is
//! corrected: its events happened so much later. This is done again until no clock contradicts an
//! event, or none may be corrected any more.

use std::collections::BTreeMap;
use std::io;

use super::causes::{Order, ROOM, orders};
use super::source::Source;

/// How often all orders are looked at, at most. Each time, a correction reaches the hosts that have
/// waited for the one that was corrected.
const ROUNDS: usize = 16;

/// The sources, with clocks that contradict no event, as far as their uncertainty allows. Sources
/// of one group have one clock.
pub(super) fn agreed<'a>(sources: &[Source<'a>]) -> io::Result<Vec<Source<'a>>> {
    let mut sources = sources.to_vec();
    let off = sources.iter().map(|source| source.clock.uncertainty).max().unwrap_or(0);
    if off > 0 {
        // Two clocks may be off in different directions.
        let slack = off.saturating_mul(2).min(i64::MAX as u64);
        let mut hosts = BTreeMap::new();
        let number = |source: &Source<'_>| {
            let next = hosts.len();
            *hosts.entry(source.group.to_owned()).or_insert(next)
        };
        let host_of: Vec<usize> = sources.iter().map(number).collect();
        let later = corrections(&orders(&sources, slack)?, &host_of, hosts.len(), slack);
        for (source, host) in sources.iter_mut().zip(host_of) {
            source.clock.lead = source.clock.lead.saturating_sub(later[host] as i64);
        }
    }
    Ok(sources)
}

/// By how much the events of each host are to be later, at most by `slack`.
fn corrections(orders: &[Order], host_of: &[usize], hosts: usize, slack: u64) -> Vec<u64> {
    let mut later = vec![0; hosts];
    for _ in 0..ROUNDS {
        let before = later.clone();
        for Order { begun, ended } in orders {
            let moved = |&(place, at): &(usize, u64)| at.saturating_add(later[host_of[place]]);
            let last = begun.iter().map(moved).max().unwrap_or(0).saturating_add(ROOM);
            for &(place, end) in ended {
                let host = host_of[place];
                later[host] = later[host].max(last.saturating_sub(end).min(slack));
            }
        }
        if later == before {
            break;
        }
    }
    later
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(begun: &[(usize, u64)], ended: &[(usize, u64)]) -> Order {
        Order { begun: begun.to_vec(), ended: ended.to_vec() }
    }

    #[test]
    fn what_is_in_order_is_left_alone() {
        let orders = [order(&[(0, 10), (1, 12)], &[(0, 14), (1, 15)])];
        assert_eq!(corrections(&orders, &[0, 1], 2, 100), [0, 0]);
    }

    #[test]
    fn a_wait_that_ended_too_early_ends_later_and_so_do_those_that_wait_for_its_host() {
        // PE 2 is on the host of PE 1.
        let orders = [
            order(&[(2, 5)], &[(3, 6)]),
            order(&[(0, 10)], &[(1, 3)]),
            order(&[(0, 20)], &[(1, 18)]),
        ];
        assert_eq!(corrections(&orders, &[0, 1, 1, 2], 3, 100), [0, 9, 10]);
    }

    #[test]
    fn what_cannot_be_is_corrected_within_the_uncertainty() {
        let orders = [order(&[(0, 10)], &[(1, 3)]), order(&[(1, 10)], &[(0, 3)])];
        assert_eq!(corrections(&orders, &[0, 1], 2, 50), [50, 50]);
    }
}
